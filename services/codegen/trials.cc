#include "services/codegen/trials.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "common/base/status.h"
#include "services/codegen/codegen.h"
#include "services/codegen/kernels/typical_sizes.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {
namespace {

constexpr int kLeastRounds = 5, kMostRounds = 10'000;

// Sequences of a recurrent layer have as many steps as there is room for: random lengths are 0 or 1.
void UseAllSteps(const Graph& graph, const Node& node, std::vector<Tensor>& inputs) {
  constexpr size_t kLengths = 4;
  const bool recurrent = node.op == "LSTM" || node.op == "GRU" || node.op == "RNN";
  if (!recurrent || node.inputs.size() <= kLengths) return;
  const auto at = std::ranges::find(graph.inputs, node.inputs[kLengths]);
  const auto data = std::ranges::find(graph.inputs, node.inputs[0]);
  if (at == graph.inputs.end()) return;
  const Type& type = graph.value(node.inputs[0]).type;
  const size_t axis = node.Int("layout", 0) != 0 ? 1 : 0;
  if (!type.ranked || type.rank() != 3) return;
  int64_t steps = 0;
  if (type.dims[axis].is_static()) {
    steps = type.dims[axis].value();
  } else if (data != graph.inputs.end()) {
    steps = inputs[static_cast<size_t>(data - graph.inputs.begin())].dims()[axis];
  }
  Tensor& lengths = inputs[static_cast<size_t>(at - graph.inputs.begin())];
  if (steps == 0 || lengths.dtype() != DataType::kI32) return;
  lengths = Tensor::Of(
      DataType::kI32, lengths.dims(),
      std::vector<int32_t>(static_cast<size_t>(lengths.size()), static_cast<int32_t>(steps)));
}

}  // namespace

absl::Status CheckTrialTarget(const CompileOptions& options, const std::string& who) {
  QUENCH_ASSIGN_OR_RETURN(const ResolvedTarget resolved,
                          Resolve(options.target, options.host_target, options.caller));
  if (resolved.variants.size() != 1) {
    return InvalidArgument(
        "{} measures on this machine, and target `{}` has code for {} kinds of CPU; `host` "
        "has it for this one",
        who, options.target, resolved.variants.size());
  }
  if (resolved.spec.system_lib) {
    return InvalidArgument(
        "{} runs what it measures, and target `{}` has system-lib, which makes archives", who,
        options.target);
  }
  return absl::OkStatus();
}

absl::StatusOr<TrialBuild> BuildTrial(const Graph& graph, const CompileOptions& options,
                                      const std::filesystem::path& folder, const std::string& name,
                                      const std::string& who, const StepContext& context) {
  const std::filesystem::path library = folder / (name + ".so");
  TrialBuild trial;
  QUENCH_ASSIGN_OR_RETURN(
      trial.report, Compile(graph, options, library, folder / "model.h", WithoutProgress(context)));
  absl::StatusOr<std::unique_ptr<Artifact>> artifact = Artifact::Open(library);
  if (!artifact.ok()) {
    return InvalidArgument("{} measures on this machine, where code for `{}` does not run: {}", who,
                           options.target, MessageOf(artifact.status()));
  }
  trial.artifact = *std::move(artifact);
  std::error_code ignored;
  std::filesystem::remove(library, ignored);  // it stays mapped
  return trial;
}

absl::StatusOr<std::vector<Tensor>> TypicalInputs(const Graph& graph, const Artifact& artifact) {
  TypicalSizes sizes(*graph.symbols);
  std::map<std::string, int64_t> values;
  const std::vector<int64_t> slots = sizes.Slots();
  for (const ArtifactTensor& input : artifact.inputs()) {
    for (const ArtifactDim& dim : input.dims) {
      const std::optional<SymbolId> id =
          dim.value < 0 ? graph.symbols->Find(dim.symbol) : std::nullopt;
      if (id) values[dim.symbol] = slots[static_cast<size_t>(*id)];
    }
  }
  QUENCH_ASSIGN_OR_RETURN(std::vector<Tensor> inputs,
                          RandomInputs(artifact.inputs(), 1, values, kAnyIndex));
  for (const Node& node : graph.nodes) UseAllSteps(graph, node, inputs);
  return inputs;
}

StepContext WithoutProgress(const StepContext& context) {
  StepContext quiet(context.cancel_token(), nullptr);
  if (context.deadline()) quiet.set_deadline(*context.deadline());
  return quiet;
}

absl::StatusOr<int> RunInTurn(size_t count, double seconds, const std::string& what,
                              const std::function<absl::Status(size_t, bool)>& run,
                              const StepContext& context) {
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (size_t i = 0; i < count; ++i) QUENCH_RETURN_IF_ERROR(run(i, false));
  int rounds = 0;
  for (; rounds < kMostRounds && (rounds < kLeastRounds || passed() < seconds); ++rounds) {
    context.Report({"measure", what, static_cast<int64_t>(passed()),
                    static_cast<int64_t>(std::max(seconds, passed()))});
    for (size_t i = 0; i < count; ++i) {
      QUENCH_RETURN_IF_ERROR(context.Check());
      QUENCH_RETURN_IF_ERROR(run(i, true));
    }
  }
  return rounds;
}

double LowerQuartile(std::vector<double> times) {
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

}  // namespace quench::codegen
