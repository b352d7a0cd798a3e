// The reference nest: any node that lowers, one scalar operation after another, row-major.
#include "common/base/status.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/nests.h"

namespace quench::codegen {
namespace {

void ProposeReference(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (!LowersToNest(request)) return;
  Candidate candidate;
  candidate.inputs.resize(request.node.inputs.size());
  candidate.outputs.resize(request.node.outputs.size());
  candidate.packed.resize(request.node.inputs.size(), false);
  if (UpdatesFirstInput(request)) candidate.in_place = 0;
  candidate.cost = NestCost(request).scalar;
  candidate.reason = "accepts every node";
  candidate.slow = WhyNestIsSlow(request.node);
  candidates.push_back(std::move(candidate));
}

absl::StatusOr<Nest> ReferenceNest(const KernelRequest& request, const Candidate& candidate) {
  QUENCH_ASSIGN_OR_RETURN(loops::Function nest, LowerToNest(request));
  return Nest{std::move(nest), NestLayouts(request, candidate), /*vectorise=*/false};
}

}  // namespace

const Kernel& ReferenceKernel() {
  static const Kernel kernel = {
      .name = "reference", .gpu = true, .propose = ProposeReference, .nest = ReferenceNest};
  return kernel;
}

}  // namespace quench::codegen
