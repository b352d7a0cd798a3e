// Bytes, four a word; sums and bias are i32.
#pragma once

#include <vector>

#include "services/codegen/forms/tile.h"
#include "services/codegen/forms/words.h"

namespace quench::codegen {

// How the bytes of a tile are multiplied, and what its sums have beside the words of the reduction.
struct ByteWork {
  BytesForm form = BytesForm::kSigned;
  bool flip = false;  // the highest bit of each byte of x is changed first
  // If the zero point is one of each run: `vectors` vectors more to start with, multiplied by the i32
  // `zero`. Invalid if it is a constant.
  Ptr factors;
  Vec zero;
  // Number of channels (0 to 3) left over after the last full word; invalid if there are none. The
  // weights hold a zero-padded word for them.
  Int rest;
  // Words that are multiplied a second time, as offsets from MicroTile::input. The weights hold a word
  // for each after all others.
  std::vector<Int> again;
};

class ByteForm final : public TileForm {
 public:
  explicit ByteForm(ByteWork work) : work_(std::move(work)) {}
  void Emit(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
            const StoreSum& store) const override;

 private:
  const ByteWork work_;
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
