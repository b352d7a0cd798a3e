#include "services/codegen/schedule/rebuild.h"

#include <utility>

namespace quench::codegen {

using loops::AddBinary;
using loops::AddInt;
using loops::BinaryOp;
using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Function;

ExprId AddExpr(Function& function, Expr expr) {
  function.exprs.push_back(std::move(expr));
  return static_cast<ExprId>(function.exprs.size()) - 1;
}

Rebuilder::Rebuilder(const Function& from) : from_(from) {}

Function Rebuilder::Run(const Rewrite& rewrite) {
  Function out = from_;
  out.exprs.clear();
  map_.assign(from_.exprs.size(), loops::kNone);
  for (size_t i = 0; i < from_.exprs.size(); ++i) {
    Expr copy = from_.exprs[i];
    for (ExprId& arg : copy.args) arg = Mapped(arg);
    const std::optional<ExprId> other = rewrite(out, copy);
    map_[i] = other ? *other : AddExpr(out, std::move(copy));
  }
  for (loops::Buffer& buffer : out.buffers) {
    for (ExprId& dim : buffer.dims) dim = Mapped(dim);
  }
  for (loops::Stmt& stmt : out.stmts) {
    for (ExprId& arg : stmt.args) arg = Mapped(arg);
  }
  return out;
}

namespace {

// value = rest + k * divisor for a sum with a constant multiple of the divisor: {rest, k}.
std::optional<std::pair<ExprId, int64_t>> TakeMultiple(const Function& f, ExprId value,
                                                       int64_t divisor) {
  const Expr& e = f.exprs[static_cast<size_t>(value)];
  if (e.kind != ExprKind::kBinary || e.binary != BinaryOp::kAdd) return std::nullopt;
  for (int side = 0; side < 2; ++side) {
    const auto constant = loops::ConstantOf(f, e.args[static_cast<size_t>(side)]);
    if (constant && *constant % divisor == 0)
      return std::pair(e.args[static_cast<size_t>(1 - side)], *constant / divisor);
  }
  return std::nullopt;
}

}  // namespace

ExprId AddFloorDiv(Function& f, ExprId value, int64_t divisor) {
  if (const auto parts = TakeMultiple(f, value, divisor)) {
    const ExprId rest = AddFloorDiv(f, parts->first, divisor);
    return AddBinary(f, BinaryOp::kAdd, rest, AddInt(f, parts->second));
  }
  return AddBinary(f, BinaryOp::kFloorDiv, value, AddInt(f, divisor));
}

ExprId AddFloorMod(Function& f, ExprId value, int64_t divisor) {
  if (const auto parts = TakeMultiple(f, value, divisor))
    return AddFloorMod(f, parts->first, divisor);
  if (divisor == 1) return AddInt(f, 0);
  return AddBinary(f, BinaryOp::kFloorMod, value, AddInt(f, divisor));
}

bool SameExpr(const Function& f, ExprId a, ExprId b) {
  if (a == b) return true;
  const Expr& x = f.exprs[static_cast<size_t>(a)];
  const Expr& y = f.exprs[static_cast<size_t>(b)];
  if (x.kind != y.kind || x.type != y.type || x.unary != y.unary || x.binary != y.binary ||
      x.id != y.id || x.i != y.i || x.f != y.f || x.args.size() != y.args.size()) {
    return false;
  }
  for (size_t i = 0; i < x.args.size(); ++i) {
    if (!SameExpr(f, x.args[i], y.args[i])) return false;
  }
  return true;
}

std::vector<bool> Reachable(const Function& f, std::span<const loops::StmtId> body) {
  std::vector<bool> seen(f.exprs.size());
  std::vector<ExprId> stack;
  for (loops::StmtId id : loops::StatementsUnder(f, body)) {
    const loops::Stmt& stmt = f.stmts[static_cast<size_t>(id)];
    stack.insert(stack.end(), stmt.args.begin(), stmt.args.end());
  }
  while (!stack.empty()) {
    const auto id = static_cast<size_t>(stack.back());
    stack.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    stack.insert(stack.end(), f.exprs[id].args.begin(), f.exprs[id].args.end());
  }
  return seen;
}

}  // namespace quench::codegen
