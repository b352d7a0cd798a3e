// Values of a library beside those of the interpreter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::codegen {

struct Comparison {
  double error = 0;   // relative; a number where the model has none counts as 1
  int64_t wrong = 0;  // elements out of tolerance
  int64_t worst = 0;  // the index of the one that is farthest off
};

// Elements may be `tolerance` of the largest of them off, or a hundredth of that of `inner`, the largest
// number that they were computed from: cancellation leaves its rounding. `rounded`, of the type of
// `expected`, are what it would be had its operands been rounded otherwise: an element may be off by some
// times what it differs there.
Comparison Compare(const Tensor& actual, const Tensor& expected, double tolerance, double inner,
                   std::span<const Tensor> rounded = {});

// The largest of `largest` and the finite elements.
void TakeLargest(const Tensor& tensor, double& largest);

// Whether a small error of what the node reads may change what it gives by much.
bool RoundingDecides(const Graph& graph, const Node& node);

// A tensor of compiled code as the model has it, which may know other floats, or other bytes (pass
// byte_activations); none where the types have nothing to do with each other.
std::optional<Tensor> AsType(const Tensor& tensor, DataType type);
bool AreBytes(DataType a, DataType b);

std::string ElementText(const Tensor& tensor, int64_t index);
std::string PlaceText(const std::vector<int64_t>& dims, int64_t index);  // "[0, 3, 1]"

}  // namespace quench::codegen
