// Declarations of the kernels in kernels.def.
#pragma once

#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

#define QUENCH_KERNEL(Name) const Kernel& Name##Kernel();
#include "services/codegen/kernels/kernels.def"
#undef QUENCH_KERNEL

}  // namespace quench::codegen
