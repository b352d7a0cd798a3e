#include "common/loops/interpreter.h"

#include <cstdlib>
#include <map>
#include <memory>

#include "common/base/status.h"
#include "common/loops/compile_program.h"
#include "common/loops/fold.h"
#include "common/loops/run.h"

namespace quench::loops {
namespace {

constexpr int64_t kScratchLimit = int64_t{4} << 30;

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, FreeMemory>;

// Evaluates size expressions: constants, slots and integer arithmetic.
class ExtentEvaluator {
 public:
  ExtentEvaluator(const Function& function, std::span<const int64_t> slots)
      : f_(function), slots_(slots) {}

  absl::StatusOr<int64_t> Of(ExprId id, int depth = 0) {
    constexpr int kMaxDepth = 1000;
    if (depth > kMaxDepth)
      return absl::ResourceExhaustedError("a size expression is nested too deep");
    if (const auto it = memo_.find(id); it != memo_.end()) return it->second;
    const Expr& e = f_.exprs[static_cast<size_t>(id)];
    std::vector<int64_t> args;
    for (const ExprId arg : e.args) {
      QUENCH_ASSIGN_OR_RETURN(const int64_t value, Of(arg, depth + 1));
      args.push_back(value);
    }
    QUENCH_ASSIGN_OR_RETURN(const int64_t value, Apply(e, args));
    memo_[id] = value;
    return value;
  }

 private:
  absl::StatusOr<int64_t> Apply(const Expr& e, const std::vector<int64_t>& args) const {
    switch (e.kind) {
      case ExprKind::kInt:
        return e.i;
      case ExprKind::kSlot:
        if (static_cast<size_t>(e.id) < slots_.size()) return slots_[static_cast<size_t>(e.id)];
        return Internal("`{}`: slot {} is read, {} were given", f_.name, e.id, slots_.size());
      case ExprKind::kBinary:
        if (IsFloat(f_.exprs[static_cast<size_t>(e.args[0])].type)) break;
        return FoldInteger(e.binary, f_.exprs[static_cast<size_t>(e.args[0])].type, args[0],
                           args[1]);
      case ExprKind::kSelect:
        return args[0] != 0 ? args[1] : args[2];
      case ExprKind::kCast:
        if (IsFloat(e.type) || IsFloat(f_.exprs[static_cast<size_t>(e.args[0])].type)) break;
        return WrapInteger(e.type, args[0]);
      case ExprKind::kUnary:
        if (e.unary == UnaryOp::kNeg) return WrapInteger(e.type, scalar::Neg(args[0]));
        if (e.unary == UnaryOp::kAbs) return WrapInteger(e.type, scalar::Abs(args[0]));
        if (e.unary == UnaryOp::kNot && e.type == DataType::kBool) return args[0] == 0 ? 1 : 0;
        break;
      default:
        break;
    }
    return Internal("`{}`: a size is not integer arithmetic on constants and slots", f_.name);
  }

  const Function& f_;
  std::span<const int64_t> slots_;
  std::map<ExprId, int64_t> memo_;
};

// Sizes, strides and memory of every buffer.
class Binding {
 public:
  explicit Binding(const Function& function) : f_(function) {}

  absl::Status Bind(std::span<const BufferView> parameters, std::span<const int64_t> slots) {
    ExtentEvaluator extents(f_, slots);
    size_t next = 0;
    for (const Buffer& buffer : f_.buffers) {
      if (!IsRunnable(buffer.dtype)) {
        return Unsupported("`{}`: buffer `{}` is {}, which the interpreter does not run", f_.name,
                           buffer.name, DataTypeName(buffer.dtype));
      }
      Shape shape;
      for (const ExprId dim : buffer.dims) {
        QUENCH_ASSIGN_OR_RETURN(const int64_t size, extents.Of(dim));
        shape.dims.push_back(size);
      }
      const bool scratch = buffer.role == BufferRole::kScratch;
      if (!scratch && next == parameters.size()) return WrongCount(parameters.size());
      QUENCH_RETURN_IF_ERROR(scratch ? AddScratch(buffer, shape)
                                     : AddParameter(buffer, shape, parameters[next++]));
      shapes_.push_back(std::move(shape));
    }
    if (next != parameters.size()) return WrongCount(parameters.size());
    return absl::OkStatus();
  }

  const std::vector<Shape>& shapes() const { return shapes_; }
  const std::vector<std::byte*>& memory() const { return memory_; }

 private:
  absl::Status WrongCount(size_t given) const {
    size_t takes = 0;
    for (const Buffer& buffer : f_.buffers) takes += buffer.role == BufferRole::kScratch ? 0 : 1;
    return Internal("`{}`: {} buffers given, takes {}", f_.name, given, takes);
  }

  // Fills in the strides; the number of elements (0 when a dim is 0 or negative), or an error when
  // it overflows.
  absl::StatusOr<int64_t> Measure(const Buffer& buffer, Shape& shape) const {
    int64_t count = 1;
    bool empty = false;
    shape.strides.assign(shape.dims.size(), 0);
    for (size_t d = shape.dims.size(); d-- > 0;) {
      shape.dims[d] = std::max<int64_t>(shape.dims[d], 0);
      shape.strides[d] = count;
      empty = empty || shape.dims[d] == 0;
      if (__builtin_mul_overflow(count, std::max<int64_t>(shape.dims[d], 1), &count) ||
          count > (int64_t{1} << 56)) {
        return absl::ResourceExhaustedError(fmt::format(
            "`{}`: buffer `{}` has too many elements to address", f_.name, buffer.name));
      }
    }
    return empty ? 0 : count;
  }

  absl::Status AddParameter(const Buffer& buffer, Shape& shape, const BufferView& view) {
    if (view.dims != shape.dims) {
      return Internal("`{}`: buffer `{}` has dims [{}], takes [{}]", f_.name, buffer.name,
                      fmt::join(view.dims, ", "), fmt::join(shape.dims, ", "));
    }
    QUENCH_ASSIGN_OR_RETURN(const int64_t count, Measure(buffer, shape));
    if (count > 0 && view.data == nullptr)
      return Internal("`{}`: buffer `{}` has no memory", f_.name, buffer.name);
    memory_.push_back(view.data);
    return absl::OkStatus();
  }

  absl::Status AddScratch(const Buffer& buffer, Shape& shape) {
    QUENCH_ASSIGN_OR_RETURN(const int64_t count, Measure(buffer, shape));
    const int64_t bytes = DataTypeBytes(buffer.dtype, count);
    scratch_bytes_ += bytes;
    if (scratch_bytes_ > kScratchLimit) {
      return absl::ResourceExhaustedError(
          fmt::format("`{}`: scratch takes {} bytes with buffer `{}`, at most {} are allowed",
                      f_.name, scratch_bytes_, buffer.name, kScratchLimit));
    }
    scratch_.emplace_back(
        static_cast<std::byte*>(std::calloc(static_cast<size_t>(std::max<int64_t>(bytes, 1)), 1)));
    if (scratch_.back() == nullptr) {
      return absl::ResourceExhaustedError(
          fmt::format("`{}`: no memory for {} bytes of scratch", f_.name, bytes));
    }
    memory_.push_back(scratch_.back().get());
    return absl::OkStatus();
  }

  const Function& f_;
  std::vector<Shape> shapes_;
  std::vector<std::byte*> memory_;
  std::vector<Memory> scratch_;
  int64_t scratch_bytes_ = 0;
};

absl::Status CheckTypesAndSlots(const Function& function, size_t slots) {
  for (const Expr& e : function.exprs) {
    if (!IsRunnable(e.type)) {
      return Unsupported("`{}`: {} arithmetic is not run by the interpreter", function.name,
                         DataTypeName(e.type));
    }
    if (e.kind == ExprKind::kSlot && static_cast<size_t>(e.id) >= slots) {
      return Internal("`{}`: slot {} is read, {} were given", function.name, e.id, slots);
    }
  }
  for (const Stmt& stmt : function.stmts) {
    if (stmt.kind == StmtKind::kSetSlot && static_cast<size_t>(stmt.id) >= slots) {
      return Internal("`{}`: slot {} is set, {} were given", function.name, stmt.id, slots);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Interpret(const Function& function, std::span<const BufferView> parameters,
                       std::span<int64_t> slots, const StepContext& context,
                       const InterpretOptions& options) {
  QUENCH_RETURN_IF_ERROR(context.Check());
  QUENCH_RETURN_IF_ERROR(CheckTypesAndSlots(function, slots.size()));
  Binding binding(function);
  QUENCH_RETURN_IF_ERROR(binding.Bind(parameters, slots));
  QUENCH_ASSIGN_OR_RETURN(
      const Program program,
      CompileProgram(function, binding.memory(), binding.shapes(), slots, {options.lanes}));
  return RunProgram(program, function.name, slots, context);
}

absl::StatusOr<int64_t> EvaluateExtent(const Function& function, ExprId extent,
                                       std::span<const int64_t> slots) {
  return ExtentEvaluator(function, slots).Of(extent);
}

}  // namespace quench::loops
