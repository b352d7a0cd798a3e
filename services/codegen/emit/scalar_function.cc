#include "common/base/status.h"
#include "services/codegen/emit/arith.h"

namespace quench::codegen {
namespace {

using loops::Expr;
using loops::ExprKind;

// Evaluates the expressions of a scalar function in order: arguments have smaller ids than what
// uses them.
class ScalarEmitter {
 public:
  ScalarEmitter(ModuleState& state, llvm::IRBuilder<>& b, const loops::ScalarFunction& function,
                std::span<llvm::Value* const> operands)
      : arith_(state, b), b_(b), function_(function), operands_(operands) {
    if (const auto* vector = operands.empty()
                                 ? nullptr
                                 : llvm::dyn_cast<llvm::FixedVectorType>(operands[0]->getType())) {
      lanes_ = vector->getNumElements();
    }
  }

  absl::StatusOr<llvm::Value*> Run() {
    for (const Expr& e : function_.exprs) {
      if (!IsSupported(e.type)) {
        return Unsupported("element type {} in generated code", DataTypeName(e.type));
      }
      values_.push_back(Emit(e));
    }
    return values_[static_cast<size_t>(function_.result)];
  }

 private:
  llvm::Value* Arg(const Expr& e, size_t i) { return values_[static_cast<size_t>(e.args[i])]; }
  DataType ArgType(const Expr& e, size_t i) {
    return function_.exprs[static_cast<size_t>(e.args[i])].type;
  }
  llvm::Value* Splat(llvm::Value* constant) {
    return lanes_ == 0 ? constant : b_.CreateVectorSplat(lanes_, constant);
  }

  llvm::Value* Emit(const Expr& e) {
    switch (e.kind) {
      case ExprKind::kInt:
        return Splat(arith_.IntConstant(e.type, e.i));
      case ExprKind::kFloat:
        return Splat(arith_.FloatConstant(e.type, e.f));
      case ExprKind::kParam:
        return operands_[static_cast<size_t>(e.id)];
      case ExprKind::kUnary:
        return arith_.Unary(e.unary, ArgType(e, 0), Arg(e, 0));
      case ExprKind::kBinary:
        return arith_.Binary(e.binary, ArgType(e, 0), Arg(e, 0), Arg(e, 1));
      case ExprKind::kSelect:
        return b_.CreateSelect(Arg(e, 0), Arg(e, 1), Arg(e, 2));
      case ExprKind::kCast:
        return arith_.Cast(ArgType(e, 0), e.type, Arg(e, 0));
      default:
        break;
    }
    QUENCH_CHECK(false);  // loops::Verify(ScalarFunction) excludes the rest
  }

  Arith arith_;
  llvm::IRBuilder<>& b_;
  const loops::ScalarFunction& function_;
  std::span<llvm::Value* const> operands_;
  std::vector<llvm::Value*> values_;
  unsigned lanes_ = 0;
};

}  // namespace

absl::StatusOr<llvm::Value*> EmitScalarFunction(ModuleState& state, llvm::IRBuilder<>& builder,
                                                const loops::ScalarFunction& function,
                                                std::span<llvm::Value* const> operands) {
  return ScalarEmitter(state, builder, function, operands).Run();
}

}  // namespace quench::codegen
