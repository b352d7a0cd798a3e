#include "services/codegen/kernels/blocks.h"

namespace quench::codegen {

int64_t MatrixBlock(const Target& target, DataType type) {
  const MatrixUnit& unit = target.matrices;
  const bool has = type == DataType::kBF16  ? !unit.bfloats.empty()
                   : type == DataType::kF16 ? !unit.halves.empty()
                   : type == DataType::kU8  ? !unit.unsigned_bytes.empty()
                   : type == DataType::kI8  ? !unit.signed_bytes.empty()
                                            : false;
  constexpr int64_t kRowBits = int64_t{32} * MatrixUnit::kWords;
  return has ? kRowBits / DataTypeBits(type) : 0;
}

std::vector<int64_t> ActivationBlocks(const Target& target, DataType type) {
  std::vector<int64_t> blocks = {target.f32_lanes()};
  const int64_t matrix = MatrixBlock(target, type);
  if (matrix != 0 && matrix != blocks[0]) blocks.push_back(matrix);
  return blocks;
}

Layout ChannelsLast() {
  Layout layout;
  layout.order = {0, 2, 3, 1};
  return layout;
}

Layout BlockedLayout(int64_t block) {
  Layout layout;
  layout.blocked_axis = 1;
  layout.block = block;
  return layout;
}

}  // namespace quench::codegen
