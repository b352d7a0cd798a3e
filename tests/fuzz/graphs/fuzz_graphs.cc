// Grows random graphs and compares what is compiled of them with the interpreter, pass by pass and as
// libraries. A failure is shrunk and kept as IR text, as .onnx and as inputs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/ir/text.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "services/importer/importer.h"
#include "tests/fuzz/graphs/check.h"

namespace quench::fuzz {
namespace {

struct Options {
  uint64_t seed = 1;
  int64_t count = 200;
  double minutes = 0;  // 0: `count` graphs
  int ways = 6;        // of a graph
  std::string target;  // "": those that this CPU runs
  std::filesystem::path output = "graph-findings", dump;
  bool rules = false, print = false, why = false;
  int most_findings = 20;
};

// Operators of the catalogue with neither a rule nor a reason, or with both.
int CheckRules() {
  int problems = 0;
  for (const ops::OpDef* op : ops::AllOps()) {
    const bool rule = AllRules().contains(op->name), reason = WithoutRule().contains(op->name);
    if (rule != reason) continue;
    const char* what =
        rule ? "a rule and a reason for none" : "neither a rule nor a reason for none";
    std::cout << fmt::format("{} has {}\n", op->name, what);
    ++problems;
  }
  for (const auto& [op, reason] : WithoutRule()) {
    if (ops::FindOp(op) != nullptr) continue;
    std::cout << fmt::format("{} is not an operator\n", op);
    ++problems;
  }
  return problems;
}

absl::Status MakeFolder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? ErrnoStatus(error.value(), "create", folder) : absl::OkStatus();
}

void Keep(const Options& options, uint64_t seed, const Specimen& specimen,
          const std::string& what) {
  const std::filesystem::path folder = options.output / fmt::format("{}", seed);
  if (const absl::Status made = MakeFolder(folder); !made.ok())
    std::cout << MessageOf(made) << "; the graph is below\n";
  std::ofstream(folder / "graph.ir.txt") << PrintGraph(specimen.graph);
  std::ofstream(folder / "failure.txt") << what << "\n";
  if (const absl::Status status = importer::ExportOnnx(specimen.graph, folder / "model.onnx");
      !status.ok())
    std::ofstream(folder / "no_onnx.txt") << MessageOf(status) << "\n";
  for (size_t i = 0; i < specimen.inputs.size(); ++i) {
    const absl::Status status = WriteNpy(specimen.inputs[i], folder / fmt::format("in_{}.npy", i));
    if (!status.ok()) std::cout << MessageOf(status) << "\n";
  }
  std::cout << fmt::format("seed {}: {}\n{}  (kept in {})\n", seed, what,
                           PrintGraph(specimen.graph), folder.string())
            << std::flush;
}

// The graph as a model with inputs and what the interpreter makes of them, for whoever runs it elsewhere.
absl::Status Dump(const Specimen& specimen, const std::filesystem::path& folder) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                          ops::Evaluate(specimen.graph, specimen.inputs));
  const std::vector<double> tolerances = Tolerances(specimen.graph, specimen.inputs, outputs);
  QUENCH_RETURN_IF_ERROR(MakeFolder(folder));
  QUENCH_RETURN_IF_ERROR(importer::ExportOnnx(specimen.graph, folder / "model.onnx"));
  nlohmann::json about = {{"inputs", nlohmann::json::array()},
                          {"outputs", nlohmann::json::array()},
                          {"tolerances", tolerances}};
  for (size_t i = 0; i < specimen.inputs.size(); ++i) {
    about["inputs"].push_back(specimen.graph.value(specimen.graph.inputs[i]).name);
    QUENCH_RETURN_IF_ERROR(WriteNpy(specimen.inputs[i], folder / fmt::format("in_{}.npy", i)));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    about["outputs"].push_back(specimen.graph.value(specimen.graph.outputs[i]).name);
    QUENCH_RETURN_IF_ERROR(WriteNpy(outputs[i], folder / fmt::format("out_{}.npy", i)));
  }
  return WriteFileAtomically(folder / "about.json", about.dump());
}

int DumpAll(const Options& options) {
  Statistics statistics;
  int64_t written = 0;
  for (int64_t i = 0; i < options.count; ++i) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(i);
    const Specimen specimen = Grow(seed, statistics);
    if (specimen.graph.outputs.empty()) continue;
    const absl::Status status = Dump(specimen, options.dump / fmt::format("{}", seed));
    if (!status.ok()) std::cout << fmt::format("{}: {}\n", seed, MessageOf(status));
    written += status.ok();
  }
  std::cout << fmt::format("{} of {} graphs written\n", written, options.count);
  return written > 0 ? 0 : 1;
}

// Whether all is well. Comparisons are added to `compared`.
bool CheckSeed(const Options& options, uint64_t seed, const std::vector<Combination>& ways,
               Statistics& statistics, Verdict& compared) {
  if (options.print) std::cout << fmt::format("seed {}\n", seed) << std::flush;
  const Specimen specimen = Grow(seed, statistics);
  if (specimen.graph.outputs.empty()) return true;
  if (options.print) std::cout << PrintGraph(specimen.graph);
  const auto is_well = [&](const std::string& how,
                           const std::function<Verdict(const Specimen&)>& check) {
    const Verdict verdict = check(specimen);
    compared.outputs += verdict.outputs;
    compared.without_tolerance += verdict.without_tolerance;
    if (verdict.wrong.empty()) return true;
    const Specimen least =
        Shrink(specimen, [&](const Specimen& each) { return !check(each).wrong.empty(); }, 150);
    const std::string again = check(least).wrong;
    Keep(options, seed, least, how + ": " + (again.empty() ? verdict.wrong : again));
    return false;
  };
  if (!is_well("passes", CheckPasses)) return false;
  for (int i = 0; i < options.ways; ++i) {
    const Combination& way =
        ways[(seed * static_cast<uint64_t>(options.ways) + static_cast<uint64_t>(i)) % ways.size()];
    if (!is_well(Describe(way), [&](const Specimen& each) { return CheckLibrary(each, way); }))
      return false;
  }
  return true;
}

int Run(const Options& options) {
  if (CheckRules() != 0) return 1;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const std::vector<Combination> ways = Pairwise(1, options.target);
  Statistics statistics;
  statistics.why = options.why;
  Verdict compared;
  int64_t graphs = 0, findings = 0;
  for (uint64_t seed = options.seed; findings < options.most_findings; ++seed, ++graphs) {
    if (options.minutes > 0 ? seconds() > 60 * options.minutes : graphs >= options.count) break;
    if (!CheckSeed(options, seed, ways, statistics, compared)) ++findings;
    if (graphs % 50 == 49)
      std::cout << fmt::format("{} graphs, {} findings, {:.0f} s\n", graphs + 1, findings,
                               seconds())
                << std::flush;
  }
  int64_t nodes = 0, refused = 0;
  for (const auto& [op, count] : statistics.nodes) nodes += count;
  for (const auto& [op, count] : statistics.refused) refused += count;
  std::cout << fmt::format(
      "{} graphs of {} nodes, {} operators and {} pairs of neighbours, {} of {} ways each; {} "
      "nodes were drawn again; {} findings\n",
      graphs, nodes, statistics.nodes.size(), statistics.neighbours.size(), options.ways,
      ways.size(), refused, findings);
  std::cout << fmt::format(
      "{} outputs compared, {} of them by type, sizes and finiteness alone: rounding may change "
      "their values altogether\n",
      compared.outputs, compared.without_tolerance);
  for (const auto& [op, count] : statistics.refused) {
    if (!statistics.nodes.contains(op))
      std::cout << fmt::format("{} was refused {} times and never made\n", op, count);
  }
  return findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace quench::fuzz

int main(int argc, char** argv) {
  quench::fuzz::Options options;
  CLI::App app("Grows random graphs and compares what is compiled of them with the interpreter");
  app.add_option("--seed", options.seed, "of the first graph")->capture_default_str();
  app.add_option("--count", options.count, "graphs")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--minutes", options.minutes, "as many graphs as that takes, instead of --count")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--ways", options.ways, "in which each graph is compiled")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option(
      "--target", options.target,
      "compile for this one alone; code for a GPU that is emulated runs on the emulation");
  app.add_option("--output", options.output, "folder for what is found")->capture_default_str();
  app.add_option("--most", options.most_findings, "findings, after which it ends")
      ->capture_default_str();
  app.add_option("--dump", options.dump,
                 "folder for models, inputs and outputs, instead of compiling them");
  app.add_flag("--rules", options.rules, "list the operators that no rule makes, and why");
  app.add_flag("--why", options.why, "print why nodes were drawn again");
  app.add_flag("--print", options.print, "print every graph");
  CLI11_PARSE(app, argc, argv);
  setenv("QUENCH_CUDA_DRIVER", QUENCH_EMULATED_DRIVER, /*overwrite=*/0);
  if (options.rules) {
    for (const auto& [op, reason] : quench::fuzz::WithoutRule())
      std::cout << fmt::format("{}: {}\n", op, reason);
    return quench::fuzz::CheckRules() == 0 ? 0 : 1;
  }
  if (!options.dump.empty()) return quench::fuzz::DumpAll(options);
  return quench::fuzz::Run(options);
}
