#include "services/codegen/check/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace quench::codegen {
namespace {

double ElementError(const Tensor& actual, const Tensor& expected, int64_t index) {
  const double a = actual.FloatAt(index), b = expected.FloatAt(index);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : INFINITY;
  return a == b ? 0 : std::abs(a - b);
}

}  // namespace

std::string ElementText(const Tensor& tensor, int64_t index) {
  return IsFloat(tensor.dtype()) ? fmt::format("{:.9g}", tensor.FloatAt(index))
                                 : fmt::format("{}", tensor.IntAt(index));
}

std::string PlaceText(const std::vector<int64_t>& dims, int64_t index) {
  std::vector<int64_t> place(dims.size());
  for (size_t axis = dims.size(); axis-- > 0;) {
    place[axis] = index % dims[axis];
    index /= dims[axis];
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

Comparison Compare(const Tensor& actual, const Tensor& expected, double tolerance, double inner,
                   std::span<const Tensor> rounded) {
  constexpr double kMostMoves = 4;
  Comparison result;
  result.error = RelativeError(actual, expected);
  if (result.error <= tolerance) return result;
  if (actual.dims() != expected.dims() || actual.dtype() != expected.dtype()) {
    result.wrong = std::max<int64_t>(actual.size(), 1);
    return result;
  }
  double largest = 0, most = -1, of_numbers = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double size = std::abs(expected.FloatAt(i));
    if (std::isfinite(size)) largest = std::max(largest, size);
  }
  const double allowed = tolerance * std::max(largest, 0.01 * inner);
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double error = ElementError(actual, expected, i);
    double moved = 0;
    for (const Tensor& each : rounded) {
      if (each.dims() == expected.dims()) moved = std::max(moved, ElementError(each, expected, i));
    }
    if (error <= std::max(allowed, kMostMoves * moved)) continue;
    ++result.wrong;
    if (std::isfinite(expected.FloatAt(i)) || !std::isfinite(actual.FloatAt(i)))
      of_numbers = std::max(of_numbers, error);
    if (error <= most) continue;
    most = error;
    result.worst = i;
  }
  if (result.wrong == 0) result.error = tolerance;
  if (std::isinf(result.error) && std::isfinite(of_numbers))
    result.error = largest > 0 ? std::max(1.0, of_numbers / largest) : 1;
  return result;
}

void TakeLargest(const Tensor& tensor, double& largest) {
  if (tensor.dtype() != DataType::kF32) return;
  for (const float each : tensor.as<float>()) {
    if (std::isfinite(each)) largest = std::max(largest, double{std::abs(each)});
  }
}

bool RoundingDecides(const Graph& graph, const Node& node) {
  static const std::set<std::string> kSteps = {"ArgMax",
                                               "ArgMin",
                                               "Ceil",
                                               "Equal",
                                               "Floor",
                                               "Greater",
                                               "GreaterOrEqual",
                                               "Less",
                                               "Mod",
                                               "NonZero",
                                               "Not",
                                               "Round",
                                               "LessOrEqual",
                                               "Sign",
                                               "TopK",
                                               "Unique",
                                               "Where",
                                               "If",
                                               "Loop",
                                               "QuantizeLinear",
                                               "NonMaxSuppression",
                                               "And",
                                               "Or",
                                               "Xor",
                                               "DynamicQuantizeLinear"};
  if (kSteps.contains(node.op)) return true;
  return node.op == "Cast" && node.outputs[0] != quench::kNone &&
         !IsFloat(graph.value(node.outputs[0]).type.dtype);
}

bool AreBytes(DataType a, DataType b) {
  const auto is_byte = [](DataType type) { return type == DataType::kI8 || type == DataType::kU8; };
  return is_byte(a) && is_byte(b);
}

std::optional<Tensor> AsType(const Tensor& tensor, DataType type) {
  if (tensor.dtype() == type) return tensor;
  if (AreBytes(tensor.dtype(), type)) {  // pass byte_activations
    Tensor result = tensor.BitCast(type);
    std::byte* bytes = result.mutable_bytes();
    for (size_t i = 0; i < result.bytes().size(); ++i) bytes[i] ^= std::byte{0x80};
    return result;
  }
  const auto taken = [](DataType each) {
    return each == DataType::kF32 || each == DataType::kF16 || each == DataType::kBF16;
  };
  if (!taken(tensor.dtype()) || !taken(type)) return std::nullopt;
  std::vector<float> floats(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < floats.size(); ++i)
    floats[i] = static_cast<float>(tensor.FloatAt(static_cast<int64_t>(i)));
  return Tensor::Floats(type, tensor.dims(), floats);
}

}  // namespace quench::codegen
