// Code shared by the Reduce* and Arg* operators.
#pragma once

#include <functional>

#include "common/ops/nest.h"

namespace quench::ops {

// Types of a Reduce* operator. `fold` combines known contents of rank 1 (shape arithmetic); null:
// none do.
absl::Status InferReduce(InferContext& ctx, DataTypes allowed,
                         Dim (*fold)(SymbolTable&, Dim, Dim) = nullptr);

// One output element of a reduction: its position, the sizes of the reduced axes and the elements
// under them.
struct ReducedElement {
  Builder& b;
  std::vector<E> extents;
  std::function<E(std::span<const E>)>
      at;  // element for indices of the reduced axes, in the compute type

  // init (op) element(at(...)) (op) ...
  E Combine(BinaryOp op, E init, const std::function<E(E)>& element = {}) const;
  E Sum(const std::function<E(E)>& element = {}) const;
  // Number of elements, in the compute type.
  E Count() const;
  DataType type = DataType::kF32;
};

// Output 0 at every position = value(elements there).
absl::Status LowerReduce(LowerContext& ctx, const std::function<E(const ReducedElement&)>& value);

// The definition all Reduce* operators have in common.
OpDef ReduceDef(const std::string& name, const std::string& summary,
                absl::Status (*infer)(InferContext&), absl::Status (*lower)(LowerContext&));

// ArgMax and ArgMin: the first (or last) place of the largest or smallest element along one axis.
OpDef ArgDef(const std::string& name, const std::string& summary,
             absl::Status (*lower)(LowerContext&));
absl::Status LowerArg(LowerContext& ctx, BinaryOp op);

}  // namespace quench::ops
