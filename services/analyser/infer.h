// Runs a model and shows its inner values.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "common/runner/runner.h"
#include "services/analyser/statistics.h"

namespace quench::analyser {

struct InferOptions {
  // Shows values of nodes whose operator and name match, as in NodesOptions; without either, and without
  // `all`, only outputs of the model.
  std::vector<std::string> ops = {}, names = {};
  bool all = false;  // every value
};

struct InferredValue {
  std::string name;
  // Empty if no node of the module makes the value, as for inputs of rewritten code.
  std::string node = {}, op = {};
  std::string type;     // "f32[1, 64, 56, 56]", of this run
  bool output = false;  // is an output of the model
  TensorStatistics statistics = {};
};

struct InferReport {
  std::string source;                 // "interpreter" or "library"
  std::vector<InferredValue> values;  // in the order of execution, outputs last
  // Chosen values that the code does not compute separately: it fuses or rewrites them.
  std::vector<std::string> absent;
};

// Receives each value once; an error ends the run. Tensors are not kept.
using ValueSink = std::function<absl::Status(const InferredValue&, const Tensor&)>;

// Runs in the interpreter. `graph` is canonical or later; values of its outermost graph are shown.
// NOT_FOUND for a pattern that no node matches.
absl::StatusOr<InferReport> Infer(const Graph& graph, std::span<const Tensor> inputs,
                                  const InferOptions& options, const ValueSink& sink,
                                  const StepContext& context = {});
// Runs a tap build of `graph`; values are chosen by the nodes of `graph`.
absl::StatusOr<InferReport> InferLibrary(const Graph& graph, Artifact& library,
                                         std::span<const Tensor> inputs,
                                         const InferOptions& options, const ValueSink& sink,
                                         const StepContext& context = {});

std::string ToTable(const InferReport& report);
std::string ToJson(const InferReport& report);

// A PNG image of a tensor: the last two axes are rows and columns of a map, maps of all other indices
// lie side by side, at most 256 of them. Each map goes from black, its least number, to white, its
// greatest; NaN and infinite numbers are black. Small maps are enlarged by whole factors.
// INVALID_ARGUMENT for a tensor without elements, or of strings or complex numbers.
absl::StatusOr<std::string> FeatureMaps(const Tensor& tensor);

}  // namespace quench::analyser
