#include "services/codegen/kernels/catalogue.h"

namespace quench::codegen {

std::span<const Kernel* const> AllKernels() {
  static const std::vector<const Kernel*> kKernels = {
#define QUENCH_KERNEL(Name) &Name##Kernel(),
#include "services/codegen/kernels/kernels.def"
#undef QUENCH_KERNEL
  };
  return kKernels;
}

}  // namespace quench::codegen
