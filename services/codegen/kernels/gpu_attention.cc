// q.attention on GPUs, in tiles (gpu_attention_plan.h): scores never leave the block.
#include <fmt/format.h>

#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/gpu_attention_tile.h"

namespace quench::codegen {
namespace {

absl::Status EmitGpuAttention(VectorBuilder& b, const Planned<GpuAttentionPlan>& attention) {
  const GpuAttentionPlan& plan = attention.plan;
  absl::Status status;
  const auto emit = [&](const GpuAttentionTile& tile) {
    status.Update(EmitGpuAttentionTile(b, attention, tile));
  };
  if (!plan.many || !plan.few) {
    emit(plan.many ? *plan.many : *plan.few);
    return status;
  }
  const Int rows = b.Size(plan.shape.steps) * plan.sharing();
  b.If(rows <= b.I(plan.few->rows), [&] { emit(*plan.few); }, [&] { emit(*plan.many); });
  return status;
}

std::string TextOf(const GpuAttentionTile& tile) {
  const std::string parts = tile.parts == 1 ? "" : fmt::format(" in {} parts", tile.parts);
  return fmt::format("{} queries, {} keys{}", tile.rows, tile.keys, parts);
}

std::string ReasonOf(const GpuAttentionPlan& plan) {
  std::string text = "f32";
  if (plan.products) {
    text = fmt::format("{} in tensor cores",
                       EnumNames<WarpProducts>::kNames[static_cast<size_t>(*plan.products)]);
  }
  if (plan.many) text += ", blocks of " + TextOf(*plan.many);
  if (plan.few) text += (plan.many ? ", or " : ", blocks of ") + TextOf(*plan.few);
  return text;
}

void ProposeGpuAttention(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2) return;
  const std::optional<Group> group = ReadGroup(request, -1);
  if (!group || group->root->op != "q.attention") return;
  const std::optional<GpuAttentionPlan> plan = PlanGpuAttention(request, *group);
  if (!plan) return;
  CandidateBuilder builder(request, *group, {});
  builder.SetCode<EmitGpuAttention>(*plan);
  Candidate& candidate = builder.candidate();
  candidate.block_threads = static_cast<int>(plan->threads);
  candidate.shared_bytes = plan->shared_bytes();
  candidate.in_place = -1;
  candidate.cost = GpuAttentionCost(request, *plan);
  candidate.reason = ReasonOf(*plan);
  candidates.push_back(std::move(candidate));
}

}  // namespace

const Kernel& GpuAttentionKernel() {
  static const Kernel kKernel{.name = "gpu_attention",
                              .cpu = false,
                              .gpu = true,
                              .propose = ProposeGpuAttention,
                              .reread = Reread<GpuAttentionPlan>};
  return kKernel;
}

}  // namespace quench::codegen
