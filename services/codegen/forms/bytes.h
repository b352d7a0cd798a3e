// Bytes, four a word; sums and bias are i32.
#pragma once

#include <string>
#include <vector>

#include "common/base/fields.h"
#include "services/codegen/forms/form.h"
#include "services/codegen/forms/words.h"

namespace quench::codegen {

// Adds the cost of a step to a problem.
TileProblem WithCostOf(BytesForm products, const TileProblem& problem);

// Pack 1 holds what sums start from, i32, and pack 2, where the zero point is one of each run, what it is
// multiplied by. The weights hold a word, padded with zeros, for a rest, and after all others one for each
// of those that are multiplied a second time.
struct ByteForm final : Form {
  static constexpr const char kName[] = "bytes";
  explicit ByteForm(BytesForm way = BytesForm::kSigned) : products(way) {}
  BytesForm products;
  QUENCH_FIELDS(products)

  int64_t unit() const override { return products == BytesForm::kWords ? 2 : 4; }
  std::vector<Tile> Tiles(const Target& target, const TileProblem& problem) const override;
  int64_t VectorBytes(const WeightPanels& panels) const override;
  WeightPack Pack(const WeightPanels& /*panels*/) const override { return {"_bytes", {}}; }
  TileCode Code(VectorBuilder& b, const WeightPanels& panels,
                const TileOperands& operands) const override;
  std::string ToString() const override;  // "by pairs"
  std::string Slow() const override;
};

// How the bytes of a tile are multiplied.
struct ByteWork {
  BytesForm form = BytesForm::kSigned;
  bool flip = false;  // the highest bit of each byte of x is changed first
  // If the zero point is one of each run: `vectors` vectors more to start with, multiplied by the i32
  // `zero`. Invalid if it is a constant.
  Ptr factors;
  Vec zero;
  Int rest;                // as TileOperands
  std::vector<Int> again;  // as TileOperands

  static ByteWork Of(BytesForm form, const WeightPanels& panels, const TileOperands& operands);
};

class ByteEmitter : public WordEmitter {
 public:
  ByteEmitter(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
              const ByteWork& work)
      : WordEmitter(b, reduction, tile), work_(work) {}

 protected:
  DataType SumType() const override { return DataType::kI32; }
  Vec Initial(int vector) override;
  AddProducts Products(Vec word) override;
  void Rest(Ptr input) override;
  void Finish() override;
  // Multiplies one word that lies by itself; load(pixel) has it.
  void AddOne(const std::function<Vec(Int pixel)>& load);
  // Number of words in which the weights of a rest lie.
  virtual int WordsOfRest(int /*rest*/) const { return 1; }
  // The word as it is multiplied.
  BytesOperand Operand(Vec word);

  const ByteWork& work_;
};

}  // namespace quench::codegen
