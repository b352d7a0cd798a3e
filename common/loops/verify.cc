#include <fmt/format.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/loops/fold.h"
#include "common/loops/loops.h"

namespace quench::loops {
namespace {

bool IsCompute(DataType type) {
  return type == DataType::kF32 || type == DataType::kF64 || type == DataType::kBool ||
         IsInteger(type);
}

bool IsNumeric(DataType type) {
  return IsFloat(type) || IsInteger(type) || type == DataType::kBool;
}

bool FloatOnly(UnaryOp op) { return op > UnaryOp::kNot; }

bool OperandTypeFits(UnaryOp op, DataType type) {
  if (op == UnaryOp::kNot) return type == DataType::kBool || IsInteger(type);
  if (op == UnaryOp::kNeg || op == UnaryOp::kAbs) return type != DataType::kBool;
  return !FloatOnly(op) || IsFloat(type);
}

bool OperandTypeFits(BinaryOp op, DataType type) {
  switch (op) {
    case BinaryOp::kAnd:
    case BinaryOp::kOr:
    case BinaryOp::kXor:
      return type == DataType::kBool || IsInteger(type);
    case BinaryOp::kShl:
    case BinaryOp::kShr:
      return IsInteger(type);
    case BinaryOp::kMin:
    case BinaryOp::kMax:
      return true;
    default:
      return IsComparison(op) || type != DataType::kBool;
  }
}

// Checks expressions one by one; variables (whose scope only statements know) are left to
// FunctionVerifier.
class ExprVerifier {
 public:
  ExprVerifier(const std::vector<Expr>& exprs, const Function* function,
               const ScalarFunction* scalar)
      : exprs_(exprs), function_(function), scalar_(scalar) {}

  std::string Run() {
    for (size_t i = 0; i < exprs_.size(); ++i) {
      const std::string defect = Check(static_cast<ExprId>(i), exprs_[i]);
      if (!defect.empty()) return fmt::format("expression {}: {}", i, defect);
    }
    return "";
  }

 private:
  DataType TypeOf(ExprId id) const { return exprs_[static_cast<size_t>(id)].type; }

  static std::string Count(const Expr& e, size_t count) {
    if (e.args.size() == count) return "";
    return fmt::format("has {} arguments, takes {}", e.args.size(), count);
  }

  std::string Check(ExprId id, const Expr& e) const {
    for (const ExprId arg : e.args) {
      if (arg < 0 || arg >= id) return fmt::format("argument {} is not an earlier expression", arg);
    }
    switch (e.kind) {
      case ExprKind::kInt:
        return CheckInt(e);
      case ExprKind::kFloat:
        if (e.type != DataType::kF32 && e.type != DataType::kF64)
          return "a float constant is f32 or f64";
        return Count(e, 0);
      case ExprKind::kVar:
        if (function_ == nullptr) return "a scalar function has no variables";
        if (e.id < 0 || e.id >= static_cast<int32_t>(function_->vars.size()))
          return "unknown variable";
        return Count(e, 0);
      case ExprKind::kLocal:
        return CheckLocal(e);
      case ExprKind::kSlot:
        if (function_ == nullptr) return "a scalar function has no slots";
        if (e.id < 0 || e.type != DataType::kI64) return "a slot has an id and type i64";
        return Count(e, 0);
      case ExprKind::kParam:
        return CheckParam(e);
      case ExprKind::kLoad:
        return CheckLoad(e);
      case ExprKind::kUnary:
        return CheckUnary(e);
      case ExprKind::kBinary:
        return CheckBinary(e);
      case ExprKind::kSelect:
        return CheckSelect(e);
      case ExprKind::kCast:
        if (e.args.size() != 1) return Count(e, 1);
        return IsNumeric(e.type) && IsNumeric(TypeOf(e.args[0]))
                   ? ""
                   : "a cast is between numbers or bools";
    }
    return "unknown kind";
  }

  static std::string CheckInt(const Expr& e) {
    if (!IsInteger(e.type) && e.type != DataType::kBool)
      return "an integer constant has an integer type or bool";
    if (WrapInteger(e.type, e.i) != e.i)
      return fmt::format("{} does not fit {}", e.i, DataTypeName(e.type));
    return Count(e, 0);
  }

  std::string CheckLocal(const Expr& e) const {
    if (function_ == nullptr) return "a scalar function has no locals";
    if (e.id < 0 || e.id >= static_cast<int32_t>(function_->locals.size())) return "unknown local";
    if (e.type != function_->locals[static_cast<size_t>(e.id)].type)
      return "type differs from the local's";
    return Count(e, 0);
  }

  std::string CheckParam(const Expr& e) const {
    if (scalar_ == nullptr) return "only a scalar function has params";
    if (e.id < 0 || e.id >= static_cast<int32_t>(scalar_->param_types.size()))
      return "unknown param";
    if (e.type != scalar_->param_types[static_cast<size_t>(e.id)])
      return "type differs from the param's";
    return Count(e, 0);
  }

  std::string CheckLoad(const Expr& e) const {
    if (function_ == nullptr) return "a scalar function has no loads";
    if (e.id < 0 || e.id >= static_cast<int32_t>(function_->buffers.size()))
      return "unknown buffer";
    const Buffer& buffer = function_->buffers[static_cast<size_t>(e.id)];
    if (e.type != buffer.dtype)
      return fmt::format("type differs from that of buffer `{}`", buffer.name);
    if (e.args.size() != buffer.dims.size()) {
      return fmt::format("{} indices for buffer `{}` of rank {}", e.args.size(), buffer.name,
                         buffer.dims.size());
    }
    for (const ExprId arg : e.args) {
      if (TypeOf(arg) != DataType::kI64) return "an index is i64";
    }
    return "";
  }

  std::string CheckUnary(const Expr& e) const {
    if (e.args.size() != 1) return Count(e, 1);
    const DataType type = TypeOf(e.args[0]);
    if (!IsCompute(type)) return fmt::format("arithmetic on {}", DataTypeName(type));
    if (!OperandTypeFits(e.unary, type))
      return fmt::format("`{}` of {}", Name(e.unary), DataTypeName(type));
    const bool test = e.unary == UnaryOp::kIsNan || e.unary == UnaryOp::kIsInf;
    if (e.type != (test ? DataType::kBool : type)) return "result type differs from the operand's";
    return "";
  }

  std::string CheckBinary(const Expr& e) const {
    if (e.args.size() != 2) return Count(e, 2);
    const DataType type = TypeOf(e.args[0]);
    if (type != TypeOf(e.args[1])) {
      return fmt::format("operands of `{}` are {} and {}", Name(e.binary), DataTypeName(type),
                         DataTypeName(TypeOf(e.args[1])));
    }
    if (!IsCompute(type)) return fmt::format("arithmetic on {}", DataTypeName(type));
    if (!OperandTypeFits(e.binary, type))
      return fmt::format("`{}` of {}", Name(e.binary), DataTypeName(type));
    if (e.type != (IsComparison(e.binary) ? DataType::kBool : type)) return "wrong result type";
    return "";
  }

  std::string CheckSelect(const Expr& e) const {
    if (e.args.size() != 3) return Count(e, 3);
    if (TypeOf(e.args[0]) != DataType::kBool) return "the condition of a select is bool";
    if (!IsCompute(e.type)) return fmt::format("arithmetic on {}", DataTypeName(e.type));
    if (TypeOf(e.args[1]) != e.type || TypeOf(e.args[2]) != e.type)
      return "sides of a select differ in type";
    return "";
  }

  const std::vector<Expr>& exprs_;
  const Function* function_;
  const ScalarFunction* scalar_;
};

// Uses of locals by the statements under a loop, in program order.
struct LocalUses {
  std::vector<bool> set;         // assigned somewhere
  std::vector<bool> read_first;  // read where no unconditional assignment has come before
  std::vector<int> reads;        // statements that read it
};

class FunctionVerifier {
 public:
  explicit FunctionVerifier(const Function& f)
      : f_(f),
        seen_expr_(f.exprs.size(), 0),
        seen_stmt_(f.stmts.size()),
        var_type_(f.vars.size(), DataType::kUndefined) {}

  std::string Run() {
    if (std::string defect = ExprVerifier(f_.exprs, &f_, nullptr).Run(); !defect.empty())
      return defect;
    if (std::string defect = CheckBuffers(); !defect.empty()) return defect;
    for (const Local& local : f_.locals) {
      if (!IsCompute(local.type))
        return fmt::format("local `{}` has type {}", local.name, DataTypeName(local.type));
    }
    if (std::string defect = CheckBody(f_.body); !defect.empty()) return defect;
    total_ = UsesOf(f_.body);
    return CheckMarks(f_.body);
  }

 private:
  const Expr& At(ExprId id) const { return f_.exprs[static_cast<size_t>(id)]; }
  const Stmt& StmtAt(StmtId id) const { return f_.stmts[static_cast<size_t>(id)]; }
  std::string VarName(VarId id) const { return f_.vars[static_cast<size_t>(id)]; }

  // Calls visit(expression) once for everything reachable from `roots`; stops at the first
  // non-empty answer.
  template <typename Visit>
  std::string Walk(const std::vector<ExprId>& roots, Visit&& visit) {
    ++epoch_;
    std::vector<ExprId> stack(roots.begin(), roots.end());
    while (!stack.empty()) {
      const ExprId id = stack.back();
      stack.pop_back();
      if (seen_expr_[static_cast<size_t>(id)] == epoch_) continue;
      seen_expr_[static_cast<size_t>(id)] = epoch_;
      if (std::string defect = visit(At(id)); !defect.empty()) return defect;
      stack.insert(stack.end(), At(id).args.begin(), At(id).args.end());
    }
    return "";
  }

  std::string CheckBuffers() {
    BufferRole last = BufferRole::kInput;
    for (const Buffer& buffer : f_.buffers) {
      if (!IsNumeric(buffer.dtype)) {
        return fmt::format("buffer `{}` has dtype {}", buffer.name, DataTypeName(buffer.dtype));
      }
      if (buffer.role < last)
        return fmt::format("buffer `{}`: inputs come first, then outputs, then scratch",
                           buffer.name);
      last = buffer.role;
      for (const ExprId dim : buffer.dims) {
        if (dim < 0 || dim >= static_cast<ExprId>(f_.exprs.size()) ||
            At(dim).type != DataType::kI64) {
          return fmt::format("buffer `{}`: a dim is an i64 expression", buffer.name);
        }
      }
      std::string defect = Walk(buffer.dims, [](const Expr& e) -> std::string {
        const bool runs =
            e.kind == ExprKind::kVar || e.kind == ExprKind::kLocal || e.kind == ExprKind::kLoad;
        return runs ? "a dim depends on constants and slots only" : "";
      });
      if (!defect.empty()) return fmt::format("buffer `{}`: {}", buffer.name, defect);
    }
    return "";
  }

  std::string CheckBody(const std::vector<StmtId>& body) {
    std::vector<VarId> defined;
    for (const StmtId id : body) {
      if (id < 0 || id >= static_cast<StmtId>(f_.stmts.size()))
        return fmt::format("unknown statement {}", id);
      if (seen_stmt_[static_cast<size_t>(id)]) return fmt::format("statement {} appears twice", id);
      seen_stmt_[static_cast<size_t>(id)] = true;
      if (std::string defect = CheckStmt(StmtAt(id), defined); !defect.empty()) {
        return defect.starts_with("statement") ? defect
                                               : fmt::format("statement {}: {}", id, defect);
      }
    }
    for (const VarId id : defined) var_type_[static_cast<size_t>(id)] = DataType::kUndefined;
    return "";
  }

  std::string CheckArgs(const Stmt& stmt, size_t count) {
    if (stmt.args.size() != count)
      return fmt::format("has {} arguments, takes {}", stmt.args.size(), count);
    for (const ExprId arg : stmt.args) {
      if (arg < 0 || arg >= static_cast<ExprId>(f_.exprs.size()))
        return fmt::format("unknown expression {}", arg);
    }
    return Walk(stmt.args, [&](const Expr& e) -> std::string {
      if (e.kind != ExprKind::kVar) return "";
      const DataType type = var_type_[static_cast<size_t>(e.id)];
      if (type == DataType::kUndefined)
        return fmt::format("variable `{}` is not defined here", VarName(e.id));
      if (type != e.type)
        return fmt::format("variable `{}` is used with another type", VarName(e.id));
      return "";
    });
  }

  std::string Define(VarId id, DataType type) {
    if (id < 0 || id >= static_cast<VarId>(f_.vars.size())) return "defines an unknown variable";
    if (var_type_[static_cast<size_t>(id)] != DataType::kUndefined) {
      return fmt::format("variable `{}` is defined already", VarName(id));
    }
    var_type_[static_cast<size_t>(id)] = type;
    return "";
  }

  std::string CheckStmt(const Stmt& stmt, std::vector<VarId>& defined) {
    if (!stmt.reductions.empty() &&
        (stmt.kind != StmtKind::kFor || stmt.mark != LoopMark::kReduce)) {
      return "only a loop marked reduce has reductions";
    }
    switch (stmt.kind) {
      case StmtKind::kFor:
        return CheckFor(stmt);
      case StmtKind::kWhile:
      case StmtKind::kIf:
        if (std::string defect = CheckTyped(stmt, 1, DataType::kBool); !defect.empty())
          return defect;
        if (stmt.kind == StmtKind::kWhile && !stmt.otherwise.empty())
          return "a while has no otherwise";
        if (std::string defect = CheckBody(stmt.body); !defect.empty()) return defect;
        return CheckBody(stmt.otherwise);
      case StmtKind::kLet: {
        if (std::string defect = CheckArgs(stmt, 1); !defect.empty()) return defect;
        const DataType type = At(stmt.args[0]).type;
        if (!IsCompute(type)) return fmt::format("let of {}", DataTypeName(type));
        if (std::string defect = Define(stmt.id, type); !defect.empty()) return defect;
        defined.push_back(stmt.id);
        return "";
      }
      case StmtKind::kSet:
        if (stmt.id < 0 || stmt.id >= static_cast<LocalId>(f_.locals.size()))
          return "sets an unknown local";
        return CheckTyped(stmt, 1, f_.locals[static_cast<size_t>(stmt.id)].type);
      case StmtKind::kStore:
        return CheckStore(stmt);
      case StmtKind::kSetSlot:
        if (stmt.id < 0) return "sets an unknown slot";
        return CheckTyped(stmt, 1, DataType::kI64);
      case StmtKind::kCheck:
        return CheckTyped(stmt, 1, DataType::kBool);
    }
    return "unknown kind";
  }

  std::string CheckTyped(const Stmt& stmt, size_t count, DataType type) {
    if (std::string defect = CheckArgs(stmt, count); !defect.empty()) return defect;
    for (const ExprId arg : stmt.args) {
      if (At(arg).type != type) {
        return fmt::format("argument is {}, takes {}", DataTypeName(At(arg).type),
                           DataTypeName(type));
      }
    }
    return "";
  }

  std::string CheckFor(const Stmt& stmt) {
    if (std::string defect = CheckTyped(stmt, 2, DataType::kI64); !defect.empty()) return defect;
    if (!stmt.otherwise.empty()) return "a loop has no otherwise";
    if (std::string defect = Define(stmt.id, DataType::kI64); !defect.empty()) return defect;
    if (std::string defect = CheckBody(stmt.body); !defect.empty()) return defect;
    var_type_[static_cast<size_t>(stmt.id)] = DataType::kUndefined;
    return "";
  }

  std::string CheckStore(const Stmt& stmt) {
    if (stmt.id < 0 || stmt.id >= static_cast<BufferId>(f_.buffers.size()))
      return "stores to an unknown buffer";
    const Buffer& buffer = f_.buffers[static_cast<size_t>(stmt.id)];
    if (buffer.role == BufferRole::kInput) return fmt::format("stores to input `{}`", buffer.name);
    if (std::string defect = CheckArgs(stmt, 1 + buffer.dims.size()); !defect.empty()) {
      return fmt::format("store to `{}`: {}", buffer.name, defect);
    }
    if (At(stmt.args[0]).type != buffer.dtype) {
      return fmt::format("stores {} to `{}` of {}", DataTypeName(At(stmt.args[0]).type),
                         buffer.name, DataTypeName(buffer.dtype));
    }
    for (size_t i = 1; i < stmt.args.size(); ++i) {
      if (At(stmt.args[i]).type != DataType::kI64)
        return fmt::format("store to `{}`: an index is i64", buffer.name);
    }
    return "";
  }

  LocalUses UsesOf(const std::vector<StmtId>& body) {
    LocalUses uses{std::vector<bool>(f_.locals.size()), std::vector<bool>(f_.locals.size()),
                   std::vector<int>(f_.locals.size())};
    std::vector<bool> certain(f_.locals.size());
    AddUses(body, certain, uses);
    return uses;
  }

  // `certain`: locals that every path to this point has assigned.
  void AddUses(const std::vector<StmtId>& body, std::vector<bool>& certain, LocalUses& uses) {
    for (const StmtId id : body) {
      const Stmt& stmt = StmtAt(id);
      std::ignore = Walk(stmt.args, [&](const Expr& e) -> std::string {
        if (e.kind == ExprKind::kLocal) {
          ++uses.reads[static_cast<size_t>(e.id)];
          if (!certain[static_cast<size_t>(e.id)])
            uses.read_first[static_cast<size_t>(e.id)] = true;
        }
        return "";
      });
      if (stmt.kind == StmtKind::kSet) {
        uses.set[static_cast<size_t>(stmt.id)] = true;
        certain[static_cast<size_t>(stmt.id)] = true;
      }
      if (stmt.body.empty() && stmt.otherwise.empty()) continue;
      std::vector<bool> then = certain;
      std::vector<bool> otherwise = certain;
      AddUses(stmt.body, then, uses);
      AddUses(stmt.otherwise, otherwise, uses);
      if (stmt.kind != StmtKind::kIf) continue;
      for (size_t i = 0; i < certain.size(); ++i) certain[i] = then[i] && otherwise[i];
    }
  }

  std::string CheckMarks(const std::vector<StmtId>& body) {
    for (const StmtId id : body) {
      const Stmt& stmt = StmtAt(id);
      const bool marked = stmt.kind == StmtKind::kFor && stmt.mark != LoopMark::kSerial;
      if (marked) {
        if (std::string defect = CheckMark(stmt); !defect.empty()) {
          return fmt::format("statement {}: {} loop over `{}`: {}", id,
                             stmt.mark == LoopMark::kReduce ? "reduce" : "parallel",
                             VarName(stmt.id), defect);
        }
      }
      if (std::string defect = CheckMarks(stmt.body); !defect.empty()) return defect;
      if (std::string defect = CheckMarks(stmt.otherwise); !defect.empty()) return defect;
    }
    return "";
  }

  std::string CheckMark(const Stmt& loop) {
    std::set<LocalId> reduced;
    for (const Reduction& reduction : loop.reductions) {
      if (reduction.local < 0 || reduction.local >= static_cast<LocalId>(f_.locals.size()))
        return "unknown local";
      if (!IsReduction(reduction.op))
        return fmt::format("`{}` is not a reduction", Name(reduction.op));
      if (!reduced.insert(reduction.local).second) return "a local is reduced twice";
    }
    if (loop.mark == LoopMark::kReduce && reduced.empty()) return "has no reductions";
    if (std::string defect = CheckEffects(loop, loop.body); !defect.empty()) return defect;
    const LocalUses uses = UsesOf(loop.body);
    for (size_t i = 0; i < f_.locals.size(); ++i) {
      if (!uses.set[i] || reduced.contains(static_cast<LocalId>(i))) continue;
      if (uses.read_first[i])
        return fmt::format("local `{}` is read before it is set", f_.locals[i].name);
      if (uses.reads[i] != total_.reads[i])
        return fmt::format("local `{}` is read outside", f_.locals[i].name);
    }
    return "";
  }

  static bool IsReduction(BinaryOp op) {
    return op == BinaryOp::kAdd || op == BinaryOp::kMul || op == BinaryOp::kMin ||
           op == BinaryOp::kMax || op == BinaryOp::kAnd || op == BinaryOp::kOr;
  }

  static const Reduction* Find(const Stmt& loop, LocalId local) {
    for (const Reduction& reduction : loop.reductions) {
      if (reduction.local == local) return &reduction;
    }
    return nullptr;
  }

  // No effects but those the mark allows; reduced locals only in `local = local (op) value`.
  std::string CheckEffects(const Stmt& loop, const std::vector<StmtId>& body) {
    for (const StmtId id : body) {
      const Stmt& stmt = StmtAt(id);
      if (stmt.kind == StmtKind::kSetSlot) return "sets a slot";
      if (stmt.kind == StmtKind::kStore && loop.mark == LoopMark::kReduce) return "stores";
      std::vector<ExprId> roots = stmt.args;
      if (const Reduction* reduction =
              stmt.kind == StmtKind::kSet ? Find(loop, stmt.id) : nullptr) {
        const Expr& value = At(stmt.args[0]);
        const auto self = [&](size_t side) {
          const Expr& arg = At(value.args[side]);
          return arg.kind == ExprKind::kLocal && arg.id == stmt.id;
        };
        const bool fits = value.kind == ExprKind::kBinary && value.binary == reduction->op;
        if (!fits || (!self(0) && !self(1))) {
          return fmt::format("local `{0}` is not updated as `{0} = {0} {1} value`",
                             LocalName(stmt.id), Name(reduction->op));
        }
        roots = {value.args[self(0) ? 1 : 0]};
      }
      std::string defect = Walk(roots, [&](const Expr& e) -> std::string {
        if (e.kind != ExprKind::kLocal || Find(loop, e.id) == nullptr) return "";
        return fmt::format("reduced local `{}` is read", LocalName(e.id));
      });
      if (!defect.empty()) return defect;
      if (std::string inner = CheckEffects(loop, stmt.body); !inner.empty()) return inner;
      if (std::string inner = CheckEffects(loop, stmt.otherwise); !inner.empty()) return inner;
    }
    return "";
  }

  std::string LocalName(LocalId id) const { return f_.locals[static_cast<size_t>(id)].name; }

  const Function& f_;
  std::vector<int> seen_expr_;
  int epoch_ = 0;
  std::vector<bool> seen_stmt_;
  std::vector<DataType> var_type_;  // of the variables in scope
  LocalUses total_;
};

}  // namespace

std::string Verify(const Function& function) { return FunctionVerifier(function).Run(); }

std::string Verify(const ScalarFunction& function) {
  for (const DataType type : function.param_types) {
    if (!IsCompute(type)) return fmt::format("param of {}", DataTypeName(type));
  }
  if (function.result < 0 || function.result >= static_cast<ExprId>(function.exprs.size()))
    return "unknown result";
  return ExprVerifier(function.exprs, nullptr, &function).Run();
}

}  // namespace quench::loops
