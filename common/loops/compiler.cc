// How the code gets fast:
//  * Expressions whose operands do not change in a loop are computed before it. All arithmetic is
//  total, so that
//    is safe even where the loop body would not have been reached. Loads stay where they are.
//  * Addresses are linear sums; their invariant part is hoisted like any expression, the last term
//  is added by the load.
//  * Bounds checks are emitted only where ranges do not prove the index.
//  * Loops marked parallel or reduce run in lanes where lanes.h allows.
#include "common/loops/compiler.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "common/base/status.h"
#include "common/loops/linear.h"
#include "common/loops/scalar.h"

namespace quench::loops {
namespace {

// Expressions and statements are walked recursively.
constexpr int kMaxDepth = 1000;
constexpr int kMaxNesting = 200;
constexpr int32_t kMaxLaneRegisters = 1 << 14;

// Where an expression's value is.
struct Value {
  int32_t reg = 0;  // byte offset
  int block = 0;    // available from here inwards
  bool lanes = false;
};

enum Purity : uint8_t { kPure = 0, kReadsLocal = 1, kReadsMemory = 2 };

// One body under construction: a loop's (code runs many times) or an arm of an if.
struct Block {
  bool loop = false;
  std::vector<Instr> code;
  const std::vector<LocalId>* assigned = nullptr;  // locals set somewhere inside
  std::vector<std::pair<ExprId, bool>>
      hoisted;                          // (expression, in lanes) remembered until the block ends
  std::vector<int32_t> lane_registers;  // given back when the block ends
};

class Compiler {
 public:
  Compiler(const Function& function, std::span<std::byte* const> memory,
           std::span<const Shape> shapes, std::span<const int64_t> slots,
           const CompileOptions& options)
      : f_(function),
        memory_(memory),
        shapes_(shapes),
        options_(options),
        ranges_(function, slots),
        linear_(function, ranges_, impure_),
        memo_(function.exprs.size(), {kUnset, 0, false}),
        lane_memo_(function.exprs.size(), {kUnset, 0, true}),
        vars_(function.vars.size()),
        locals_(function.locals.size()),
        lane_locals_(function.locals.size(), kUnset),
        assigned_(function.stmts.size()),
        written_slots_(slots.size()) {}

  absl::StatusOr<Program> Run() {
    QUENCH_RETURN_IF_ERROR(Scan());
    zero_ = Constant(0, 8);
    for (size_t i = 0; i < locals_.size(); ++i) locals_[i] = NewScalar();
    blocks_.emplace_back();
    blocks_[0].assigned = &all_assigned_;
    Body(f_.body);
    Emit({.op = Op::kEnd});
    if (next_lane_ > kMaxLaneRegisters) return absl::ResourceExhaustedError("too many registers");
    program_.code = std::move(blocks_[0].code);
    program_.lane_registers = next_lane_;
    return std::move(program_);
  }

 private:
  static constexpr int32_t kUnset = -1;

  const Expr& At(ExprId id) const { return f_.exprs[static_cast<size_t>(id)]; }
  const Stmt& StmtAt(StmtId id) const { return f_.stmts[static_cast<size_t>(id)]; }
  int Current() const { return static_cast<int>(blocks_.size()) - 1; }
  Block& Top() { return blocks_.back(); }

  // ---- Facts gathered before compiling ----

  absl::Status Scan() {
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

  // Collects the locals set under `body` into `out`, and into assigned_ of the statements there.
  absl::Status Assigned(const std::vector<StmtId>& body, std::vector<LocalId>& out, int depth) {
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

  // ---- Registers and code ----

  int32_t NewScalar() {
    program_.scalars.push_back(0);
    return static_cast<int32_t>(program_.scalars.size() - 1) * kScalarBytes;
  }

  int32_t NewLane() { return next_lane_++ * kLaneBytes; }

  // A lane register that lives until the current statement ends.
  int32_t TemporaryLane() {
    const int32_t reg = RecycledLane();
    temporaries_.push_back(reg);
    return reg;
  }

  int32_t RecycledLane() {
    if (free_lanes_.empty()) return NewLane();
    const int32_t reg = free_lanes_.back();
    free_lanes_.pop_back();
    return reg;
  }

  // The register of a constant: `bytes` low bytes of `bits`.
  int32_t Constant(uint64_t bits, int bytes) {
    const auto [it, fresh] = constants_.try_emplace({bits, bytes}, 0);
    if (fresh) {
      it->second = NewScalar();
      program_.scalars.back() = bits;
    }
    return it->second;
  }

  template <typename T>
  int32_t ConstantOf(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return Constant(bits, sizeof(T));
  }

  int32_t IntegerConstant(int64_t value, DataType type) {
    return scalar::VisitInteger(
        type, [&](auto zero) { return ConstantOf(static_cast<decltype(zero)>(value)); });
  }

  void Emit(const Instr& instr) { Top().code.push_back(instr); }
  void EmitAt(int block, const Instr& instr) {
    blocks_[static_cast<size_t>(block)].code.push_back(instr);
  }

  // The innermost block that code depending on values of `block` moves out to: out of every loop it
  // can, but not out of an if for its own sake.
  int Place(int block) const {
    int place = block;
    while (place < Current() && !blocks_[static_cast<size_t>(place) + 1].loop) ++place;
    return place;
  }

  // Remembers where `id` is: until the statement ends, or where it is hoisted to until that block
  // ends.
  void Remember(ExprId id, const Value& value, int place) {
    (value.lanes ? lane_memo_ : memo_)[static_cast<size_t>(id)] = value;
    if (place == Current())
      statement_memo_.emplace_back(id, value.lanes);
    else
      blocks_[static_cast<size_t>(place)].hoisted.emplace_back(id, value.lanes);
  }

  void Forget(ExprId id, bool lanes) {
    (lanes ? lane_memo_ : memo_)[static_cast<size_t>(id)].reg = kUnset;
  }

  // After locals or memory may have changed.
  void ForgetImpure(uint8_t kinds) {
    const auto stale = [&](const std::pair<ExprId, bool>& entry) {
      if ((purity_[static_cast<size_t>(entry.first)] & kinds) == 0) return false;
      Forget(entry.first, entry.second);
      return true;
    };
    for (Block& block : blocks_) std::erase_if(block.hoisted, stale);
    for (const auto& entry : statement_memo_) stale(entry);
  }

  // A result register for code at `place`.
  int32_t ResultRegister(int place, bool lanes) {
    if (!lanes) return NewScalar();
    if (place == Current()) return TemporaryLane();
    // Never a recycled one: those are written by earlier code of the loop that this value is moved
    // out of.
    const int32_t reg = NewLane();
    blocks_[static_cast<size_t>(place)].lane_registers.push_back(reg);
    return reg;
  }

  // ---- Expressions ----

  bool Varies(ExprId id) const { return plan_ != nullptr && plan_->Varies(id); }

  // `dest`: a register of the right kind that the value should preferably be written to, or kUnset.
  Value Expression(ExprId id, int32_t dest = kUnset) {
    const Expr& e = At(id);
    if (e.kind == ExprKind::kFloat) {
      return {e.type == DataType::kF64 ? ConstantOf(e.f) : ConstantOf(static_cast<float>(e.f)), 0,
              false};
    }
    if (const auto value = ranges_.ConstantOf(id))
      return {IntegerConstant(*value, e.type), 0, false};
    const bool lanes = Varies(id);
    const Value& known = (lanes ? lane_memo_ : memo_)[static_cast<size_t>(id)];
    if (known.reg != kUnset) return known;
    switch (e.kind) {
      case ExprKind::kVar:
        return Variable(id, e, lanes);
      case ExprKind::kLocal:
        return {
            lanes ? lane_locals_[static_cast<size_t>(e.id)] : locals_[static_cast<size_t>(e.id)],
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

  // The expression's value in every lane.
  Value InLanes(ExprId id, int32_t dest = kUnset) {
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

  Value Variable(ExprId id, const Expr& e, bool lanes) {
    const Value& var = vars_[static_cast<size_t>(e.id)];
    if (!lanes || e.id != lane_var_) return var;
    // The index of the loop that runs in lanes; its scalar register holds the first lane's.
    const int place = Place(lane_block_);
    const Value iota = {ResultRegister(place, true), place, true};
    EmitAt(place, {.op = Op::kIota, .d = iota.reg, .a = var.reg});
    Remember(id, iota, place);
    return iota;
  }

  // The outermost block in which a read of the local, before the statement being compiled there,
  // gives today's value.
  int LocalBlock(LocalId local) const {
    int block = Current();
    while (block > 0) {
      const std::vector<LocalId>& assigned = *blocks_[static_cast<size_t>(block)].assigned;
      if (std::binary_search(assigned.begin(), assigned.end(), local)) break;
      --block;
    }
    return block;
  }

  Value Operation(ExprId id, const Expr& e, bool lanes, int32_t dest) {
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
      EmitAt(place, {.op = Op::kMulAddF32,
                     .d = reg,
                     .a = parts[0].reg,
                     .b = parts[1].reg,
                     .c = parts[2].reg});
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

  // A comparison of affine i64 values needs no vectors of them.
  std::optional<Value> LaneComparison(ExprId id, const Expr& e, int32_t dest) {
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

  Value Finish(ExprId id, const Value& value, int32_t dest) {
    if (value.reg != dest) Remember(id, value, value.block);
    return value;
  }

  int ProductSide(const Expr& e) const {
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

  void EmitOperation(int place, const Expr& e, bool lanes, int32_t d, const int32_t* operand) {
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

  void EmitCast(int place, DataType from, DataType to, bool lanes, Instr instr) {
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

  static Op ScalarOp(BinaryOp op, DataType type) {
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

  // ---- Addresses ----

  // The scalar part s[base] + s[last] * coefficient + constant, and what lanes add: step per lane,
  // and varying atoms.
  struct Address {
    int32_t base = 0;
    int32_t last = 0;
    int64_t coefficient = 0;
    int64_t constant = 0;
    int64_t step = 0;
    std::vector<Linear::Term> varying;
  };

  bool IsLaneIndex(ExprId id) const {
    const Expr& e = At(id);
    return plan_ != nullptr && e.kind == ExprKind::kVar && e.id == lane_var_;
  }

  Address Sum(const Linear& linear) {
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

  // The scalar part in one register, without the constant.
  int32_t Base(const Address& address) {
    if (address.coefficient == 0) return address.base;
    const int32_t reg = NewScalar();
    Emit({.op = Op::kMulAddIndex,
          .d = reg,
          .a = address.base,
          .b = address.last,
          .imm = address.coefficient});
    return reg;
  }

  // One i64 per lane.
  int32_t LaneAddress(const Address& address) {
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
      Emit(
          {.op = Op::kLaneMulAdd, .d = reg, .a = reg, .b = terms[i].first, .imm = terms[i].second});
    }
    return reg;
  }

  // Checks the indices that ranges do not prove, and gives the element offset.
  Address Offset(BufferId buffer, std::span<const ExprId> indices) {
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

  void Bound(BufferId buffer, int32_t dim, const Linear& index) {
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

  Value ScalarLoad(const Expr& e, int32_t dest) {
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

  Instr Access(BufferId buffer, const Address& address, int32_t reg) const {
    Instr instr = {.d = reg, .a = address.base, .b = address.last};
    instr.imm = address.coefficient;
    instr.imm2 = address.constant;
    instr.memory = memory_[static_cast<size_t>(buffer)];
    return instr;
  }

  // An index cut off at both ends (padding), whose inside is affine in the lanes.
  struct Clamp {
    ExprId x = kNone;
    ExprId lo = kNone;
    ExprId hi = kNone;
  };

  // The values stay far from where i64 wraps around.
  bool Moderate(ExprId id) {
    constexpr int64_t kLimit = int64_t{1} << 60;
    const Range& range = ranges_.Of(id);
    return range.lo > -kLimit && range.hi < kLimit;
  }

  // Varies by a constant step from lane to lane and in no other way.
  bool IsAffine(const Linear& linear) const {
    return std::any_of(linear.terms.begin(), linear.terms.end(),
                       [&](const Linear::Term& term) { return IsLaneIndex(term.atom); }) &&
           std::all_of(linear.terms.begin(), linear.terms.end(), [&](const Linear::Term& term) {
             return IsLaneIndex(term.atom) || !Varies(term.atom);
           });
  }

  std::optional<Clamp> ClampOf(ExprId id) {
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

  Value ClampedLoad(const Expr& e, const Address& address, const Clamp& clamp, int32_t dest) {
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

  Value LaneLoad(const Expr& e, int32_t dest) {
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

  // ---- Statements ----

  void Body(const std::vector<StmtId>& body) {
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

  // Compiles `body` into code of its own. What is known of locals and memory does not hold inside,
  // since the body may be entered again after it changed them.
  template <typename Fill>
  std::vector<Instr> Nested(bool loop, const std::vector<LocalId>& assigned, Fill&& fill) {
    ForgetImpure(kReadsLocal | kReadsMemory);
    blocks_.emplace_back();
    Top().loop = loop;
    Top().assigned = &assigned;
    fill();
    Block block = std::move(blocks_.back());
    blocks_.pop_back();
    for (const auto& [id, lanes] : block.hoisted) Forget(id, lanes);
    free_lanes_.insert(free_lanes_.end(), block.lane_registers.begin(), block.lane_registers.end());
    return std::move(block.code);
  }

  void Append(const std::vector<Instr>& code) {
    Top().code.insert(Top().code.end(), code.begin(), code.end());
  }

  // Rough work of one pass over `code`, in instructions on one element.
  static int64_t Cost(const std::vector<Instr>& code) {
    int64_t cost = 1;
    for (const Instr& instr : code) cost += instr.op >= Op::kLaneUnary ? 32 : 1;
    return cost;
  }

  void Statement(StmtId id) {
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

  void For(StmtId id, const Stmt& stmt) {
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

  void SimpleLoop(StmtId id, const Stmt& stmt, Op enter, Op next) {
    const Value from = Expression(stmt.args[0]);
    // The bounds are taken once; a local in them may change in the body.
    const int32_t to = Pinned(stmt.args[1]);
    const int32_t var = NewScalar();
    vars_[static_cast<size_t>(stmt.id)] = {var, Current() + 1, false};
    const int32_t first = from.reg;
    const std::vector<Instr> code = Nested(true, assigned_[static_cast<size_t>(id)], [&] {
      if (plan_ != nullptr && plan_->loop() == id) EnterLanes();
      Body(stmt.body);
    });
    const int32_t size = static_cast<int32_t>(code.size());
    Emit({.op = enter, .d = var, .a = first, .b = to, .jump = size + 2});
    Append(code);
    Emit({.op = next, .d = var, .b = to, .jump = -size, .imm = Cost(code)});
  }

  // A register with the value that nothing else writes.
  int32_t Pinned(ExprId id) {
    const Value value = Expression(id);
    if (At(id).kind != ExprKind::kLocal) return value.reg;
    const int32_t copy = NewScalar();
    Emit({.op = Op::kMove, .d = copy, .a = value.reg});
    return copy;
  }

  // Decides, for a loop met outside lanes, whether it or a loop within it shall run in lanes.
  bool PlanLanes(StmtId id, const Stmt& stmt) {
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

  void LaneLoop(StmtId id, const Stmt& stmt) {
    LanePlan::Make(f_, id, parallel_depth_ == 0, &chosen_);
    plan_ = &chosen_;
    lane_var_ = stmt.id;
    lane_block_ = Current() + 1;
    SimpleLoop(id, stmt, Op::kLanesLoop, Op::kLanesNext);
    for (int32_t& reg : lane_locals_) {
      if (reg != kUnset) free_lanes_.push_back(reg);
      reg = kUnset;
    }
    plan_ = nullptr;
  }

  // Gives every lane its own copy of the locals that come to differ.
  void EnterLanes() {
    for (const LocalId local : assigned_[static_cast<size_t>(plan_->loop())]) {
      const size_t index = static_cast<size_t>(local);
      if (!plan_->LocalVaries(local)) continue;
      lane_locals_[index] = NewLane();
      Instr instr = {.op = Op::kSplat, .d = lane_locals_[index], .a = locals_[index]};
      instr.fn.unary = FindSplat(f_.locals[index].type);
      Emit(instr);
    }
  }

  void While(StmtId id, const Stmt& stmt) {
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

  void If(StmtId id, const Stmt& stmt) {
    if (Varies(stmt.args[0])) return MaskedIf(id, stmt);
    const std::vector<LocalId>& assigned = assigned_[static_cast<size_t>(id)];
    if (const auto known = ranges_.ConstantOf(stmt.args[0])) {
      // An arm all the same: its lets must not outlive it.
      return Append(
          Nested(false, assigned, [&] { Body(*known != 0 ? stmt.body : stmt.otherwise); }));
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

  void MaskedIf(StmtId id, const Stmt& stmt) {
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

  void EmitMask(int32_t d, int32_t condition, int32_t outer) {
    Instr instr = {
        .op = Op::kLaneBinary, .d = d, .a = condition, .b = outer == kNoMask ? condition : outer};
    instr.fn.binary = FindBinary(BinaryOp::kAnd, DataType::kBool).many;
    if (d != condition || outer != kNoMask) Emit(instr);
  }

  void Arm(StmtId id, int32_t mask, const std::vector<StmtId>& body) {
    mask_ = mask;
    const std::vector<Instr> code =
        Nested(false, assigned_[static_cast<size_t>(id)], [&] { Body(body); });
    Emit({.op = Op::kJumpIfNone, .a = mask, .jump = static_cast<int32_t>(code.size()) + 1});
    Append(code);
  }

  void Let(const Stmt& stmt) {
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
    const bool stays =
        !impure_[static_cast<size_t>(id)] && (value.block < Current() || !value.lanes);
    if (value.reg != dest && stays) {
      if (lanes) free_lanes_.push_back(dest);
      vars_[static_cast<size_t>(stmt.id)] = value;
      return;
    }
    if (lanes) Top().lane_registers.push_back(dest);
    Copy(value, dest, lanes, At(id).type);
    vars_[static_cast<size_t>(stmt.id)] = {dest, Current(), lanes};
  }

  // Writes the value to `dest`.
  void Assign(ExprId id, int32_t dest, bool lanes) {
    Copy(lanes ? InLanes(id, dest) : Expression(id, dest), dest, lanes, At(id).type);
  }

  void Copy(const Value& value, int32_t dest, bool lanes, DataType type) {
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

  void Set(const Stmt& stmt) {
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

  // A reduced local of the loop in lanes takes their values in order.
  void Fold(const Stmt& stmt) {
    const Expr& e = At(stmt.args[0]);
    const Expr& left = At(e.args[0]);
    const bool self_left = left.kind == ExprKind::kLocal && left.id == stmt.id;
    const int32_t values = InLanes(e.args[self_left ? 1 : 0]).reg;
    Instr instr = {.op = Op::kLaneFold, .d = locals_[static_cast<size_t>(stmt.id)], .a = values};
    instr.fn.fold = FindFold(e.binary, e.type);
    Emit(instr);
  }

  void Store(const Stmt& stmt) {
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

  void Check(const Stmt& stmt) {
    const int32_t trap = static_cast<int32_t>(program_.traps.size());
    program_.traps.push_back({false, 0, 0, stmt.message});
    if (Varies(stmt.args[0])) {
      Emit({.op = Op::kLaneCheck, .a = InLanes(stmt.args[0]).reg, .b = mask_, .c = trap});
    } else {
      Emit({.op = Op::kCheck, .a = Expression(stmt.args[0]).reg, .c = trap});
    }
  }

  const Function& f_;
  std::span<std::byte* const> memory_;
  std::span<const Shape> shapes_;
  CompileOptions options_;
  std::vector<uint8_t> purity_;
  std::vector<bool> impure_;
  Ranges ranges_;
  LinearForms linear_;

  Program program_;
  std::vector<Block> blocks_;
  std::vector<Value> memo_;                              // by expression, scalar
  std::vector<Value> lane_memo_;                         // by expression, in lanes
  std::vector<std::pair<ExprId, bool>> statement_memo_;  // forgotten when their statement ends
  std::vector<Value> vars_;
  std::vector<int32_t> locals_;
  std::vector<int32_t> lane_locals_;
  std::vector<std::vector<LocalId>> assigned_;  // by statement, sorted
  std::vector<LocalId> all_assigned_;
  std::vector<bool> written_slots_;
  std::map<std::pair<uint64_t, int>, int32_t> constants_;
  int32_t zero_ = 0;
  int32_t next_lane_ = 0;
  std::vector<int32_t> free_lanes_;
  std::vector<int32_t> temporaries_;

  LanePlan chosen_;
  const LanePlan* plan_ = nullptr;  // while inside a loop that runs in lanes
  VarId lane_var_ = kNone;
  int lane_block_ = 0;
  int32_t mask_ = kNoMask;
  int parallel_depth_ = 0;
  std::map<StmtId, bool> lane_loops_;
};

}  // namespace

absl::StatusOr<Program> CompileProgram(const Function& function, std::span<std::byte* const> memory,
                                       std::span<const Shape> shapes,
                                       std::span<const int64_t> slots,
                                       const CompileOptions& options) {
  return Compiler(function, memory, shapes, slots, options).Run();
}

}  // namespace quench::loops
