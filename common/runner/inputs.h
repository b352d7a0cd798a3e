// What a model is run on.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "common/runner/runner.h"

namespace quench {

// As a library of the graph declares them. Sizes that are expressions have their text for a name.
std::vector<ArtifactTensor> InputsOf(const Graph& graph);
std::vector<ArtifactState> ArtifactStatesOf(const Graph& graph);

// INVALID_ARGUMENT where no input has this name, with the names there are.
absl::Status CheckInputName(std::span<const ArtifactTensor> inputs, const std::string& name);

struct InputSources {
  std::map<std::string, Tensor> given;   // by name
  std::optional<uint64_t> seed;          // of random numbers for the rest
  std::map<std::string, int64_t> sizes;  // of their symbolic dims
};
// A tensor for each input: one that is given, the initial one of a state, or random numbers.
// INVALID_ARGUMENT has every name in `given` that no input has and every input that is left out; `how`
// says how to give one ("--input NAME=FILE").
absl::StatusOr<std::vector<Tensor>> FillInputs(std::span<const ArtifactTensor> inputs,
                                               std::span<const ArtifactState> states,
                                               const InputSources& sources, const std::string& how);

}  // namespace quench
