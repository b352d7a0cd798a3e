// C's fmod by long division. Loops per lane: rare in networks, exact everywhere.
#include "services/codegen/emit/math.h"

namespace quench::codegen::math {
namespace {

// The loops of double fmod(double a, double b) for finite a >= 0, b > 0. Doubles t = b while 2 t <=
// a, then takes t off a wherever it fits, halving back to b. Every step is exact (P. Sterbenz,
// 1974).
struct LongDivision {
  llvm::IRBuilder<>& b;
  llvm::Function* function;
  llvm::Value* divisor;
  llvm::AllocaInst* rest;
  llvm::AllocaInst* step;

  llvm::Value* Get(llvm::AllocaInst* slot) { return b.CreateLoad(b.getDoubleTy(), slot); }
  llvm::BasicBlock* Block(const char* name) {
    return llvm::BasicBlock::Create(b.getContext(), name, function);
  }

  void Double() {
    llvm::BasicBlock *test = Block("test"), *grow = Block("grow"), *done = Block("grown");
    b.CreateBr(test);
    b.SetInsertPoint(test);
    llvm::Value* half = b.CreateFMul(Get(rest), llvm::ConstantFP::get(b.getDoubleTy(), 0.5));
    b.CreateCondBr(b.CreateFCmpOLE(Get(step), half), grow, done);
    b.SetInsertPoint(grow);
    b.CreateStore(b.CreateFAdd(Get(step), Get(step)), step);
    b.CreateBr(test);
    b.SetInsertPoint(done);
  }

  void Subtract() {
    llvm::BasicBlock *take = Block("take"), *halve = Block("halve"), *done = Block("done");
    b.CreateBr(take);
    b.SetInsertPoint(take);
    llvm::Value* fits = b.CreateFCmpOLE(Get(step), Get(rest));
    b.CreateStore(b.CreateSelect(fits, b.CreateFSub(Get(rest), Get(step)), Get(rest)), rest);
    b.CreateCondBr(b.CreateFCmpOEQ(Get(step), divisor), done, halve);
    b.SetInsertPoint(halve);
    b.CreateStore(b.CreateFMul(Get(step), llvm::ConstantFP::get(b.getDoubleTy(), 0.5)), step);
    b.CreateBr(take);
    b.SetInsertPoint(done);
  }
};

// double fmod(double, double), internal to the module.
llvm::Function* FmodFunction(ModuleState& state) {
  const std::string name = state.prefix + "_fmod";
  if (llvm::Function* known = state.module->getFunction(name)) return known;
  llvm::Type* f64 = llvm::Type::getDoubleTy(state.context);
  llvm::Function* function =
      CreateFunction(state, name, llvm::FunctionType::get(f64, {f64, f64}, false),
                     llvm::GlobalValue::InternalLinkage);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(state.context, "entry", function));
  const Num x{&state, &b, function->getArg(0)}, y{&state, &b, function->getArg(1)};
  const Num a = Abs(x), d = Abs(y);
  llvm::AllocaInst* rest = b.CreateAlloca(f64);
  llvm::AllocaInst* step = b.CreateAlloca(f64);
  llvm::BasicBlock* divide = llvm::BasicBlock::Create(state.context, "divide", function);
  llvm::BasicBlock* edge = llvm::BasicBlock::Create(state.context, "edge", function);
  llvm::Value* ordinary =
      b.CreateAnd(b.CreateAnd((a < a.Infinity()).v, (d < d.Infinity()).v), (d > 0).v);
  b.CreateStore(a.v, rest);
  b.CreateStore(d.v, step);
  b.CreateCondBr(ordinary, divide, edge);
  b.SetInsertPoint(divide);
  LongDivision division{b, function, d.v, rest, step};
  division.Double();
  division.Subtract();
  b.CreateRet(CopySign(x.With(division.Get(rest)), x).v);
  b.SetInsertPoint(edge);  // x for finite x and infinite y, else NaN
  const Bits keep{&b, b.CreateAnd((a < a.Infinity()).v, (d == d.Infinity()).v)};
  b.CreateRet(Select(keep, x, x.Nan()).v);
  return function;
}

}  // namespace

Num Fmod(Num x, Num y) {
  if (!x.is_f64()) return Narrow(Fmod(Widen(x), Widen(y)), x);
  llvm::Function* function = FmodFunction(*x.state);
  llvm::IRBuilder<>& b = *x.b;
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x.v->getType());
  if (vector == nullptr) return x.With(b.CreateCall(function, {x.v, y.v}));
  llvm::Value* result = llvm::PoisonValue::get(x.v->getType());
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    llvm::Value* one = b.CreateCall(
        function, {b.CreateExtractElement(x.v, lane), b.CreateExtractElement(y.v, lane)});
    result = b.CreateInsertElement(result, one, lane);
  }
  return x.With(result);
}

}  // namespace quench::codegen::math
