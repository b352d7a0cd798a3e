// The values that a convolution or product multiplies its kernel with.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ir/graph.h"

namespace quench::quantizer {

// A kernel as rows: an output is the sum of products of a row's weights and as many inputs.
struct KernelRows {
  int64_t groups = 1;       // whose outputs read different inputs
  int64_t outputs = 1;      // of a group
  int64_t length = 1;       // of a row
  bool by_columns = false;  // [length, outputs], of one group
  friend bool operator==(const KernelRows&, const KernelRows&) = default;
  // The index of a weight in the kernel's tensor.
  int64_t ElementOf(int64_t group, int64_t output, int64_t k) const {
    return by_columns ? k * outputs + output : (group * outputs + output) * length + k;
  }
};
// For Conv, Gemm and MatMul with a matrix on the right; nullopt for others, and kernels without
// elements.
std::optional<KernelRows> RowsOf(const Node& node, const Tensor& kernel);

// Some of the inputs by which one run multiplies the rows, groups * length floats each: `count` of
// them (or as many as there are), spread evenly, at other places for another `shift` (0 to below
// 1). `input` is f32 and fits the node; padding reads as zero.
std::vector<float> PatchesOf(const Node& node, const Tensor& kernel, const Tensor& input,
                             int64_t count, double shift);

}  // namespace quench::quantizer
