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

ByteWork ByteWork::Of(BytesForm form, const WeightPanels& panels, const TileOperands& operands) {
  ByteWork work;
  work.form = form;
  work.flip =
      operands.flip && form != BytesForm::kWords;  // their rows are changed as they are made
  if (operands.zero.valid()) {
    work.factors = operands.pack(2) + operands.vector * (4 * panels.lanes);
    work.zero = operands.zero;
  }
  work.rest = operands.rest;
  work.again = operands.again;
  return work;
}

TileProblem WithCostOf(BytesForm products, const TileProblem& problem) {
  // Instructions that one AddProducts takes for a vector, beside one multiply-add of floats, and registers
  // that it needs beside sums, one input and the weights.
  struct Cost {
    double operations = 1;
    int spare = 0;
  };
  const auto cost = [&]() -> Cost {
    switch (products) {
      case BytesForm::kUnsigned:
        return {1, 0};
      case BytesForm::kPairs:
        return {2,
                2};  // additions have ports of their own; the products, and ones to add pairs with
      case BytesForm::kPicked:
        return {2.2, 4};  // and what is picked, and from what
      case BytesForm::kMagnitudes:
        return {2.6, 3};  // and the magnitude
      case BytesForm::kSigned:
        return {1, 2};
      case BytesForm::kWords:
        return {1, 1};  // twice, for there are twice as many words; the products
    }
    return {};
  }();
  TileProblem own = problem;
  own.operations = cost.operations;
  own.spare = cost.spare;
  return own;
}

std::vector<Tile> ByteForm::Tiles(const Target& target, const TileProblem& problem) const {
  return RankTiles(target, WithCostOf(products, problem));
}

int64_t ByteForm::VectorBytes(const WeightPanels& panels) const {
  const int64_t words = panels.words() + (panels.rest > 0 ? 1 : 0) + panels.twice;
  return words * 4 * panels.lanes;
}

TileCode ByteForm::Code(VectorBuilder& b, const WeightPanels& panels,
                        const TileOperands& operands) const {
  return [&b, work = ByteWork::Of(products, panels, operands)](
             const MicroReduction& reduction, const MicroTile& tile, const StoreSum& store) {
    ByteEmitter(b, reduction, tile, work).Emit(store);
  };
}

std::string ByteForm::ToString() const {
  static constexpr const char* kWays[] = {"products",     "signed products", "pairs",
                                          "picked pairs", "magnitudes",      "words"};
  return std::string("by ") + kWays[static_cast<size_t>(products)];
}

std::string ByteForm::Slow() const {
  if (products == BytesForm::kMagnitudes)
    return "by magnitudes: the CPU's products of pairs would overflow with its weights";
  if (products == BytesForm::kWords)
    return "by words: the CPU's products of pairs of bytes could overflow";
  return "";
}

}  // namespace quench::codegen
