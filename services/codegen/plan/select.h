// The joint choice of kernel and layout for the nodes of a graph.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/base/context.h"
#include "services/codegen/kernels/kernel.h"
#include "services/codegen/options/options.h"
#include "services/codegen/plan/propose.h"

namespace quench::codegen {

struct Choice {
  enum class Kind : uint8_t {
    kKernel,   // `candidate`
    kAlias,    // output 0 is input 0's memory with other dims
    kControl,  // If, Loop, Scan: row-major in and out
  };
  Kind kind = Kind::kKernel;
  Candidate candidate;    // over the graph's symbols
  std::string key;        // CandidateKey
  std::string runner_up;  // kernel and cost of the next best, "" if there is none
};

// One choice per node. Levels: 0 reference nests only, 1 also scheduled nests, 2 every kernel, with
// nests row-major, 3 every kernel and layout: the cheapest combination found, with the cost of the
// transforms between unequal layouts, 4 that with kernels changed by `options.measured`. Nodes that no kernel takes are reported together in one
// error.
absl::StatusOr<std::vector<Choice>> ChooseKernels(const Graph& graph, const Target& target,
                                                  const CompileOptions& options, Proposer& proposer,
                                                  const StepContext& context);

}  // namespace quench::codegen
