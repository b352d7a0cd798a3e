// Scalar operations of loops IR (meaning: common/loops/scalar.h) on LLVM values, scalar or vector
// alike. Nothing here makes a library call on any target. A register holds: bool i1; integers of
// their width; f32, f64; f16, bf16 and f8 as their bits. Some operations add basic blocks: the
// builder ends in the last one.
#pragma once

#include "common/loops/loops.h"
#include "services/codegen/emit/num.h"

namespace quench::codegen {

// Types that generated code computes with; the rest (strings, complex, sub-byte) is UNIMPLEMENTED.
bool IsSupported(DataType type);
llvm::Type* RegisterType(llvm::LLVMContext& context, DataType type);

class Arith {
 public:
  Arith(ModuleState& state, llvm::IRBuilder<>& builder) : state_(state), b_(builder) {}

  // `type` is the operands' type.
  llvm::Value* Unary(loops::UnaryOp op, DataType type, llvm::Value* x);
  llvm::Value* Binary(loops::BinaryOp op, DataType type, llvm::Value* x, llvm::Value* y);
  llvm::Value* Cast(DataType from, DataType to, llvm::Value* x);
  // a * b + c on floats: fused where that is an instruction.
  llvm::Value* MultiplyAdd(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  // x / y truncated, of integers, for a divisor that is neither 0 nor, if signed, -1.
  llvm::Value* Quotient(bool is_signed, llvm::Value* x, llvm::Value* y);

  llvm::Value* IntConstant(DataType type, int64_t value);
  llvm::Value* FloatConstant(DataType type, double value);

 private:
  Num AsNum(llvm::Value* x) { return {&state_, &b_, x}; }
  llvm::Value* Like(llvm::Value* x, int64_t value) {
    return llvm::ConstantInt::get(x->getType(), static_cast<uint64_t>(value), true);
  }
  llvm::Type* Shaped(llvm::Value* x, llvm::Type* element);

  llvm::Value* FloatUnary(loops::UnaryOp op, llvm::Value* x);
  llvm::Value* IntUnary(loops::UnaryOp op, DataType type, llvm::Value* x);
  llvm::Value* Compare(loops::BinaryOp op, DataType type, llvm::Value* x, llvm::Value* y);
  llvm::Value* FloatBinary(loops::BinaryOp op, llvm::Value* x, llvm::Value* y);
  llvm::Value* FloatExtreme(bool max, llvm::Value* x, llvm::Value* y);
  llvm::Value* FloatFloorMod(llvm::Value* x, llvm::Value* y);
  llvm::Value* BoolBinary(loops::BinaryOp op, llvm::Value* x, llvm::Value* y);
  llvm::Value* IntBinary(loops::BinaryOp op, DataType type, llvm::Value* x, llvm::Value* y);
  llvm::Value* IntExtreme(bool max, bool is_signed, llvm::Value* x, llvm::Value* y);
  llvm::Value* Shift(bool left, bool is_signed, llvm::Value* x, llvm::Value* y);
  llvm::Value* IntPow(bool is_signed, llvm::Value* x, llvm::Value* y);

  // divide.cc
  llvm::Value* Divide(loops::BinaryOp op, bool is_signed, llvm::Value* x, llvm::Value* y);
  llvm::Value* DivideByConstant(loops::BinaryOp op, bool is_signed, llvm::Value* x, int64_t y);
  llvm::Value* CallDivide(bool is_signed, llvm::Value* x, llvm::Value* y);
  llvm::Value* Floored(loops::BinaryOp op, llvm::Value* x, llvm::Value* y, llvm::Value* quotient);

  // convert.cc
  llvm::Value* FromStorage(DataType type, llvm::Value* bits);
  bool FillsRegister(llvm::Value* x) const;
  llvm::Value* ToStorage(DataType type, llvm::Value* f32);
  llvm::Value* FloatToInt(DataType to, llvm::Value* x);
  llvm::Value* IntToFloat(DataType from, DataType to, llvm::Value* x);
  llvm::Value* NarrowToInt(DataType to, llvm::Value* x);
  llvm::Value* WideToInt(bool is_signed, llvm::Value* x);
  llvm::Value* WideFromInt(bool is_signed, bool to_f32, llvm::Value* x);

  ModuleState& state_;
  llvm::IRBuilder<>& b_;
};

}  // namespace quench::codegen
