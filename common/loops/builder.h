// Builds loops IR with ordinary C++ expressions:
//
//   E acc = b.Reduce(BinaryOp::kAdd, b.F(0, kF32), K, [&](E k) { return x.At({m, k}) * w.At({k,
//   n}); }); b.Store(y, {m, n}, acc);
//
// E is a handle {builder, expression id}; operators append expressions. Mixed operand types are the
// caller's error (CHECK), except that integer literals take the type of the other operand, and that
// operands of a storage float type (f16, bf16, f8, f4) are widened to f32 first.
//
// Constant integer subexpressions are folded and neutral operands dropped, so extents stay
// readable; equal expressions get one id. An expression is evaluated where a statement uses it: a
// local's Get() kept across a Set gives the new value, and an At() the contents of that moment. Let
// pins a value.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/loops/loops.h"

namespace quench::loops {

class Builder;

class E {
 public:
  E() = default;
  E(Builder* builder, ExprId id) : builder_(builder), id_(id) {}
  bool valid() const { return id_ != kNone; }
  ExprId id() const { return id_; }
  Builder* builder() const { return builder_; }
  DataType type() const;

 private:
  Builder* builder_ = nullptr;
  ExprId id_ = kNone;
};

E operator+(E a, E b);
E operator-(E a, E b);
E operator*(E a, E b);
E operator/(E a, E b);  // truncating on integers
E operator%(E a, E b);
E operator-(E a);
E operator+(E a, int64_t b);
E operator-(E a, int64_t b);
E operator*(E a, int64_t b);
E operator/(E a, int64_t b);
E operator%(E a, int64_t b);
E operator<(E a, int64_t b);
E operator<=(E a, int64_t b);
E operator>(E a, int64_t b);
E operator>=(E a, int64_t b);
E operator==(E a, int64_t b);
E operator!=(E a, int64_t b);
E operator<(E a, E b);
E operator<=(E a, E b);
E operator>(E a, E b);
E operator>=(E a, E b);
E operator==(E a, E b);
E operator!=(E a, E b);
E operator&&(E a, E b);  // bool; both sides evaluated
E operator||(E a, E b);
E operator!(E a);
E Min(E a, E b);
E Max(E a, E b);
E FloorDiv(E a, E b);
E FloorMod(E a, E b);
E CeilDiv(E a, E b);
E Pow(E a, E b);
E Select(E condition, E then, E otherwise);
E Cast(E value, DataType type);
E Unary(UnaryOp op, E value);
E Binary(BinaryOp op, E a, E b);

// A buffer of the function being built.
class B {
 public:
  B() = default;
  B(Builder* builder, BufferId id) : builder_(builder), id_(id) {}
  bool valid() const { return id_ != kNone; }
  BufferId id() const { return id_; }
  int rank() const;
  DataType dtype() const;  // storage type
  E dim(int axis) const;   // axis may be negative
  // Load, widened to ComputeType(dtype()).
  E At(std::span<const E> indices) const;
  E At(std::initializer_list<E> indices) const {
    return At(std::span<const E>(indices.begin(), indices.size()));
  }

 private:
  Builder* builder_ = nullptr;
  BufferId id_ = kNone;
};

class Builder {
 public:
  explicit Builder(std::string name);
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  B Input(const std::string& name, DataType dtype, const std::vector<E>& dims);
  B Output(const std::string& name, DataType dtype, const std::vector<E>& dims);
  B Scratch(const std::string& name, DataType dtype, const std::vector<E>& dims,
            ScratchScope scope);

  E I(int64_t value);                   // i64 constant
  E Int(int64_t value, DataType type);  // wrapped to the type's range; bool: != 0
  E F(double value,
      DataType type);  // constant of ComputeType(type): float, or an integer (truncated, saturated)
  E Bool(bool value) { return Int(value ? 1 : 0, DataType::kBool); }
  E Slot(int32_t symbol);
  E Param(int index, DataType type);

  // Binds an expression to a name so that it is computed once, here. Constants, variables, slots
  // and params are returned as they are. If the value is a storage float, its widened value is
  // bound.
  E Let(E value, const std::string& name = "t");

  // A mutable scalar of ComputeType(init.type()), set to `init` here.
  class LocalRef {
   public:
    E Get() const;
    void Set(E value) const;
    LocalId id() const { return id_; }
    LocalRef() = default;
    LocalRef(Builder* builder, LocalId id) : builder_(builder), id_(id) {}

   private:
    Builder* builder_ = nullptr;
    LocalId id_ = kNone;
  };
  LocalRef Local(E init, const std::string& name = "v");

  void For(E begin, E end, const std::function<void(E)>& body, const std::string& name = "i");
  void For(E end, const std::function<void(E)>& body, const std::string& name = "i") {
    For(I(0), end, body, name);
  }
  void ParallelFor(E end, const std::function<void(E)>& body, const std::string& name = "i");
  // Nested parallel loops over all indices of `dims`.
  void ParallelForAll(std::span<const E> dims, const std::function<void(std::span<const E>)>& body);
  // init (op) value(0) (op) value(1) ...; nothing but the reduction happens inside.
  E Reduce(BinaryOp op, E init, E begin, E end, const std::function<E(E)>& value,
           const std::string& name = "k");
  E Reduce(BinaryOp op, E init, E end, const std::function<E(E)>& value,
           const std::string& name = "k") {
    return Reduce(op, init, I(0), end, value, name);
  }
  // Nested reduction over all indices of `dims` into one accumulator.
  E ReduceAll(BinaryOp op, E init, std::span<const E> dims,
              const std::function<E(std::span<const E>)>& value);
  // `condition` is evaluated before every iteration; its callback must not add statements.
  void While(const std::function<E()>& condition, const std::function<void()>& body);
  // A constant condition leaves only the statements of its branch.
  void If(E condition, const std::function<void()>& then,
          const std::function<void()>& otherwise = {});

  // `value` is cast to the buffer's storage type.
  void Store(B buffer, std::span<const E> indices, E value);
  void Store(B buffer, std::initializer_list<E> indices, E value) {
    Store(buffer, std::span<const E>(indices.begin(), indices.size()), value);
  }
  void SetSlot(int32_t symbol, E value);
  void Check(E condition, const std::string& message);

  const Function& function() const { return function_; }
  // Ends building. CHECKs Verify().
  Function Finish();
  // The expressions reachable from `result` as a scalar function. The builder's only statements may
  // be Lets: their values are inlined.
  ScalarFunction FinishScalar(E result, std::vector<DataType> param_types);

  ExprId AddExpr(Expr expr);
  const Expr& expr(ExprId id) const { return function_.exprs[static_cast<size_t>(id)]; }

 private:
  StmtId AddStmt(Stmt stmt);  // appends to the innermost open body
  std::vector<StmtId> Nested(const std::function<void()>& fill);

  BufferId AddBuffer(const std::string& name, DataType dtype, BufferRole role, ScratchScope scope,
                     const std::vector<E>& dims);
  void Loop(LoopMark mark, std::vector<Reduction> reductions, E begin, E end,
            const std::function<void(E)>& body, const std::string& name);

  Function function_;
  std::vector<std::vector<StmtId>> open_;
  std::vector<DataType> var_types_;                     // by VarId
  std::unordered_multimap<uint64_t, ExprId> interned_;  // hash of an Expr -> its id
};

// Inlines a scalar function: its value with `operands` in place of the parameters.
E Apply(Builder& builder, const ScalarFunction& function, std::span<const E> operands);

// An existing or simpler expression equal to `op(a, b)`, or nothing. Integers and bools only: float
// arithmetic keeps the order and the roundings that were written.
std::optional<E> Simplify(BinaryOp op, E a, E b);

}  // namespace quench::loops
