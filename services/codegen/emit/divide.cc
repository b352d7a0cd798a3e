// Integer division. By zero gives 0, INT_MIN / -1 wraps; divisions that the target would do in a
// library are done by a function of the module.
#include "services/codegen/emit/arith.h"

namespace quench::codegen {
namespace {

using loops::BinaryOp;

llvm::Value* EitherSet(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y, uint64_t bits) {
  return b.CreateICmpNE(b.CreateAnd(b.CreateOr(x, y), b.getInt64(bits)), b.getInt64(0));
}

// Restoring division, one quotient bit per iteration, most significant first.
llvm::Value* LongDivision(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(b.getContext(), "bit", before->getParent());
  llvm::BasicBlock* after =
      llvm::BasicBlock::Create(b.getContext(), "bits.end", before->getParent());
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* step = b.CreatePHI(b.getInt32Ty(), 2);
  llvm::PHINode* quotient =
      b.CreatePHI(b.getInt64Ty(), 2);  // low part: dividend bits still to come
  llvm::PHINode* rest = b.CreatePHI(b.getInt64Ty(), 2);
  llvm::Value* lost = b.CreateICmpSLT(rest, b.getInt64(0));  // the 65th bit of the shifted rest
  llvm::Value* shifted = b.CreateOr(b.CreateShl(rest, 1), b.CreateLShr(quotient, 63));
  llvm::Value* fits = b.CreateOr(lost, b.CreateICmpUGE(shifted, y));
  llvm::Value* next_rest = b.CreateSelect(fits, b.CreateSub(shifted, y), shifted);
  llvm::Value* next_quotient =
      b.CreateOr(b.CreateShl(quotient, 1), b.CreateZExt(fits, b.getInt64Ty()));
  llvm::Value* next_step = b.CreateAdd(step, b.getInt32(1));
  b.CreateCondBr(b.CreateICmpULT(next_step, b.getInt32(64)), loop, after);
  step->addIncoming(b.getInt32(0), before), step->addIncoming(next_step, loop);
  quotient->addIncoming(x, before), quotient->addIncoming(next_quotient, loop);
  rest->addIncoming(b.getInt64(0), before), rest->addIncoming(next_rest, loop);
  b.SetInsertPoint(after);
  return next_quotient;
}

// i64 udiv(i64, i64) for a divisor that is not 0, internal to the module.
llvm::Function* DivideFunction(ModuleState& state) {
  const std::string name = state.prefix + "_udiv";
  if (llvm::Function* known = state.module->getFunction(name)) return known;
  llvm::Type* i64 = llvm::Type::getInt64Ty(state.context);
  llvm::Function* function =
      CreateFunction(state, name, llvm::FunctionType::get(i64, {i64, i64}, false),
                     llvm::GlobalValue::InternalLinkage);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(state.context, "entry", function));
  llvm::Value *x = function->getArg(0), *y = function->getArg(1);
  if (IsNative(state, NativeOp::kDivide32, nullptr)) {
    llvm::BasicBlock* small = llvm::BasicBlock::Create(state.context, "small", function);
    llvm::BasicBlock* large = llvm::BasicBlock::Create(state.context, "large", function);
    b.CreateCondBr(EitherSet(b, x, y, 0xffffffff00000000u), large, small);
    b.SetInsertPoint(small);
    llvm::Value* quotient =
        b.CreateUDiv(b.CreateTrunc(x, b.getInt32Ty()), b.CreateTrunc(y, b.getInt32Ty()));
    b.CreateRet(b.CreateZExt(quotient, i64));
    b.SetInsertPoint(large);
  }
  b.CreateRet(LongDivision(b, x, y));
  return function;
}

bool IsPowerOfTwo(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

}  // namespace

llvm::Value* Arith::CallDivide(bool is_signed, llvm::Value* x, llvm::Value* y) {
  llvm::Type* i64 = b_.getInt64Ty();
  const auto magnitude = [&](llvm::Value* value) {
    llvm::Value* wide = is_signed ? b_.CreateSExt(value, i64) : b_.CreateZExt(value, i64);
    if (!is_signed) return wide;
    return b_.CreateSelect(b_.CreateICmpSLT(wide, b_.getInt64(0)), b_.CreateNeg(wide), wide);
  };
  llvm::Value* quotient = b_.CreateCall(DivideFunction(state_), {magnitude(x), magnitude(y)});
  if (is_signed) {
    llvm::Value* negative = b_.CreateICmpSLT(b_.CreateXor(x, y), Like(x, 0));
    quotient = b_.CreateSelect(negative, b_.CreateNeg(quotient), quotient);
  }
  return b_.CreateTrunc(quotient, x->getType());
}

llvm::Value* Arith::Quotient(bool is_signed, llvm::Value* x, llvm::Value* y) {
  const bool wide = x->getType()->getScalarSizeInBits() > 32;
  if (IsNative(state_, wide ? NativeOp::kDivide64 : NativeOp::kDivide32, nullptr)) {
    return is_signed ? b_.CreateSDiv(x, y) : b_.CreateUDiv(x, y);
  }
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (vector == nullptr) return CallDivide(is_signed, x, y);
  llvm::Value* result = llvm::PoisonValue::get(x->getType());
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    llvm::Value* one =
        CallDivide(is_signed, b_.CreateExtractElement(x, lane), b_.CreateExtractElement(y, lane));
    result = b_.CreateInsertElement(result, one, lane);
  }
  return result;
}

// Floor division and modulo from the truncated quotient.
llvm::Value* Arith::Floored(BinaryOp op, llvm::Value* x, llvm::Value* y, llvm::Value* quotient) {
  llvm::Value* rest = b_.CreateSub(x, b_.CreateMul(quotient, y));
  if (op == BinaryOp::kRem) return rest;
  llvm::Value* differ = b_.CreateICmpSLT(b_.CreateXor(x, y), Like(x, 0));
  llvm::Value* adjust = b_.CreateAnd(differ, b_.CreateICmpNE(rest, Like(x, 0)));
  if (op == BinaryOp::kFloorMod) return b_.CreateSelect(adjust, b_.CreateAdd(rest, y), rest);
  return b_.CreateSub(quotient, b_.CreateZExt(adjust, x->getType()));
}

llvm::Value* Arith::DivideByConstant(BinaryOp op, bool is_signed, llvm::Value* x, int64_t y) {
  const bool floored = !is_signed || op == BinaryOp::kFloorDiv || op == BinaryOp::kFloorMod;
  if (floored && IsPowerOfTwo(y)) {
    const bool modulo = op == BinaryOp::kRem || op == BinaryOp::kFloorMod;
    if (modulo) return b_.CreateAnd(x, Like(x, y - 1));
    const int64_t amount = __builtin_ctzll(static_cast<uint64_t>(y));
    return is_signed ? b_.CreateAShr(x, Like(x, amount)) : b_.CreateLShr(x, Like(x, amount));
  }
  llvm::Value* quotient = Quotient(is_signed, x, Like(x, y));
  if (op == BinaryOp::kDiv || (!is_signed && op == BinaryOp::kFloorDiv)) return quotient;
  return is_signed ? Floored(op, x, Like(x, y), quotient)
                   : Floored(BinaryOp::kRem, x, Like(x, y), quotient);
}

llvm::Value* Arith::Divide(BinaryOp op, bool is_signed, llvm::Value* x, llvm::Value* y) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(y);
  if (constant != nullptr && constant->getType()->isVectorTy())
    constant = constant->getSplatValue();
  if (const auto* divisor = llvm::dyn_cast_or_null<llvm::ConstantInt>(constant)) {
    const int64_t value = divisor->getSExtValue();
    if (value != 0 && value != -1) return DivideByConstant(op, is_signed, x, value);
  }
  llvm::Value* zero = b_.CreateICmpEQ(y, Like(y, 0));
  llvm::Value* unsafe = zero;
  llvm::Value* minus_one = nullptr;
  if (is_signed) {
    minus_one = b_.CreateICmpEQ(y, Like(y, -1));
    unsafe = b_.CreateOr(zero, minus_one);
  }
  llvm::Value* divisor = b_.CreateSelect(unsafe, Like(y, 1), y);
  llvm::Value* quotient = Quotient(is_signed, x, divisor);
  if (is_signed) quotient = b_.CreateSelect(minus_one, b_.CreateNeg(x), quotient);
  if (op == BinaryOp::kRem || op == BinaryOp::kFloorMod) {
    // x - (x / 1) * 1 for the replaced divisors is 0, as it must be.
    quotient = is_signed ? b_.CreateSelect(minus_one, x, quotient) : quotient;
    return is_signed ? Floored(op, x, divisor, quotient)
                     : Floored(BinaryOp::kRem, x, divisor, quotient);
  }
  if (op == BinaryOp::kFloorDiv && is_signed) quotient = Floored(op, x, y, quotient);
  return b_.CreateSelect(zero, Like(x, 0), quotient);
}

}  // namespace quench::codegen
