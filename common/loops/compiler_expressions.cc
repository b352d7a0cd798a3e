#include <algorithm>

#include "common/loops/compiler.h"

namespace quench::loops::compile {

Value Compiler::Expression(ExprId id, int32_t dest) {
  const Expr& e = At(id);
  if (e.kind == ExprKind::kFloat) {
    return {e.type == DataType::kF64 ? ConstantOf(e.f) : ConstantOf(static_cast<float>(e.f)), 0,
            false};
  }
  if (const auto value = ranges_.ConstantOf(id)) return {IntegerConstant(*value, e.type), 0, false};
  const bool lanes = Varies(id);
  const Value& known = (lanes ? lane_memo_ : memo_)[static_cast<size_t>(id)];
  if (known.reg != kUnset) return known;
  switch (e.kind) {
    case ExprKind::kVar:
      return Variable(id, e, lanes);
    case ExprKind::kLocal:
      return {lanes ? lane_locals_[static_cast<size_t>(e.id)] : locals_[static_cast<size_t>(e.id)],
              LocalBlock(e.id), lanes};
    case ExprKind::kSlot: {
      const Value value = {NewScalar(), Current(), false};
      Emit({.op = Op::kGetSlot, .d = value.reg, .imm = e.id});
      Remember(id, value, Current());
      return value;
    }
    case ExprKind::kLoad: {
      const Value value = lanes ? LaneLoad(e, dest) : ScalarLoad(e, dest);
      if (value.reg != dest) Remember(id, value, Current());
      return value;
    }
    default:
      return Operation(id, e, lanes, dest);
  }
}

Value Compiler::InLanes(ExprId id, int32_t dest) {
  // A scalar `dest` is no use to a value that is the same in every lane.
  const Value value = Expression(id, Varies(id) ? dest : kUnset);
  if (value.lanes) return value;
  const Value& known = lane_memo_[static_cast<size_t>(id)];
  if (known.reg != kUnset && dest == kUnset) return known;
  const int place = Place(std::max(value.block, lane_block_));
  const Value splat = {dest != kUnset && place == Current() ? dest : ResultRegister(place, true),
                       place, true};
  Instr instr = {.op = Op::kSplat, .d = splat.reg, .a = value.reg};
  instr.fn.unary = FindSplat(At(id).type);
  EmitAt(place, instr);
  if (splat.reg != dest) Remember(id, splat, place);
  return splat;
}

Value Compiler::Variable(ExprId id, const Expr& e, bool lanes) {
  const Value& var = vars_[static_cast<size_t>(e.id)];
  if (!lanes || e.id != lane_var_) return var;
  // The index of the loop that runs in lanes; its scalar register holds the first lane's.
  const int place = Place(lane_block_);
  const Value iota = {ResultRegister(place, true), place, true};
  EmitAt(place, {.op = Op::kIota, .d = iota.reg, .a = var.reg});
  Remember(id, iota, place);
  return iota;
}

int Compiler::LocalBlock(LocalId local) const {
  int block = Current();
  while (block > 0) {
    const std::vector<LocalId>& assigned = *blocks_[static_cast<size_t>(block)].assigned;
    if (std::binary_search(assigned.begin(), assigned.end(), local)) break;
    --block;
  }
  return block;
}

Value Compiler::Operation(ExprId id, const Expr& e, bool lanes, int32_t dest) {
  int32_t operand[3] = {0, 0, 0};
  int block = lanes ? lane_block_ : 0;
  // f32 a + b * c in one instruction; the product must not be needed elsewhere already.
  if (const int side = lanes ? kNone : ProductSide(e); side != kNone) {
    const Expr& product = At(e.args[static_cast<size_t>(side)]);
    const Value parts[] = {Expression(product.args[0]), Expression(product.args[1]),
                           Expression(e.args[static_cast<size_t>(1 - side)])};
    for (const Value& part : parts) block = std::max(block, part.block);
    const int place = Place(block);
    const int32_t reg = dest != kUnset && place == Current() ? dest : NewScalar();
    EmitAt(
        place,
        {.op = Op::kMulAddF32, .d = reg, .a = parts[0].reg, .b = parts[1].reg, .c = parts[2].reg});
    return Finish(id, {reg, place, false}, dest);
  }
  if (lanes) {
    if (const std::optional<Value> value = LaneComparison(id, e, dest)) return *value;
  }
  for (size_t i = 0; i < e.args.size(); ++i) {
    const Value value = lanes ? InLanes(e.args[i]) : Expression(e.args[i]);
    operand[i] = value.reg;
    block = std::max(block, value.block);
  }
  const int place = Place(block);
  const int32_t reg = dest != kUnset && place == Current() ? dest : ResultRegister(place, lanes);
  EmitOperation(place, e, lanes, reg, operand);
  return Finish(id, {reg, place, lanes}, dest);
}

std::optional<Value> Compiler::LaneComparison(ExprId id, const Expr& e, int32_t dest) {
  if (e.kind != ExprKind::kBinary || !IsComparison(e.binary) ||
      At(e.args[0]).type != DataType::kI64) {
    return std::nullopt;
  }
  if (!Moderate(e.args[0]) || !Moderate(e.args[1])) return std::nullopt;
  Linear difference = linear_.Of(e.args[0]);
  difference.Add(linear_.Of(e.args[1]), -1);
  if (!IsAffine(difference)) return std::nullopt;
  int block = lane_block_;
  for (const Linear::Term& term : difference.terms) {
    if (!IsLaneIndex(term.atom)) block = std::max(block, Expression(term.atom).block);
  }
  if (Place(block) != Current())
    return std::nullopt;  // done once before a loop, in the ordinary way
  const Address address = Sum(difference);
  Instr instr = {.op = Op::kLaneCompare, .a = Base(address), .c = static_cast<int32_t>(e.binary)};
  instr.imm = address.step;
  instr.imm2 = address.constant;
  instr.d = dest != kUnset ? dest : TemporaryLane();
  Emit(instr);
  return Finish(id, {instr.d, Current(), true}, dest);
}

int Compiler::ProductSide(const Expr& e) const {
  if (e.kind != ExprKind::kBinary || e.binary != BinaryOp::kAdd || e.type != DataType::kF32)
    return kNone;
  for (const int side : {1, 0}) {
    const ExprId arg = e.args[static_cast<size_t>(side)];
    const Expr& product = At(arg);
    if (product.kind == ExprKind::kBinary && product.binary == BinaryOp::kMul &&
        memo_[static_cast<size_t>(arg)].reg == kUnset) {
      return side;
    }
  }
  return kNone;
}

void Compiler::EmitOperation(int place, const Expr& e, bool lanes, int32_t d,
                             const int32_t* operand) {
  const DataType type = At(e.args[0]).type;
  Instr instr = {.d = d, .a = operand[0], .b = operand[1]};
  switch (e.kind) {
    case ExprKind::kUnary: {
      const Lanes<UnaryFn> fn = FindUnary(e.unary, type);
      instr.op = lanes ? Op::kLaneUnary : Op::kUnary;
      instr.fn.unary = lanes ? fn.many : fn.one;
      break;
    }
    case ExprKind::kBinary: {
      const Lanes<BinaryFn> fn = FindBinary(e.binary, type);
      instr.op = lanes ? Op::kLaneBinary : ScalarOp(e.binary, type);
      instr.fn.binary = lanes ? fn.many : fn.one;
      break;
    }
    case ExprKind::kSelect: {
      const Lanes<SelectFn> fn = FindSelect(e.type);
      instr = {.op = lanes ? Op::kLaneSelect : Op::kSelect,
               .d = d,
               .a = operand[1],
               .b = operand[2],
               .c = operand[0]};
      instr.fn.select = lanes ? fn.many : fn.one;
      break;
    }
    default:
      return EmitCast(place, type, e.type, lanes, instr);
  }
  EmitAt(place, instr);
}

void Compiler::EmitCast(int place, DataType from, DataType to, bool lanes, Instr instr) {
  instr.op = lanes ? Op::kLaneUnary : Op::kUnary;
  const auto step = [&](DataType a, DataType b) {
    const Lanes<UnaryFn> fn = FindCast(a, b);
    instr.fn.unary = lanes ? fn.many : fn.one;
    EmitAt(place, instr);
  };
  if (ComputeType(to) == to || ComputeType(from) == DataType::kF32) return step(from, to);
  // To a storage float by way of f32.
  const int32_t result = instr.d;
  instr.d = lanes ? ResultRegister(place, true) : NewScalar();
  step(from, DataType::kF32);
  instr.a = instr.d;
  instr.d = result;
  step(DataType::kF32, to);
}

Op Compiler::ScalarOp(BinaryOp op, DataType type) {
  if (type == DataType::kI64) {
    if (op == BinaryOp::kAdd) return Op::kAddI64;
    if (op == BinaryOp::kSub) return Op::kSubI64;
    if (op == BinaryOp::kMul) return Op::kMulI64;
    if (op == BinaryOp::kLt) return Op::kLtI64;
  }
  if (type == DataType::kF32) {
    if (op == BinaryOp::kAdd) return Op::kAddF32;
    if (op == BinaryOp::kSub) return Op::kSubF32;
    if (op == BinaryOp::kMul) return Op::kMulF32;
    if (op == BinaryOp::kDiv) return Op::kDivF32;
  }
  return Op::kBinary;
}

}  // namespace quench::loops::compile
