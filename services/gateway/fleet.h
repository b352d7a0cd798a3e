// Fleets as their workflows make them: the whole, and its cells.
#pragma once

#include <vector>

#include "quench/gateway/v1/fleets.pb.h"
#include "services/gateway/view.h"

namespace quench::gateway {

// A fleet from its workflows, one after the other, without their steps.
class FleetSum {
 public:
  void Add(const v1::Workflow& workflow);
  // Once, after one workflow at least.
  v1::Fleet Take();

 private:
  v1::Fleet fleet_;
  int64_t created_us_ = 0, started_us_ = 0, ended_us_ = 0;
};

// The fleet of workflows, without their steps, that all belong to it; at least one.
v1::Fleet FleetOf(const std::vector<v1::Workflow>& workflows);

// The cells of a workflow, in the order of its steps: what becomes of each compilation, or, for options that compile
// nothing, of the last step. Steps are told apart by the names that CompileBatch gives them; other steps give none.
std::vector<v1::FleetCell> CellsOf(const WorkflowView& view);

}  // namespace quench::gateway
