// Start values of the sums of products of bytes.
#include "services/codegen/packs/request.h"

namespace quench::codegen {

absl::StatusOr<Packed> PackByteSums(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"channels", "padded"}));
  const int64_t axis = request.Param("axis"), channels = request.Param("channels");
  const Tensor& weights = request.source();
  const Tensor* bias = request.second();
  const bool is_signed = weights.dtype() == DataType::kI8;
  if ((!is_signed && weights.dtype() != DataType::kU8) || axis < 0 || axis >= weights.rank() ||
      request.dim(static_cast<int>(axis)) != channels || request.Param("padded") < channels ||
      (bias != nullptr &&
       (bias->dtype() != DataType::kI32 || (bias->size() != 1 && bias->size() != channels)))) {
    return Internal("pack `byte_sums`: sources do not give {} channels", channels);
  }
  size_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < weights.rank(); ++i)
    inner *= static_cast<size_t>(request.dim(i));
  const auto factor = static_cast<uint32_t>(request.Param("factor"));
  const auto zero = static_cast<int32_t>(request.Param("zero"));
  return Filled(request.Param("padded") * 4, [=, values = request.bytes()](std::byte* out) {
    auto* sums = reinterpret_cast<uint32_t*>(out);  // wraps
    for (size_t i = 0; i < values.size(); ++i) {
      const int32_t weight = is_signed ? values[i] : static_cast<uint8_t>(values[i]);
      sums[i / inner % static_cast<size_t>(channels)] +=
          factor * static_cast<uint32_t>(weight - zero);
    }
    for (int64_t c = 0; bias != nullptr && c < channels; ++c)
      sums[c] += static_cast<uint32_t>(bias->IntAt(bias->size() == 1 ? 0 : c));
  });
}

}  // namespace quench::codegen
