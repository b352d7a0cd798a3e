// Inputs that a model is run on.
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

struct InputRange {
  double low = 0, high = 0;
};

// As RandomInputs of runner.h, but what the graph can take, and spread over all of that: indices that
// are there (the last ones from the end, too), places to write no two of which are the same, axes,
// sizes that fit one another, lengths, repeats, masks of 0 and 1 that leave something in each row.
// The same holds for what nodes make of an input, too (Cast, Concat, sums with constants, bodies).
// Integers of 8 bits that are numbers have all their values, others are below 8. Floats are from
// N(0, 1), or, by the input's name, as wide as `ranges` says; the ends are there, too.
absl::StatusOr<std::vector<Tensor>> RandomInputs(
    const Graph& graph, uint64_t seed, const std::map<std::string, int64_t>& sizes = {},
    const std::map<std::string, InputRange>& ranges = {});

// Whether floats of an input are numbers of any magnitude: no sizes, no masks, no scales.
absl::StatusOr<std::vector<bool>> AnyMagnitude(const Graph& graph);

// INVALID_ARGUMENT where no input has this name, with the names there are.
absl::Status CheckInputName(std::span<const ArtifactTensor> inputs, const std::string& name);

struct InputSources {
  std::map<std::string, Tensor> given;  // by name
  std::optional<uint64_t> seed;         // of random numbers for the rest
  std::map<std::string, int64_t>
      sizes;                     // of their symbolic dims; others are chosen as ChooseSizes says
  const Graph* graph = nullptr;  // of the model, where there is one: its random inputs fit
};
// A tensor for each input: one that is given, the initial one of a state, or random numbers.
// INVALID_ARGUMENT has every name in `given` that no input has and every input that is left out; `how`
// says how to give one ("--input NAME=FILE"). `sizes`, if there, becomes the sizes of random numbers.
absl::StatusOr<std::vector<Tensor>> FillInputs(std::span<const ArtifactTensor> inputs,
                                               std::span<const ArtifactState> states,
                                               const InputSources& sources, const std::string& how,
                                               std::map<std::string, int64_t>* sizes = nullptr);

}  // namespace quench
