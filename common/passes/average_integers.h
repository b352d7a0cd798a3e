// A part of integer_arithmetic: averages between DequantizeLinear and QuantizeLinear.
#pragma once

#include "common/ir/graph.h"

namespace quench::passes {

//   DQ(x) -> AveragePool, GlobalAveragePool or ReduceMean over all that is spatial -> QuantizeLinear
//     ==>   x -> q.average_pool
// where scales are known and sums fit i32, whatever the input. Leaves nodes behind that nobody reads.
void AverageIntegers(Graph& graph);

}  // namespace quench::passes
