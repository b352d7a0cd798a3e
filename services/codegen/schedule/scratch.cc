#include "services/codegen/schedule/scratch.h"

#include "common/base/status.h"

namespace quench::codegen {
namespace {

using loops::BinaryOp;
using loops::Expr;
using loops::ExprKind;

absl::StatusOr<Dim> BinaryDim(const loops::Function& function, const Expr& e,
                              SymbolTable& symbols) {
  QUENCH_ASSIGN_OR_RETURN(const Dim a, DimOf(function, e.args[0], symbols));
  QUENCH_ASSIGN_OR_RETURN(const Dim b, DimOf(function, e.args[1], symbols));
  const bool divides = b.is_static() ? b.value() > 0 : symbols.BoundsOf(b).min > 0;
  switch (e.binary) {
    case BinaryOp::kAdd:
      return symbols.Add(a, b);
    case BinaryOp::kSub:
      return symbols.Sub(a, b);
    case BinaryOp::kMul:
      return symbols.Mul(a, b);
    case BinaryOp::kMin:
      return symbols.Min(a, b);
    case BinaryOp::kMax:
      return symbols.Max(a, b);
    case BinaryOp::kDiv:  // sizes are not negative: the quotients agree
    case BinaryOp::kFloorDiv:
      if (divides) return symbols.FloorDiv(a, b);
      break;
    case BinaryOp::kRem:
    case BinaryOp::kFloorMod:
      if (divides) return symbols.Mod(a, b);
      break;
    default:
      break;
  }
  return Unsupported("a size is not an expression over symbols");
}

// Whether code has the size as a number. A size of the run may round up to one, too.
bool IsNumber(const loops::Function& function, loops::ExprId expr) {
  const Expr& e = function.exprs[static_cast<size_t>(expr)];
  if (e.kind == ExprKind::kBinary)
    return IsNumber(function, e.args[0]) && IsNumber(function, e.args[1]);
  return e.kind == ExprKind::kInt;
}

}  // namespace

absl::StatusOr<Dim> DimOf(const loops::Function& function, loops::ExprId expr,
                          SymbolTable& symbols) {
  const Expr& e = function.exprs[static_cast<size_t>(expr)];
  switch (e.kind) {
    case ExprKind::kInt:
      return Dim(e.i);
    case ExprKind::kSlot:
      return Dim::OfSymbol(e.id);
    case ExprKind::kBinary:
      return BinaryDim(function, e, symbols);
    default:
      return Unsupported("a size is not an expression over symbols");
  }
}

absl::StatusOr<Dim> ScratchBytes(const loops::Function& function, SymbolTable& symbols,
                                 int64_t stack_bytes, const std::set<loops::BufferId>& kept) {
  Dim total = 0;
  bool numbers = true;
  for (size_t i = 0; i < function.buffers.size(); ++i) {
    const loops::Buffer& buffer = function.buffers[i];
    if (buffer.role != loops::BufferRole::kScratch) continue;
    if (kept.contains(static_cast<loops::BufferId>(i))) continue;
    Dim bytes = (DataTypeBits(buffer.dtype) + 7) / 8;
    for (loops::ExprId dim : buffer.dims) {
      QUENCH_ASSIGN_OR_RETURN(const Dim size, DimOf(function, dim, symbols));
      bytes = symbols.Mul(bytes, size);
      numbers = numbers && IsNumber(function, dim);
    }
    bytes = symbols.Mul(symbols.CeilDiv(bytes, kScratchAlignment), kScratchAlignment);
    total = symbols.Add(total, bytes);
  }
  if (numbers && total.is_static() && total.value() <= stack_bytes) return Dim(0);
  // 0 times a size of the run is more than nothing to the code, and 0 would mean the stack.
  return total.is(0) && !numbers ? Dim(kScratchAlignment) : total;
}

}  // namespace quench::codegen
