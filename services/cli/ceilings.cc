#include "services/cli/ceilings.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/blob_store.h"
#include "common/blobs/digest.h"
#include "common/runner/runner.h"
#include "services/codegen/codegen.h"
#include "services/codegen/targets/ceilings.h"

namespace quench::cli {
namespace {

constexpr int64_t kProductSide = 768;  // three matrices of 2.4 MB: computing is what takes time
constexpr double kProductSeconds = 0.6;
constexpr int kReads = 5;

int Cores() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

// What tells one kind of CPU from another, whatever the system calls it.
std::string CpuText() {
  std::set<std::string> lines;
  const std::string text = ReadFile("/proc/cpuinfo").value_or("");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    for (const char* key : {"model name", "CPU implementer", "CPU part", "CPU variant"}) {
      if (absl::StartsWith(line, key)) lines.emplace(line);
    }
  }
  return fmt::format("{} cores\n{}", Cores(), fmt::join(lines, "\n"));
}

// A product of two matrices, compiled by Quench: what layers can reach, too.
absl::StatusOr<double> MeasuredGflops(const StepContext& context) {
  Graph graph;
  graph.name = "ceiling";
  const Type square = Type::Tensor(DataType::kF32, {kProductSide, kProductSide});
  const ValueId x = graph.AddInput("x", square);
  std::vector<float> weights(static_cast<size_t>(kProductSide * kProductSide));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<float>(static_cast<int>(i % 251) - 125) / 125;
  const ValueId w = graph.AddConstant(
      "w", Tensor::Of<float>(DataType::kF32, {kProductSide, kProductSide}, weights));
  const NodeId product = graph.AddNode("MatMul", "product", {x, w});
  graph.outputs = {graph.node(product).outputs[0]};
  graph.value(graph.outputs[0]).type = square;
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  const std::filesystem::path library = folder.path() / "ceiling.so";
  QUENCH_RETURN_IF_ERROR(
      codegen::Compile(graph, {}, library, folder.path() / "ceiling.h", context).status());
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<Artifact> artifact, Artifact::Open(library));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                          RandomInputs(artifact->inputs(), 1, {}, kAnyIndex));
  QUENCH_ASSIGN_OR_RETURN(const BenchResult result,
                          Benchmark(library, inputs, Cores(), kProductSeconds, context));
  return 2e-6 * std::pow(static_cast<double>(kProductSide), 3) / result.min_ms;
}

// All cores read memory that no cache holds, by the C library's fastest search for a byte that is
// not there.
absl::StatusOr<double> MeasuredGbytes(const StepContext& context) {
  const int64_t cache = std::max<int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const auto cores = static_cast<size_t>(Cores());
  const auto bytes = std::min(std::clamp<int64_t>(4 * cache, 64 << 20, 1 << 30), memory / 4);
  const size_t part = static_cast<size_t>(bytes) / cores;
  std::vector<std::vector<char>> parts(cores);
  const auto on_all = [&](const auto& work) {
    std::vector<std::thread> threads;
    for (std::vector<char>& each : parts) threads.emplace_back([&work, &each] { work(each); });
    for (std::thread& thread : threads) thread.join();
  };
  on_all(
      [part](std::vector<char>& each) { each.assign(part, 1); });  // each core's pages are near it
  double best = std::numeric_limits<double>::infinity();
  std::atomic<size_t> found = 0;
  for (int i = 0; i < kReads; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    const auto begin = std::chrono::steady_clock::now();
    on_all([&found](std::vector<char>& each) {
      if (std::memchr(each.data(), 2, each.size()) != nullptr) ++found;
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  if (found != 0) return Internal("memory changed while its speed was measured");
  return 1e-9 * static_cast<double>(part * cores) / best;
}

std::filesystem::path FileOf(const std::string& cpu) {
  return LocalBlobStore::DefaultRoot() /
         fmt::format("ceilings-{}.json", Sha256Hex(cpu).substr(0, 16));
}

absl::StatusOr<analyser::Ceilings> HostCeilings(const StepContext& context) {
  const std::string cpu = CpuText();
  const std::filesystem::path file = FileOf(cpu);
  analyser::Ceilings ceilings;
  ceilings.name = "host";
  ceilings.source = fmt::format("measured on {} cores, kept in {}", Cores(), file.string());
  const auto kept = nlohmann::json::parse(ReadFile(file).value_or(""), nullptr, false);
  if (kept.is_object() && kept.value("cpu", nlohmann::json()) == cpu &&
      kept.value("gflops", nlohmann::json()).is_number() &&
      kept.value("gbytes", nlohmann::json()).is_number()) {
    ceilings.gflops = kept["gflops"];
    ceilings.gbytes = kept["gbytes"];
    if (ceilings.gflops > 0 && ceilings.gbytes > 0) return ceilings;
  }
  return MeasureHost(context);
}

}  // namespace

absl::StatusOr<analyser::Ceilings> MeasureHost(const StepContext& context) {
  const std::string cpu = CpuText();
  const std::filesystem::path file = FileOf(cpu);
  analyser::Ceilings ceilings;
  ceilings.name = "host";
  ceilings.source = fmt::format("measured on {} cores, kept in {}", Cores(), file.string());
  context.Report({"measure ceilings", "", 0, 0});
  QUENCH_ASSIGN_OR_RETURN(ceilings.gflops, MeasuredGflops(context));
  QUENCH_ASSIGN_OR_RETURN(ceilings.gbytes, MeasuredGbytes(context));
  const nlohmann::json json = {
      {"cpu", cpu}, {"gflops", ceilings.gflops}, {"gbytes", ceilings.gbytes}};
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  // A cache that cannot be written costs the next run its time, and this one nothing.
  if (!WriteFileAtomically(file, json.dump(2) + "\n").ok())
    ceilings.source = fmt::format("measured on {} cores", Cores());
  return ceilings;
}

absl::StatusOr<analyser::Ceilings> CeilingsOf(const std::string& text, const StepContext& context) {
  if (text == "host") return HostCeilings(context);
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  analyser::Ceilings given = {"given", "the command line", 0, 0};
  if (parts.size() == 2 && absl::SimpleAtod(parts[0], &given.gflops) &&
      absl::SimpleAtod(parts[1], &given.gbytes)) {
    if (!(given.gflops > 0 && given.gbytes > 0 && std::isfinite(given.gflops + given.gbytes)))
      return InvalidArgument("--ceilings `{}`: both must be above 0", text);
    return given;
  }
  const absl::StatusOr<codegen::TargetCeilings> row = codegen::CeilingsOf(text);
  if (!row.ok()) {
    return absl::Status(
        row.status().code(),
        fmt::format("--ceilings: {}; `host` is this machine, measured, and 150,12.8 would be "
                    "150 GFLOP/s and 12.8 GB/s",
                    std::string(row.status().message())));
  }
  return analyser::Ceilings{
      row->name,
      fmt::format("{} cores of {} GHz, {} f32 operations a cycle each ({})", row->cores, row->ghz,
                  row->operations_per_cycle, row->source),
      row->gflops(), row->gbytes};
}

}  // namespace quench::cli
