#include <algorithm>

#include "common/loops/compiler.h"

namespace quench::loops::compile {

Address Compiler::Sum(const Linear& linear) {
  struct Part {
    int32_t reg;
    int block;
    int64_t coefficient;
  };
  Address address;
  address.constant = linear.constant;
  std::vector<Part> parts;
  for (const Linear::Term& term : linear.terms) {
    if (IsLaneIndex(term.atom)) {
      address.step = term.coefficient;
      parts.push_back({vars_[static_cast<size_t>(lane_var_)].reg, lane_block_, term.coefficient});
    } else if (Varies(term.atom)) {
      address.varying.push_back(term);
    } else {
      const Value value = Expression(term.atom);
      parts.push_back({value.reg, value.block, term.coefficient});
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.block < b.block; });
  address.base = address.last = zero_;
  bool empty = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (empty && part.coefficient == 1) {
      address.base = part.reg;
    } else if (i + 1 == parts.size() && Place(part.block) == Current()) {
      address.last = part.reg;
      address.coefficient = part.coefficient;
    } else {
      const int32_t reg = NewScalar();
      EmitAt(Place(part.block), {.op = Op::kMulAddIndex,
                                 .d = reg,
                                 .a = address.base,
                                 .b = part.reg,
                                 .imm = part.coefficient});
      address.base = reg;
    }
    empty = false;
  }
  return address;
}

int32_t Compiler::Base(const Address& address) {
  if (address.coefficient == 0) return address.base;
  const int32_t reg = NewScalar();
  Emit({.op = Op::kMulAddIndex,
        .d = reg,
        .a = address.base,
        .b = address.last,
        .imm = address.coefficient});
  return reg;
}

int32_t Compiler::LaneAddress(const Address& address) {
  std::vector<std::pair<int32_t, int64_t>> terms;
  for (const Linear::Term& term : address.varying)
    terms.emplace_back(InLanes(term.atom).reg, term.coefficient);
  const int32_t reg = TemporaryLane();
  int32_t base = Base(address);
  int64_t constant = address.constant;
  if (address.step != 0 || terms.empty()) {
    // Lane numbers 0, 1, ...: the index itself is in the scalar part.
    const int32_t numbers = TemporaryLane();
    Emit({.op = Op::kIota, .d = numbers, .a = zero_});
    terms.emplace_back(numbers, address.step);
  }
  Emit({.op = Op::kLaneAffine,
        .d = reg,
        .a = base,
        .b = terms[0].first,
        .imm = terms[0].second,
        .imm2 = constant});
  for (size_t i = 1; i < terms.size(); ++i) {
    Emit({.op = Op::kLaneMulAdd, .d = reg, .a = reg, .b = terms[i].first, .imm = terms[i].second});
  }
  return reg;
}

Address Compiler::Offset(BufferId buffer, std::span<const ExprId> indices) {
  const Shape& shape = shapes_[static_cast<size_t>(buffer)];
  Linear offset;
  for (size_t d = 0; d < indices.size(); ++d) {
    const Linear& index = linear_.Of(indices[d]);
    if (!ranges_.Of(indices[d]).Within(0, shape.dims[d]))
      Bound(buffer, static_cast<int32_t>(d), index);
    offset.Add(index, shape.strides[d]);
  }
  return Sum(offset);
}

void Compiler::Bound(BufferId buffer, int32_t dim, const Linear& index) {
  const int32_t trap = static_cast<int32_t>(program_.traps.size());
  program_.traps.push_back({true,
                            shapes_[static_cast<size_t>(buffer)].dims[static_cast<size_t>(dim)],
                            dim, f_.buffers[static_cast<size_t>(buffer)].name});
  const Address address = Sum(index);
  if (!address.varying.empty()) {
    const int32_t reg = LaneAddress(address);
    Emit({.op = Op::kGatherBound, .a = reg, .b = mask_, .c = trap});
  } else if (address.step != 0) {
    const int32_t base = Base(address);
    Emit({.op = Op::kLaneBound,
          .a = base,
          .b = mask_,
          .c = trap,
          .imm = address.step,
          .imm2 = address.constant});
  } else {
    Emit({.op = Op::kBound,
          .a = address.base,
          .b = address.last,
          .c = trap,
          .imm = address.coefficient,
          .imm2 = address.constant});
  }
}

Value Compiler::ScalarLoad(const Expr& e, int32_t dest) {
  const Address address = Offset(e.id, e.args);
  const int32_t reg = dest != kUnset ? dest : NewScalar();
  Instr instr = Access(e.id, address, reg);
  instr.op = e.type == DataType::kF32 || e.type == DataType::kI32   ? Op::kLoad4
             : e.type == DataType::kF64 || e.type == DataType::kI64 ? Op::kLoad8
                                                                    : Op::kLoad;
  instr.fn.load = FindMemory(e.type).load;
  Emit(instr);
  return {reg, Current(), false};
}

Instr Compiler::Access(BufferId buffer, const Address& address, int32_t reg) const {
  Instr instr = {.d = reg, .a = address.base, .b = address.last};
  instr.imm = address.coefficient;
  instr.imm2 = address.constant;
  instr.memory = memory_[static_cast<size_t>(buffer)];
  return instr;
}

bool Compiler::IsAffine(const Linear& linear) const {
  return std::any_of(linear.terms.begin(), linear.terms.end(),
                     [&](const Linear::Term& term) { return IsLaneIndex(term.atom); }) &&
         std::all_of(linear.terms.begin(), linear.terms.end(), [&](const Linear::Term& term) {
           return IsLaneIndex(term.atom) || !Varies(term.atom);
         });
}

std::optional<Clamp> Compiler::ClampOf(ExprId id) {
  const Expr& outer = At(id);
  if (outer.kind != ExprKind::kBinary) return std::nullopt;
  const bool max_outside = outer.binary == BinaryOp::kMax;
  if (!max_outside && outer.binary != BinaryOp::kMin) return std::nullopt;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const Expr& inner = At(outer.args[side]);
    const BinaryOp other = max_outside ? BinaryOp::kMin : BinaryOp::kMax;
    if (inner.kind != ExprKind::kBinary || inner.binary != other || Varies(outer.args[1 - side]))
      continue;
    for (const size_t x : {size_t{0}, size_t{1}}) {
      const ExprId limit = inner.args[1 - x];
      if (Varies(limit) || !Moderate(inner.args[x]) || !IsAffine(linear_.Of(inner.args[x])))
        continue;
      Clamp clamp = {inner.args[x], outer.args[1 - side], limit};
      if (!max_outside) std::swap(clamp.lo, clamp.hi);
      // The order of the two cuts matters when they cross.
      if (ranges_.Of(clamp.lo).hi > ranges_.Of(clamp.hi).lo) continue;
      return clamp;
    }
  }
  return std::nullopt;
}

Value Compiler::ClampedLoad(const Expr& e, const Address& address, const Clamp& clamp,
                            int32_t dest) {
  const MemoryOps ops = FindMemory(e.type);
  const Address x = Sum(linear_.Of(clamp.x));
  Instr data = {.op = Op::kData, .a = Base(x), .imm = x.step, .imm2 = x.constant};
  data.b = Expression(clamp.lo).reg;
  data.c = Expression(clamp.hi).reg;
  data.fn.gather = ops.gather;
  Instr instr = {.op = Op::kClampedLoad, .a = Base(address), .b = mask_};
  instr.imm = address.varying[0].coefficient;
  instr.imm2 = address.constant;
  instr.memory = memory_[static_cast<size_t>(e.id)];
  instr.fn.load = ops.load;
  instr.d = dest != kUnset ? dest : TemporaryLane();
  Emit(instr);
  Emit(data);
  return {instr.d, Current(), true};
}

Value Compiler::LaneLoad(const Expr& e, int32_t dest) {
  const Address address = Offset(e.id, e.args);
  if (address.varying.size() == 1 && address.step == 0) {
    if (const auto clamp = ClampOf(address.varying[0].atom))
      return ClampedLoad(e, address, *clamp, dest);
  }
  Instr instr;
  if (address.varying.empty() && mask_ == kNoMask) {
    instr = Access(e.id, address, 0);
    instr.op = Op::kLaneLoad;
    instr.a = Base(address);
    instr.imm = address.step;
    instr.fn.load = FindMemory(e.type).load;
  } else {
    instr.op = Op::kGather;
    instr.a = LaneAddress(address);
    instr.c = mask_;
    instr.memory = memory_[static_cast<size_t>(e.id)];
    instr.fn.gather = FindMemory(e.type).gather;
  }
  instr.d = dest != kUnset ? dest : TemporaryLane();
  Emit(instr);
  return {instr.d, Current(), true};
}

}  // namespace quench::loops::compile
