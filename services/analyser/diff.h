// The differences between two modules.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::analyser {

struct NodeChange {
  std::string graph, name, op;  // as in NodeFacts; the reference's if it has the node
  // "op: Relu -> Clip", "strides: [1,1] -> [2,2]", "input 1: a -> b", "output 0: f32[2] -> f32[3]"
  std::vector<std::string> changes;
};

struct WeightChange {
  std::string graph, name;
  std::string type, other_type;  // "f32[64, 3, 7, 7]"; empty if that module has no such weight
  // Differences between the elements of weights of equal types; NaN equals NaN.
  int64_t elements = 0, differing = 0;
  double max_difference = 0;
};

struct ModuleDiff {
  bool equal = false;  // of the fingerprints: structure and weights, without names
  bool equal_structure = false;
  std::string fingerprint, other_fingerprint;
  std::vector<std::string> interface;  // inputs and outputs, in words
  // Nodes and weights of all graphs, matched by their names.
  std::vector<NodeChange> reference_only, other_only, changed;
  std::vector<WeightChange> weights;
};

absl::StatusOr<ModuleDiff> Diff(const Graph& reference, const Graph& other,
                                const StepContext& context = {});

std::string ToTable(const ModuleDiff& diff);
std::string ToJson(const ModuleDiff& diff);

}  // namespace quench::analyser
