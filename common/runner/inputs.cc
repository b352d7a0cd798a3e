#include "common/runner/inputs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/ir/states.h"
#include "common/ir/symbols_spelling.h"
#include "common/runner/open_sizes.h"

namespace quench {

std::vector<ArtifactTensor> InputsOf(const Graph& graph) {
  std::vector<ArtifactTensor> inputs;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    ArtifactTensor tensor{value.name, value.type.dtype, {}};
    for (const Dim dim : value.type.dims) {
      const Bounds bounds = graph.symbols->BoundsOf(dim);
      tensor.dims.push_back({dim.is_static() ? dim.value() : -1,
                             dim.is_static() ? "" : SpelledOut(*graph.symbols, dim), bounds.min,
                             bounds.max});
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

std::vector<ArtifactState> ArtifactStatesOf(const Graph& graph) {
  std::vector<ArtifactState> states;
  for (const StatePair& state : StatesOf(graph)) {
    states.push_back({state.input, state.output,
                      InitialState(graph.value(graph.inputs[state.input]).type, state.initial)});
  }
  return states;
}

absl::Status CheckInputName(std::span<const ArtifactTensor> inputs, const std::string& name) {
  std::vector<std::string> names;
  for (const ArtifactTensor& input : inputs) names.push_back(input.name);
  if (std::ranges::find(names, name) != names.end()) return absl::OkStatus();
  return InvalidArgument("the model has no input `{}`; it has `{}`", name,
                         fmt::join(names, "`, `"));
}

// Sizes that `sources` tells, by its options and by the tensors that it has.
static absl::StatusOr<std::map<std::string, int64_t>> SizesFor(
    std::span<const ArtifactTensor> inputs, const InputSources& sources) {
  std::map<std::string, int64_t> sizes = sources.sizes;
  for (const ArtifactTensor& input : inputs) {
    const auto given = sources.given.find(input.name);
    // One with an axis more has steps.
    if (given == sources.given.end() || given->second.dims().size() != input.dims.size()) continue;
    for (size_t axis = 0; axis < input.dims.size(); ++axis) {
      if (input.dims[axis].value < 0)
        sizes.emplace(input.dims[axis].symbol, given->second.dims()[axis]);
    }
  }
  return ChooseSizes(inputs, sizes);
}

absl::StatusOr<std::vector<Tensor>> FillInputs(std::span<const ArtifactTensor> inputs,
                                               std::span<const ArtifactState> states,
                                               const InputSources& sources, const std::string& how,
                                               std::map<std::string, int64_t>* sizes) {
  StatusCollector problems;
  for (const auto& [name, tensor] : sources.given) problems.Add(CheckInputName(inputs, name));
  std::vector<Tensor> random;
  if (sources.seed) {
    const bool fits = sources.graph != nullptr && sources.graph->inputs.size() == inputs.size();
    QUENCH_ASSIGN_OR_RETURN(const auto chosen, SizesFor(inputs, sources));
    QUENCH_ASSIGN_OR_RETURN(random, fits ? RandomInputs(*sources.graph, *sources.seed, chosen)
                                         : RandomInputs(inputs, *sources.seed, chosen));
    if (sizes != nullptr) *sizes = chosen;
  }
  std::vector<Tensor> filled;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto found = sources.given.find(inputs[i].name);
    const auto state = std::ranges::find(states, i, &ArtifactState::input);
    if (found != sources.given.end()) {
      filled.push_back(found->second);
    } else if (state != states.end()) {
      filled.push_back(state->initial);
    } else if (sources.seed) {
      filled.push_back(random[i]);
    } else {
      problems.Add(InvalidArgument("input `{}` is missing: give {}", inputs[i].name, how));
    }
  }
  if (!problems.ok()) return problems.Finish();
  return filled;
}

}  // namespace quench
