// Comparison of a library's values with the interpreter's.
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
  int64_t worst = 0;  // index of the element with the largest error
};

// An error may be up to `tolerance` times the largest element, or times a hundredth of `inner`, the
// largest number from which elements were computed: cancellation leaves its rounding. `rounded`, of the
// type of `expected`, has the expected elements if operands were rounded otherwise: an error may also be a
// few times the difference between the two.
Comparison Compare(const Tensor& actual, const Tensor& expected, double tolerance, double inner,
                   std::span<const Tensor> rounded = {});

// The maximum of `largest` and the magnitudes of finite elements.
void TakeLargest(const Tensor& tensor, double& largest);

// Whether a small error in the node's inputs may change its outputs by much.
bool RoundingDecides(const Graph& graph, const Node& node);

// A tensor of compiled code in the model's type, which may be another float type, or the other 8-bit type
// (pass byte_activations); nothing if the types are unrelated.
std::optional<Tensor> AsType(const Tensor& tensor, DataType type);
bool AreBytes(DataType a, DataType b);

std::string ElementText(const Tensor& tensor, int64_t index);
std::string PlaceText(const std::vector<int64_t>& dims, int64_t index);  // "[0, 3, 1]"

}  // namespace quench::codegen
