// Weights as the blocks of a GPU read them: a row of neighbours along k for each output channel.
#include <bit>

#include "services/codegen/packs/request.h"

namespace quench::codegen {
namespace {

// As GpuBuilder::RoundToTf32.
void RoundToTf32(std::byte* number) {
  constexpr uint32_t kInfinity = 0x7F800000, kDropped = 0x1FFF, kHalf = 0x1000;
  uint32_t word = 0;
  std::memcpy(&word, number, sizeof word);
  if ((word & kInfinity) == kInfinity) return;
  word = (word + kHalf) & ~kDropped;
  std::memcpy(number, &word, sizeof word);
}

}  // namespace

absl::StatusOr<Packed> PackGpuRows(const Request& request) {
  QUENCH_RETURN_IF_ERROR(request.CheckPositive({"rows", "row_bytes"}));
  const Tensor& source = request.source();
  const int64_t channels = request.Param("channels"), zero = request.Param("zero");
  const bool conv = channels > 0, transposed = request.Param("transposed") != 0;
  const int rank = source.rank();
  const int64_t element = DataTypeBits(source.dtype()) / 8, row = request.Param("row_bytes");
  if (rank < 2 || element == 0)
    return Internal("pack `{}`: takes a matrix or a convolution's weights", request.transform());
  const bool by_column = !conv && !transposed;
  const int64_t n = request.dim(by_column ? rank - 1 : 0);
  const int64_t ic = conv ? request.dim(1) : request.dim(by_column ? rank - 2 : rank - 1);
  const int64_t taps = !conv || n * ic == 0 ? 1 : source.size() / (n * ic);
  const int64_t groups = std::max<int64_t>(1, request.Param("groups"));
  if (n / groups > request.Param("rows") / groups || taps * (conv ? channels : ic) * element > row)
    return Internal("pack `{}`: the weights do not fit", request.transform());
  const auto* from = reinterpret_cast<const std::byte*>(source.bytes().data());
  const bool bytes = element == 1, rounds = request.Param("tf32") != 0;
  if (rounds && source.dtype() != DataType::kF32)
    return Internal("pack `{}`: TF32 is made of f32", request.transform());
  return Filled(request.Param("rows") * row, [=](std::byte* out) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < ic; ++c) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t at = by_column ? c * n + j : (j * ic + c) * taps + tap;
          const int64_t at_row =
              j / (n / groups) * (request.Param("rows") / groups) + j % (n / groups);
          std::byte* to = out + at_row * row + (tap * (conv ? channels : 0) + c) * element;
          std::memcpy(to, from + at * element, static_cast<size_t>(element));
          if (rounds) RoundToTf32(to);
          if (bytes && zero != 0) *to = static_cast<std::byte>(static_cast<int64_t>(*to) - zero);
        }
      }
    }
  });
}

}  // namespace quench::codegen
