#include "services/cli/ceilings.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/blob_store.h"
#include "common/blobs/digest.h"
#include "common/runner/runner.h"
#include "common/runtime/quench_rt.h"
#include "services/cli/colour.h"
#include "services/codegen/codegen.h"
#include "services/codegen/targets/ceilings.h"

namespace quench::cli {
namespace {

constexpr int64_t kProductSide = 512;  // matrices of 1 MB: computing is what takes time
constexpr double kRoundSeconds = 0.05;
constexpr double kMostSeconds = 0.4;  // of all rounds of a ceiling
constexpr size_t kLeastRounds = 3;
constexpr double kQuietShare = 0.9;  // of the time, in which a core was ours
constexpr double kSettled = 0.95;    // of the fastest round's rate, which the second fastest has

using Clock = std::chrono::steady_clock;

int Cores() { return static_cast<int>(quench_rt_cpus()); }

// Identity of a kind of CPU, whatever the system calls it.
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

// Seconds for which the calling thread has had a core.
double ThreadSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Calls `work` with the number of each core, on all of them at once, which do `amount` together.
CeilingRound OnAllCores(double amount, const std::function<void(size_t core)>& work) {
  struct Times {
    Clock::time_point begin, end;
    double cpu = 0;
  };
  std::vector<Times> all(static_cast<size_t>(Cores()));
  std::barrier start(Cores());
  std::vector<std::thread> threads;
  for (size_t core = 0; core < all.size(); ++core) {
    threads.emplace_back([&work, &start, &times = all[core], core] {
      start.arrive_and_wait();
      const double before = ThreadSeconds();
      times.begin = Clock::now();
      work(core);
      times.end = Clock::now();
      times.cpu = ThreadSeconds() - before;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CeilingRound round;
  round.share = 1;
  Clock::time_point begin = all[0].begin, end = all[0].end;
  for (const Times& times : all) {
    begin = std::min(begin, times.begin);
    end = std::max(end, times.end);
    round.share = std::min(round.share, times.cpu / Seconds(times.end - times.begin));
  }
  round.rate = amount / Seconds(end - begin);
  return round;
}

absl::StatusOr<MeasuredCeiling> Measure(
    const StepContext& context, const std::function<absl::StatusOr<CeilingRound>()>& round) {
  const Clock::time_point begin = Clock::now();
  std::vector<CeilingRound> rounds;
  MeasuredCeiling ceiling;
  do {
    QUENCH_RETURN_IF_ERROR(context.Check());
    QUENCH_ASSIGN_OR_RETURN(rounds.emplace_back(), round());
    ceiling = CeilingOf(rounds);
  } while (rounds.size() < kLeastRounds ||
           (!ceiling.settled && Seconds(Clock::now() - begin) < kMostSeconds));
  return ceiling;
}

Graph ProductGraph() {
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
  return graph;
}

// Each core has a product of two matrices for itself, compiled by Quench: what layers can reach, too.
absl::StatusOr<MeasuredCeiling> MeasuredGflops(const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  const std::filesystem::path library = folder.path() / "ceiling.so";
  QUENCH_RETURN_IF_ERROR(
      codegen::Compile(ProductGraph(), {}, library, folder.path() / "ceiling.h", context).status());
  std::vector<std::unique_ptr<Artifact>> artifacts(static_cast<size_t>(Cores()));
  for (std::unique_ptr<Artifact>& artifact : artifacts) {
    QUENCH_ASSIGN_OR_RETURN(artifact, Artifact::Open(library));
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                          RandomInputs(artifacts[0]->inputs(), 1, {}, kAnyIndex));
  int runs = 1;  // of a core in a round
  std::vector<absl::Status> problems(artifacts.size());
  return Measure(context, [&]() -> absl::StatusOr<CeilingRound> {
    const Clock::time_point begin = Clock::now();
    const double operations = 2 * std::pow(static_cast<double>(kProductSide), 3);
    const CeilingRound round = OnAllCores(1e-9 * operations * runs * Cores(), [&](size_t core) {
      for (int i = 0; i < runs && problems[core].ok(); ++i)
        problems[core] = artifacts[core]->Time(inputs).status();
    });
    for (const absl::Status& problem : problems) QUENCH_RETURN_IF_ERROR(problem);
    // The first round makes the plan, warms caches and clocks up, and tells how long a run takes.
    const double took = Seconds(Clock::now() - begin) / runs;
    runs = std::clamp(static_cast<int>(kRoundSeconds / took), 1, 1000);
    return round;
  });
}

// All cores read memory that no cache holds, by the C library's fastest search for a byte that is
// not there.
absl::StatusOr<MeasuredCeiling> MeasuredGbytes(const StepContext& context) {
  const int64_t cache = std::max<int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const auto cores = static_cast<size_t>(Cores());
  const auto bytes = std::min(std::clamp<int64_t>(4 * cache, 64 << 20, 1 << 30), memory / 4);
  const size_t part = static_cast<size_t>(bytes) / cores;
  std::vector<std::vector<char>> parts(cores);
  // Each core's pages are near it.
  OnAllCores(0, [&](size_t core) { parts[core].assign(part, 1); });
  std::atomic<size_t> found = 0;
  return Measure(context, [&]() -> absl::StatusOr<CeilingRound> {
    const CeilingRound round =
        OnAllCores(1e-9 * static_cast<double>(part * cores), [&](size_t core) {
          if (std::memchr(parts[core].data(), 2, part) != nullptr) ++found;
        });
    if (found != 0) return Internal("memory changed while its speed was measured");
    return round;
  });
}

std::filesystem::path FileOf(const std::string& cpu) {
  return LocalBlobStore::DefaultRoot() /
         fmt::format("ceilings-{}.json", Sha256Hex(cpu).substr(0, 16));
}

bool IsQuiet(const MachineCeilings& kept) {
  return kept.gflops > 0 && kept.gbytes > 0 && kept.share >= kQuietShare;
}

MachineCeilings Kept(const std::string& cpu) {
  const auto json = nlohmann::json::parse(ReadFile(FileOf(cpu)).value_or(""), nullptr, false);
  if (!json.is_object() || json.value("cpu", nlohmann::json()) != cpu) return {};
  for (const char* key : {"gflops", "gbytes", "share"}) {
    if (!json.contains(key) || !json[key].is_number()) return {};
  }
  return {json["gflops"], json["gbytes"], json["share"]};
}

// False where the cache cannot be written, which costs the next run its time, and this one nothing.
bool Keep(const std::string& cpu, const MachineCeilings& kept) {
  const std::filesystem::path file = FileOf(cpu);
  const nlohmann::json json = {
      {"cpu", cpu}, {"gflops", kept.gflops}, {"gbytes", kept.gbytes}, {"share", kept.share}};
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  return WriteFileAtomically(file, json.dump(2) + "\n").ok();
}

}  // namespace

bool MeasuredCeiling::quiet() const { return share >= kQuietShare; }

MeasuredCeiling CeilingOf(std::span<const CeilingRound> rounds) {
  MeasuredCeiling ceiling;
  double second = 0;
  for (const CeilingRound& round : rounds) {
    if (round.rate > ceiling.rate) {
      second = ceiling.rate;
      ceiling.rate = round.rate;
      ceiling.share = round.share;
    } else {
      second = std::max(second, round.rate);
    }
  }
  ceiling.settled =
      rounds.size() >= kLeastRounds && ceiling.quiet() && second >= kSettled * ceiling.rate;
  return ceiling;
}

absl::StatusOr<MachineCeilings> MeasureThisMachine(const StepContext& context) {
  context.Report({"measure ceilings", "", 0, 0});
  QUENCH_ASSIGN_OR_RETURN(const MeasuredCeiling gflops, MeasuredGflops(context));
  QUENCH_ASSIGN_OR_RETURN(const MeasuredCeiling gbytes, MeasuredGbytes(context));
  return MachineCeilings{gflops.rate, gbytes.rate, std::min(gflops.share, gbytes.share)};
}

absl::StatusOr<analyser::Ceilings> HostCeilings(HostUse use, const StepContext& context,
                                                const MeasureMachine& measure) {
  const std::string cpu = CpuText();
  MachineCeilings kept = use == HostUse::kAfresh ? MachineCeilings() : Kept(cpu);
  bool written = true;
  if (use != HostUse::kKept || !IsQuiet(kept)) {
    QUENCH_ASSIGN_OR_RETURN(const MachineCeilings measured, measure(context));
    kept = {std::max(measured.gflops, kept.gflops), std::max(measured.gbytes, kept.gbytes),
            measured.share};
    written = Keep(cpu, kept);
  }
  analyser::Ceilings ceilings = {"host", fmt::format("measured on {} cores", Cores()), kept.gflops,
                                 kept.gbytes};
  if (!IsQuiet(kept)) {
    const std::string busy = fmt::format("while other programs or a limit took {:.0f} % of a core",
                                         100 * (1 - kept.share));
    ceilings.source += fmt::format(" {}: they may be too low", busy);
    PrintWarning(fmt::format(
        "this machine's peak speeds were measured {}: they may be too low and will be measured "
        "again next time",
        busy));
  }
  if (written) ceilings.source += fmt::format(", kept in {}", FileOf(cpu).string());
  return ceilings;
}

absl::StatusOr<analyser::Ceilings> CeilingsOf(const std::string& text, const StepContext& context) {
  if (text == "host") return HostCeilings(HostUse::kKept, context);
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
      fmt::format("{} cores of {} GHz, {} f32 operations per cycle each ({})", row->cores, row->ghz,
                  row->operations_per_cycle, row->source),
      row->gflops(), row->gbytes};
}

}  // namespace quench::cli
