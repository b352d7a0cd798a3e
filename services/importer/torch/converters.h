// The functions named by rows of aten_ops.def: one for each way an operator is converted.
#pragma once

#include "services/importer/torch/convert.h"

namespace quench::importer::torch_ops {

#define QUENCH_TORCH_OP(domain, name, canonical, converter, outputs, arguments) \
  absl::Status converter(Converter& c);
#include "services/importer/torch/aten_ops.def"
#undef QUENCH_TORCH_OP

// Helpers for several families.
std::vector<int64_t> Counted(int64_t count);  // 0, 1, ...
ValueId Joined(AtenNode& n, const std::vector<ValueId>& parts, int64_t axis);
// Sizes [begin, end) of the value's shape.
ValueId SizesBetween(AtenNode& n, ValueId id, int64_t begin, int64_t end);
ValueId Broadcast(AtenNode& n, ValueId id, ValueId shape);
// a / b rounded towards minus infinity, also for integers.
ValueId FloorQuotient(AtenNode& n, ValueId a, ValueId b, DataType dtype);
// The angle of the point (x, y) from the x axis: atan2.
ValueId AngleOf(AtenNode& n, ValueId y, ValueId x);
ValueId MatMul(AtenNode& n, ValueId a, ValueId b);
// x * weight^T + bias.
ValueId LinearOf(AtenNode& n, ValueId x, ValueId weight, ValueId bias);

}  // namespace quench::importer::torch_ops
