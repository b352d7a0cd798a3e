#include "services/codegen/forms/bytes.h"

#include "services/codegen/forms/byte_words.h"

namespace quench::codegen {

Vec ByteEmitter::Initial(int vector) {
  const Vec bias = WordEmitter::Initial(vector);
  if (!work_.factors.valid()) return bias;
  const Vec factor = b_.Load(work_.factors + 4 * r_.lanes * vector, r_.lanes, SumType());
  const Vec moved = b_.Apply(VecOp::kMul, factor, b_.Splat(work_.zero, r_.lanes));
  return b_.Apply(VecOp::kAdd, bias, moved);
}

BytesOperand ByteEmitter::Operand(Vec word) {
  return b_.PrepareBytes(work_.form, word, work_.flip);
}

WordEmitter::AddProducts ByteEmitter::Products(Vec word) {
  const BytesOperand x = Operand(word);
  return [this, x](Vec sum, Vec w) { return b_.AddProducts(work_.form, sum, x, w); };
}

void ByteEmitter::AddOne(const std::function<Vec(Int pixel)>& load) {
  AddWord(0, [&](Int pixel) { return b_.Splat(load(pixel), r_.lanes); });
  Pass(1);
}

void ByteEmitter::Rest(Ptr input) {
  if (!work_.rest.valid()) return;
  ForRest(b_, work_.rest, [&](int rest) {
    for (int words = WordsOfRest(rest); words > 0; --words)
      AddOne([&](Int pixel) { return LoadPartOfWord(b_, input + pixel, rest); });
  });
}

void ByteEmitter::Finish() {
  for (const Int& offset : work_.again)
    AddOne([&](Int pixel) { return b_.LoadWords(t_.input + (offset + pixel), 1); });
}

void ByteForm::Emit(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
                    const StoreSum& store) const {
  ByteEmitter(b, reduction, tile, work_).Emit(store);
}

}  // namespace quench::codegen
