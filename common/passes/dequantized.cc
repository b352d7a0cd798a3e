#include "common/passes/dequantized.h"

#include <cmath>
#include <limits>

#include "common/ops/byte_weights.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

bool IsByte(DataType type) { return type == DataType::kI8 || type == DataType::kU8; }

}  // namespace

bool IsNormal(double x) { return std::isnormal(static_cast<float>(x)); }

const Node* ProducerOf(const Graph& graph, ValueId id, std::string_view op) {
  if (id == kNone || graph.value(id).producer == kNone) return nullptr;
  const Node& node = graph.node(graph.value(id).producer);
  return node.op == op ? &node : nullptr;
}

std::optional<Dequantized> OneScale(const Graph& graph, const Node& node, DataType dtype) {
  const Tensor* scale = ConstantOf(graph, node.inputs[1]);
  if (scale == nullptr || scale->dtype() != DataType::kF32 || scale->size() != 1 ||
      !IsByte(dtype) || node.Int("block_size", 0) != 0) {
    return std::nullopt;
  }
  Dequantized result;
  result.scale_id = node.inputs[1];
  result.dtype = dtype;
  result.scale = static_cast<float>(scale->FloatAt(0));
  if (!IsNormal(result.scale) || result.scale < 0) return std::nullopt;
  if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
    const Tensor* zero = ConstantOf(graph, node.inputs[2]);
    if (zero == nullptr || zero->size() != 1) return std::nullopt;
    result.zero_id = node.inputs[2];
    result.zero = zero->IntAt(0);
  }
  return result;
}

namespace {

// As DynamicQuantizeLinear gives them: numbers that are computed while running.
std::optional<Dequantized> OneScaleOfRun(const Graph& graph, const Node& node, DataType dtype) {
  if (!IsByte(dtype) || node.Int("block_size", 0) != 0) return std::nullopt;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNone) continue;
    const Type& type = graph.value(node.inputs[i]).type;
    if (!type.ranked || type.rank() != 0) return std::nullopt;
  }
  if (graph.value(node.inputs[1]).type.dtype != DataType::kF32 ||
      ConstantOf(graph, node.inputs[1]) != nullptr) {
    return std::nullopt;
  }
  Dequantized result;
  result.scale_id = node.inputs[1];
  result.zero_id = node.inputs.size() > 2 ? node.inputs[2] : kNone;
  result.dtype = dtype;
  result.known = false;
  return result;
}

}  // namespace

std::optional<Dequantized> ReadDequantized(const Graph& graph, ValueId id) {
  const Node* node = ProducerOf(graph, id, "DequantizeLinear");
  if (node == nullptr || graph.value(id).type.dtype != DataType::kF32) return std::nullopt;
  const DataType dtype = graph.value(node->inputs[0]).type.dtype;
  std::optional<Dequantized> result = OneScale(graph, *node, dtype);
  if (!result) result = OneScaleOfRun(graph, *node, dtype);
  if (result) result->integers = node->inputs[0];
  return result;
}

std::optional<Dequantized> ReadKnown(const Graph& graph, ValueId id) {
  const std::optional<Dequantized> result = ReadDequantized(graph, id);
  return result && result->known ? result : std::nullopt;
}

std::optional<Tensor> AsSigned(const Tensor& integers, const Tensor* zero) {
  const std::optional<int64_t> point = ops::UniformZero(zero);
  if (!point) return std::nullopt;
  if (integers.dtype() == DataType::kI8 && *point == 0) return integers;
  Tensor result = Tensor::Zeros(DataType::kI8, integers.dims());
  std::byte* out = result.mutable_bytes();
  for (int64_t i = 0; i < integers.size(); ++i) {
    const int64_t distance = integers.IntAt(i) - *point;
    if (distance < -128 || distance > 127) return std::nullopt;
    *out++ = static_cast<std::byte>(distance);
  }
  return result;
}

std::optional<Kernel> ReadKernel(const Graph& graph, ValueId id) {
  const Node* node = ProducerOf(graph, id, "DequantizeLinear");
  if (node == nullptr || node->Int("block_size", 0) != 0) return std::nullopt;
  const Tensor* integers = ConstantOf(graph, node->inputs[0]);
  const Tensor* scale = ConstantOf(graph, node->inputs[1]);
  if (integers == nullptr || scale == nullptr || !IsByte(integers->dtype()) ||
      scale->dtype() != DataType::kF32 || scale->rank() > 1 || scale->size() < 1) {
    return std::nullopt;
  }
  const bool has_zero = node->inputs.size() > 2 && node->inputs[2] != kNone;
  const Tensor* zero = has_zero ? ConstantOf(graph, node->inputs[2]) : nullptr;
  if (has_zero && zero == nullptr) return std::nullopt;
  const std::optional<int64_t> point = ops::UniformZero(zero);
  if (!point) return std::nullopt;
  Kernel kernel;
  std::optional<Tensor> as_signed = AsSigned(*integers, zero);
  const bool as_it_is = !as_signed || (integers->dtype() == DataType::kI8 && *point == 0);
  if (!as_signed) {
    kernel.zero = *point;
    kernel.zero_id = has_zero ? node->inputs[2] : kNone;
    as_signed = *integers;
  }
  kernel.integers = *std::move(as_signed);
  if (as_it_is) kernel.id = node->inputs[0];
  const int64_t axis = node->Int("axis", 1);
  kernel.scale_axis = axis < 0 ? axis + integers->rank() : axis;
  for (int64_t i = 0; i < scale->size(); ++i) kernel.scales.push_back(scale->FloatAt(i));
  return kernel;
}

std::optional<Kernel> ReadRecurrentKernel(const Graph& graph, ValueId id) {
  std::optional<Kernel> kernel = ReadKernel(graph, id);
  const bool fits = kernel && kernel->integers.dtype() == DataType::kI8 &&
                    kernel->zero_id == kNone && kernel->integers.rank() == 3 &&
                    (kernel->scales.size() == 1 || kernel->scale_axis == 1);
  return fits ? std::move(kernel) : std::nullopt;
}

bool SumsFit(const Kernel& kernel, int64_t channel_axis, const Dequantized& input,
             const Tensor* bias) {
  const Tensor& integers = kernel.integers;
  const int64_t reach = input.Reach();
  const auto axis = static_cast<size_t>(channel_axis);
  const int64_t channels = integers.dims()[axis];
  int64_t inner = 1;
  for (size_t i = axis + 1; i < integers.dims().size(); ++i) inner *= integers.dims()[i];
  std::vector<int64_t> sums(static_cast<size_t>(channels), 0);
  for (int64_t i = 0; i < integers.size(); ++i) {
    sums[static_cast<size_t>(i / inner) % sums.size()] +=
        std::abs(integers.IntAt(i) - kernel.zero) * reach;
  }
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t start = bias == nullptr ? 0 : std::abs(bias->IntAt(c));
    if (sums[static_cast<size_t>(c)] + start > std::numeric_limits<int32_t>::max()) return false;
  }
  return true;
}

}  // namespace quench::passes
