// A convolution's weights in bytes.
#include <optional>
#include <vector>

#include "services/codegen/packs/conv_panels.h"

namespace quench::codegen {

absl::StatusOr<Packed> PackConvPanelsBytes(const Request& request) {
  const DataType type = request.source().dtype();
  const int64_t zero = request.Param("zero");
  if (type == DataType::kI8 && zero == 0) {
    QUENCH_RETURN_IF_ERROR(request.CheckSource(3, 4, type));
    QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, 4, nullptr));
    return Filled(size, [request, source = request.bytes()](std::byte* out) {
      ConvPanels(request, 4, [&](size_t from, size_t to) {
        out[to] = static_cast<std::byte>(source[from]);
      }).IgnoreError();
    });
  }
  QUENCH_RETURN_IF_ERROR(
      request.CheckSource(3, 4, type == DataType::kU8 ? DataType::kU8 : DataType::kI8));
  const std::optional<std::vector<ops::WeightWord>> twice =
      ops::WordsOfTwoParts(request.source(), zero);
  if (!twice || (!twice->empty() && request.Param("groups") != 1))
    return Internal("pack `{}`: weights do not fit two bytes", request.transform());
  QUENCH_ASSIGN_OR_RETURN(const int64_t size, ConvPanels(request, 4, nullptr, *twice));
  return Filled(size, [=, &source = request.source(), twice = *twice](std::byte* out) {
    const auto weight = [&](size_t i) { return source.IntAt(static_cast<int64_t>(i)) - zero; };
    const auto near = [&](size_t from, size_t to) {
      out[to] = static_cast<std::byte>(ops::NearPart(weight(from)));
    };
    const auto rest = [&](size_t from, size_t to) {
      out[to] = static_cast<std::byte>(weight(from) - ops::NearPart(weight(from)));
    };
    ConvPanels(request, 4, near, twice, rest).IgnoreError();
  });
}

}  // namespace quench::codegen
