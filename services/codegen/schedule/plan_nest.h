// Plans of kernels: those of nests are made here, others come with their candidates.
#pragma once

#include <absl/status/statusor.h>

#include "services/codegen/kernels/kernel.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// The plan of a nest: its schedule, tasks and scratch. UNIMPLEMENTED for types that no code has.
absl::StatusOr<KernelPlan> PlanNest(const Nest& nest, SymbolTable& symbols, const Target& target);
// The plan of a chosen candidate.
absl::StatusOr<KernelPlan> PlanKernel(const KernelRequest& request, const Candidate& candidate);

// For a candidate that has a preparation.
KernelPlan PlanPreparation(const Candidate& candidate);

}  // namespace quench::codegen
