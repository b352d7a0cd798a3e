// How the code gets fast:
//  * Expressions whose operands do not change in a loop are computed before it. All arithmetic is
//    total, so that is safe even where the loop body would not have been reached. Loads stay where
//    they are.
//  * Addresses are linear sums; their invariant part is hoisted like any expression, the last term
//    is added by the load.
//  * Bounds checks are emitted only where ranges do not prove the index.
//  * Loops marked parallel or reduce run in lanes where lanes.h allows.
//
// compiler.cc holds statements and what is gathered beforehand, compiler_expressions.cc and
// compiler_addresses.cc the rest of the class.
#pragma once

#include <absl/status/statusor.h>

#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/loops/compile_program.h"
#include "common/loops/linear.h"
#include "common/loops/scalar.h"

namespace quench::loops::compile {

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
  // (expression, in lanes) remembered until the block ends.
  std::vector<std::pair<ExprId, bool>> hoisted;
  std::vector<int32_t> lane_registers;  // given back when the block ends
};

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

// An index cut off at both ends (padding), whose inside is affine in the lanes.
struct Clamp {
  ExprId x = kNone;
  ExprId lo = kNone;
  ExprId hi = kNone;
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

  absl::StatusOr<Program> Run();

  // Run() failed, and would not without lanes: there are more values alive than lane registers.
  bool out_of_lanes() const { return next_lane_ > kMaxLaneRegisters; }

 private:
  static constexpr int32_t kUnset = -1;

  const Expr& At(ExprId id) const { return f_.exprs[static_cast<size_t>(id)]; }
  const Stmt& StmtAt(StmtId id) const { return f_.stmts[static_cast<size_t>(id)]; }
  int Current() const { return static_cast<int>(blocks_.size()) - 1; }
  Block& Top() { return blocks_.back(); }

  // ---- Facts gathered before compiling ----

  absl::Status Scan();

  // Collects the locals set under `body` into `out`, and into assigned_ of the statements there.
  absl::Status Assigned(const std::vector<StmtId>& body, std::vector<LocalId>& out, int depth);

  // ---- Registers and code ----

  int32_t NewScalar() {
    program_.scalars.push_back(0);
    return static_cast<int32_t>(program_.scalars.size() - 1) * kScalarBytes;
  }

  int32_t NewLane() {
    // Past the limit the program is thrown away; any register will do.
    if (++next_lane_ > kMaxLaneRegisters) return 0;
    return (next_lane_ - 1) * kLaneBytes;
  }

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

  int32_t NewRegister(bool lanes) { return lanes ? NewLane() : NewScalar(); }

  // The register of a constant: `bytes` low bytes of `bits`.
  int32_t Constant(uint64_t bits, int bytes);

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
  void Remember(ExprId id, const Value& value, int place);

  void Forget(ExprId id, bool lanes) {
    (lanes ? lane_memo_ : memo_)[static_cast<size_t>(id)].reg = kUnset;
  }

  // After locals or memory may have changed.
  void ForgetImpure(uint8_t kinds);

  // A result register for code at `place`.
  int32_t ResultRegister(int place, bool lanes);

  // ---- Expressions ----

  bool Varies(ExprId id) const { return plan_ != nullptr && plan_->Varies(id); }

  // `dest`: a register of the right kind that the value should preferably be written to, or kUnset.
  Value Expression(ExprId id, int32_t dest = kUnset);

  // The expression's value in every lane.
  Value InLanes(ExprId id, int32_t dest = kUnset);
  Value Variable(ExprId id, const Expr& e, bool lanes);

  // The outermost block in which a read of the local, before the statement being compiled there,
  // gives today's value.
  int LocalBlock(LocalId local) const;
  Value Operation(ExprId id, const Expr& e, bool lanes, int32_t dest);

  // A comparison of affine i64 values needs no vectors of them.
  std::optional<Value> LaneComparison(ExprId id, const Expr& e, int32_t dest);

  Value Finish(ExprId id, const Value& value, int32_t dest) {
    if (value.reg != dest) Remember(id, value, value.block);
    return value;
  }

  int ProductSide(const Expr& e) const;
  void EmitOperation(int place, const Expr& e, bool lanes, int32_t d, const int32_t* operand);
  void EmitCast(int place, DataType from, DataType to, bool lanes, Instr instr);
  static Op ScalarOp(BinaryOp op, DataType type);

  // ---- Addresses ----

  bool IsLaneIndex(ExprId id) const {
    const Expr& e = At(id);
    return plan_ != nullptr && e.kind == ExprKind::kVar && e.id == lane_var_;
  }

  Address Sum(const Linear& linear);

  // The scalar part in one register, without the constant.
  int32_t Base(const Address& address);

  // One i64 per lane.
  int32_t LaneAddress(const Address& address);

  // Checks the indices that ranges do not prove, and gives the element offset.
  Address Offset(BufferId buffer, std::span<const ExprId> indices);
  void Bound(BufferId buffer, int32_t dim, const Linear& index);
  Value ScalarLoad(const Expr& e, int32_t dest);
  Instr Access(BufferId buffer, const Address& address, int32_t reg) const;

  // The values stay far from where i64 wraps around.
  bool Moderate(ExprId id) {
    constexpr int64_t kLimit = int64_t{1} << 60;
    const Range& range = ranges_.Of(id);
    return range.lo > -kLimit && range.hi < kLimit;
  }

  // Varies by a constant step from lane to lane and in no other way.
  bool IsAffine(const Linear& linear) const;
  std::optional<Clamp> ClampOf(ExprId id);
  Value ClampedLoad(const Expr& e, const Address& address, const Clamp& clamp, int32_t dest);
  Value LaneLoad(const Expr& e, int32_t dest);

  // ---- Statements ----

  void Body(const std::vector<StmtId>& body);

  // Compiles `body` into code of its own. Knowledge about locals and memory does not hold inside,
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

  void Statement(StmtId id);
  void For(StmtId id, const Stmt& stmt);
  void SimpleLoop(StmtId id, const Stmt& stmt, Op enter, Op next);
  // The iterations from s[from] to s[to].
  void Iterate(StmtId id, const Stmt& stmt, Op enter, Op next, int32_t from, int32_t to);
  void Repeat(const std::vector<Instr>& code, Op enter, Op next, int32_t var, int32_t from,
              int32_t to);

  // A long sum (long_sums.h): the registers of its local, of the blocks so far and of one in f64.
  struct LongSum {
    int32_t sum = 0;
    int32_t total = 0;
    int32_t wide = 0;
    bool lanes = false;
  };
  void LoopInBlocks(StmtId id, const Stmt& stmt, Op enter, Op next, int64_t block);
  void ClearSum(const LongSum& sum);
  void AddToTotal(const LongSum& sum);
  void EmitI64(BinaryOp op, int32_t d, int32_t a, int32_t b);

  // A register with the value that nothing else writes.
  int32_t Pinned(ExprId id);

  // Decides, for a loop met outside lanes, whether it or a loop within it shall run in lanes.
  bool PlanLanes(StmtId id, const Stmt& stmt);
  void LaneLoop(StmtId id, const Stmt& stmt);

  // Gives every lane its own copy of the locals that come to differ.
  void EnterLanes();
  void While(StmtId id, const Stmt& stmt);
  void If(StmtId id, const Stmt& stmt);
  void MaskedIf(StmtId id, const Stmt& stmt);
  void EmitMask(int32_t d, int32_t condition, int32_t outer);
  void Arm(StmtId id, int32_t mask, const std::vector<StmtId>& body);
  void Let(const Stmt& stmt);

  // Writes the value to `dest`.
  void Assign(ExprId id, int32_t dest, bool lanes) {
    Copy(lanes ? InLanes(id, dest) : Expression(id, dest), dest, lanes, At(id).type);
  }

  void Copy(const Value& value, int32_t dest, bool lanes, DataType type);
  void Set(const Stmt& stmt);

  // A reduced local of the loop in lanes takes their values in order.
  void Fold(const Stmt& stmt);
  void Store(const Stmt& stmt);
  void Check(const Stmt& stmt);

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

}  // namespace quench::loops::compile
