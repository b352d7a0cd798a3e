// Results of planning: a program with its report, and the contents of the weight section.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "services/codegen/plan/program.h"
#include "services/codegen/plan/report.h"

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

}  // namespace quench::codegen
