#include "common/loops/compiler.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/loops/long_sums.h"

namespace quench::loops::compile {

absl::StatusOr<Program> Compiler::Run() {
  QUENCH_RETURN_IF_ERROR(Scan());
  zero_ = Constant(0, 8);
  for (size_t i = 0; i < locals_.size(); ++i) locals_[i] = NewScalar();
  blocks_.emplace_back();
  blocks_[0].assigned = &all_assigned_;
  Body(f_.body);
  Emit({.op = Op::kEnd});
  if (out_of_lanes()) return absl::ResourceExhaustedError("too many values in lanes");
  program_.code = std::move(blocks_[0].code);
  program_.lane_registers = next_lane_;
  return std::move(program_);
}

absl::Status Compiler::Scan() {
  const size_t count = f_.exprs.size();
  std::vector<int> depth(count, 1);
  purity_.assign(count, kPure);
  impure_.assign(count, false);
  for (const Stmt& stmt : f_.stmts) {
    if (stmt.kind == StmtKind::kSetSlot) written_slots_[static_cast<size_t>(stmt.id)] = true;
  }
  for (size_t i = 0; i < count; ++i) {
    const Expr& e = f_.exprs[i];
    uint8_t purity = e.kind == ExprKind::kLocal  ? kReadsLocal
                     : e.kind == ExprKind::kLoad ? kReadsMemory
                                                 : kPure;
    if (e.kind == ExprKind::kSlot && written_slots_[static_cast<size_t>(e.id)])
      purity = kReadsMemory;
    for (const ExprId arg : e.args) {
      depth[i] = std::max(depth[i], depth[static_cast<size_t>(arg)] + 1);
      purity |= purity_[static_cast<size_t>(arg)];
    }
    if (depth[i] > kMaxDepth) {
      return absl::ResourceExhaustedError(fmt::format(
          "`{}`: an expression is nested {} deep, at most {} (bind parts of it to variables)",
          f_.name, depth[i], kMaxDepth));
    }
    purity_[i] = purity;
    impure_[i] = purity != kPure;
  }
  return Assigned(f_.body, all_assigned_, 1);
}

absl::Status Compiler::Assigned(const std::vector<StmtId>& body, std::vector<LocalId>& out,
                                int depth) {
  if (depth > kMaxNesting) {
    return absl::ResourceExhaustedError(
        fmt::format("`{}`: statements are nested more than {} deep", f_.name, kMaxNesting));
  }
  for (const StmtId id : body) {
    const Stmt& stmt = StmtAt(id);
    if (stmt.kind == StmtKind::kSet) out.push_back(stmt.id);
    if (stmt.body.empty() && stmt.otherwise.empty()) continue;
    std::vector<LocalId>& inner = assigned_[static_cast<size_t>(id)];
    QUENCH_RETURN_IF_ERROR(Assigned(stmt.body, inner, depth + 1));
    QUENCH_RETURN_IF_ERROR(Assigned(stmt.otherwise, inner, depth + 1));
    std::sort(inner.begin(), inner.end());
    inner.erase(std::unique(inner.begin(), inner.end()), inner.end());
    out.insert(out.end(), inner.begin(), inner.end());
  }
  return absl::OkStatus();
}

void Compiler::Body(const std::vector<StmtId>& body) {
  for (const StmtId id : body) {
    const size_t memos = statement_memo_.size();
    const size_t temporaries = temporaries_.size();
    Statement(id);
    while (statement_memo_.size() > memos) {
      Forget(statement_memo_.back().first, statement_memo_.back().second);
      statement_memo_.pop_back();
    }
    while (temporaries_.size() > temporaries) {
      free_lanes_.push_back(temporaries_.back());
      temporaries_.pop_back();
    }
  }
}

void Compiler::Statement(StmtId id) {
  const Stmt& stmt = StmtAt(id);
  switch (stmt.kind) {
    case StmtKind::kFor:
      return For(id, stmt);
    case StmtKind::kWhile:
      return While(id, stmt);
    case StmtKind::kIf:
      return If(id, stmt);
    case StmtKind::kLet:
      return Let(stmt);
    case StmtKind::kSet:
      return Set(stmt);
    case StmtKind::kStore:
      return Store(stmt);
    case StmtKind::kSetSlot: {
      const Value value = Expression(stmt.args[0]);
      Emit({.op = Op::kSetSlot, .a = value.reg, .imm = stmt.id});
      return ForgetImpure(kReadsMemory);
    }
    case StmtKind::kCheck:
      return Check(stmt);
  }
}

void Compiler::For(StmtId id, const Stmt& stmt) {
  const Range begin = ranges_.Of(stmt.args[0]);
  const Range end = ranges_.Of(stmt.args[1]);
  ranges_.Define(stmt.id,
                 {begin.lo, std::max(begin.lo, end.hi == INT64_MIN ? end.hi : end.hi - 1)});
  if (plan_ == nullptr && PlanLanes(id, stmt)) return LaneLoop(id, stmt);
  const bool parallel = stmt.mark == LoopMark::kParallel;
  parallel_depth_ += parallel ? 1 : 0;
  SimpleLoop(id, stmt, Op::kLoop, Op::kNext);
  parallel_depth_ -= parallel ? 1 : 0;
}

void Compiler::SimpleLoop(StmtId id, const Stmt& stmt, Op enter, Op next) {
  if (const int64_t block = IterationsOfBlock(f_, id, ranges_); block > 0)
    return LoopInBlocks(id, stmt, enter, next, block);
  const int32_t from = Expression(stmt.args[0]).reg;
  // The bounds are taken once; a local in them may change in the body.
  Iterate(id, stmt, enter, next, from, Pinned(stmt.args[1]));
}

void Compiler::Iterate(StmtId id, const Stmt& stmt, Op enter, Op next, int32_t from, int32_t to) {
  const int32_t var = NewScalar();
  vars_[static_cast<size_t>(stmt.id)] = {var, Current() + 1, false};
  const bool in_lanes = plan_ != nullptr && plan_->loop() == id;
  if (in_lanes) lane_block_ = Current() + 1;
  const std::vector<Instr> code = Nested(true, assigned_[static_cast<size_t>(id)], [&] {
    if (in_lanes) EnterLanes();
    Body(stmt.body);
  });
  Repeat(code, enter, next, var, from, to);
}

void Compiler::Repeat(const std::vector<Instr>& code, Op enter, Op next, int32_t var, int32_t from,
                      int32_t to) {
  const int32_t size = static_cast<int32_t>(code.size());
  Emit({.op = enter, .d = var, .a = from, .b = to, .jump = size + 2});
  Append(code);
  Emit({.op = next, .d = var, .b = to, .jump = -size, .imm = Cost(code)});
}

// total = sum; for each block: sum = 0, its iterations, total += sum; sum = total
void Compiler::LoopInBlocks(StmtId id, const Stmt& stmt, Op enter, Op next, int64_t block) {
  const int32_t from = Pinned(stmt.args[0]), to = Pinned(stmt.args[1]);
  std::vector<LongSum> sums;
  for (const Reduction& reduction : stmt.reductions) {
    if (!IsLongSum(f_, reduction)) continue;
    const auto local = static_cast<size_t>(reduction.local);
    const bool lanes = plan_ != nullptr && plan_->LocalVaries(reduction.local);
    sums.push_back({lanes ? lane_locals_[local] : locals_[local], NewRegister(lanes),
                    NewRegister(lanes), lanes});
    EmitCast(Current(), DataType::kF32, DataType::kF64, lanes,
             {.d = sums.back().total, .a = sums.back().sum});
  }
  const int32_t blocks = NewScalar(), number = NewScalar(), first = NewScalar(), last = NewScalar();
  EmitI64(BinaryOp::kSub, blocks, to, from);
  EmitI64(BinaryOp::kAdd, blocks, blocks, ConstantOf(block - 1));
  EmitI64(BinaryOp::kFloorDiv, blocks, blocks, ConstantOf(block));
  const std::vector<Instr> code = Nested(true, assigned_[static_cast<size_t>(id)], [&] {
    Emit({.op = Op::kMulAddIndex, .d = first, .a = from, .b = number, .imm = block});
    EmitI64(BinaryOp::kAdd, last, first, ConstantOf(block));
    EmitI64(BinaryOp::kMin, last, last, to);
    for (const LongSum& sum : sums) ClearSum(sum);
    Iterate(id, stmt, enter, next, first, last);
    for (const LongSum& sum : sums) AddToTotal(sum);
  });
  Repeat(code, Op::kLoop, Op::kNext, number, zero_, blocks);
  for (const LongSum& sum : sums)
    EmitCast(Current(), DataType::kF64, DataType::kF32, sum.lanes, {.d = sum.sum, .a = sum.total});
  for (const LongSum& sum : sums) {
    if (sum.lanes) free_lanes_.insert(free_lanes_.end(), {sum.total, sum.wide});
  }
}

void Compiler::EmitI64(BinaryOp op, int32_t d, int32_t a, int32_t b) {
  Instr instr = {.op = ScalarOp(op, DataType::kI64), .d = d, .a = a, .b = b};
  instr.fn.binary = FindBinary(op, DataType::kI64).one;
  Emit(instr);
}

// -0 adds nothing to any number, 0 would to -0.
void Compiler::ClearSum(const LongSum& sum) {
  Instr instr = {.op = sum.lanes ? Op::kSplat : Op::kMove, .d = sum.sum, .a = ConstantOf(-0.0F)};
  if (sum.lanes) instr.fn.unary = FindSplat(DataType::kF32);
  Emit(instr);
}

void Compiler::AddToTotal(const LongSum& sum) {
  EmitCast(Current(), DataType::kF32, DataType::kF64, sum.lanes, {.d = sum.wide, .a = sum.sum});
  const Lanes<BinaryFn> add = FindBinary(BinaryOp::kAdd, DataType::kF64);
  Instr instr = {.op = sum.lanes ? Op::kLaneBinary : Op::kBinary,
                 .d = sum.total,
                 .a = sum.total,
                 .b = sum.wide};
  instr.fn.binary = sum.lanes ? add.many : add.one;
  Emit(instr);
}

int32_t Compiler::Pinned(ExprId id) {
  const Value value = Expression(id);
  if (At(id).kind != ExprKind::kLocal) return value.reg;
  const int32_t copy = NewScalar();
  Emit({.op = Op::kMove, .d = copy, .a = value.reg});
  return copy;
}

bool Compiler::PlanLanes(StmtId id, const Stmt& stmt) {
  if (!options_.lanes || stmt.mark == LoopMark::kSerial) return false;
  if (const auto it = lane_loops_.find(id); it != lane_loops_.end()) return it->second;
  const std::vector<StmtId> candidates = LaneCandidates(f_, id, ranges_, shapes_);
  for (const StmtId candidate : candidates) {
    const bool outermost = parallel_depth_ == 0 && candidate == id;
    if (!LanePlan::Make(f_, candidate, outermost, &chosen_)) continue;
    // Loops between here and the candidate run one iteration at a time.
    if (candidate != id) lane_loops_[candidate] = true;
    return candidate == id;
  }
  return false;
}

void Compiler::LaneLoop(StmtId id, const Stmt& stmt) {
  LanePlan::Make(f_, id, parallel_depth_ == 0, &chosen_);
  plan_ = &chosen_;
  lane_var_ = stmt.id;
  SimpleLoop(id, stmt, Op::kLanesLoop, Op::kLanesNext);
  for (int32_t& reg : lane_locals_) {
    if (reg != kUnset) free_lanes_.push_back(reg);
    reg = kUnset;
  }
  plan_ = nullptr;
}

void Compiler::EnterLanes() {
  for (const LocalId local : assigned_[static_cast<size_t>(plan_->loop())]) {
    const size_t index = static_cast<size_t>(local);
    if (!plan_->LocalVaries(local)) continue;
    lane_locals_[index] = NewLane();
    Instr instr = {.op = Op::kSplat, .d = lane_locals_[index], .a = locals_[index]};
    instr.fn.unary = FindSplat(f_.locals[index].type);
    Emit(instr);
  }
}

void Compiler::While(StmtId id, const Stmt& stmt) {
  size_t test_size = 0;
  std::vector<Instr> code = Nested(true, assigned_[static_cast<size_t>(id)], [&] {
    const size_t memos = statement_memo_.size();
    const Value test = Expression(stmt.args[0]);
    Emit({.op = Op::kJumpIfFalse, .a = test.reg});
    test_size = Top().code.size();
    while (statement_memo_.size() > memos) {
      Forget(statement_memo_.back().first, statement_memo_.back().second);
      statement_memo_.pop_back();
    }
    Body(stmt.body);
  });
  const int32_t size = static_cast<int32_t>(code.size());
  code[test_size - 1].jump = size - static_cast<int32_t>(test_size) + 2;
  const int64_t cost = Cost(code);
  Append(code);
  Emit({.op = Op::kJump, .jump = -size, .imm = cost});
}

void Compiler::If(StmtId id, const Stmt& stmt) {
  if (Varies(stmt.args[0])) return MaskedIf(id, stmt);
  const std::vector<LocalId>& assigned = assigned_[static_cast<size_t>(id)];
  if (const auto known = ranges_.ConstantOf(stmt.args[0])) {
    // An arm all the same: its lets must not outlive it.
    return Append(Nested(false, assigned, [&] { Body(*known != 0 ? stmt.body : stmt.otherwise); }));
  }
  const Value test = Expression(stmt.args[0]);
  const std::vector<Instr> then = Nested(false, assigned, [&] { Body(stmt.body); });
  const std::vector<Instr> otherwise = Nested(false, assigned, [&] { Body(stmt.otherwise); });
  const int32_t skip = static_cast<int32_t>(then.size()) + (otherwise.empty() ? 1 : 2);
  Emit({.op = Op::kJumpIfFalse, .a = test.reg, .jump = skip});
  Append(then);
  if (otherwise.empty()) return;
  Emit({.op = Op::kJump, .jump = static_cast<int32_t>(otherwise.size()) + 1});
  Append(otherwise);
}

void Compiler::MaskedIf(StmtId id, const Stmt& stmt) {
  const int32_t outer = mask_;
  const int32_t condition = InLanes(stmt.args[0]).reg;
  // The condition is taken once: a local in it may change in the first arm.
  const int32_t then = TemporaryLane();
  EmitMask(then, condition, outer);
  int32_t otherwise = kUnset;
  if (!stmt.otherwise.empty()) {
    otherwise = TemporaryLane();
    Instr instr = {.op = Op::kLaneUnary, .d = otherwise, .a = condition};
    instr.fn.unary = FindUnary(UnaryOp::kNot, DataType::kBool).many;
    Emit(instr);
    EmitMask(otherwise, otherwise, outer);
  }
  Arm(id, then, stmt.body);
  if (otherwise != kUnset) Arm(id, otherwise, stmt.otherwise);
  mask_ = outer;
}

void Compiler::EmitMask(int32_t d, int32_t condition, int32_t outer) {
  Instr instr = {
      .op = Op::kLaneBinary, .d = d, .a = condition, .b = outer == kNoMask ? condition : outer};
  instr.fn.binary = FindBinary(BinaryOp::kAnd, DataType::kBool).many;
  if (d != condition || outer != kNoMask) Emit(instr);
}

void Compiler::Arm(StmtId id, int32_t mask, const std::vector<StmtId>& body) {
  mask_ = mask;
  const std::vector<Instr> code =
      Nested(false, assigned_[static_cast<size_t>(id)], [&] { Body(body); });
  Emit({.op = Op::kJumpIfNone, .a = mask, .jump = static_cast<int32_t>(code.size()) + 1});
  Append(code);
}

void Compiler::Let(const Stmt& stmt) {
  const ExprId id = stmt.args[0];
  ranges_.Define(stmt.id, ranges_.Of(id));
  linear_.DefineLet(stmt.id, id);
  if (At(id).type == DataType::kI64)
    linear_.Of(id);  // now, so that long chains of lets are not walked recursively
  const bool lanes = Varies(id);
  const int32_t dest = lanes ? RecycledLane() : NewScalar();
  const Value value = Expression(id, dest);
  // A pure value in an outer block, or any pure scalar, stays where it is as long as the
  // variable.
  const bool stays = !impure_[static_cast<size_t>(id)] && (value.block < Current() || !value.lanes);
  if (value.reg != dest && stays) {
    if (lanes) free_lanes_.push_back(dest);
    vars_[static_cast<size_t>(stmt.id)] = value;
    return;
  }
  if (lanes) Top().lane_registers.push_back(dest);
  Copy(value, dest, lanes, At(id).type);
  vars_[static_cast<size_t>(stmt.id)] = {dest, Current(), lanes};
}

void Compiler::Copy(const Value& value, int32_t dest, bool lanes, DataType type) {
  if (value.reg == dest && value.lanes == lanes) return;
  Instr instr = {.op = lanes ? Op::kLaneUnary : Op::kMove, .d = dest, .a = value.reg};
  if (lanes && !value.lanes) {
    instr.op = Op::kSplat;
    instr.fn.unary = FindSplat(type);
  } else if (lanes) {
    instr.fn.unary = FindCast(type, type).many;  // the identity
  }
  Emit(instr);
}

void Compiler::Set(const Stmt& stmt) {
  const ExprId id = stmt.args[0];
  const size_t local = static_cast<size_t>(stmt.id);
  if (plan_ != nullptr && plan_->Reduces(stmt.id)) {
    Fold(stmt);
  } else if (plan_ != nullptr && plan_->LocalVaries(stmt.id)) {
    if (mask_ == kNoMask) {
      Assign(id, lane_locals_[local], true);
    } else {
      const int32_t value = InLanes(id).reg;
      Instr blend = {.op = Op::kLaneSelect,
                     .d = lane_locals_[local],
                     .a = value,
                     .b = lane_locals_[local],
                     .c = mask_};
      blend.fn.select = FindSelect(At(id).type).many;
      Emit(blend);
    }
  } else {
    Assign(id, locals_[local], false);
  }
  ForgetImpure(kReadsLocal);
}

void Compiler::Fold(const Stmt& stmt) {
  const Expr& e = At(stmt.args[0]);
  const Expr& left = At(e.args[0]);
  const bool self_left = left.kind == ExprKind::kLocal && left.id == stmt.id;
  const int32_t values = InLanes(e.args[self_left ? 1 : 0]).reg;
  Instr instr = {.op = Op::kLaneFold, .d = locals_[static_cast<size_t>(stmt.id)], .a = values};
  instr.fn.fold = FindFold(e.binary, e.type);
  Emit(instr);
}

void Compiler::Store(const Stmt& stmt) {
  const DataType type = f_.buffers[static_cast<size_t>(stmt.id)].dtype;
  ExprId id = stmt.args[0];
  // Stores encode: rounding an f32 to the storage type first would be done twice.
  const Expr& e = At(id);
  if (e.kind == ExprKind::kCast && ComputeType(type) != type &&
      At(e.args[0]).type == DataType::kF32)
    id = e.args[0];
  const std::span<const ExprId> indices = std::span<const ExprId>(stmt.args).subspan(1);
  const MemoryOps ops = FindMemory(type);
  if (plan_ == nullptr) {
    const int32_t value = Expression(id).reg;
    Instr instr = Access(stmt.id, Offset(stmt.id, indices), value);
    instr.op = DataTypeBits(type) == 32   ? Op::kStore4
               : DataTypeBits(type) == 64 ? Op::kStore8
                                          : Op::kStore;
    instr.fn.store = ops.store;
    Emit(instr);
  } else {
    const int32_t value = InLanes(id).reg;
    const Address address = Offset(stmt.id, indices);
    Instr instr = Access(stmt.id, address, value);
    if (address.varying.empty() && mask_ == kNoMask) {
      instr.op = Op::kLaneStore;
      instr.a = Base(address);
      instr.imm = address.step;
      instr.fn.store = ops.store;
    } else {
      instr.op = Op::kScatter;
      instr.a = LaneAddress(address);
      instr.c = mask_;
      instr.fn.scatter = ops.scatter;
    }
    Emit(instr);
  }
  ForgetImpure(kReadsMemory);
}

void Compiler::Check(const Stmt& stmt) {
  const int32_t trap = static_cast<int32_t>(program_.traps.size());
  program_.traps.push_back({false, 0, 0, stmt.message});
  if (Varies(stmt.args[0])) {
    Emit({.op = Op::kLaneCheck, .a = InLanes(stmt.args[0]).reg, .b = mask_, .c = trap});
  } else {
    Emit({.op = Op::kCheck, .a = Expression(stmt.args[0]).reg, .c = trap});
  }
}

int32_t Compiler::Constant(uint64_t bits, int bytes) {
  const auto [it, fresh] = constants_.try_emplace({bits, bytes}, 0);
  if (fresh) {
    it->second = NewScalar();
    program_.scalars.back() = bits;
  }
  return it->second;
}

void Compiler::Remember(ExprId id, const Value& value, int place) {
  (value.lanes ? lane_memo_ : memo_)[static_cast<size_t>(id)] = value;
  if (place == Current())
    statement_memo_.emplace_back(id, value.lanes);
  else
    blocks_[static_cast<size_t>(place)].hoisted.emplace_back(id, value.lanes);
}

void Compiler::ForgetImpure(uint8_t kinds) {
  const auto stale = [&](const std::pair<ExprId, bool>& entry) {
    if ((purity_[static_cast<size_t>(entry.first)] & kinds) == 0) return false;
    Forget(entry.first, entry.second);
    return true;
  };
  for (Block& block : blocks_) std::erase_if(block.hoisted, stale);
  for (const auto& entry : statement_memo_) stale(entry);
}

int32_t Compiler::ResultRegister(int place, bool lanes) {
  if (!lanes) return NewScalar();
  if (place == Current()) return TemporaryLane();
  // Never a recycled one: those are written by earlier code of the loop that this value is moved
  // out of.
  const int32_t reg = NewLane();
  blocks_[static_cast<size_t>(place)].lane_registers.push_back(reg);
  return reg;
}

}  // namespace quench::loops::compile

namespace quench::loops {

absl::StatusOr<Program> CompileProgram(const Function& function, std::span<std::byte* const> memory,
                                       std::span<const Shape> shapes,
                                       std::span<const int64_t> slots,
                                       const CompileOptions& options) {
  compile::Compiler compiler(function, memory, shapes, slots, options);
  absl::StatusOr<Program> program = compiler.Run();
  if (!compiler.out_of_lanes()) return program;
  return compile::Compiler(function, memory, shapes, slots, {.lanes = false}).Run();
}

}  // namespace quench::loops
