// A depthwise convolution's weights.
#include "services/codegen/packs/request.h"

namespace quench::codegen {

absl::StatusOr<Packed> PackDepthwise(const Request& request) {
  const DataType type = request.source().dtype();
  const bool integers = type == DataType::kI8 || type == DataType::kU8;
  QUENCH_RETURN_IF_ERROR(request.CheckSource(3, 4, integers ? type : request.FloatType()));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"lanes", "padded"}));
  const int64_t lanes = request.Param("lanes"), channels = request.dim(0);
  const int64_t padded = request.Param("padded");
  if (padded % lanes != 0 || padded < channels)
    return Internal("pack `depthwise`: {} channels in {} padded ones", channels, padded);
  const int64_t taps =
      request.source().rank() == 4 ? request.dim(2) * request.dim(3) : request.dim(2);
  if (request.dim(1) != 1)
    return Internal("pack `depthwise`: {} input channels per group, takes 1", request.dim(1));
  const auto zero = static_cast<double>(request.Param("zero"));
  return Floats(padded * taps, [=, &source = request.source()](std::span<float> out) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        out[static_cast<size_t>((c / lanes * taps + tap) * lanes + c % lanes)] =
            static_cast<float>(source.FloatAt(c * taps + tap) - zero);
      }
    }
  });
}

}  // namespace quench::codegen
