// Declares the definition function of every operator in ops.def.
#pragma once

#include "common/ops/op.h"

namespace quench::ops {

#define QUENCH_OP(name) const OpDef& name##Op();
#include "common/ops/ops.def"
#undef QUENCH_OP

}  // namespace quench::ops
