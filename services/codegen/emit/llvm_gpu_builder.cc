// The part of the vector builder that only GPUs have.
#include <numbers>

#include "services/codegen/emit/arith.h"
#include "services/codegen/emit/llvm_vector_builder.h"

namespace quench::codegen {

DeviceOps LlvmVectorBuilder::Device() {
  llvm::Value* thread = state_.thread_buffer < 0 ? nullptr : At(Buffer(state_.thread_buffer));
  return {b_, thread, *state_.target.gpu};
}

Int LlvmVectorBuilder::Thread() {
  return New<Int>(b_.CreateZExt(Device().Thread(), b_.getInt64Ty()));
}

void LlvmVectorBuilder::Barrier() { Device().Barrier(); }

Vec LlvmVectorBuilder::LoadShared(Int offset, int lanes, DataType type) {
  const auto bytes = static_cast<uint64_t>(lanes * DataTypeBits(type) / 8);
  llvm::Value* value =
      b_.CreateAlignedLoad(VecType(lanes, type), Device().Shared(At(offset)), llvm::Align(bytes));
  return NewVec(value, lanes, type);
}

void LlvmVectorBuilder::StoreShared(Int offset, Vec value) {
  const auto bytes = static_cast<uint64_t>(value.lanes * DataTypeBits(value.type) / 8);
  b_.CreateAlignedStore(At(value), Device().Shared(At(offset)), llvm::Align(bytes));
}

void LlvmVectorBuilder::CopyToShared(Int offset, Ptr from, Bool present) {
  Device().CopyToShared(At(offset), At(from), At(present));
}

void LlvmVectorBuilder::CopyPartToShared(Int offset, Ptr from, Bool present, int bytes) {
  Device().CopyPartToShared(At(offset), At(from), At(present), static_cast<uint32_t>(bytes));
}

void LlvmVectorBuilder::CommitCopies() { Device().CommitCopies(); }
void LlvmVectorBuilder::WaitForCopies(int pending) { Device().WaitForCopies(pending); }

std::array<Vec, 4> LlvmVectorBuilder::LoadMatrices(Int offset, bool transposed) {
  const std::array<llvm::Value*, 4> words = Device().LoadMatrices(At(offset), transposed);
  std::array<Vec, 4> result;
  for (size_t i = 0; i < 4; ++i) result[i] = NewVec(words[i], 1, DataType::kI32);
  return result;
}

void LlvmVectorBuilder::AddProducts(WarpProducts products, std::span<const VecVar, 4> sums,
                                    std::span<const Vec, 4> a, std::span<const Vec, 2> b) {
  std::array<llvm::Value*, 4> values{}, left{};
  std::array<llvm::Value*, 2> right{};
  for (size_t i = 0; i < 4; ++i) {
    values[i] = At(Get(sums[i]));
    left[i] = At(a[i]);
  }
  for (size_t i = 0; i < 2; ++i) right[i] = At(b[i]);
  Device().AddProducts(products, values, left, right);
  for (size_t i = 0; i < 4; ++i) Set(sums[i], NewVec(values[i], 1, sums[i].shape.type));
}

Vec LlvmVectorBuilder::RoundToTf32(Vec word) {
  return NewVec(Device().RoundToTf32(At(word)), 1, word.type);
}

Vec LlvmVectorBuilder::ShuffleXor(Vec value, int mask) {
  llvm::Value* word = b_.CreateBitCast(At(value), b_.getInt32Ty());
  llvm::Value* other = Device().ShuffleXor(word, mask);
  return NewVec(b_.CreateBitCast(other, At(value)->getType()), 1, value.type);
}

Vec LlvmVectorBuilder::HalvesOf(Vec low, Vec high, DataType type) {
  llvm::Value* word = Device().HalvesOf(At(low), At(high), type);
  if (word == nullptr) {
    const auto half = [&](Vec value) {
      return b_.CreateZExt(Arith(state_, b_).Cast(DataType::kF32, type, At(value)),
                           b_.getInt32Ty());
    };
    word = b_.CreateOr(half(low), b_.CreateShl(half(high), 16));
  }
  return NewVec(word, 1, DataType::kI32);
}

Vec LlvmVectorBuilder::Exp2(Vec x) {
  llvm::Value* power = Device().Exp2(At(x));
  if (power == nullptr) {
    llvm::Value* natural =
        b_.CreateFMul(At(x), llvm::ConstantFP::get(b_.getFloatTy(), std::numbers::ln2));
    power = Arith(state_, b_).Unary(loops::UnaryOp::kExp, DataType::kF32, natural);
  }
  return NewVec(power, 1);
}

Vec LlvmVectorBuilder::Select(Bool condition, Vec yes, Vec no) {
  return NewVec(b_.CreateSelect(At(condition), At(yes), At(no)), yes.lanes, yes.type);
}

}  // namespace quench::codegen
