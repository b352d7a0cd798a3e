#include "services/codegen/schedule/rebuild.h"

#include <algorithm>
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

void FoldConstants(Function& function) {
  function = Rebuilder(function).Run([](Function& out, const Expr& copy) -> std::optional<ExprId> {
    const bool integer = copy.kind == ExprKind::kBinary && copy.type == DataType::kI64;
    if (!integer) return std::nullopt;
    return AddBinary(out, copy.binary, copy.args[0], copy.args[1]);
  });
}

std::optional<int64_t> ElementStep(const Function& f, const loops::LoopAnalysis& analysis,
                                   loops::BufferId buffer, std::span<const ExprId> indices) {
  const std::vector<ExprId>& dims = f.buffers[static_cast<size_t>(buffer)].dims;
  int64_t step = 0;
  std::optional<int64_t> stride = 1;
  for (size_t d = indices.size(); d-- > 0;) {
    const auto by = analysis.Stride(indices[d]);
    if (!by || (*by != 0 && !stride)) return std::nullopt;
    if (*by != 0) step += *by * *stride;
    const auto size = loops::ConstantOf(f, dims[d]);
    stride = stride && size ? std::optional(*stride * *size) : std::nullopt;
  }
  return step;
}

namespace {

// A bound of an integer expression from constants, minima and maxima; lets are looked through.
class Bounds {
 public:
  explicit Bounds(const Function& f) : f_(f) {}

  std::optional<int64_t> Of(ExprId id, bool upper, int depth = 0) {
    const Expr& e = f_.exprs[static_cast<size_t>(id)];
    if (e.kind == ExprKind::kInt) return e.i;
    if (depth > 16) return std::nullopt;
    if (e.kind == ExprKind::kVar) {
      for (const loops::Stmt& stmt : f_.stmts) {
        if (stmt.kind == loops::StmtKind::kLet && stmt.id == e.id)
          return Of(stmt.args[0], upper, depth + 1);
      }
      return std::nullopt;
    }
    if (e.kind != ExprKind::kBinary) return std::nullopt;
    const bool difference = e.binary == BinaryOp::kSub;
    const auto a = Of(e.args[0], upper, depth + 1);
    const auto b = Of(e.args[1], difference ? !upper : upper, depth + 1);
    return Combine(e.binary, upper, a, b);
  }

 private:
  static std::optional<int64_t> Combine(BinaryOp op, bool upper, std::optional<int64_t> a,
                                        std::optional<int64_t> b) {
    switch (op) {
      case BinaryOp::kAdd:
        return a && b ? std::optional(*a + *b) : std::nullopt;
      case BinaryOp::kSub:
        return a && b ? std::optional(*a - *b) : std::nullopt;
      case BinaryOp::kMin:
        if (upper && (!a || !b)) return a ? a : b;
        return a && b ? std::optional(std::min(*a, *b)) : std::nullopt;
      case BinaryOp::kMax:
        if (!upper && (!a || !b)) return a ? a : b;
        return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  const Function& f_;
};

}  // namespace

std::optional<int64_t> MaxTrips(const Function& f, const loops::Stmt& loop) {
  Bounds bounds(f);
  const auto begin = bounds.Of(loop.args[0], false), end = bounds.Of(loop.args[1], true);
  if (!begin || !end) return std::nullopt;
  return std::max<int64_t>(0, *end - *begin);
}

}  // namespace quench::codegen
