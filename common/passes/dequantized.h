// Parameters of QuantizeLinear and DequantizeLinear around 8-bit integers.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "common/ir/graph.h"

namespace quench::passes {

// The operands of a DequantizeLinear with one scale.
struct Dequantized {
  ValueId integers = kNone;
  ValueId scale_id = kNone, zero_id = kNone;
  DataType dtype = DataType::kUndefined;  // i8 or u8
  bool known = true;                      // scale and zero point: constants, else of each run
  float scale = 1;                        // normal, positive
  int64_t zero = 0;
  // The largest distance of an integer from the zero point.
  int64_t Reach() const {
    const int64_t low = dtype == DataType::kI8 ? -128 : 0;
    return known ? std::max(zero - low, low + 255 - zero) : 255;
  }
  bool SameAs(const Dequantized& other) const {
    if (!known || !other.known)
      return dtype == other.dtype && scale_id == other.scale_id && zero_id == other.zero_id;
    return dtype == other.dtype && scale == other.scale && zero == other.zero;
  }
};
std::optional<Dequantized> ReadDequantized(const Graph& graph, ValueId id);
// The same, if scale and zero point are constants.
std::optional<Dequantized> ReadKnown(const Graph& graph, ValueId id);
// Scale and zero point of a node that quantizes to or dequantizes from `dtype` with one of each,
// both constants; `integers` is not set.
std::optional<Dequantized> OneScale(const Graph& graph, const Node& node, DataType dtype);

// A dequantized constant with one zero point.
struct Kernel {
  Tensor integers;     // i8 around 0; of any zero point, and i8 or u8, where that is not possible
  ValueId id = kNone;  // of the same, where the graph has it
  int64_t zero = 0;
  ValueId zero_id = kNone;  // none: i8 around 0
  std::vector<double> scales;
  int64_t scale_axis = 0;  // of more than one
};
// Integers minus their zero point (i8 or u8; `zero` may be null) as i8 around 0; nothing where that
// does not hold them or there are several zero points.
std::optional<Tensor> AsSigned(const Tensor& integers, const Tensor* zero);
std::optional<Kernel> ReadKernel(const Graph& graph, ValueId id);
// The same for W or R of a recurrent layer: one scale, or one for each row of all directions.
std::optional<Kernel> ReadRecurrentKernel(const Graph& graph, ValueId id);

// A constant of f32 or of integers of 8 or 4 bits.
Tensor TransposedMatrix(const Tensor& matrix);

// Weights of a product that stay integers while the rest is float: b [k, n] of i8, u8, i4 or u4,
// one scale (and zero point, unless `zero` is missing) for each `block_size` of k and each column.
struct StoredMatrix {
  Tensor integers, scale;
  std::optional<Tensor> zero;
  int64_t block_size = 1;
};
// The right side of a MatMul or Gemm, if it is a dequantized constant that is large enough to be
// worth it.
bool HasStoredMatrix(const Graph& graph, const Node& product);
std::optional<StoredMatrix> ReadStoredMatrix(const Graph& graph, const Node& product);

// Whether a node takes rows of a large dequantized constant, with scales for each row or for blocks
// within rows.
bool HasStoredTable(const Graph& graph, const Node& gather);

// Whether every sum of products of a channel fits i32 with its bias (i32 per channel, or null),
// whatever the input.
bool SumsFit(const Kernel& kernel, int64_t channel_axis, const Dequantized& input,
             const Tensor* bias);

// The node that makes a value, if it is one of `op`; else null.
const Node* ProducerOf(const Graph& graph, ValueId id, std::string_view op);
// Whether the nearest f32 is neither 0, subnormal nor beyond the range.
bool IsNormal(double x);

}  // namespace quench::passes
