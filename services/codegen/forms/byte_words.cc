#include "services/codegen/forms/byte_words.h"

namespace quench::codegen {

Vec Scaled(VectorBuilder& b, Vec value, double factor) {
  return b.Apply(VecOp::kMul, value, b.Constant(DataType::kI32, factor, value.lanes));
}

Vec AtByte(VectorBuilder& b, Vec bytes, int r) {
  return r == 0 ? bytes : Scaled(b, bytes, static_cast<double>(int64_t{1} << (8 * r)));
}

Vec LoadPartOfWord(VectorBuilder& b, Ptr address, int count) {
  Vec word;
  for (int r = 0; r < count; ++r) {
    const Vec byte = AtByte(b, b.ToI32(b.Load(address + r, 1, DataType::kU8)), r);
    word = r == 0 ? byte : b.Apply(VecOp::kAdd, word, byte);
  }
  return word;
}

void ForRest(VectorBuilder& b, Int rest, const std::function<void(int rest)>& body) {
  constexpr int kBytesOfWord = 4;
  const int64_t known = b.ConstantOr(rest, -1);
  for (int count = 1; count < kBytesOfWord; ++count) {
    if (known == count) body(count);
    if (known < 0) b.If(rest == b.I(count), [&] { body(count); });
  }
}

}  // namespace quench::codegen
