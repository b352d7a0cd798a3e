// Sums of products of bytes, of bf16 and of f16, by the instructions that a target names or by plain code.
#include <llvm/IR/DerivedTypes.h>

#include <numeric>

#include "common/base/status.h"
#include "services/codegen/emit/llvm_vector_builder.h"

namespace quench::codegen {
namespace {

// Vectors of other widths over the same bits.
llvm::Type* IntegerLanes(llvm::Value* vector, unsigned bits) {
  const auto* type = llvm::cast<llvm::FixedVectorType>(vector->getType());
  const unsigned all = type->getNumElements() * type->getScalarSizeInBits();
  return llvm::FixedVectorType::get(llvm::Type::getIntNTy(vector->getContext(), bits), all / bits);
}

unsigned Unsigned(int lanes) { return static_cast<unsigned>(lanes); }

class ByteProducts {
 public:
  ByteProducts(ModuleState& state, llvm::IRBuilder<>& b) : state_(state), b_(b) {}

  llvm::Value* Flipped(llvm::Value* x) {
    llvm::Type* bytes = IntegerLanes(x, 8);
    return b_.CreateBitCast(
        b_.CreateXor(b_.CreateBitCast(x, bytes), llvm::ConstantInt::get(bytes, 0x80)),
        x->getType());
  }

  llvm::Value* Magnitude(llvm::Value* x) {
    llvm::Type* bytes = IntegerLanes(x, 8);
    return b_.CreateBitCast(
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, b_.CreateBitCast(x, bytes), b_.getFalse()),
        x->getType());
  }

  llvm::Value* AddBfloats(llvm::Value* sum, llvm::Value* x, llvm::Value* w) {
    const auto* words = llvm::cast<llvm::FixedVectorType>(x->getType());
    llvm::Type* pairs = llvm::FixedVectorType::get(b_.getBFloatTy(), words->getNumElements() * 2);
    return Call(state_.target.add_products_bf16, sum->getType(),
                {sum, b_.CreateBitCast(x, pairs), b_.CreateBitCast(w, pairs)});
  }

  llvm::Value* Add(BytesForm form, llvm::Value* sum, llvm::Value* x, llvm::Value* magnitude,
                   llvm::Value* w) {
    const Target& target = state_.target;
    switch (form) {
      case BytesForm::kUnsigned: {
        llvm::Type* operand = target.products_u8_take_words ? x->getType() : IntegerLanes(x, 8);
        return Call(target.add_products_u8, sum->getType(),
                    {sum, b_.CreateBitCast(x, operand), b_.CreateBitCast(w, operand)});
      }
      case BytesForm::kPairs:
      case BytesForm::kPicked:
        return b_.CreateAdd(sum, Pairs(x, w));
      case BytesForm::kMagnitudes:
        return b_.CreateAdd(sum, Pairs(magnitude, WithSign(w, x)));
      case BytesForm::kWords:
        return AddPairsOfWords(sum, Words(x), Words(w));
      case BytesForm::kSigned:
        break;
    }
    if (!target.add_products_i8.empty()) {
      llvm::Type* bytes = IntegerLanes(x, 8);
      return Call(target.add_products_i8, sum->getType(),
                  {sum, b_.CreateBitCast(x, bytes), b_.CreateBitCast(w, bytes)});
    }
    if (!target.add_pairs_of_words.empty()) return AddHalves(sum, Words(x), Words(w));
    return b_.CreateAdd(sum, Plain(x, w));
  }

  llvm::Value* Pick(llvm::Value* x, llvm::Value* picks) {
    llvm::Type* bytes = IntegerLanes(x, 8);
    return b_.CreateBitCast(Call(state_.target.pick_of_16, bytes,
                                 {b_.CreateBitCast(x, bytes), b_.CreateBitCast(picks, bytes)}),
                            x->getType());
  }

 private:
  // An instruction by its name in the target's table.
  llvm::Value* Call(const std::string& name, llvm::Type* result,
                    llvm::ArrayRef<llvm::Value*> arguments) {
    std::vector<llvm::Type*> types;
    for (llvm::Value* argument : arguments) types.push_back(argument->getType());
    return b_.CreateCall(state_.module->getOrInsertFunction(
                             name, llvm::FunctionType::get(result, types, /*isVarArg=*/false)),
                         arguments);
  }

  // u8 x times i8 w, neighbours added in i16, then in i32.
  llvm::Value* Pairs(llvm::Value* x, llvm::Value* w) {
    llvm::Type* bytes = IntegerLanes(x, 8);
    llvm::Type* words = IntegerLanes(x, 16);
    llvm::Value* pairs = Call(state_.target.add_pairs_of_bytes, words,
                              {b_.CreateBitCast(x, bytes), b_.CreateBitCast(w, bytes)});
    return Call(state_.target.add_pairs_of_words, x->getType(),
                {pairs, llvm::ConstantInt::get(words, 1)});
  }

  llvm::Value* Words(llvm::Value* x) { return b_.CreateBitCast(x, IntegerLanes(x, 16)); }

  llvm::Value* AddPairsOfWords(llvm::Value* sum, llvm::Value* x, llvm::Value* w) {
    return b_.CreateAdd(sum, Call(state_.target.add_pairs_of_words, sum->getType(), {x, w}));
  }

  // Even and odd bytes as i16, one after the other.
  llvm::Value* AddHalves(llvm::Value* sum, llvm::Value* x, llvm::Value* w) {
    const auto odd = [&](llvm::Value* bytes) { return b_.CreateAShr(bytes, 8); };
    const auto even = [&](llvm::Value* bytes) { return odd(b_.CreateShl(bytes, 8)); };
    return AddPairsOfWords(AddPairsOfWords(sum, even(x), even(w)), odd(x), odd(w));
  }

  llvm::Value* WithSign(llvm::Value* w, llvm::Value* x) {
    llvm::Type* bytes = IntegerLanes(x, 8);
    llvm::Value* weights = b_.CreateBitCast(w, bytes);
    llvm::Value* signs = b_.CreateBitCast(x, bytes);
    if (!state_.target.sign_of_bytes.empty())
      return Call(state_.target.sign_of_bytes, bytes, {weights, signs});
    llvm::Value* zero = llvm::Constant::getNullValue(bytes);
    return b_.CreateSelect(b_.CreateICmpSLT(signs, zero), b_.CreateNeg(weights), weights);
  }

  // Products in i16, which they fit; pairs and pairs of pairs in i32.
  llvm::Value* Plain(llvm::Value* x, llvm::Value* w) {
    llvm::Type* bytes = IntegerLanes(x, 8);
    const unsigned count = llvm::cast<llvm::FixedVectorType>(bytes)->getNumElements();
    llvm::Type* words = llvm::FixedVectorType::get(b_.getInt16Ty(), count);
    llvm::Value* products = b_.CreateMul(b_.CreateSExt(b_.CreateBitCast(x, bytes), words),
                                         b_.CreateSExt(b_.CreateBitCast(w, bytes), words));
    llvm::Value* sums = b_.CreateSExt(products, llvm::FixedVectorType::get(b_.getInt32Ty(), count));
    for (unsigned size = count; size > count / 4; size /= 2) {
      std::vector<int> even, odd;
      for (unsigned i = 0; i < size; i += 2) {
        even.push_back(static_cast<int>(i));
        odd.push_back(static_cast<int>(i + 1));
      }
      sums = b_.CreateAdd(b_.CreateShuffleVector(sums, even), b_.CreateShuffleVector(sums, odd));
    }
    return sums;
  }

  ModuleState& state_;
  llvm::IRBuilder<>& b_;
};

}  // namespace

Vec LlvmVectorBuilder::LoadWords(Ptr address, int lanes) {
  return NewVec(b_.CreateAlignedLoad(VecType(lanes, DataType::kI32), At(address), llvm::Align(1)),
                lanes, DataType::kI32);
}

BytesOperand LlvmVectorBuilder::PrepareBytes(BytesForm form, Vec x, bool flip) {
  ByteProducts products(state_, b_);
  llvm::Value* value = flip ? products.Flipped(At(x)) : At(x);
  BytesOperand operand{NewVec(value, x.lanes, DataType::kI32), {}};
  if (form == BytesForm::kMagnitudes)
    operand.magnitude = NewVec(products.Magnitude(value), x.lanes, DataType::kI32);
  return operand;
}

Vec LlvmVectorBuilder::PickBytes(Vec x, Vec picks) {
  return NewVec(ByteProducts(state_, b_).Pick(At(x), At(picks)), x.lanes, DataType::kI32);
}

Vec LlvmVectorBuilder::AddProducts(BytesForm form, Vec sum, const BytesOperand& x, Vec w) {
  llvm::Value* magnitude = x.magnitude.valid() ? At(x.magnitude) : nullptr;
  return NewVec(ByteProducts(state_, b_).Add(form, At(sum), At(x.value), magnitude, At(w)),
                sum.lanes, DataType::kI32);
}

Vec LlvmVectorBuilder::AddProductsOfBfloats(Vec sum, Vec x, Vec w) {
  return NewVec(ByteProducts(state_, b_).AddBfloats(At(sum), At(x), At(w)), sum.lanes);
}

Vec LlvmVectorBuilder::AddProductsOfHalves(Vec sum, Vec x, Vec w) {
  llvm::Type* halves = llvm::FixedVectorType::get(b_.getHalfTy(), Unsigned(2 * sum.lanes));
  llvm::Value* result =
      b_.CreateIntrinsic(llvm::Intrinsic::fma, {halves},
                         {b_.CreateBitCast(At(x), halves), b_.CreateBitCast(At(w), halves),
                          b_.CreateBitCast(At(sum), halves)});
  return NewVec(b_.CreateBitCast(result, At(sum)->getType()), sum.lanes, DataType::kI32);
}

std::pair<Vec, Vec> LlvmVectorBuilder::SumsOfHalves(Vec a, Vec b) {
  llvm::Type* halves = llvm::FixedVectorType::get(b_.getHalfTy(), Unsigned(2 * a.lanes));
  llvm::Value* first = b_.CreateBitCast(At(a), halves);
  llvm::Value* second = b_.CreateBitCast(At(b), halves);
  std::vector<int> even, odd;
  for (int i = 0; i < 2 * a.lanes; ++i) {
    even.push_back(2 * i);
    odd.push_back(2 * i + 1);
  }
  llvm::Value* sums = b_.CreateFAdd(b_.CreateShuffleVector(first, second, even),
                                    b_.CreateShuffleVector(first, second, odd));
  const auto part = [&](int begin) {
    std::vector<int> lanes(static_cast<size_t>(a.lanes));
    std::iota(lanes.begin(), lanes.end(), begin);
    return NewVec(b_.CreateFPExt(b_.CreateShuffleVector(sums, lanes), VecType(a.lanes)), a.lanes);
  };
  return {part(0), part(a.lanes)};
}

Vec LlvmVectorBuilder::ToI32(Vec value) {
  llvm::Type* i32 = VecType(value.lanes, DataType::kI32);
  llvm::Value* whole = IsFloat(value.type)    ? b_.CreateFPToSI(At(value), i32)
                       : IsSigned(value.type) ? b_.CreateSExt(At(value), i32)
                                              : b_.CreateZExt(At(value), i32);
  return NewVec(whole, value.lanes, DataType::kI32);
}

Vec LlvmVectorBuilder::ToF32(Vec value) {
  return NewVec(b_.CreateSIToFP(At(ToI32(value)), VecType(value.lanes)), value.lanes);
}

// By a table in a register where there is such an instruction. Else the bits become those of a mantissa
// whose power of two gives them their weight, which is then subtracted: no shifts but of the highest
// twelve bits. (Measured on Zen 4: one row by 4096 x 11008 takes 1.42 ms by tables, 1.8 without.)
Vec LlvmVectorBuilder::FourBitsToF32(Vec words, int place, int64_t first) {
  constexpr int kMantissa = 23, kExponentBias = 127, kFits = 5;  // places within a mantissa
  llvm::Type* i32 = VecType(words.lanes, DataType::kI32);
  llvm::Type* f32 = VecType(words.lanes);
  const auto shifted = [&](int places) {
    return b_.CreateLShr(At(words), llvm::ConstantInt::get(i32, static_cast<uint64_t>(4 * places)));
  };
  const std::string& lookup = state_.target.pick_of_16_floats;
  if (!lookup.empty() && words.lanes == state_.target.f32_lanes()) {
    std::vector<llvm::Constant*> table;
    for (int i = 0; i < 16; ++i)
      table.push_back(llvm::ConstantFP::get(b_.getFloatTy(), static_cast<double>(first + i)));
    const auto pick = state_.module->getOrInsertFunction(
        lookup, llvm::FunctionType::get(f32, {f32, i32}, /*isVarArg=*/false));
    return NewVec(b_.CreateCall(pick, {llvm::ConstantVector::get(table), shifted(place)}),
                  words.lanes);
  }
  const bool high = place >= kFits;
  const int at = 4 * (high ? place - kFits : place), power = kMantissa - at;
  llvm::Value* bits = high ? shifted(kFits) : At(words);
  bits = b_.CreateAnd(bits, llvm::ConstantInt::get(i32, uint64_t{15} << at));
  const auto exponent = static_cast<uint64_t>(power + kExponentBias) << kMantissa;
  bits = b_.CreateOr(bits, llvm::ConstantInt::get(i32, exponent));
  const auto moved = static_cast<double>((int64_t{1} << power) - first);
  return NewVec(b_.CreateFSub(b_.CreateBitCast(bits, f32), llvm::ConstantFP::get(f32, moved)),
                words.lanes);
}

}  // namespace quench::codegen
