#include <algorithm>

#include "common/passes/dequantized.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr int64_t kWorthwhile = 4096;  // elements

bool IsStorable(DataType type) {
  return type == DataType::kI8 || type == DataType::kU8 || type == DataType::kI4 ||
         type == DataType::kU4;
}

// Element `from` of one tensor becomes element `to` of another, of the same dtype.
void CopyElement(const Tensor& source, int64_t from, Tensor& target, int64_t to) {
  std::byte* const out = target.mutable_bytes();
  if (source.dtype() == DataType::kF32) {
    reinterpret_cast<float*>(out)[to] = source.as<float>()[static_cast<size_t>(from)];
    return;
  }
  const int bits = DataTypeBits(source.dtype());  // 8 or 4
  const auto value = static_cast<unsigned>(source.IntAt(from)) & ((1U << bits) - 1U);
  out[to * bits / 8] |= static_cast<std::byte>(value << (to * bits % 8));
}

}  // namespace

Tensor TransposedMatrix(const Tensor& matrix) {
  const int64_t rows = matrix.dims()[0], columns = matrix.dims()[1];
  Tensor result = Tensor::Zeros(matrix.dtype(), {columns, rows});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      CopyElement(matrix, r * columns + c, result, c * rows + r);
  }
  return result;
}

namespace {

// Scales or zero points as a matrix with a row for each block and a column for each channel.
Tensor AsRows(const Tensor& parameter, int64_t columns, bool transposed) {
  if (parameter.rank() == 2) return transposed ? TransposedMatrix(parameter) : parameter;
  if (parameter.size() == columns) return parameter.Reshaped({1, columns});
  Tensor row = Tensor::Zeros(parameter.dtype(), {1, columns});
  for (int64_t i = 0; i < columns; ++i) CopyElement(parameter, 0, row, i);
  return row;
}

// The operands of the dequantizing node of a product.
struct Parts {
  const Tensor* integers = nullptr;
  const Tensor* scale = nullptr;
  const Tensor* zero = nullptr;  // or none
  bool transposed = false;       // [n, k]
  int64_t rows = 0, columns = 0, block_size = 0;
};

// A large matrix of integers with its scales and, if any, zero points; all constants.
std::optional<Parts> ConstantsOf(const Graph& graph, const Node& dequantize) {
  Parts parts;
  parts.integers = ConstantOf(graph, dequantize.inputs[0]);
  parts.scale = ConstantOf(graph, dequantize.inputs[1]);
  const bool has_zero = dequantize.inputs.size() > 2 && dequantize.inputs[2] != kNone;
  if (has_zero) parts.zero = ConstantOf(graph, dequantize.inputs[2]);
  if (parts.integers == nullptr || parts.scale == nullptr || (has_zero && parts.zero == nullptr) ||
      !IsStorable(parts.integers->dtype()) || parts.integers->rank() != 2 ||
      parts.integers->size() < kWorthwhile || parts.scale->dtype() != DataType::kF32 ||
      (has_zero && parts.zero->dims() != parts.scale->dims())) {
    return std::nullopt;
  }
  return parts;
}

std::optional<Parts> PartsOf(const Graph& graph, const Node& product) {
  const bool gemm = product.op == "Gemm";
  if ((!gemm && product.op != "MatMul") || product.Int("transA", 0) != 0 ||
      graph.value(product.outputs[0]).type.dtype != DataType::kF32) {
    return std::nullopt;
  }
  const Node* node = ProducerOf(graph, product.inputs[1], "DequantizeLinear");
  const Type& left = graph.value(product.inputs[0]).type;
  const bool rows = left.ranked && left.rank() >= 2 && left.dims.back().is_static() &&
                    std::none_of(left.dims.begin(), left.dims.end(), [](Dim d) { return d.is(0); });
  if (node == nullptr || !rows) return std::nullopt;
  std::optional<Parts> found = ConstantsOf(graph, *node);
  if (!found) return std::nullopt;
  Parts& parts = *found;
  parts.transposed = gemm && product.Int("transB", 0) != 0;
  const int64_t axis = (node->Int("axis", 1) + 2) % 2, columns_axis = parts.transposed ? 0 : 1;
  const int64_t block = node->Int("block_size", 0);
  // One scale for all, one for each column, or blocks along k.
  if (block > 0 ? axis == columns_axis : parts.scale->size() != 1 && axis != columns_axis)
    return std::nullopt;
  parts.columns = parts.integers->dims()[static_cast<size_t>(columns_axis)];
  parts.rows = parts.integers->dims()[static_cast<size_t>(1 - columns_axis)];
  parts.block_size = block > 0 ? std::min(block, parts.rows) : parts.rows;
  // Two rows may share a byte.
  if (parts.block_size < parts.rows && parts.block_size % 2 != 0) return std::nullopt;
  return found;
}

}  // namespace

bool HasStoredMatrix(const Graph& graph, const Node& product) {
  return PartsOf(graph, product).has_value();
}

bool HasStoredTable(const Graph& graph, const Node& gather) {
  const Node* node =
      gather.op == "Gather" ? ProducerOf(graph, gather.inputs[0], "DequantizeLinear") : nullptr;
  if (node == nullptr || graph.value(gather.outputs[0]).type.dtype != DataType::kF32 ||
      !graph.value(gather.outputs[0]).type.ranked) {
    return false;
  }
  const std::optional<Parts> parts = ConstantsOf(graph, *node);
  const int64_t taken = (gather.Int("axis", 0) + 2) % 2, axis = (node->Int("axis", 1) + 2) % 2;
  if (!parts || taken != 0 || parts->scale->size() == 1) return false;
  return node->Int("block_size", 0) > 0 ? axis == 1 : axis == 0;
}

std::optional<StoredMatrix> ReadStoredMatrix(const Graph& graph, const Node& product) {
  const std::optional<Parts> parts = PartsOf(graph, product);
  if (!parts) return std::nullopt;
  StoredMatrix result;
  result.block_size = parts->block_size;
  result.integers = parts->transposed ? TransposedMatrix(*parts->integers) : *parts->integers;
  result.scale = AsRows(*parts->scale, parts->columns, parts->transposed);
  if (parts->zero != nullptr) result.zero = AsRows(*parts->zero, parts->columns, parts->transposed);
  return result;
}

}  // namespace quench::passes
