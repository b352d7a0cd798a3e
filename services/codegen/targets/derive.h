// From a CPU and its features to everything that kernels ask a target.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "services/codegen/targets/spec.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

struct Derived {
  Target target;
  std::vector<std::string> unused;  // of mattr, what no generated code uses
};

// `spec` has a triple. Every problem is listed: triples, CPUs and features that are unknown (with
// near names), a floor that the CPU lacks, an ABI that contradicts the triple, keys of other kinds.
absl::StatusOr<Derived> DeriveTarget(const TargetSpec& spec, const std::string& name);

// Checks of a spec that need no triple: kind, libs, keys of devices.
absl::Status CheckKind(const TargetSpec& spec);

// The target without the features that matrix registers need, for code that has none: it runs where the system does
// not lend them.
Target WithoutMatrices(Target target);

}  // namespace quench::codegen
