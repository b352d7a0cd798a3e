#include "services/codegen/schedule/plan_nest.h"

#include "common/base/status.h"
#include "services/codegen/schedule/make_schedule.h"
#include "services/codegen/schedule/schedule.h"
#include "services/codegen/schedule/scratch.h"
#include "services/codegen/schedule/shared_loops.h"

namespace quench::codegen {

absl::StatusOr<KernelPlan> PlanNest(const Nest& nest, SymbolTable& symbols, const Target& target) {
  absl::StatusOr<Schedule> schedule =
      MakeSchedule(nest.function, nest.layouts, symbols, target, nest.vectorise);
  const auto annotated = [&](const absl::Status& status) {
    return Annotate(status, fmt::format("loops `{}`", nest.function.name));
  };
  if (!schedule.ok()) return annotated(schedule.status());
  int64_t stack_bytes = target.gpu.has_value() ? kDeviceStackBytes : kStackScratchBytes;
  if (schedule->task_threads > 1) stack_bytes = -1;  // a thread's own
  const absl::StatusOr<Dim> scratch =
      ScratchBytes(schedule->function, symbols, stack_bytes, schedule->kept);
  if (!scratch.ok()) return annotated(scratch.status());
  KernelPlan plan;
  if (schedule->task_threads > kWarp) {
    plan.block_threads = schedule->task_threads;
    plan.shared_bytes = SharedBytes(schedule->task_threads);
  }
  plan.name = nest.function.name;
  plan.tasks = schedule->tasks;
  plan.scratch_bytes = *scratch;
  plan.nest = std::make_shared<const Schedule>(*std::move(schedule));
  return plan;
}

absl::StatusOr<KernelPlan> PlanKernel(const KernelRequest& request, const Candidate& candidate) {
  if (candidate.code == nullptr) {
    QUENCH_ASSIGN_OR_RETURN(const Nest nest, candidate.kernel->nest(request, candidate));
    return PlanNest(nest, request.symbols, request.target);
  }
  KernelPlan plan;
  plan.name = candidate.kernel->name;
  plan.tasks = candidate.tasks;
  plan.scratch_bytes = candidate.scratch_bytes;
  plan.block_threads = candidate.block_threads;
  plan.shared_bytes = candidate.shared_bytes;
  plan.code = candidate.code;
  return plan;
}

KernelPlan PlanPreparation(const Candidate& candidate) {
  KernelPlan plan;
  plan.name = candidate.kernel->name + "_prepare";
  plan.tasks = candidate.preparation->tasks;
  plan.code = candidate.preparation->code;
  return plan;
}

}  // namespace quench::codegen
