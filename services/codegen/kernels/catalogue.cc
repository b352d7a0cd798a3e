#include "services/codegen/kernels/catalogue.h"

#include <fmt/format.h>

#include <algorithm>

namespace quench::codegen {

std::span<const Kernel* const> AllKernels() {
  static const std::vector<const Kernel*> kKernels = {
#define QUENCH_KERNEL(Name) &Name##Kernel(),
#include "services/codegen/kernels/kernels.def"
#undef QUENCH_KERNEL
  };
  return kKernels;
}

std::string PackSpec::ToString() const {
  std::string text = transform;
  for (const auto& [name, value] : params) text += fmt::format(" {}={}", name, value);
  return text;
}

void Propose(const Kernel& kernel, const KernelRequest& request,
             std::vector<Candidate>& candidates) {
  size_t next = candidates.size();
  kernel.propose(request, candidates);
  for (; next < candidates.size(); ++next) {
    Candidate& candidate = candidates[next];
    candidate.kernel = &kernel;
    candidate.inputs.resize(request.node.inputs.size());
    candidate.outputs.resize(request.node.outputs.size());
    candidate.packed.resize(request.node.inputs.size(), false);
  }
}

bool MayFuse(const KernelRequest& request) {
  return std::none_of(request.node.inputs.begin(), request.node.inputs.end(), [&](ValueId id) {
    if (id == quench::kNone) return false;
    const Value& value = request.graph.value(id);
    return value.constant == nullptr && value.type.kind == ValueKind::kTensor &&
           (value.type.dtype == DataType::kI8 || value.type.dtype == DataType::kU8);
  });
}

}  // namespace quench::codegen
