#include "tests/fuzz/graphs/check.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "common/passes/rounded.h"
#include "common/runner/runner.h"
#include "common/runtime/quench_rt.h"
#include "services/codegen/plan/variants.h"
#include "services/codegen/targets/target.h"
#include "tests/fuzz/graphs/guarded_memory.h"

namespace quench::fuzz {
namespace {

using Tensors = std::vector<Tensor>;

constexpr int kMostSeconds = 60;

// Runs `work` in a child and returns its verdict; the verdict on a child that ends otherwise says how.
Verdict InChild(const std::function<Verdict()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) return {.wrong = "no pipe"};
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(kMostSeconds);
    const Verdict verdict = work();
    const std::string text =
        fmt::format("{} {}\n{}", verdict.outputs, verdict.without_tolerance, verdict.wrong);
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t written = ::write(ends[1], text.data() + done, text.size() - done);
      if (written <= 0) break;
      done += static_cast<size_t>(written);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> chunk;
  for (ssize_t n = 0; (n = ::read(ends[0], chunk.data(), chunk.size())) > 0;)
    text.append(chunk.data(), static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    return {.wrong = fmt::format("has not ended after {} s", kMostSeconds)};
  if (WIFSIGNALED(status)) return {.wrong = fmt::format("crashed by signal {}", WTERMSIG(status))};
  Verdict verdict;
  std::istringstream words(text);
  if (WEXITSTATUS(status) != 0 || !(words >> verdict.outputs >> verdict.without_tolerance))
    return {.wrong = fmt::format("ended with {}", WEXITSTATUS(status))};
  verdict.wrong = text.substr(text.find('\n') + 1);
  return verdict;
}

// Largest |a - b| by the largest |reference|, like RelativeError, but equal infinities and NaNs are equal.
double Distance(const Tensor& actual, const Tensor& reference) {
  if (actual.dtype() != reference.dtype() || actual.dims() != reference.dims())
    return std::numeric_limits<double>::infinity();
  double largest = 1e-30, distance = 0;
  for (int64_t i = 0; i < reference.size(); ++i) {
    const double a = actual.FloatAt(i), b = reference.FloatAt(i);
    if (std::isfinite(b)) largest = std::max(largest, std::abs(b));
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    distance = std::isfinite(a - b) ? std::max(distance, std::abs(a - b))
                                    : std::numeric_limits<double>::infinity();
  }
  return distance / largest;
}

// The types that a graph rounds its values to.
struct Rounding {
  bool narrow = false, bytes = false;  // halves; 8-bit integers

  // Values computed from halves have steps of their own, which move whatever a larger nudge moves.
  double nudge() const { return narrow ? 0.02 : 1e-6; }

  // The tolerance of a value that moves so far when all is off by a nudge.
  double Tolerance(DataType type, double moved) const {
    if (IsFloat(type)) return std::max((narrow ? 2 : 10) * moved, narrow || bytes ? 0.05 : 1e-5);
    if (narrow && (bytes || moved > 0)) return std::numeric_limits<double>::infinity();
    return bytes ? std::max(moved, 0.1) : moved;
  }
};

Rounding RoundingOf(const Graph& graph) {
  Rounding rounding;
  ForEachGraph(graph, [&](const Graph& each) {
    for (const quench::Value& value : each.values)
      rounding.narrow = rounding.narrow || IsHalf(value.type.dtype);
    for (const Node& node : each.nodes)
      rounding.bytes =
          rounding.bytes || node.op == "QuantizeLinear" || node.op == "DynamicQuantizeLinear";
  });
  return rounding;
}

// Inputs that are off by at most `by` of themselves.
Tensors Moved(Tensors inputs, double by, Dice& dice) {
  for (Tensor& each : inputs) {
    if (!IsFloat(each.dtype())) continue;
    std::vector<double> values;
    for (int64_t i = 0; i < each.size(); ++i)
      values.push_back(each.FloatAt(i) * (1 + by * dice.Real(-1, 1)));
    each = OfNumbers(each.dtype(), each.dims(), values);
  }
  return inputs;
}

// How far each output moves when the inputs move by `by`, and floats also when what nodes make does:
// what rounding may do to it.
std::vector<double> Sensitivity(const Graph& graph, const Tensors& inputs, const Tensors& outputs,
                                double by) {
  Dice dice{std::mt19937_64(1)};
  const bool floats = std::any_of(inputs.begin(), inputs.end(),
                                  [](const Tensor& each) { return IsFloat(each.dtype()); });
  const absl::StatusOr<Tensors> by_inputs = ops::Evaluate(graph, Moved(inputs, by, dice));
  const absl::StatusOr<Tensors> by_values =
      ops::Evaluate(passes::WithRounding(graph, by, 1), inputs);
  std::vector<double> distances(outputs.size(), 0);
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const absl::StatusOr<Tensors>* results : {&by_inputs, &by_values}) {
      // Numbers that are compared with each other are equal however they are rounded.
      if (results == &by_values && floats && !IsFloat(outputs[i].dtype())) continue;
      distances[i] =
          std::max(distances[i], results->ok() ? Distance((**results)[i], outputs[i])
                                               : std::numeric_limits<double>::infinity());
    }
  }
  return distances;
}

// How far each of `values` of the graph may be off.
std::map<std::string, double> TapTolerances(const Graph& graph, const Tensors& inputs,
                                            const std::map<std::string, Tensor>& values) {
  const Rounding rounding = RoundingOf(graph);
  Dice dice{std::mt19937_64(1)};
  std::map<std::string, double> tolerances;
  const auto results =
      ops::Evaluate(graph, Moved(inputs, rounding.nudge(), dice), {},
                    {[&](const std::string& name, const Tensor& tensor) {
                      const auto found = values.find(name);
                      if (found == values.end()) return;
                      const double moved = Distance(tensor, found->second);
                      tolerances[name] = std::max(rounding.Tolerance(tensor.dtype(), moved), 1e-4);
                    }});
  if (!results.ok()) tolerances.clear();
  return tolerances;
}

bool IsFinite(const Tensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (!std::isfinite(tensor.FloatAt(i))) return false;
  }
  return true;
}

// Checks what remains certain of a value that rounding may change altogether: its type, the sizes
// that no run decides, and numbers where there are numbers.
bool IsOfOneKind(const Graph& graph, const Type& type, const Tensor& actual,
                 const Tensor& expected) {
  if (actual.dtype() != expected.dtype() || actual.rank() != expected.rank()) return false;
  for (size_t axis = 0; axis < type.dims.size(); ++axis) {
    const Dim dim = type.dims[axis];
    const bool known = dim.is_static() || graph.symbols->at(dim.symbol()).is_input();
    if (known && actual.dims()[axis] != expected.dims()[axis]) return false;
  }
  return IsFinite(actual) || !IsFinite(expected);
}

bool Agrees(const Graph& graph, size_t output, const Tensor& actual, const Tensor& expected,
            double tolerance) {
  if (std::isfinite(tolerance)) return Distance(actual, expected) <= tolerance;
  return IsOfOneKind(graph, graph.value(graph.outputs[output]).type, actual, expected);
}

std::string Differences(const Graph& graph, const Tensors& actual, const Tensors& expected,
                        const std::vector<double>& tolerances) {
  if (actual.size() != expected.size())
    return fmt::format("{} outputs, not {}", actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (Agrees(graph, i, actual[i], expected[i], tolerances[i])) continue;
    int64_t worst = 0;
    double most = -1;
    if (actual[i].dims() == expected[i].dims() && actual[i].dtype() == expected[i].dtype()) {
      for (int64_t e = 0; e < expected[i].size(); ++e) {
        const double off = std::abs(actual[i].FloatAt(e) - expected[i].FloatAt(e));
        if (!(off > most) && !std::isnan(off)) continue;
        most = off;
        worst = e;
      }
    }
    if (most < 0)
      return fmt::format("output {} `{}` is {}[{}], not {}[{}]", i,
                         graph.value(graph.outputs[i]).name, DataTypeName(actual[i].dtype()),
                         fmt::join(actual[i].dims(), ", "), DataTypeName(expected[i].dtype()),
                         fmt::join(expected[i].dims(), ", "));
    return fmt::format(
        "output {} `{}`: element {} is {:.8g}, not {:.8g} (off by {:.2g} of the largest, {:.2g} "
        "would do)",
        i, graph.value(graph.outputs[i]).name, worst, actual[i].FloatAt(worst),
        expected[i].FloatAt(worst), Distance(actual[i], expected[i]), tolerances[i]);
  }
  return "";
}

// Inputs as `graph` declares them: a pass may have made them halves.
Tensors As(const Graph& graph, Tensors inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DataType type = graph.value(graph.inputs[i]).type.dtype;
    if (type == inputs[i].dtype() || !IsFloat(type)) continue;
    std::vector<double> values;
    for (int64_t e = 0; e < inputs[i].size(); ++e) values.push_back(inputs[i].FloatAt(e));
    inputs[i] = OfNumbers(type, inputs[i].dims(), values);
  }
  return inputs;
}

// A verdict of so many outputs, with what is wrong still to be told.
Verdict VerdictOn(const std::vector<double>& tolerances) {
  Verdict verdict;
  for (const double each : tolerances) {
    ++verdict.outputs;
    verdict.without_tolerance += !std::isfinite(each);
  }
  return verdict;
}

Verdict CheckPassesHere(const Specimen& specimen) {
  const absl::StatusOr<Tensors> before = ops::Evaluate(specimen.graph, specimen.inputs);
  if (!before.ok())
    return {.wrong = "the interpreter refuses the graph: " + MessageOf(before.status())};
  const std::vector<double> tolerances = Tolerances(specimen.graph, specimen.inputs, *before);
  Verdict verdict = VerdictOn(tolerances);
  std::string& wrong = verdict.wrong;
  passes::PassOptions options;
  options.on_pass = [&](std::string_view pass, const Graph& graph) {
    if (!wrong.empty()) return;
    const absl::StatusOr<Tensors> after = ops::Evaluate(graph, specimen.inputs);
    wrong = after.ok() ? Differences(graph, *after, *before, tolerances)
                       : "the interpreter refuses it: " + MessageOf(after.status());
    if (!wrong.empty()) wrong = fmt::format("after pass `{}`: {}", pass, wrong);
  };
  absl::StatusOr<Graph> graph = passes::RunPipeline(specimen.graph, options, {});
  if (graph.ok() && wrong.empty()) graph = passes::RunCodegenPasses(*std::move(graph), options, {});
  if (!graph.ok()) wrong = "passes: " + MessageOf(graph.status());
  return verdict;
}

// Twice in sessions whose memory was filled with one byte: NaNs, then other numbers. It ends at pages
// that nobody may touch, and so do the inputs; `beyond` says what was written behind blocks for all that.
absl::StatusOr<std::vector<Tensors>> RunFilled(const std::filesystem::path& library,
                                               const Tensors& inputs, int threads,
                                               const Artifact::TapSink& tap, std::string& beyond) {
  std::vector<Tensors> runs;
  for (const int fill : {0xFF, 0xA5}) {
    GuardMemory(static_cast<uint8_t>(fill));
    Tensors guarded;
    for (const Tensor& input : inputs) guarded.push_back(Guarded(input));
    QUENCH_ASSIGN_OR_RETURN(auto artifact, Artifact::Open(library, threads));
    for (int run = 0; run < 2; ++run) {
      QUENCH_ASSIGN_OR_RETURN(Tensors outputs,
                              artifact->Run(guarded, {}, runs.empty() ? tap : Artifact::TapSink()));
      runs.push_back(std::move(outputs));
    }
    artifact.reset();
    beyond = WrittenBeyond();
    if (!beyond.empty()) return runs;
  }
  return runs;
}

// Sizes that have one symbol and differ are refused. A graph where no two inputs share a symbol has
// nothing to refuse.
std::string CheckRefusal(const std::filesystem::path& library, const Graph& graph,
                         const Tensors& inputs) {
  std::map<SymbolId, size_t> first;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Type& type = graph.value(graph.inputs[i]).type;
    for (size_t axis = 0; axis < type.dims.size(); ++axis) {
      if (type.dims[axis].is_static()) continue;
      const auto [at, fresh] = first.emplace(type.dims[axis].symbol(), i);
      if (fresh || at->second == i) continue;
      Tensors other = inputs;
      Ints dims = inputs[i].dims();
      ++dims[axis];
      other[i] = Tensor::Zeros(inputs[i].dtype(), dims);
      const auto artifact = Artifact::Open(library, 1);
      if (!artifact.ok()) return MessageOf(artifact.status());
      const absl::StatusOr<Tensors> run = (*artifact)->Run(other);
      if (run.ok())
        return fmt::format("input {} may have {} along axis {}, where others have {}", i,
                           dims[axis], axis, dims[axis] - 1);
      return "";
    }
  }
  return "";
}

bool SameBits(const Tensors& a, const Tensors& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].dims() != b[i].dims() || !std::ranges::equal(a[i].bytes(), b[i].bytes())) return false;
  }
  return true;
}

bool HasSizesOfTheRun(const Graph& graph) {
  for (int id = 0; id < graph.symbols->size(); ++id) {
    if (graph.symbols->at(id).is_runtime()) return true;
  }
  return false;
}

// "" or what is wrong; `verdict` learns what is compared.
std::string CheckLibraryHere(const Specimen& specimen, const Combination& way, Verdict& verdict) {
  absl::StatusOr<Graph> graph = specimen.graph;
  if (!way.symbolic) graph = BindSymbols(*graph, specimen.sizes);
  if (!graph.ok()) return "sizes are not bound: " + MessageOf(graph.status());
  const Graph source = *graph;
  passes::PassOptions before;
  before.store_as = way.stored;
  if (way.pipeline || way.stored != DataType::kF32)
    graph = passes::RunPipeline(*std::move(graph), before, {});
  if (!graph.ok()) return "passes: " + MessageOf(graph.status());
  codegen::CompileOptions options;
  options.opt_level = way.level;
  options.channel_layout = way.layout;
  options.taps = way.taps;
  options.target = way.target;
  if (way.taps == codegen::Taps::kNone) {
    options.check = codegen::CheckMode::kFull;
    options.check_source = &source;
    options.passes.store_as = way.stored;
  }
  const absl::StatusOr<Graph> groups = codegen::GroupGraph(*graph, options);
  if (!groups.ok()) return "codegen's passes: " + MessageOf(groups.status());
  const Tensors inputs = As(*groups, specimen.inputs);
  std::map<std::string, Tensor> values;
  const absl::StatusOr<Tensors> expected = ops::Evaluate(
      *groups, inputs, {},
      {[&](const std::string& name, const Tensor& tensor) { values[name] = tensor; }});
  // Numbers that are equal as halves may be so many sizes fewer.
  const bool rounded_sizes = way.stored != DataType::kF32 && HasSizesOfTheRun(*graph);
  if (!expected.ok() && rounded_sizes) return "";
  if (!expected.ok()) return "the interpreter refuses the groups: " + MessageOf(expected.status());
  const std::vector<double> tolerances = Tolerances(*groups, inputs, *expected);
  verdict = VerdictOn(tolerances);
  absl::StatusOr<TempDir> folder = TempDir::Create();
  if (!folder.ok()) return MessageOf(folder.status());
  const auto report =
      codegen::Compile(*graph, options, folder->path() / "model.so", folder->path() / "model.h");
  if (!report.ok()) return "it does not compile: " + MessageOf(report.status());
  std::string tapped;
  const bool taps = way.taps != codegen::Taps::kNone;
  const std::map<std::string, double> tap_tolerances =
      taps ? TapTolerances(*groups, inputs, values) : std::map<std::string, double>();
  const double most =
      tolerances.empty() ? 0 : *std::max_element(tolerances.begin(), tolerances.end());
  const auto tap = [&](const std::string& name, const Tensor& tensor) {
    const auto found = values.find(name);
    const auto own = tap_tolerances.find(name);
    if (!tapped.empty() || found == values.end() || own == tap_tolerances.end()) return;
    if (Distance(tensor, found->second) > std::max(most, own->second))
      tapped = fmt::format("tapped value `{}` is off by {:.2g}, {}[{}] beside {}[{}]", name,
                           Distance(tensor, found->second), DataTypeName(tensor.dtype()),
                           fmt::join(tensor.dims(), ", "), DataTypeName(found->second.dtype()),
                           fmt::join(found->second.dims(), ", "));
  };
  std::string beyond;
  const auto runs = RunFilled(folder->path() / "model.so", inputs, way.threads,
                              taps ? Artifact::TapSink(tap) : Artifact::TapSink(), beyond);
  if (!runs.ok()) return "it does not run: " + MessageOf(runs.status());
  for (const Tensors& outputs : *runs) {
    const std::string wrong = Differences(*groups, outputs, *expected, tolerances);
    if (!wrong.empty()) return wrong;
  }
  if (!beyond.empty()) return beyond;
  for (const Tensors& outputs : *runs) {
    if (!SameBits(outputs, runs->front()))
      return "two runs differ: memory that nothing wrote is read";
  }
  if (!tapped.empty()) return tapped;
  return CheckRefusal(folder->path() / "model.so", *groups, inputs);
}

}  // namespace

std::vector<double> Tolerances(const Graph& graph, const Tensors& inputs, const Tensors& outputs) {
  const Rounding rounding = RoundingOf(graph);
  std::vector<double> tolerances = Sensitivity(graph, inputs, outputs, rounding.nudge());
  for (size_t i = 0; i < tolerances.size(); ++i)
    tolerances[i] = rounding.Tolerance(outputs[i].dtype(), tolerances[i]);
  return tolerances;
}

Verdict CheckPasses(const Specimen& specimen) {
  return InChild([&] { return CheckPassesHere(specimen); });
}
Verdict CheckLibrary(const Specimen& specimen, const Combination& combination) {
  return InChild([&] {
    Verdict verdict;
    verdict.wrong = CheckLibraryHere(specimen, combination, verdict);
    return verdict;
  });
}

}  // namespace quench::fuzz
