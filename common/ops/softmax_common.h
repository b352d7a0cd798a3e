// Code shared by Softmax, LogSoftmax and Hardmax.
#pragma once

#include <functional>

#include "common/ops/nest.h"

namespace quench::ops {

// Float input, valid `axis`, output like the input.
absl::Status InferAlongAxis(InferContext& ctx);

// One vector along the attribute `axis`.
struct AxisVector {
  Builder& b;
  E size;
  DataType type;                    // compute type
  std::function<E(E)> load;         // element k
  std::function<void(E, E)> store;  // output element k = value
  B scratch;                        // [size] of the compute type, this vector's own; on request
};

// Calls `body` for every vector along the axis, in parallel.
void ForEachVector(LowerContext& ctx, bool scratch,
                   const std::function<void(const AxisVector&)>& body);

OpDef AlongAxisDef(const std::string& name, const std::string& summary,
                   absl::Status (*lower)(LowerContext&));

}  // namespace quench::ops
