#include "services/codegen/emit/llvm_vector_builder.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>

#include <numeric>

#include "common/base/status.h"
#include "services/codegen/emit/arith.h"
#include "services/codegen/emit/native.h"

namespace quench::codegen {
namespace {

const llvm::ConstantInt* AsConstant(const llvm::Value* value) {
  return llvm::dyn_cast<llvm::ConstantInt>(value);
}
bool Is(const llvm::Value* value, int64_t constant) {
  const llvm::ConstantInt* known = AsConstant(value);
  return known != nullptr && known->getSExtValue() == constant;
}

}  // namespace

LlvmVectorBuilder::LlvmVectorBuilder(ModuleState& state, llvm::Function* function)
    : state_(state),
      function_(function),
      entry_(llvm::BasicBlock::Create(function->getContext(), "entry", function)),
      body_(llvm::BasicBlock::Create(function->getContext(), "body", function)),
      entry_builder_(entry_),
      b_(body_) {}

void LlvmVectorBuilder::Finish() {
  entry_builder_.CreateBr(body_);
  b_.CreateRet(b_.getInt32(0));
}

Ptr LlvmVectorBuilder::Buffer(int index) {
  auto [it, fresh] = buffers_.try_emplace(index);
  if (fresh) {
    llvm::Type* pointer = entry_builder_.getPtrTy();
    llvm::Value* place = entry_builder_.CreateConstInBoundsGEP1_64(pointer, function_->getArg(0),
                                                                   static_cast<uint64_t>(index));
    it->second = New<Ptr>(entry_builder_.CreateLoad(pointer, place));
  }
  return it->second;
}

Int LlvmVectorBuilder::Size(Dim dim) {
  if (dim.is_static()) return I(dim.value());
  auto [it, fresh] = slots_.try_emplace(dim.symbol());
  if (fresh) {
    llvm::Type* i64 = entry_builder_.getInt64Ty();
    llvm::Value* place = entry_builder_.CreateConstInBoundsGEP1_64(
        i64, function_->getArg(1), static_cast<uint64_t>(dim.symbol()));
    it->second = New<Int>(entry_builder_.CreateLoad(i64, place));
  }
  return it->second;
}

Int LlvmVectorBuilder::LoadInt(Ptr address, DataType type) {
  const auto bytes = static_cast<uint64_t>(DataTypeBits(type) / 8);
  llvm::Type* const stored = b_.getIntNTy(DataTypeBits(type));
  llvm::Value* value = b_.CreateAlignedLoad(stored, At(address), llvm::Align(bytes));
  return New<Int>(b_.CreateSExt(value, b_.getInt64Ty()));
}

Int LlvmVectorBuilder::I(int64_t value) {
  return New<Int>(b_.getInt64(static_cast<uint64_t>(value)));
}

// Operands are sizes, so they fit a pointer: 32-bit targets divide without a 64-bit library call.
llvm::Value* LlvmVectorBuilder::Divide(llvm::Value* a, llvm::Value* b, bool remainder) {
  const bool narrow = state_.target.pointer_bits < 64;
  if (narrow) {
    a = b_.CreateTrunc(a, b_.getInt32Ty());
    b = b_.CreateTrunc(b, b_.getInt32Ty());
  }
  llvm::Value* result = nullptr;
  if (llvm::isa<llvm::ConstantInt>(b) ||  // a multiplication
      IsNative(state_, narrow ? NativeOp::kDivide32 : NativeOp::kDivide64, nullptr)) {
    result = remainder ? b_.CreateURem(a, b) : b_.CreateUDiv(a, b);
  } else {
    result = Arith(state_, b_).Quotient(false, a, b);
    if (remainder) result = b_.CreateSub(a, b_.CreateMul(result, b));
  }
  if (!narrow) return result;
  // Frozen, or the loop optimiser takes the division for one of 64 bits, which these targets do in
  // a library. Constants stay known.
  if (!llvm::isa<llvm::Constant>(result)) result = b_.CreateFreeze(result);
  return b_.CreateZExt(result, b_.getInt64Ty());
}

Int LlvmVectorBuilder::Apply(IntOp op, Int a, Int b) {
  llvm::Value* x = At(a);
  llvm::Value* y = At(b);
  switch (op) {
    case IntOp::kAdd:
      if (Is(x, 0)) return b;
      return Is(y, 0) ? a : New<Int>(b_.CreateAdd(x, y));
    case IntOp::kSub:
      return Is(y, 0) ? a : New<Int>(b_.CreateSub(x, y));
    case IntOp::kMul:
      if (Is(x, 1)) return b;
      if (Is(x, 0) || Is(y, 0)) return I(0);
      return Is(y, 1) ? a : New<Int>(b_.CreateMul(x, y));
    case IntOp::kDiv:
      return Is(y, 1) ? a : New<Int>(Divide(x, y, false));
    case IntOp::kRem:
      return Is(y, 1) ? I(0) : New<Int>(Divide(x, y, true));
    case IntOp::kMin:
      return New<Int>(b_.CreateSelect(b_.CreateICmpSLT(x, y), x, y));
    case IntOp::kMax:
      return New<Int>(b_.CreateSelect(b_.CreateICmpSGT(x, y), x, y));
  }
  return a;
}

Bool LlvmVectorBuilder::Compare(IntCompare op, Int a, Int b) {
  static constexpr llvm::CmpInst::Predicate kPredicates[] = {
      llvm::CmpInst::ICMP_SLT, llvm::CmpInst::ICMP_SLE, llvm::CmpInst::ICMP_EQ,
      llvm::CmpInst::ICMP_NE};
  return New<Bool>(b_.CreateICmp(kPredicates[static_cast<size_t>(op)], At(a), At(b)));
}

Bool LlvmVectorBuilder::And(Bool a, Bool b) { return New<Bool>(b_.CreateAnd(At(a), At(b))); }

Ptr LlvmVectorBuilder::Offset(Ptr base, Int bytes) {
  if (Is(At(bytes), 0)) return base;
  return New<Ptr>(b_.CreateGEP(b_.getInt8Ty(), At(base), At(bytes)));
}

llvm::Type* LlvmVectorBuilder::VecType(int lanes, DataType type) const {
  llvm::Type* element = RegisterType(function_->getContext(), type);
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

Vec LlvmVectorBuilder::NewVec(llvm::Value* value, int lanes, DataType type) {
  Vec vec = New<Vec>(value);
  vec.lanes = lanes;
  vec.type = type;
  return vec;
}

Vec LlvmVectorBuilder::Loaded(llvm::Value* value, int lanes, DataType type) {
  if (!IsHalf(type)) return NewVec(value, lanes, type);
  return NewVec(Arith(state_, b_).Cast(type, DataType::kF32, value), lanes);
}

Vec LlvmVectorBuilder::Load(Ptr address, int lanes, DataType type) {
  return Loaded(b_.CreateAlignedLoad(VecType(lanes, type), At(address), AlignOf(type)), lanes,
                type);
}

Vec LlvmVectorBuilder::Narrow(Vec value, DataType type) {
  return NewVec(Arith(state_, b_).Cast(DataType::kF32, type, At(value)), value.lanes, type);
}

void LlvmVectorBuilder::Store(Ptr address, Vec value) {
  b_.CreateAlignedStore(At(value), At(address), AlignOf(value.type));
}

void LlvmVectorBuilder::StoreInterleaved(Ptr address, std::span<const Vec> parts) {
  const int lanes = parts[0].lanes, count = static_cast<int>(parts.size());
  // One behind the other, in a vector of a power of two of them.
  std::vector<llvm::Value*> joined;
  for (const Vec& part : parts) joined.push_back(At(part));
  for (int length = lanes; joined.size() > 1; length *= 2) {
    std::vector<int> both(static_cast<size_t>(2 * length));
    std::iota(both.begin(), both.end(), 0);
    std::vector<llvm::Value*> longer;
    for (size_t i = 0; i < joined.size(); i += 2) {
      llvm::Value* next =
          i + 1 < joined.size() ? joined[i + 1] : llvm::PoisonValue::get(joined[i]->getType());
      longer.push_back(b_.CreateShuffleVector(joined[i], next, both));
    }
    joined = std::move(longer);
  }
  std::vector<int> order;
  for (int lane = 0; lane < lanes; ++lane) {
    for (int part = 0; part < count; ++part) order.push_back(part * lanes + lane);
  }
  b_.CreateAlignedStore(b_.CreateShuffleVector(joined[0], order), At(address),
                        AlignOf(parts[0].type));
}

llvm::Value* LlvmVectorBuilder::FirstLanes(Int count, int lanes) {
  std::vector<uint32_t> indices(static_cast<size_t>(lanes));
  std::iota(indices.begin(), indices.end(), 0U);
  llvm::Constant* lane = llvm::ConstantDataVector::get(function_->getContext(), indices);
  llvm::Value* clamped = At(Max(Min(count, I(lanes)), I(0)));
  llvm::Value* bound =
      b_.CreateVectorSplat(static_cast<unsigned>(lanes), b_.CreateTrunc(clamped, b_.getInt32Ty()));
  return b_.CreateICmpULT(lane, bound);
}

Vec LlvmVectorBuilder::LoadFirst(Ptr address, Int count, int lanes, DataType type) {
  QUENCH_CHECK(lanes > 1);
  const int64_t known = ConstantOr(count, -1);
  if (known >= lanes) return Load(address, lanes, type);
  llvm::Constant* zero = llvm::Constant::getNullValue(VecType(lanes, type));
  if (known == 0) return Loaded(zero, lanes, type);
  return Loaded(b_.CreateMaskedLoad(VecType(lanes, type), At(address), AlignOf(type),
                                    FirstLanes(count, lanes), zero),
                lanes, type);
}

void LlvmVectorBuilder::StoreFirst(Ptr address, Vec value, Int count) {
  QUENCH_CHECK(value.lanes > 1);
  const int64_t known = ConstantOr(count, -1);
  if (known >= value.lanes) return Store(address, value);
  if (known == 0) return;
  b_.CreateMaskedStore(At(value), At(address), AlignOf(value.type), FirstLanes(count, value.lanes));
}

Vec LlvmVectorBuilder::KeepFirst(Vec value, Int count, Vec others) {
  if (ConstantOr(count, -1) >= value.lanes) return value;
  return NewVec(b_.CreateSelect(FirstLanes(count, value.lanes), At(value), At(others)), value.lanes,
                value.type);
}

Vec LlvmVectorBuilder::Constant(DataType type, double value, int lanes) {
  llvm::Type* shape = VecType(lanes, type);
  llvm::Constant* constant =
      IsFloat(type)
          ? llvm::ConstantFP::get(shape, value)
          : llvm::ConstantInt::get(shape, static_cast<uint64_t>(static_cast<int64_t>(value)), true);
  return NewVec(constant, lanes, type);
}

Vec LlvmVectorBuilder::Splat(Vec part, int lanes) {
  if (lanes == part.lanes) return part;
  if (part.lanes == 1)
    return NewVec(b_.CreateVectorSplat(static_cast<unsigned>(lanes), At(part)), lanes, part.type);
  std::vector<int> mask(static_cast<size_t>(lanes));
  for (int i = 0; i < lanes; ++i) mask[static_cast<size_t>(i)] = i % part.lanes;
  return NewVec(b_.CreateShuffleVector(At(part), mask), lanes, part.type);
}

Vec LlvmVectorBuilder::SplatLane(Vec vector, int lane, int lanes) {
  if (lanes == 1)
    return NewVec(b_.CreateExtractElement(At(vector), static_cast<uint64_t>(lane)), 1, vector.type);
  std::vector<int> mask(static_cast<size_t>(lanes), lane);
  return NewVec(b_.CreateShuffleVector(At(vector), mask), lanes, vector.type);
}

Vec LlvmVectorBuilder::Apply(VecOp op, Vec a, Vec b) {
  llvm::Value* x = At(a);
  llvm::Value* y = At(b);
  switch (op) {
    case VecOp::kAdd:
      return a.type == DataType::kF32 ? NewVec(b_.CreateFAdd(x, y), a.lanes)
                                      : NewVec(b_.CreateAdd(x, y), a.lanes, a.type);
    case VecOp::kSub:
      return NewVec(b_.CreateFSub(x, y), a.lanes);
    case VecOp::kMul:
      return a.type == DataType::kF32 ? NewVec(b_.CreateFMul(x, y), a.lanes)
                                      : NewVec(b_.CreateMul(x, y), a.lanes, a.type);
    case VecOp::kMin:
      return NewVec(b_.CreateSelect(b_.CreateFCmpOLT(x, y), x, y), a.lanes);
    case VecOp::kMax:
      return NewVec(b_.CreateSelect(b_.CreateFCmpOGT(x, y), x, y), a.lanes);
    case VecOp::kAnd:
      return NewVec(b_.CreateAnd(x, y), a.lanes, a.type);
    case VecOp::kShiftRight:
      return NewVec(b_.CreateLShr(x, y), a.lanes, a.type);
  }
  return a;
}

Vec LlvmVectorBuilder::Folded(VecOp op, Vec value) {
  while (value.lanes > 1) {
    std::vector<int> half(static_cast<size_t>(value.lanes / 2));
    std::iota(half.begin(), half.end(), 0);
    const Vec low = NewVec(b_.CreateShuffleVector(At(value), half), value.lanes / 2, value.type);
    std::iota(half.begin(), half.end(), value.lanes / 2);
    const Vec high = NewVec(b_.CreateShuffleVector(At(value), half), value.lanes / 2, value.type);
    value = Apply(op, low, high);
  }
  return NewVec(b_.CreateExtractElement(At(value), uint64_t{0}), 1, value.type);
}

Vec LlvmVectorBuilder::Sum(Vec value) {
  if (value.type == DataType::kF32) return Folded(VecOp::kAdd, value);
  return NewVec(b_.CreateAddReduce(At(value)), 1, DataType::kI32);
}

Vec LlvmVectorBuilder::Largest(Vec value) { return Folded(VecOp::kMax, value); }

// Within 4 lanes by interleaving, as every CPU does in one instruction; then blocks of 4, 8 ... lanes
// change places with those across the diagonal.
std::vector<Vec> LlvmVectorBuilder::Transposed(std::span<const Vec> rows) {
  const size_t lanes = rows.size();
  QUENCH_CHECK(lanes >= 4 && static_cast<size_t>(rows[0].lanes) == lanes);
  std::vector<llvm::Value*> values;
  for (const Vec& row : rows) values.push_back(At(row));
  const auto shuffle = [&](llvm::Value* a, llvm::Value* b,
                           const std::function<size_t(size_t)>& of) {
    std::vector<int> mask;
    for (size_t lane = 0; lane < lanes; ++lane) mask.push_back(static_cast<int>(of(lane)));
    return b_.CreateShuffleVector(a, b, mask);
  };
  // (a0 b0 a1 b1), or with `high` (a2 b2 a3 b3); the same in pairs: (a0 a1 b0 b1), (a2 a3 b2 b3).
  const auto interleaved = [&](llvm::Value* a, llvm::Value* b, bool high) {
    return shuffle(a, b, [&](size_t lane) {
      return lane / 4 * 4 + (lane % 4) / 2 + (high ? 2 : 0) + (lane % 2) * lanes;
    });
  };
  const auto pairs = [&](llvm::Value* a, llvm::Value* b, bool high) {
    return shuffle(a, b, [&](size_t lane) {
      return lane / 4 * 4 + lane % 2 + (high ? 2 : 0) + (lane % 4) / 2 * lanes;
    });
  };
  for (size_t r = 0; r < lanes; r += 4) {
    llvm::Value* const low01 = interleaved(values[r], values[r + 1], false);
    llvm::Value* const high01 = interleaved(values[r], values[r + 1], true);
    llvm::Value* const low23 = interleaved(values[r + 2], values[r + 3], false);
    llvm::Value* const high23 = interleaved(values[r + 2], values[r + 3], true);
    values[r] = pairs(low01, low23, false);
    values[r + 1] = pairs(low01, low23, true);
    values[r + 2] = pairs(high01, high23, false);
    values[r + 3] = pairs(high01, high23, true);
  }
  for (size_t block = 4; block < lanes; block *= 2) {
    for (size_t r = 0; r < lanes; ++r) {
      if ((r & block) != 0) continue;
      llvm::Value* const a = values[r];
      llvm::Value* const b = values[r + block];
      values[r] = shuffle(a, b, [&](size_t l) { return (l & block) == 0 ? l : l - block + lanes; });
      values[r + block] =
          shuffle(a, b, [&](size_t l) { return (l & block) == 0 ? l + block : l + lanes; });
    }
  }
  std::vector<Vec> result;
  for (llvm::Value* value : values) result.push_back(NewVec(value, static_cast<int>(lanes)));
  return result;
}

Vec LlvmVectorBuilder::Fma(Vec a, Vec b, Vec c) {
  if (!state_.target.fma) return NewVec(b_.CreateFAdd(b_.CreateFMul(At(a), At(b)), At(c)), a.lanes);
  return NewVec(b_.CreateIntrinsic(llvm::Intrinsic::fma, {VecType(a.lanes)}, {At(a), At(b), At(c)}),
                a.lanes);
}

absl::StatusOr<Vec> LlvmVectorBuilder::Apply(const loops::ScalarFunction& function,
                                             std::span<const Vec> operands) {
  std::vector<llvm::Value*> values;
  for (const Vec& operand : operands) values.push_back(At(operand));
  QUENCH_ASSIGN_OR_RETURN(llvm::Value * result, EmitScalarFunction(state_, b_, function, values));
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(result->getType());
  return NewVec(result, vector == nullptr ? 1 : static_cast<int>(vector->getNumElements()),
                function.exprs[static_cast<size_t>(function.result)].type);
}

Handle LlvmVectorBuilder::NewVariable(const Handle& initial) {
  llvm::Value* slot = entry_builder_.CreateAlloca(At(initial)->getType());
  b_.CreateStore(At(initial), slot);
  return New<Handle>(slot);
}

Ptr LlvmVectorBuilder::Stack(int64_t bytes) {
  llvm::AllocaInst* memory = entry_builder_.CreateAlloca(
      llvm::ArrayType::get(b_.getInt8Ty(), static_cast<uint64_t>(bytes)));
  memory->setAlignment(llvm::Align(64));
  return New<Ptr>(memory);
}

IntVar LlvmVectorBuilder::Variable(Int initial) { return {NewVariable(initial), initial}; }
PtrVar LlvmVectorBuilder::Variable(Ptr initial) { return {NewVariable(initial), initial}; }
VecVar LlvmVectorBuilder::Variable(Vec initial) { return {NewVariable(initial), initial}; }

Vec LlvmVectorBuilder::Get(const VecVar& variable) {
  Vec value = GetVariable<Vec>(variable);
  value.lanes = variable.shape.lanes;
  value.type = variable.shape.type;
  return value;
}

void LlvmVectorBuilder::For(Int begin, Int end, int64_t step,
                            const std::function<void(Int)>& body) {
  llvm::LLVMContext& context = function_->getContext();
  const llvm::ConstantInt* first = AsConstant(At(begin));
  const llvm::ConstantInt* last = AsConstant(At(end));
  const bool known = first != nullptr && last != nullptr;
  if (known && first->getSExtValue() >= last->getSExtValue()) return;
  if (known && first->getSExtValue() + step >= last->getSExtValue()) return body(begin);

  llvm::BasicBlock* loop = llvm::BasicBlock::Create(context, "loop", function_);
  llvm::BasicBlock* exit = llvm::BasicBlock::Create(context, "exit", function_);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  if (known) {
    b_.CreateBr(loop);
  } else {
    b_.CreateCondBr(b_.CreateICmpSLT(At(begin), At(end)), loop, exit);
  }
  b_.SetInsertPoint(loop);
  llvm::PHINode* index = b_.CreatePHI(b_.getInt64Ty(), 2);
  index->addIncoming(At(begin), before);
  body(New<Int>(index));
  llvm::Value* next = b_.CreateAdd(index, b_.getInt64(static_cast<uint64_t>(step)));
  index->addIncoming(next, b_.GetInsertBlock());
  // The kernel has unrolled what it wants unrolled.
  DisableUnroll(*b_.CreateCondBr(b_.CreateICmpSLT(next, At(end)), loop, exit));
  b_.SetInsertPoint(exit);
}

void LlvmVectorBuilder::If(Bool condition, const std::function<void()>& then,
                           const std::function<void()>& otherwise) {
  if (const llvm::ConstantInt* known = AsConstant(At(condition))) {
    if (!known->isZero()) {
      then();
    } else if (otherwise) {
      otherwise();
    }
    return;
  }
  llvm::LLVMContext& context = function_->getContext();
  llvm::BasicBlock* yes = llvm::BasicBlock::Create(context, "then", function_);
  llvm::BasicBlock* join = llvm::BasicBlock::Create(context, "join", function_);
  llvm::BasicBlock* no = otherwise ? llvm::BasicBlock::Create(context, "else", function_) : join;
  b_.CreateCondBr(At(condition), yes, no);
  b_.SetInsertPoint(yes);
  then();
  b_.CreateBr(join);
  if (otherwise) {
    b_.SetInsertPoint(no);
    otherwise();
    b_.CreateBr(join);
  }
  b_.SetInsertPoint(join);
}

// A fence for the compiler alone: no instruction.
void LlvmVectorBuilder::KeepLoadsInOrder() {
  b_.CreateFence(llvm::AtomicOrdering::AcquireRelease, llvm::SyncScope::SingleThread);
}

void LlvmVectorBuilder::Prefetch(Ptr address, int level) {
  b_.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {b_.getPtrTy()},
      {At(address), b_.getInt32(0), b_.getInt32(static_cast<uint32_t>(4 - level)), b_.getInt32(1)});
}

int64_t LlvmVectorBuilder::ConstantOr(Int value, int64_t unknown) {
  const llvm::ConstantInt* known = AsConstant(At(value));
  return known == nullptr ? unknown : known->getSExtValue();
}

absl::Status FillVectorFunction(ModuleState& state, llvm::Function& function,
                                const VectorCode& code) {
  LlvmVectorBuilder builder(state, &function);
  QUENCH_RETURN_IF_ERROR(code.Emit(builder));
  builder.Finish();
  return absl::OkStatus();
}

}  // namespace quench::codegen
