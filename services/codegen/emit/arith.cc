#include "services/codegen/emit/arith.h"

#include "services/codegen/emit/math.h"

namespace quench::codegen {

using loops::BinaryOp;
using loops::UnaryOp;

bool IsSupported(DataType type) {
  switch (type) {
    case DataType::kF4E2M1:
    case DataType::kF8E8M0:
      return false;
    default:
      break;
  }
  const bool numeric = IsFloat(type) || IsInteger(type) || type == DataType::kBool;
  return numeric && DataTypeBits(type) >= 8;
}

llvm::Type* RegisterType(llvm::LLVMContext& context, DataType type) {
  switch (type) {
    case DataType::kF32:
      return llvm::Type::getFloatTy(context);
    case DataType::kF64:
      return llvm::Type::getDoubleTy(context);
    case DataType::kBool:
      return llvm::Type::getInt1Ty(context);
    default:
      return llvm::Type::getIntNTy(context, static_cast<unsigned>(DataTypeBits(type)));
  }
}

llvm::Type* Arith::Shaped(llvm::Value* x, llvm::Type* element) { return AsNum(x).Shaped(element); }

llvm::Value* Arith::IntConstant(DataType type, int64_t value) {
  return llvm::ConstantInt::get(RegisterType(b_.getContext(), type), static_cast<uint64_t>(value),
                                true);
}
llvm::Value* Arith::FloatConstant(DataType type, double value) {
  if (type != DataType::kF32 && type != DataType::kF64) {
    return ToStorage(type, llvm::ConstantFP::get(b_.getFloatTy(), value));
  }
  return llvm::ConstantFP::get(RegisterType(b_.getContext(), type), value);
}

llvm::Value* Arith::Unary(UnaryOp op, DataType type, llvm::Value* x) {
  return IsFloat(type) ? FloatUnary(op, x) : IntUnary(op, type, x);
}

llvm::Value* Arith::IntUnary(UnaryOp op, DataType type, llvm::Value* x) {
  switch (op) {
    case UnaryOp::kNot:
      return b_.CreateNot(x);
    case UnaryOp::kNeg:
      return b_.CreateNeg(x);
    default:
      break;  // kAbs
  }
  if (!IsSigned(type)) return x;
  return b_.CreateSelect(b_.CreateICmpSLT(x, Like(x, 0)), b_.CreateNeg(x), x);
}

llvm::Value* Arith::FloatUnary(UnaryOp op, llvm::Value* x) {
  const Num n = AsNum(x);
  switch (op) {
    case UnaryOp::kNeg:
      return (-n).v;
    case UnaryOp::kAbs:
      return Abs(n).v;
    case UnaryOp::kFloor:
      return math::Floor(n).v;
    case UnaryOp::kCeil:
      return math::Ceil(n).v;
    case UnaryOp::kTrunc:
      return math::Trunc(n).v;
    case UnaryOp::kRoundEven:
      return math::RoundEven(n).v;
    case UnaryOp::kIsNan:
      return IsNan(n).v;
    case UnaryOp::kIsInf:
      return IsInfinite(n).v;
    default:
      return math::Apply(op, n).v;
  }
}

llvm::Value* Arith::Binary(BinaryOp op, DataType type, llvm::Value* x, llvm::Value* y) {
  if (op >= BinaryOp::kEq) return Compare(op, type, x, y);
  if (type == DataType::kBool) return BoolBinary(op, x, y);
  return IsFloat(type) ? FloatBinary(op, x, y) : IntBinary(op, type, x, y);
}

llvm::Value* Arith::Compare(BinaryOp op, DataType type, llvm::Value* x, llvm::Value* y) {
  using P = llvm::CmpInst::Predicate;
  struct Row {
    P real, with_sign, without_sign;
  };
  static constexpr Row kRows[] = {
      {P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ},   {P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE},
      {P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT}, {P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE},
      {P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT}, {P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE}};
  const Row& row = kRows[static_cast<int>(op) - static_cast<int>(BinaryOp::kEq)];
  if (IsFloat(type)) return b_.CreateFCmp(row.real, x, y);
  return b_.CreateICmp(IsSigned(type) ? row.with_sign : row.without_sign, x, y);
}

// max: (x > y or x is NaN) ? x : y. The inner select is one instruction where the machine has "max,
// else the second".
llvm::Value* Arith::FloatExtreme(bool max, llvm::Value* x, llvm::Value* y) {
  if (IsNative(state_, NativeOp::kMaximum, x->getType())) {
    return b_.CreateBinaryIntrinsic(max ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, x,
                                    y);
  }
  llvm::Value* first = max ? b_.CreateFCmpOGT(x, y) : b_.CreateFCmpOLT(x, y);
  llvm::Value* extreme = b_.CreateSelect(first, x, y);
  if (llvm::isa<llvm::Constant>(y) && !llvm::cast<llvm::Constant>(y)->isNaN()) {
    // One comparison is enough when only x can be NaN: "not x <= y" is true for NaN.
    return b_.CreateSelect(max ? b_.CreateFCmpUGT(x, y) : b_.CreateFCmpULT(x, y), x, y);
  }
  return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, extreme);
}

llvm::Value* Arith::FloatFloorMod(llvm::Value* x, llvm::Value* y) {
  const Num rest = math::Fmod(AsNum(x), AsNum(y));
  llvm::Value* zero = rest.K(0).v;
  llvm::Value* differ = b_.CreateXor(b_.CreateFCmpOLT(rest.v, zero), b_.CreateFCmpOLT(y, zero));
  llvm::Value* adjust = b_.CreateAnd(b_.CreateFCmpUNE(rest.v, zero), differ);
  return b_.CreateSelect(adjust, b_.CreateFAdd(rest.v, y), rest.v);
}

llvm::Value* Arith::FloatBinary(BinaryOp op, llvm::Value* x, llvm::Value* y) {
  switch (op) {
    case BinaryOp::kAdd:
      return b_.CreateFAdd(x, y);
    case BinaryOp::kSub:
      return b_.CreateFSub(x, y);
    case BinaryOp::kMul:
      return b_.CreateFMul(x, y);
    case BinaryOp::kDiv:
      return b_.CreateFDiv(x, y);
    case BinaryOp::kMin:
      return FloatExtreme(false, x, y);
    case BinaryOp::kMax:
      return FloatExtreme(true, x, y);
    case BinaryOp::kRem:
      return math::Fmod(AsNum(x), AsNum(y)).v;
    case BinaryOp::kFloorDiv:
      return math::Floor(AsNum(x) / AsNum(y)).v;
    case BinaryOp::kFloorMod:
      return FloatFloorMod(x, y);
    default:
      break;  // kPow
  }
  const auto* power = llvm::dyn_cast<llvm::Constant>(y);
  if (power != nullptr && power->getType()->isVectorTy()) power = power->getSplatValue();
  if (const auto* value = llvm::dyn_cast_or_null<llvm::ConstantFP>(power)) {
    if (value->isExactlyValue(2.0)) return b_.CreateFMul(x, x);
    if (value->isExactlyValue(1.0)) return x;
  }
  return math::Pow(AsNum(x), AsNum(y)).v;
}

llvm::Value* Arith::BoolBinary(BinaryOp op, llvm::Value* x, llvm::Value* y) {
  switch (op) {
    case BinaryOp::kMin:
    case BinaryOp::kMul:
    case BinaryOp::kAnd:
      return b_.CreateAnd(x, y);
    case BinaryOp::kSub:
    case BinaryOp::kXor:
      return b_.CreateXor(x, y);
    default:
      return b_.CreateOr(x, y);  // kMax, kAdd, kOr
  }
}

llvm::Value* Arith::IntBinary(BinaryOp op, DataType type, llvm::Value* x, llvm::Value* y) {
  const bool is_signed = IsSigned(type);
  switch (op) {
    case BinaryOp::kAdd:
      return b_.CreateAdd(x, y);
    case BinaryOp::kSub:
      return b_.CreateSub(x, y);
    case BinaryOp::kMul:
      return b_.CreateMul(x, y);
    case BinaryOp::kAnd:
      return b_.CreateAnd(x, y);
    case BinaryOp::kOr:
      return b_.CreateOr(x, y);
    case BinaryOp::kXor:
      return b_.CreateXor(x, y);
    case BinaryOp::kMin:
      return IntExtreme(false, is_signed, x, y);
    case BinaryOp::kMax:
      return IntExtreme(true, is_signed, x, y);
    case BinaryOp::kShl:
      return Shift(true, is_signed, x, y);
    case BinaryOp::kShr:
      return Shift(false, is_signed, x, y);
    case BinaryOp::kPow:
      return IntPow(is_signed, x, y);
    default:
      return Divide(op, is_signed, x, y);
  }
}

llvm::Value* Arith::IntExtreme(bool max, bool is_signed, llvm::Value* x, llvm::Value* y) {
  using P = llvm::CmpInst::Predicate;
  const P more = is_signed ? P::ICMP_SGT : P::ICMP_UGT;
  const P less = is_signed ? P::ICMP_SLT : P::ICMP_ULT;
  return b_.CreateSelect(b_.CreateICmp(max ? more : less, x, y), x, y);
}

// Amounts of the width and more (negative ones are such, unsigned) shift everything out.
llvm::Value* Arith::Shift(bool left, bool is_signed, llvm::Value* x, llvm::Value* y) {
  const int64_t width = x->getType()->getScalarSizeInBits();
  llvm::Value* in_range = b_.CreateICmpULT(y, Like(y, width));
  llvm::Value* amount = b_.CreateSelect(in_range, y, Like(y, 0));
  if (left) return b_.CreateSelect(in_range, b_.CreateShl(x, amount), Like(x, 0));
  if (!is_signed) return b_.CreateSelect(in_range, b_.CreateLShr(x, amount), Like(x, 0));
  return b_.CreateAShr(x, b_.CreateSelect(in_range, y, Like(y, width - 1)));
}

// Square and multiply, one step per exponent bit: x^y = product of x^(2^i) over the set bits i of
// y.
llvm::Value* Arith::IntPow(bool is_signed, llvm::Value* x, llvm::Value* y) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::Function* function = before->getParent();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(b_.getContext(), "pow", function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b_.getContext(), "pow.end", function);
  const uint32_t width = x->getType()->getScalarSizeInBits();
  b_.CreateBr(loop);
  b_.SetInsertPoint(loop);
  llvm::PHINode* step = b_.CreatePHI(b_.getInt32Ty(), 2);
  llvm::PHINode* result = b_.CreatePHI(x->getType(), 2);
  llvm::PHINode* base = b_.CreatePHI(x->getType(), 2);
  llvm::PHINode* rest = b_.CreatePHI(x->getType(), 2);
  llvm::Value* odd = b_.CreateICmpNE(b_.CreateAnd(rest, Like(x, 1)), Like(x, 0));
  llvm::Value* next_result = b_.CreateSelect(odd, b_.CreateMul(result, base), result);
  llvm::Value* next_base = b_.CreateMul(base, base);
  llvm::Value* next_rest = b_.CreateLShr(rest, Like(x, 1));
  llvm::Value* next_step = b_.CreateAdd(step, b_.getInt32(1));
  b_.CreateCondBr(b_.CreateICmpULT(next_step, b_.getInt32(width)), loop, after);
  step->addIncoming(b_.getInt32(0), before), step->addIncoming(next_step, loop);
  result->addIncoming(Like(x, 1), before), result->addIncoming(next_result, loop);
  base->addIncoming(x, before), base->addIncoming(next_base, loop);
  rest->addIncoming(y, before), rest->addIncoming(next_rest, loop);
  b_.SetInsertPoint(after);
  if (!is_signed) return next_result;
  // 1 / x^|y|: 1 for x = 1, +-1 for x = -1, else 0.
  llvm::Value* odd_power = b_.CreateICmpNE(b_.CreateAnd(y, Like(y, 1)), Like(y, 0));
  llvm::Value* minus_one = b_.CreateSelect(odd_power, Like(x, -1), Like(x, 1));
  llvm::Value* reciprocal = b_.CreateSelect(b_.CreateICmpEQ(x, Like(x, 1)), Like(x, 1), Like(x, 0));
  reciprocal = b_.CreateSelect(b_.CreateICmpEQ(x, Like(x, -1)), minus_one, reciprocal);
  return b_.CreateSelect(b_.CreateICmpSLT(y, Like(y, 0)), reciprocal, next_result);
}

llvm::Value* Arith::MultiplyAdd(llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  return Fma(AsNum(a), AsNum(b), AsNum(c)).v;
}

}  // namespace quench::codegen
