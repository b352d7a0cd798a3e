// Expressions over lanes.
#include "common/base/status.h"
#include "services/codegen/emit/nest_emitter.h"

namespace quench::codegen {

using loops::BinaryOp;
using loops::Expr;
using loops::ExprKind;
using loops::UnaryOp;
using LaneShape = Lanes::Shape;

Lanes NestEmitter::Value(loops::ExprId id) {
  const auto i = static_cast<size_t>(id);
  if (memo_epoch_[i] == epoch_) return memo_[i];
  const Lanes value = Emit(ExprAt(id));
  memo_[i] = value;
  memo_epoch_[i] = epoch_;
  return value;
}

llvm::Value* NestEmitter::Scalar(loops::ExprId id) {
  const Lanes value = Value(id);
  QUENCH_CHECK(value.uniform());  // the schedule admits lanes only where this holds
  return value.v;
}

llvm::Value* NestEmitter::Splat(llvm::Value* scalar) {
  return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), scalar);
}

llvm::Value* NestEmitter::LaneNumbers(llvm::Type* element) {
  std::vector<llvm::Constant*> numbers;
  for (int i = 0; i < lanes_; ++i)
    numbers.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(i)));
  return llvm::ConstantVector::get(numbers);
}

llvm::Value* NestEmitter::Vector(const Lanes& value) {
  if (value.shape == LaneShape::kVarying) return value.v;
  llvm::Value* splat = Splat(value.v);
  if (value.uniform()) return splat;
  llvm::Type* type = value.v->getType();
  llvm::Value* step = Splat(llvm::ConstantInt::get(type, static_cast<uint64_t>(value.step), true));
  return b_.CreateAdd(splat, b_.CreateMul(LaneNumbers(type), step));
}

llvm::Value* NestEmitter::AndMask(llvm::Value* condition) {
  return mask_ == nullptr ? condition : b_.CreateAnd(mask_, condition);
}

llvm::Value* NestEmitter::AnyLane(llvm::Value* mask) { return b_.CreateOrReduce(mask); }

Lanes NestEmitter::Emit(const Expr& e) {
  switch (e.kind) {
    case ExprKind::kInt:
      return {arith_.IntConstant(e.type, e.i)};
    case ExprKind::kFloat:
      return {arith_.FloatConstant(e.type, e.f)};
    case ExprKind::kVar:
      return vars_[static_cast<size_t>(e.id)];
    case ExprKind::kLocal:
      return Local(e);
    case ExprKind::kSlot:
      return Slot(e);
    case ExprKind::kLoad:
      return Load(e);
    case ExprKind::kUnary:
      return Unary(e);
    case ExprKind::kBinary:
      return Binary(e);
    case ExprKind::kSelect:
      return Select(e);
    case ExprKind::kCast:
      return Cast(e);
    case ExprKind::kParam:
      break;
  }
  QUENCH_CHECK(false);  // functions have no params: loops::Verify
}

// Slots are sizes, fixed for a run, except where this very function computes them.
Lanes NestEmitter::Slot(const Expr& e) {
  const auto load = [&](llvm::IRBuilder<>& b) {
    llvm::Value* place = b.CreateConstInBoundsGEP1_64(b.getInt64Ty(), function_->getArg(1),
                                                      static_cast<uint64_t>(e.id));
    return b.CreateAlignedLoad(b.getInt64Ty(), place, llvm::Align(8));
  };
  if (writes_slots_) return {load(b_)};
  llvm::Value*& known = slots_[e.id];
  if (known == nullptr) known = load(entry_);
  return {known};
}

Lanes NestEmitter::Local(const Expr& e) {
  const LocalSlot& slot = locals_[static_cast<size_t>(e.id)];
  llvm::Value* value = b_.CreateLoad(slot.memory->getAllocatedType(), slot.memory);
  return {value, slot.varying ? LaneShape::kVarying : LaneShape::kUniform};
}

Lanes NestEmitter::Unary(const Expr& e) {
  const Lanes x = Value(e.args[0]);
  const DataType type = ExprAt(e.args[0]).type;
  if (x.uniform()) return {arith_.Unary(e.unary, type, x.v)};
  if (x.shape == LaneShape::kLinear && e.unary == UnaryOp::kNeg) {
    return {arith_.Unary(e.unary, type, x.v), LaneShape::kLinear, -x.step};
  }
  return {arith_.Unary(e.unary, type, Vector(x)), LaneShape::kVarying};
}

// Sums and constant multiples of lane numbers stay linear: addresses made of them are strided.
std::optional<Lanes> NestEmitter::LinearBinary(const Expr& e, const Lanes& x, const Lanes& y) {
  if (x.shape == LaneShape::kVarying || y.shape == LaneShape::kVarying || !IsInteger(e.type))
    return std::nullopt;
  const auto apply = [&](int64_t step) -> Lanes {
    llvm::Value* v = arith_.Binary(e.binary, e.type, x.v, y.v);
    return {v, step == 0 ? LaneShape::kUniform : LaneShape::kLinear, step};
  };
  const auto constant = [](const Lanes& value) {
    return value.uniform() ? llvm::dyn_cast<llvm::ConstantInt>(value.v) : nullptr;
  };
  switch (e.binary) {
    case BinaryOp::kAdd:
      return apply(x.step + y.step);
    case BinaryOp::kSub:
      return apply(x.step - y.step);
    case BinaryOp::kMul:
      if (const auto* c = constant(y)) return apply(x.step * c->getSExtValue());
      if (const auto* c = constant(x)) return apply(y.step * c->getSExtValue());
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Lanes NestEmitter::Binary(const Expr& e) {
  const Lanes x = Value(e.args[0]);
  const Lanes y = Value(e.args[1]);
  const DataType type = ExprAt(e.args[0]).type;
  if (x.uniform() && y.uniform()) return {arith_.Binary(e.binary, type, x.v, y.v)};
  if (const auto linear = LinearBinary(e, x, y)) return *linear;
  return {arith_.Binary(e.binary, type, Vector(x), Vector(y)), LaneShape::kVarying};
}

Lanes NestEmitter::Select(const Expr& e) {
  const Lanes condition = Value(e.args[0]);
  const Lanes x = Value(e.args[1]);
  const Lanes y = Value(e.args[2]);
  if (condition.uniform() && x.uniform() && y.uniform())
    return {b_.CreateSelect(condition.v, x.v, y.v)};
  return {b_.CreateSelect(condition.v, Vector(x), Vector(y)), LaneShape::kVarying};
}

Lanes NestEmitter::Cast(const Expr& e) {
  const Lanes x = Value(e.args[0]);
  const DataType from = ExprAt(e.args[0]).type;
  if (x.uniform()) return {arith_.Cast(from, e.type, x.v)};
  if (x.shape == LaneShape::kLinear && IsInteger(e.type) &&
      DataTypeBits(e.type) <= DataTypeBits(from)) {
    return {arith_.Cast(from, e.type, x.v), LaneShape::kLinear, x.step};
  }
  return {arith_.Cast(from, e.type, Vector(x)), LaneShape::kVarying};
}

}  // namespace quench::codegen
