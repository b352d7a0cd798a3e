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

namespace {

llvm::Align AlignOfWhole(int lanes, DataType type) {
  constexpr uint64_t kMost = 16;
  return llvm::Align(std::min(kMost, static_cast<uint64_t>(lanes * DataTypeBits(type) / 8)));
}

}  // namespace

void LlvmVectorBuilder::LimitRegisters(int most) {
  b_.GetInsertBlock()->getParent()->addFnAttr(kRegistersAttribute, std::to_string(most));
}

Vec LlvmVectorBuilder::LoadAligned(Ptr address, int lanes, DataType type) {
  return Loaded(b_.CreateAlignedLoad(VecType(lanes, type), At(address), AlignOfWhole(lanes, type)),
                lanes, type);
}

void LlvmVectorBuilder::StoreAligned(Ptr address, Vec value) {
  b_.CreateAlignedStore(At(value), At(address), AlignOfWhole(value.lanes, value.type));
}

Vec LlvmVectorBuilder::LoadIf(Bool present, Ptr address, int lanes, DataType type,
                              uint8_t otherwise) {
  llvm::Type* whole = VecType(lanes, type);
  const llvm::APInt bytes =
      llvm::APInt::getSplat(static_cast<unsigned>(DataTypeBits(type)), llvm::APInt(8, otherwise));
  llvm::Constant* missing =
      otherwise == 0 ? llvm::Constant::getNullValue(whole) : llvm::ConstantInt::get(whole, bytes);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* load = llvm::BasicBlock::Create(b_.getContext(), "load", function);
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "loaded", function);
  b_.CreateCondBr(At(present), load, after);
  b_.SetInsertPoint(load);
  llvm::Value* loaded = b_.CreateAlignedLoad(whole, At(address), AlignOfWhole(lanes, type));
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* value = b_.CreatePHI(whole, 2);
  value->addIncoming(missing, before);
  value->addIncoming(loaded, load);
  return Loaded(value, lanes, type);
}

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
