#include "common/loops/builder.h"

#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "common/base/status.h"
#include "common/loops/fold.h"

namespace quench::loops {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

uint64_t HashOf(const Expr& e) {
  uint64_t hash = static_cast<uint64_t>(e.kind) | static_cast<uint64_t>(e.type) << 8 |
                  static_cast<uint64_t>(e.unary) << 16 | static_cast<uint64_t>(e.binary) << 24 |
                  static_cast<uint64_t>(static_cast<uint32_t>(e.id)) << 32;
  hash = Mix(hash, static_cast<uint64_t>(e.i));
  hash = Mix(hash, std::bit_cast<uint64_t>(e.f));
  for (const ExprId arg : e.args) hash = Mix(hash, static_cast<uint64_t>(arg));
  return hash;
}

bool Same(const Expr& a, const Expr& b) {
  return a.kind == b.kind && a.type == b.type && a.unary == b.unary && a.binary == b.binary &&
         a.id == b.id && a.i == b.i &&
         std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f) && a.args == b.args;
}

// Storage floats are widened before anything is computed with them.
E Widen(E value) {
  QUENCH_CHECK(value.valid());
  return Cast(value, ComputeType(value.type()));
}

// `op(a, b)` as it stands: operands of one compute type.
E Unsimplified(BinaryOp op, E a, E b) {
  Expr expr;
  expr.kind = ExprKind::kBinary;
  expr.type = IsComparison(op) ? DataType::kBool : a.type();
  expr.binary = op;
  expr.args = {a.id(), b.id()};
  return E(a.builder(), a.builder()->AddExpr(std::move(expr)));
}

// The next value of an accumulator. Not simplified: `acc * 0` or `acc + 0` would hide the
// reduction.
E Accumulate(BinaryOp op, E acc, E item) {
  item = Widen(item);
  QUENCH_CHECK(acc.type() == item.type());
  return Unsimplified(op, acc, item);
}

// An integer literal beside an operand; exact for i64 where a trip through double would not be.
E Like(E operand, int64_t value) {
  QUENCH_CHECK(operand.valid());
  if (IsFloat(operand.type()))
    return operand.builder()->F(static_cast<double>(value), operand.type());
  return operand.builder()->Int(value, operand.type());
}

}  // namespace

DataType E::type() const {
  QUENCH_CHECK(valid());
  return builder_->expr(id_).type;
}

E operator+(E a, E b) { return Binary(BinaryOp::kAdd, a, b); }
E operator-(E a, E b) { return Binary(BinaryOp::kSub, a, b); }
E operator*(E a, E b) { return Binary(BinaryOp::kMul, a, b); }
E operator/(E a, E b) { return Binary(BinaryOp::kDiv, a, b); }
E operator%(E a, E b) { return Binary(BinaryOp::kRem, a, b); }
E operator-(E a) { return Unary(UnaryOp::kNeg, a); }
E operator+(E a, int64_t b) { return a + Like(a, b); }
E operator-(E a, int64_t b) { return a - Like(a, b); }
E operator*(E a, int64_t b) { return a * Like(a, b); }
E operator/(E a, int64_t b) { return a / Like(a, b); }
E operator%(E a, int64_t b) { return a % Like(a, b); }
E operator<(E a, int64_t b) { return a < Like(a, b); }
E operator<=(E a, int64_t b) { return a <= Like(a, b); }
E operator>(E a, int64_t b) { return a > Like(a, b); }
E operator>=(E a, int64_t b) { return a >= Like(a, b); }
E operator==(E a, int64_t b) { return a == Like(a, b); }
E operator!=(E a, int64_t b) { return a != Like(a, b); }
E operator<(E a, E b) { return Binary(BinaryOp::kLt, a, b); }
E operator<=(E a, E b) { return Binary(BinaryOp::kLe, a, b); }
E operator>(E a, E b) { return Binary(BinaryOp::kGt, a, b); }
E operator>=(E a, E b) { return Binary(BinaryOp::kGe, a, b); }
E operator==(E a, E b) { return Binary(BinaryOp::kEq, a, b); }
E operator!=(E a, E b) { return Binary(BinaryOp::kNe, a, b); }
E operator&&(E a, E b) {
  QUENCH_CHECK(a.type() == DataType::kBool);
  return Binary(BinaryOp::kAnd, a, b);
}
E operator||(E a, E b) {
  QUENCH_CHECK(a.type() == DataType::kBool);
  return Binary(BinaryOp::kOr, a, b);
}
E operator!(E a) {
  QUENCH_CHECK(a.type() == DataType::kBool);
  return Unary(UnaryOp::kNot, a);
}
E Min(E a, E b) { return Binary(BinaryOp::kMin, a, b); }
E Max(E a, E b) { return Binary(BinaryOp::kMax, a, b); }
E FloorDiv(E a, E b) { return Binary(BinaryOp::kFloorDiv, a, b); }
E FloorMod(E a, E b) { return Binary(BinaryOp::kFloorMod, a, b); }
E CeilDiv(E a, E b) { return -FloorDiv(-a, b); }
E Pow(E a, E b) { return Binary(BinaryOp::kPow, a, b); }

E Select(E condition, E then, E otherwise) {
  QUENCH_CHECK(condition.valid() && condition.type() == DataType::kBool);
  then = Widen(then);
  otherwise = Widen(otherwise);
  QUENCH_CHECK(then.type() == otherwise.type());
  if (then.id() == otherwise.id()) return then;
  Builder* builder = then.builder();
  const Expr& c = builder->expr(condition.id());
  if (c.kind == ExprKind::kInt) return c.i != 0 ? then : otherwise;
  Expr expr;
  expr.kind = ExprKind::kSelect;
  expr.type = then.type();
  expr.args = {condition.id(), then.id(), otherwise.id()};
  return E(builder, builder->AddExpr(std::move(expr)));
}

E Cast(E value, DataType type) {
  QUENCH_CHECK(value.valid());
  if (value.type() == type) return value;
  Builder* builder = value.builder();
  const Expr& from = builder->expr(value.id());
  if (from.kind == ExprKind::kInt && (IsInteger(type) || type == DataType::kBool) &&
      DataTypeBits(type) >= 8) {
    return builder->Int(type == DataType::kBool ? from.i != 0 : WrapInteger(type, from.i), type);
  }
  if (from.kind == ExprKind::kInt && from.type != DataType::kU64 &&
      (type == DataType::kF32 || type == DataType::kF64)) {
    return builder->F(
        type == DataType::kF32 ? static_cast<float>(from.i) : static_cast<double>(from.i), type);
  }
  Expr expr;
  expr.kind = ExprKind::kCast;
  expr.type = type;
  expr.args = {value.id()};
  return E(builder, builder->AddExpr(std::move(expr)));
}

E Unary(UnaryOp op, E value) {
  value = Widen(value);
  Builder* builder = value.builder();
  const Expr& arg = builder->expr(value.id());
  if (arg.kind == ExprKind::kInt) {
    if (op == UnaryOp::kNeg && arg.type != DataType::kBool) {
      return builder->Int(WrapInteger(arg.type, scalar::Neg(arg.i)), arg.type);
    }
    if (op == UnaryOp::kNot && arg.type == DataType::kBool) return builder->Bool(arg.i == 0);
  }
  const bool involution = op == UnaryOp::kNeg || op == UnaryOp::kNot;
  if (involution && arg.kind == ExprKind::kUnary && arg.unary == op) return E(builder, arg.args[0]);
  Expr expr;
  expr.kind = ExprKind::kUnary;
  expr.type = op == UnaryOp::kIsNan || op == UnaryOp::kIsInf ? DataType::kBool : value.type();
  expr.unary = op;
  expr.args = {value.id()};
  return E(builder, builder->AddExpr(std::move(expr)));
}

E Binary(BinaryOp op, E a, E b) {
  a = Widen(a);
  b = Widen(b);
  QUENCH_CHECK(a.builder() == b.builder());
  QUENCH_CHECK(a.type() == b.type());
  if (const std::optional<E> simpler = Simplify(op, a, b)) return *simpler;
  return Unsimplified(op, a, b);
}

int B::rank() const {
  return static_cast<int>(builder_->function().buffers[static_cast<size_t>(id_)].dims.size());
}

DataType B::dtype() const { return builder_->function().buffers[static_cast<size_t>(id_)].dtype; }

E B::dim(int axis) const {
  QUENCH_CHECK(valid() && axis >= -rank() && axis < rank());
  if (axis < 0) axis += rank();
  return E(builder_,
           builder_->function().buffers[static_cast<size_t>(id_)].dims[static_cast<size_t>(axis)]);
}

E B::At(std::span<const E> indices) const {
  QUENCH_CHECK(valid() && static_cast<int>(indices.size()) == rank());
  Expr expr;
  expr.kind = ExprKind::kLoad;
  expr.type = dtype();
  expr.id = id_;
  for (const E& index : indices) {
    QUENCH_CHECK(index.type() == DataType::kI64);
    expr.args.push_back(index.id());
  }
  return Widen(E(builder_, builder_->AddExpr(std::move(expr))));
}

Builder::Builder(std::string name) {
  function_.name = std::move(name);
  open_.emplace_back();
}

BufferId Builder::AddBuffer(const std::string& name, DataType dtype, BufferRole role,
                            ScratchScope scope, const std::vector<E>& dims) {
  Buffer buffer;
  buffer.name = name;
  buffer.dtype = dtype;
  buffer.role = role;
  buffer.scope = scope;
  for (const E& dim : dims) {
    QUENCH_CHECK(dim.type() == DataType::kI64);
    buffer.dims.push_back(dim.id());
  }
  function_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(function_.buffers.size()) - 1;
}

B Builder::Input(const std::string& name, DataType dtype, const std::vector<E>& dims) {
  return B(this, AddBuffer(name, dtype, BufferRole::kInput, ScratchScope::kFunction, dims));
}

B Builder::Output(const std::string& name, DataType dtype, const std::vector<E>& dims) {
  return B(this, AddBuffer(name, dtype, BufferRole::kOutput, ScratchScope::kFunction, dims));
}

B Builder::Scratch(const std::string& name, DataType dtype, const std::vector<E>& dims,
                   ScratchScope scope) {
  return B(this, AddBuffer(name, dtype, BufferRole::kScratch, scope, dims));
}

E Builder::I(int64_t value) { return Int(value, DataType::kI64); }

E Builder::Int(int64_t value, DataType type) {
  QUENCH_CHECK(IsInteger(type) || type == DataType::kBool);
  Expr expr;
  expr.kind = ExprKind::kInt;
  expr.type = type;
  expr.i = WrapInteger(type, value);
  return E(this, AddExpr(std::move(expr)));
}

E Builder::F(double value, DataType type) {
  if (!IsFloat(type)) {
    return Int(
        scalar::VisitInteger(type,
                             [&](auto zero) {
                               return static_cast<int64_t>(scalar::Convert<decltype(zero)>(value));
                             }),
        type);
  }
  Expr expr;
  expr.kind = ExprKind::kFloat;
  expr.type = ComputeType(type);
  expr.f = expr.type == DataType::kF32 ? static_cast<float>(value) : value;
  return E(this, AddExpr(std::move(expr)));
}

E Builder::Slot(int32_t symbol) {
  QUENCH_CHECK(symbol >= 0);
  Expr expr;
  expr.kind = ExprKind::kSlot;
  expr.id = symbol;
  return E(this, AddExpr(std::move(expr)));
}

E Builder::Param(int index, DataType type) {
  QUENCH_CHECK(index >= 0);
  Expr expr;
  expr.kind = ExprKind::kParam;
  expr.type = type;
  expr.id = index;
  return E(this, AddExpr(std::move(expr)));
}

E Builder::Let(E value, const std::string& name) {
  value = Widen(value);
  const ExprKind kind = expr(value.id()).kind;
  if (kind == ExprKind::kInt || kind == ExprKind::kFloat || kind == ExprKind::kVar ||
      kind == ExprKind::kParam || kind == ExprKind::kSlot) {
    return value;
  }
  Expr var;
  var.kind = ExprKind::kVar;
  var.type = value.type();
  var.id = static_cast<VarId>(function_.vars.size());
  function_.vars.push_back(name);
  var_types_.push_back(var.type);
  Stmt stmt;
  stmt.kind = StmtKind::kLet;
  stmt.id = var.id;
  stmt.args = {value.id()};
  AddStmt(std::move(stmt));
  return E(this, AddExpr(std::move(var)));
}

E Builder::LocalRef::Get() const {
  Expr expr;
  expr.kind = ExprKind::kLocal;
  expr.type = builder_->function_.locals[static_cast<size_t>(id_)].type;
  expr.id = id_;
  return E(builder_, builder_->AddExpr(std::move(expr)));
}

void Builder::LocalRef::Set(E value) const {
  value = Widen(value);
  QUENCH_CHECK(value.type() == builder_->function_.locals[static_cast<size_t>(id_)].type);
  Stmt stmt;
  stmt.kind = StmtKind::kSet;
  stmt.id = id_;
  stmt.args = {value.id()};
  builder_->AddStmt(std::move(stmt));
}

Builder::LocalRef Builder::Local(E init, const std::string& name) {
  function_.locals.push_back({name, ComputeType(init.type())});
  LocalRef ref(this, static_cast<LocalId>(function_.locals.size()) - 1);
  ref.Set(init);
  return ref;
}

void Builder::Loop(LoopMark mark, std::vector<Reduction> reductions, E begin, E end,
                   const std::function<void(E)>& body, const std::string& name) {
  QUENCH_CHECK(begin.type() == DataType::kI64 && end.type() == DataType::kI64);
  Expr var;
  var.kind = ExprKind::kVar;
  var.id = static_cast<VarId>(function_.vars.size());
  Stmt stmt;
  stmt.kind = StmtKind::kFor;
  stmt.id = var.id;
  stmt.mark = mark;
  stmt.reductions = std::move(reductions);
  stmt.args = {begin.id(), end.id()};
  function_.vars.push_back(name);
  var_types_.push_back(DataType::kI64);
  const E index(this, AddExpr(std::move(var)));
  stmt.body = Nested([&] { body(index); });
  AddStmt(std::move(stmt));
}

void Builder::For(E begin, E end, const std::function<void(E)>& body, const std::string& name) {
  Loop(LoopMark::kSerial, {}, begin, end, body, name);
}

void Builder::ParallelFor(E end, const std::function<void(E)>& body, const std::string& name) {
  Loop(LoopMark::kParallel, {}, I(0), end, body, name);
}

void Builder::ParallelForAll(std::span<const E> dims,
                             const std::function<void(std::span<const E>)>& body) {
  std::vector<E> indices;
  const std::function<void()> nest = [&] {
    if (indices.size() == dims.size()) return body(indices);
    ParallelFor(dims[indices.size()], [&](E i) {
      indices.push_back(i);
      nest();
      indices.pop_back();
    });
  };
  nest();
}

E Builder::Reduce(BinaryOp op, E init, E begin, E end, const std::function<E(E)>& value,
                  const std::string& name) {
  const LocalRef acc = Local(init, "acc");
  Loop(
      LoopMark::kReduce, {{acc.id(), op}}, begin, end,
      [&](E k) {
        const E item = value(k);
        acc.Set(Accumulate(op, acc.Get(), item));
      },
      name);
  return acc.Get();
}

E Builder::ReduceAll(BinaryOp op, E init, std::span<const E> dims,
                     const std::function<E(std::span<const E>)>& value) {
  const LocalRef acc = Local(init, "acc");
  std::vector<E> indices;
  const std::function<void()> nest = [&] {
    if (indices.size() == dims.size()) {
      const E item = value(indices);
      return acc.Set(Accumulate(op, acc.Get(), item));
    }
    Loop(
        LoopMark::kReduce, {{acc.id(), op}}, I(0), dims[indices.size()],
        [&](E k) {
          indices.push_back(k);
          nest();
          indices.pop_back();
        },
        "k");
  };
  nest();
  return acc.Get();
}

void Builder::While(const std::function<E()>& condition, const std::function<void()>& body) {
  const size_t before = function_.stmts.size();
  const E test = condition();
  QUENCH_CHECK(function_.stmts.size() == before && test.type() == DataType::kBool);
  Stmt stmt;
  stmt.kind = StmtKind::kWhile;
  stmt.args = {test.id()};
  stmt.body = Nested(body);
  AddStmt(std::move(stmt));
}

void Builder::If(E condition, const std::function<void()>& then,
                 const std::function<void()>& otherwise) {
  QUENCH_CHECK(condition.valid() && condition.type() == DataType::kBool);
  if (const Expr& known = expr(condition.id()); known.kind == ExprKind::kInt) {
    if (known.i != 0)
      then();
    else if (otherwise)
      otherwise();
    return;
  }
  Stmt stmt;
  stmt.kind = StmtKind::kIf;
  stmt.args = {condition.id()};
  stmt.body = Nested(then);
  if (otherwise) stmt.otherwise = Nested(otherwise);
  AddStmt(std::move(stmt));
}

void Builder::Store(B buffer, std::span<const E> indices, E value) {
  QUENCH_CHECK(buffer.valid() && static_cast<int>(indices.size()) == buffer.rank());
  Stmt stmt;
  stmt.kind = StmtKind::kStore;
  stmt.id = buffer.id();
  stmt.args.push_back(Cast(value, buffer.dtype()).id());
  for (const E& index : indices) {
    QUENCH_CHECK(index.type() == DataType::kI64);
    stmt.args.push_back(index.id());
  }
  AddStmt(std::move(stmt));
}

void Builder::SetSlot(int32_t symbol, E value) {
  QUENCH_CHECK(symbol >= 0 && value.type() == DataType::kI64);
  Stmt stmt;
  stmt.kind = StmtKind::kSetSlot;
  stmt.id = symbol;
  stmt.args = {value.id()};
  AddStmt(std::move(stmt));
}

void Builder::Check(E condition, const std::string& message) {
  QUENCH_CHECK(condition.type() == DataType::kBool);
  if (const Expr& known = expr(condition.id()); known.kind == ExprKind::kInt && known.i != 0)
    return;
  Stmt stmt;
  stmt.kind = StmtKind::kCheck;
  stmt.args = {condition.id()};
  stmt.message = message;
  AddStmt(std::move(stmt));
}

Function Builder::Finish() {
  QUENCH_CHECK(open_.size() == 1);
  function_.body = std::move(open_.back());
  const std::string defect = Verify(function_);
  if (!defect.empty()) CheckFailed(defect.c_str(), function_.name.c_str(), 0);
  return std::move(function_);
}

ScalarFunction Builder::FinishScalar(E result, std::vector<DataType> param_types) {
  std::map<VarId, ExprId> lets;
  for (const Stmt& stmt : function_.stmts) {
    QUENCH_CHECK(stmt.kind == StmtKind::kLet);
    lets[stmt.id] = stmt.args[0];
  }
  // A variable's expression is younger than its value, so one ascending sweep has every replacement
  // at hand.
  const size_t count = static_cast<size_t>(result.id()) + 1;
  std::vector<ExprId> target(count);
  for (size_t i = 0; i < count; ++i) {
    const Expr& e = function_.exprs[i];
    target[i] =
        e.kind == ExprKind::kVar ? target[static_cast<size_t>(lets[e.id])] : static_cast<ExprId>(i);
  }
  std::vector<bool> used(count);
  used[static_cast<size_t>(target.back())] = true;
  for (size_t i = count; i-- > 0;) {
    if (!used[i]) continue;
    for (const ExprId arg : function_.exprs[i].args)
      used[static_cast<size_t>(target[static_cast<size_t>(arg)])] = true;
  }
  ScalarFunction scalar;
  scalar.param_types = std::move(param_types);
  std::vector<ExprId> renamed(count, kNone);
  for (size_t i = 0; i < count; ++i) {
    if (!used[i]) continue;
    Expr e = function_.exprs[i];
    for (ExprId& arg : e.args) arg = renamed[static_cast<size_t>(target[static_cast<size_t>(arg)])];
    renamed[i] = static_cast<ExprId>(scalar.exprs.size());
    scalar.exprs.push_back(std::move(e));
  }
  scalar.result = renamed[static_cast<size_t>(target.back())];
  const std::string defect = Verify(scalar);
  if (!defect.empty()) CheckFailed(defect.c_str(), function_.name.c_str(), 0);
  return scalar;
}

ExprId Builder::AddExpr(Expr expr) {
  const uint64_t hash = HashOf(expr);
  const auto [begin, end] = interned_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (Same(function_.exprs[static_cast<size_t>(it->second)], expr)) return it->second;
  }
  const ExprId id = static_cast<ExprId>(function_.exprs.size());
  function_.exprs.push_back(std::move(expr));
  interned_.emplace(hash, id);
  return id;
}

StmtId Builder::AddStmt(Stmt stmt) {
  const StmtId id = static_cast<StmtId>(function_.stmts.size());
  function_.stmts.push_back(std::move(stmt));
  open_.back().push_back(id);
  return id;
}

std::vector<StmtId> Builder::Nested(const std::function<void()>& fill) {
  open_.emplace_back();
  fill();
  std::vector<StmtId> body = std::move(open_.back());
  open_.pop_back();
  return body;
}

E Apply(Builder& builder, const ScalarFunction& function, std::span<const E> operands) {
  QUENCH_CHECK(operands.size() == function.param_types.size());
  std::vector<E> values;
  values.reserve(function.exprs.size());
  const auto value = [&](ExprId id) { return values[static_cast<size_t>(id)]; };
  for (const Expr& e : function.exprs) {
    switch (e.kind) {
      case ExprKind::kParam: {
        const E operand = operands[static_cast<size_t>(e.id)];
        QUENCH_CHECK(ComputeType(operand.type()) == e.type);
        values.push_back(Cast(operand, e.type));
        break;
      }
      case ExprKind::kUnary:
        values.push_back(Unary(e.unary, value(e.args[0])));
        break;
      case ExprKind::kBinary:
        values.push_back(Binary(e.binary, value(e.args[0]), value(e.args[1])));
        break;
      case ExprKind::kSelect:
        values.push_back(Select(value(e.args[0]), value(e.args[1]), value(e.args[2])));
        break;
      case ExprKind::kCast:
        values.push_back(Cast(value(e.args[0]), e.type));
        break;
      default:
        values.push_back(E(&builder, builder.AddExpr(e)));
        break;  // constants and slots
    }
  }
  return value(function.result);
}

}  // namespace quench::loops
