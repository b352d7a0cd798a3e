#include "services/codegen/forms/stored_weights.h"

#include <fmt/format.h>

namespace quench::codegen {

std::string StoredWeights::ToString() const {
  return blocked ? fmt::format("i{} weights in blocks of {}", bits, block)
                 : fmt::format("i{} weights", bits);
}

std::vector<Vec> StoredReader::Row(Ptr weights, int row) const {
  std::vector<Vec> result;
  for (int v = 0; v < vectors_; ++v) {
    const int64_t vector = int64_t{v} * lanes_;
    Vec real;
    if (stored_.bits == 8) {
      real = b_.ToF32(b_.Load(weights + vector, lanes_, DataType::kI8));
    } else {
      real = b_.FourBitsToF32(b_.LoadWords(weights + 4 * vector, lanes_), row, stored_.shift);
    }
    if (zeros_.valid()) real = b_.Apply(VecOp::kSub, real, b_.Load(zeros_ + 4 * vector, lanes_));
    if (scales_.valid()) real = b_.Apply(VecOp::kMul, real, b_.Load(scales_ + 4 * vector, lanes_));
    result.push_back(real);
  }
  return result;
}

}  // namespace quench::codegen
