// Numbers for each channel.
#include "services/codegen/packs/request.h"

namespace quench::codegen {

absl::StatusOr<Packed> PackChannels(const Request& request) {
  const bool integers = request.source().dtype() == DataType::kI32;
  const DataType type = request.source().dtype();
  QUENCH_RETURN_IF_ERROR(request.CheckSource(0, 64, integers ? type : request.FloatType()));
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"channels", "padded"}));
  const int64_t channels = request.Param("channels");
  const int64_t padded = request.Param("padded");
  const int64_t size = request.source().size();
  if ((size != 1 && size != channels) || padded < channels) {
    return Internal("pack `channels`: {} elements do not give {} channels in {}", size, channels,
                    padded);
  }
  if (integers) {
    return Filled(padded * 4, [=, source = request.source().as<int32_t>()](std::byte* out) {
      for (int64_t i = 0; i < channels; ++i)
        reinterpret_cast<int32_t*>(out)[i] = source[static_cast<size_t>(size == 1 ? 0 : i)];
    });
  }
  const float scale = request.Scale();
  return Floats(padded, [=, &source = request.source()](std::span<float> out) {
    for (int64_t i = 0; i < channels; ++i) {
      out[static_cast<size_t>(i)] = static_cast<float>(source.FloatAt(size == 1 ? 0 : i)) * scale;
    }
  });
}

}  // namespace quench::codegen
