// The consequence of an attempt's end for its step.
#pragma once

#include <absl/status/status.h>

#include <chrono>

#include "quench/gateway/v1/workflows.pb.h"

namespace quench::gateway {

enum class Ending {
  kFinal,        // another attempt would end the same way
  kShed,         // RESOURCE_EXHAUSTED with RetryInfo: not begun, the service says when to ask again
  kUnreached,    // not begun: no service could be reached
  kNoDevice,     // not begun: the server that was asked lacks the GPU, another may have it
  kLost,         // the worker vanished: another may run it
  kCrashed,      // the process that did the work was killed by a signal, or hung
  kMissingBlob,  // blobs that the step needs are gone
  kDrained,      // the worker shut down in good order: not counted as a failure
  kNodeFault,    // the worker's machine could not run it: another may
};

// `accepted`: the service had begun the step.
Ending Classify(const absl::Status& status, bool accepted);

// How often a step is begun before its failure is final.
inline constexpr int kLostAttempts = 3;
inline constexpr int kCrashedAttempts = 2;
// Machines in turn that began a step and could not run it: the step itself may fill their disks.
inline constexpr int kNodeFaults = 10;
// Restarts of the gateway that a step survives: the step itself may bring the gateway down.
inline constexpr int kReclaims = 10;

// Failures by kind, counted in the attempts that the store holds.
struct Failures {
  int lost = 0;
  int crashed = 0;
  int reclaimed = 0;
  int drained = 0;
  int node_faults = 0;
};
Failures FailuresOf(const v1::Step& step);

// Doubles with each failure; `jitter` is in [0, 1) and takes off up to half.
std::chrono::milliseconds Backoff(std::chrono::milliseconds base, int failures, double jitter);

}  // namespace quench::gateway
