// Builds a program from a graph and the choices made for its nodes.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/base/context.h"
#include "services/codegen/codegen.h"
#include "services/codegen/kernels/kernel.h"
#include "services/codegen/program.h"

namespace quench::codegen {

// The weight section's contents, in the order of first use; shared by the variants of an artifact.
class WeightTable {
 public:
  // The number of the entry for these bytes, which is added if absent.
  int Add(WeightEntry entry);
  const std::vector<WeightEntry>& entries() const { return entries_; }

 private:
  std::vector<WeightEntry> entries_;
  std::map<std::string, int> by_key_;
};

struct BuiltProgram {
  Program program;
  std::vector<KernelReport> reports;
};

// Plans the kernels of `graph`, the order of calls and the memory they use; emits no code.
// Placement comes later (plan/assign.h). `graph`'s symbol table gets the symbols that kernels
// intern.
absl::StatusOr<BuiltProgram> BuildProgram(const Graph& graph, const Target& target,
                                          const CompileOptions& options, WeightTable& weights,
                                          const StepContext& context);

}  // namespace quench::codegen
