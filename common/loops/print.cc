// Pseudo-code of loops IR:
//
//   function matmul
//     input x: f32[4, 8]
//     input w: f32[8, s0]
//     output y: f32[4, s0]
//     parallel m in 0 .. 4
//       parallel n in 0 .. s0
//         acc := 0
//         reduce(acc +) k in 0 .. 8
//           acc := acc + x[m, k] * w[k, n]
//         y[m, n] = acc
//
// A constant that is not i64, f32 or bool carries its type (`1:i32`). Names used twice get a
// number. Large subexpressions that one statement uses more than once are printed before it, as `%7
// = ...`.
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/loops/loops.h"

namespace quench::loops {
namespace {

// Operations a subexpression may have and still be printed at every use.
constexpr int kSharedSize = 6;

// Binding strength of the infix operators; 0: printed as a call.
int Precedence(BinaryOp op) {
  switch (op) {
    case BinaryOp::kMul:
    case BinaryOp::kDiv:
    case BinaryOp::kRem:
      return 7;
    case BinaryOp::kAdd:
    case BinaryOp::kSub:
      return 6;
    case BinaryOp::kShl:
    case BinaryOp::kShr:
      return 5;
    case BinaryOp::kEq:
    case BinaryOp::kNe:
    case BinaryOp::kLt:
    case BinaryOp::kLe:
    case BinaryOp::kGt:
    case BinaryOp::kGe:
      return 4;
    case BinaryOp::kAnd:
      return 3;
    case BinaryOp::kXor:
      return 2;
    case BinaryOp::kOr:
      return 1;
    default:
      return 0;
  }
}

class Printer {
 public:
  explicit Printer(const std::vector<Expr>& exprs) : exprs_(exprs), size_(exprs.size()) {
    for (size_t i = 0; i < exprs.size(); ++i) {
      int64_t size = exprs[i].args.empty() ? 0 : 1;
      for (const ExprId arg : exprs[i].args) size += size_[static_cast<size_t>(arg)];
      size_[i] = std::min<int64_t>(size, kSharedSize + 1);
    }
  }

  std::string Print(const Function& f) {
    f_ = &f;
    for (const std::string& name : f.vars) vars_.push_back(Unique(name));
    for (const Local& local : f.locals) locals_.push_back(Unique(local.name));
    Line(0, fmt::format("function {}", f.name));
    for (const Buffer& buffer : f.buffers) PrintBuffer(buffer);
    Body(f.body, 1);
    return std::move(text_);
  }

  std::string Print(const ScalarFunction& f) {
    std::string params;
    for (size_t i = 0; i < f.param_types.size(); ++i) {
      params += fmt::format("{}p{}: {}", i == 0 ? "" : ", ", i, DataTypeName(f.param_types[i]));
    }
    Line(0, fmt::format("scalar ({})", params));
    Shared({f.result}, 1);
    Line(1, Text(f.result));
    return std::move(text_);
  }

 private:
  const Expr& At(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }

  void Line(int depth, const std::string& line) {
    text_ += std::string(static_cast<size_t>(depth) * 2, ' ') + line + "\n";
  }

  std::string Unique(const std::string& name) {
    std::string unique = name;
    for (int i = 1; !names_.insert(unique).second; ++i) unique = fmt::format("{}_{}", name, i);
    return unique;
  }

  std::string List(const std::vector<ExprId>& ids, size_t from = 0) {
    std::string list;
    for (size_t i = from; i < ids.size(); ++i) list += (i == from ? "" : ", ") + Text(ids[i]);
    return list;
  }

  void PrintBuffer(const Buffer& buffer) {
    static constexpr std::string_view kRoles[] = {"input", "output", "scratch"};
    const bool iteration =
        buffer.role == BufferRole::kScratch && buffer.scope == ScratchScope::kIteration;
    Line(1, fmt::format("{} {}: {}[{}]{}", kRoles[static_cast<size_t>(buffer.role)], buffer.name,
                        DataTypeName(buffer.dtype), List(buffer.dims),
                        iteration ? " per iteration" : ""));
  }

  void Body(const std::vector<StmtId>& body, int depth) {
    for (const StmtId id : body) Statement(f_->stmts[static_cast<size_t>(id)], depth);
  }

  std::string LoopHead(const Stmt& stmt) {
    std::string head = stmt.mark == LoopMark::kParallel ? "parallel" : "for";
    if (stmt.mark == LoopMark::kReduce) {
      head = "reduce(";
      for (size_t i = 0; i < stmt.reductions.size(); ++i) {
        head += fmt::format("{}{} {}", i == 0 ? "" : ", ", LocalName(stmt.reductions[i].local),
                            Name(stmt.reductions[i].op));
      }
      head += ")";
    }
    return fmt::format("{} {} in {} .. {}", head, VarName(stmt.id), Text(stmt.args[0]),
                       Text(stmt.args[1]));
  }

  void Statement(const Stmt& stmt, int depth) {
    Shared(stmt.args, depth);
    switch (stmt.kind) {
      case StmtKind::kFor:
        Line(depth, LoopHead(stmt));
        break;
      case StmtKind::kWhile:
        Line(depth, "while " + Text(stmt.args[0]));
        break;
      case StmtKind::kIf:
        Line(depth, "if " + Text(stmt.args[0]));
        break;
      case StmtKind::kLet:
        Line(depth, fmt::format("let {} = {}", VarName(stmt.id), Text(stmt.args[0])));
        break;
      case StmtKind::kSet:
        Line(depth, fmt::format("{} := {}", LocalName(stmt.id), Text(stmt.args[0])));
        break;
      case StmtKind::kStore:
        Line(depth, fmt::format("{}[{}] = {}", f_->buffers[static_cast<size_t>(stmt.id)].name,
                                List(stmt.args, 1), Text(stmt.args[0])));
        break;
      case StmtKind::kSetSlot:
        Line(depth, fmt::format("s{} := {}", stmt.id, Text(stmt.args[0])));
        break;
      case StmtKind::kCheck:
        Line(depth, fmt::format("check {} else \"{}\"", Text(stmt.args[0]), stmt.message));
        break;
    }
    named_.clear();
    Body(stmt.body, depth + 1);
    if (stmt.otherwise.empty()) return;
    Line(depth, "else");
    Body(stmt.otherwise, depth + 1);
  }

  // Prints the large shared subexpressions under `roots`, arguments first, and remembers their
  // names.
  void Shared(const std::vector<ExprId>& roots, int depth) {
    std::map<ExprId, int> uses;  // ascending ids: arguments before their users
    std::vector<ExprId> stack;
    const auto use = [&](ExprId id) {
      if (++uses[id] == 1) stack.push_back(id);
    };
    for (const ExprId root : roots) use(root);
    while (!stack.empty()) {
      const ExprId id = stack.back();
      stack.pop_back();
      for (const ExprId arg : At(id).args) use(arg);
    }
    for (const auto& [id, count] : uses) {
      if (count < 2 || size_[static_cast<size_t>(id)] <= kSharedSize) continue;
      Line(depth, fmt::format("%{} = {}", id, Text(id)));
      named_[id] = fmt::format("%{}", id);
    }
  }

  std::string VarName(VarId id) const { return vars_[static_cast<size_t>(id)]; }
  std::string LocalName(LocalId id) const { return locals_[static_cast<size_t>(id)]; }

  static std::string Typed(const Expr& e, std::string value) {
    if (e.type == DataType::kI64 || e.type == DataType::kF32) return value;
    return fmt::format("{}:{}", value, DataTypeName(e.type));
  }

  static std::string Constant(const Expr& e) {
    if (e.type == DataType::kBool) return e.i != 0 ? "true" : "false";
    if (e.kind == ExprKind::kFloat) {
      return Typed(e, e.type == DataType::kF32 ? fmt::format("{}", static_cast<float>(e.f))
                                               : fmt::format("{}", e.f));
    }
    if (e.type == DataType::kU64) return Typed(e, fmt::format("{}", static_cast<uint64_t>(e.i)));
    return Typed(e, fmt::format("{}", e.i));
  }

  // `strength`: binding strength of the context; a weaker infix expression is put in parentheses.
  std::string Text(ExprId id, int strength = 0) {
    if (const auto it = named_.find(id); it != named_.end()) return it->second;
    const Expr& e = At(id);
    switch (e.kind) {
      case ExprKind::kInt:
      case ExprKind::kFloat:
        return Constant(e);
      case ExprKind::kVar:
        return VarName(e.id);
      case ExprKind::kLocal:
        return LocalName(e.id);
      case ExprKind::kSlot:
        return fmt::format("s{}", e.id);
      case ExprKind::kParam:
        return fmt::format("p{}", e.id);
      case ExprKind::kLoad:
        return fmt::format("{}[{}]", f_->buffers[static_cast<size_t>(e.id)].name, List(e.args));
      case ExprKind::kUnary:
        return fmt::format("{}({})", Name(e.unary), Text(e.args[0]));
      case ExprKind::kSelect:
        return fmt::format("select({})", List(e.args));
      case ExprKind::kCast:
        return fmt::format("{}({})", DataTypeName(e.type), Text(e.args[0]));
      case ExprKind::kBinary:
        break;
    }
    const int own = Precedence(e.binary);
    if (own == 0) return fmt::format("{}({})", Name(e.binary), List(e.args));
    const std::string infix =
        fmt::format("{} {} {}", Text(e.args[0], own), Name(e.binary), Text(e.args[1], own + 1));
    return own < strength ? fmt::format("({})", infix) : infix;
  }

  const std::vector<Expr>& exprs_;
  const Function* f_ = nullptr;
  std::vector<int64_t> size_;  // operations in the expanded tree, capped
  std::set<std::string> names_;
  std::vector<std::string> vars_;
  std::vector<std::string> locals_;
  std::map<ExprId, std::string> named_;
  std::string text_;
};

}  // namespace

std::string Print(const Function& function) { return Printer(function.exprs).Print(function); }

std::string Print(const ScalarFunction& function) {
  return Printer(function.exprs).Print(function);
}

}  // namespace quench::loops
