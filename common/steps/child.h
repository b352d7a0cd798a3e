// Steps in child processes: a crash, a limit or a cancelled call ends only the child.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "common/base/context.h"
#include "common/metrics/metrics.h"
#include "common/steps/step.h"

namespace quench::child::v1 {
class Order;
}

namespace quench::steps {

// The only argument of a program that is to run one step by RunAsChild.
inline constexpr char kChildArgument[] = "--step";

// Resources that a step's process used.
struct Usage {
  double cpu_seconds = 0;
  int64_t peak_memory_bytes = 0;
  bool ran_out_of_memory = false;  // it went over its limit, or was killed from outside
  std::shared_ptr<const WrittenLines>
      log;  // lines of its stderr, after those that were here before; null: none
};

// Starts `program` with kChildArgument, gives it the order, passes its progress on and waits for
// its result, serialised. When the call is cancelled or its deadline passes, the child is killed at
// once. Besides the step's own errors: INTERNAL with STEP_CRASHED if it died, or STEP_STALLED if it
// did nothing for too long; UNAVAILABLE with NODE_FAULT when it was killed from outside, as a machine
// without memory does; RESOURCE_EXHAUSTED with RESOURCE_LIMIT when it went over a limit of the order.
// Its stderr is logged line by line. Whatever happens, no process remains. `usage` may be null; its `log` is given on.
absl::StatusOr<std::string> RunInChild(const std::filesystem::path& program,
                                       const child::v1::Order& order, const StepContext& context,
                                       metrics::Registry& registry, Usage* usage);

// The child's side: reads the order from stdin, runs the step, writes progress and result to stdout.
// Ends at once when stdin ends, because then the service has gone. Returns the process's exit code.
int RunAsChild(std::span<const Step> steps);

}  // namespace quench::steps
