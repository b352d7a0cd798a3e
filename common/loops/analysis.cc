#include "common/loops/analysis.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/loops/fold.h"

namespace quench::loops {
namespace {

const Expr& ExprAt(const Function& f, ExprId id) { return f.exprs[static_cast<size_t>(id)]; }
const Stmt& StmtAt(const Function& f, StmtId id) { return f.stmts[static_cast<size_t>(id)]; }

void AddStatements(const Function& f, std::span<const StmtId> body, std::vector<StmtId>& out) {
  for (const StmtId id : body) {
    out.push_back(id);
    AddStatements(f, StmtAt(f, id).body, out);
    AddStatements(f, StmtAt(f, id).otherwise, out);
  }
}

ExprId AddExpr(Function& f, Expr expr) {
  f.exprs.push_back(std::move(expr));
  return static_cast<ExprId>(f.exprs.size()) - 1;
}

// Substitution with a memo, so that shared subexpressions stay shared.
class Substituter {
 public:
  Substituter(Function& function, Substitution substitution)
      : f_(function), map_(std::move(substitution)) {}

  Substitution& map() { return map_; }

  ExprId Expression(ExprId id) {
    if (const auto it = memo_.find(id); it != memo_.end()) return it->second;
    const ExprId result = Rewrite(id);
    memo_[id] = result;
    return result;
  }

  std::vector<StmtId> Body(std::span<const StmtId> body) {
    std::vector<StmtId> copy;
    for (const StmtId id : body) copy.push_back(Statement(id));
    return copy;
  }

 private:
  template <typename Id, typename To>
  static To Find(const std::map<Id, To>& map, Id id, To otherwise) {
    const auto it = map.find(id);
    return it == map.end() ? otherwise : it->second;
  }

  ExprId Rewrite(ExprId id) {
    Expr copy = ExprAt(f_, id);
    bool changed = false;
    const auto replace = [&](int32_t& place, int32_t value) {
      changed |= place != value;
      place = value;
    };
    for (ExprId& arg : copy.args) replace(arg, Expression(arg));
    if (copy.kind == ExprKind::kVar) return Find(map_.vars, copy.id, id);
    if (copy.kind == ExprKind::kLocal) replace(copy.id, Find(map_.locals, copy.id, copy.id));
    if (copy.kind == ExprKind::kLoad) replace(copy.id, Find(map_.buffers, copy.id, copy.id));
    return changed ? AddExpr(f_, std::move(copy)) : id;
  }

  // Gives the variable that `stmt` defines a fresh name and lets later reads follow.
  void Rename(Stmt& stmt, DataType type) {
    const ExprId fresh = AddVar(f_, f_.vars[static_cast<size_t>(stmt.id)], type);
    map_.vars[stmt.id] = fresh;
    stmt.id = ExprAt(f_, fresh).id;
    memo_.clear();
  }

  StmtId Statement(StmtId id) {
    Stmt copy = StmtAt(f_, id);
    for (ExprId& arg : copy.args) arg = Expression(arg);
    switch (copy.kind) {
      case StmtKind::kFor:
        Rename(copy, DataType::kI64);
        break;
      case StmtKind::kLet:
        Rename(copy, ExprAt(f_, copy.args[0]).type);
        break;
      case StmtKind::kSet:
        copy.id = Find(map_.locals, copy.id, copy.id);
        break;
      case StmtKind::kStore:
        copy.id = Find(map_.buffers, copy.id, copy.id);
        break;
      default:
        break;
    }
    for (Reduction& reduction : copy.reductions) {
      reduction.local = Find(map_.locals, reduction.local, reduction.local);
    }
    const std::vector<StmtId> body = copy.body;
    const std::vector<StmtId> otherwise = copy.otherwise;
    copy.body = Body(body);
    copy.otherwise = Body(otherwise);
    return AddStmt(f_, std::move(copy));
  }

  Function& f_;
  Substitution map_;
  std::map<ExprId, ExprId> memo_;
};

}  // namespace

std::optional<int64_t> ConstantOf(const Function& function, ExprId id) {
  const Expr& e = ExprAt(function, id);
  if (e.kind != ExprKind::kInt) return std::nullopt;
  return e.i;
}

std::vector<StmtId> StatementsUnder(const Function& function, std::span<const StmtId> body) {
  std::vector<StmtId> statements;
  AddStatements(function, body, statements);
  return statements;
}

std::vector<Access> Accesses(const Function& function, std::span<const StmtId> body) {
  std::vector<Access> accesses;
  std::vector<StmtId> seen(function.exprs.size(), kNone);
  for (const StmtId id : StatementsUnder(function, body)) {
    const Stmt& stmt = StmtAt(function, id);
    std::vector<ExprId> loads;
    std::vector<ExprId> stack(stmt.args.begin(), stmt.args.end());
    while (!stack.empty()) {
      const ExprId expr = stack.back();
      stack.pop_back();
      if (std::exchange(seen[static_cast<size_t>(expr)], id) == id) continue;
      const Expr& e = ExprAt(function, expr);
      if (e.kind == ExprKind::kLoad) loads.push_back(expr);
      stack.insert(stack.end(), e.args.begin(), e.args.end());
    }
    std::sort(loads.begin(), loads.end());
    for (const ExprId load : loads) {
      accesses.push_back({id, load, ExprAt(function, load).id, ExprAt(function, load).args});
    }
    if (stmt.kind == StmtKind::kStore) {
      accesses.push_back({id, kNone, stmt.id, std::span<const ExprId>(stmt.args).subspan(1)});
    }
  }
  return accesses;
}

LoopAnalysis::LoopAnalysis(const Function& function, StmtId loop)
    : function_(function),
      var_(StmtAt(function, loop).id),
      assigned_(function.locals.size()),
      stored_(function.buffers.size()),
      memo_(function.exprs.size()) {
  QUENCH_CHECK(StmtAt(function, loop).kind == StmtKind::kFor);
  for (const StmtId id : StatementsUnder(function, StmtAt(function, loop).body)) {
    const Stmt& stmt = StmtAt(function, id);
    if (stmt.kind == StmtKind::kSet) assigned_[static_cast<size_t>(stmt.id)] = true;
    if (stmt.kind == StmtKind::kStore) stored_[static_cast<size_t>(stmt.id)] = true;
    if (stmt.kind == StmtKind::kLet) lets_[stmt.id] = stmt.args[0];
  }
  // In order, so that long chains of lets are not walked recursively.
  for (const auto& [var, value] : lets_) FormOf(value);
}

std::optional<int64_t> LoopAnalysis::Stride(ExprId id) const {
  const Form form = FormOf(id);
  if (!form.affine) return std::nullopt;
  return form.stride;
}

bool LoopAnalysis::Invariant(ExprId id) const {
  const Form form = FormOf(id);
  return form.affine && form.stride == 0;
}

LoopAnalysis::Form LoopAnalysis::FormOf(ExprId id) const {
  if (static_cast<size_t>(id) >= memo_.size()) memo_.resize(function_.exprs.size());
  if (!memo_[static_cast<size_t>(id)]) {
    const Form form = Compute(ExprAt(function_, id));
    memo_[static_cast<size_t>(id)] = form;
  }
  return *memo_[static_cast<size_t>(id)];
}

LoopAnalysis::Form LoopAnalysis::Compute(const Expr& e) const {
  constexpr Form kUnknown{false, 0};
  constexpr Form kFixed{true, 0};
  bool fixed = true;
  bool affine = true;
  for (const ExprId arg : e.args) {
    const Form form = FormOf(arg);
    affine &= form.affine;
    fixed &= form.affine && form.stride == 0;
  }
  switch (e.kind) {
    case ExprKind::kVar: {
      if (e.id == var_) return {true, 1};
      const auto let = lets_.find(e.id);
      return let == lets_.end() ? kFixed : FormOf(let->second);
    }
    case ExprKind::kLocal:
      return assigns(e.id) ? kUnknown : kFixed;
    case ExprKind::kLoad:
      return fixed && !stores_to(e.id) ? kFixed : kUnknown;
    default:
      break;
  }
  if (fixed) return kFixed;
  if (!affine || !IsInteger(e.type)) return kUnknown;
  if (e.kind == ExprKind::kUnary && e.unary == UnaryOp::kNeg)
    return {true, scalar::Neg(FormOf(e.args[0]).stride)};
  if (e.kind != ExprKind::kBinary) return kUnknown;
  const Form a = FormOf(e.args[0]);
  const Form b = FormOf(e.args[1]);
  switch (e.binary) {
    case BinaryOp::kAdd:
      return {true, scalar::Add(a.stride, b.stride)};
    case BinaryOp::kSub:
      return {true, scalar::Sub(a.stride, b.stride)};
    case BinaryOp::kMul:
      return Product(e, a, b);
    default:
      return kUnknown;
  }
}

LoopAnalysis::Form LoopAnalysis::Product(const Expr& e, Form a, Form b) const {
  if (const auto c = ConstantOf(function_, e.args[1])) return {true, scalar::Mul(a.stride, *c)};
  if (const auto c = ConstantOf(function_, e.args[0])) return {true, scalar::Mul(b.stride, *c)};
  return {false, 0};
}

ExprId AddInt(Function& function, int64_t value) {
  Expr e;
  e.i = value;
  return AddExpr(function, std::move(e));
}

ExprId AddBinary(Function& function, BinaryOp op, ExprId a, ExprId b) {
  const DataType type = ExprAt(function, a).type;
  QUENCH_CHECK(type == ExprAt(function, b).type);
  const auto left = ConstantOf(function, a);
  const auto right = ConstantOf(function, b);
  if (left && right) {
    Expr e;
    e.type = IsComparison(op) ? DataType::kBool : type;
    e.i = FoldInteger(op, type, *left, *right);
    return AddExpr(function, std::move(e));
  }
  if (IsInteger(type)) {
    const bool sum = op == BinaryOp::kAdd || op == BinaryOp::kSub;
    if (right == 0 && (sum || op == BinaryOp::kMul)) return sum ? a : b;
    if (left == 0 && (op == BinaryOp::kAdd || op == BinaryOp::kMul))
      return op == BinaryOp::kAdd ? b : a;
    if (right == 1 && (op == BinaryOp::kMul || op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv))
      return a;
    if (left == 1 && op == BinaryOp::kMul) return b;
  }
  Expr e;
  e.kind = ExprKind::kBinary;
  e.type = IsComparison(op) ? DataType::kBool : type;
  e.binary = op;
  e.args = {a, b};
  return AddExpr(function, std::move(e));
}

ExprId AddSelect(Function& function, ExprId condition, ExprId then, ExprId otherwise) {
  Expr e;
  e.kind = ExprKind::kSelect;
  e.type = ExprAt(function, then).type;
  e.args = {condition, then, otherwise};
  return AddExpr(function, std::move(e));
}

ExprId AddVar(Function& function, const std::string& name, DataType type) {
  Expr e;
  e.kind = ExprKind::kVar;
  e.type = type;
  e.id = static_cast<VarId>(function.vars.size());
  function.vars.push_back(std::string(name));  // a copy: `name` may lie in `vars`
  return AddExpr(function, std::move(e));
}

LocalId AddLocal(Function& function, const std::string& name, DataType type) {
  function.locals.push_back({name, type});
  return static_cast<LocalId>(function.locals.size()) - 1;
}

ExprId AddLocalRead(Function& function, LocalId local) {
  Expr e;
  e.kind = ExprKind::kLocal;
  e.type = function.locals[static_cast<size_t>(local)].type;
  e.id = local;
  return AddExpr(function, std::move(e));
}

StmtId AddStmt(Function& function, Stmt stmt) {
  function.stmts.push_back(std::move(stmt));
  return static_cast<StmtId>(function.stmts.size()) - 1;
}

ExprId Substitute(Function& function, ExprId id, const Substitution& substitution) {
  return Substituter(function, substitution).Expression(id);
}

std::vector<StmtId> Clone(Function& function, std::span<const StmtId> body,
                          const Substitution& substitution) {
  const std::vector<StmtId> copy(body.begin(),
                                 body.end());  // `body` may lie in the statements that grow
  return Substituter(function, substitution).Body(copy);
}

}  // namespace quench::loops
