// A workflow as readers see it: one revision, never changed again; what is final in it is durable.
#pragma once

#include <absl/status/status.h>

#include <memory>
#include <vector>

#include "services/gateway/job_store.h"

namespace quench::gateway {

struct StepView {
  std::shared_ptr<const v1::Step> step;
  int64_t revision = 0;  // of the step's last change
};

struct WorkflowView {
  v1::Workflow header;  // without steps
  std::vector<StepView> steps;
  // Changes after this revision are known, earlier changes are not.
  int64_t known_since = 0;

  bool ended() const { return HasEnded(header.state()); }
};
using ViewPtr = std::shared_ptr<const WorkflowView>;

// The view of a workflow that is not live: nothing of its history is known.
WorkflowView ViewOf(const v1::Workflow& stored);

// The whole workflow in at most `most_bytes`; if it does not fit, the least needed parts are left out
// first: lists of modules' blobs, then failed attempts, details of errors, outputs, and the last steps.
inline constexpr size_t kMostBytes = (size_t{8} << 20) - 4096;
v1::Workflow FullMessage(const WorkflowView& view, size_t most_bytes = kMostBytes);

// The event for a reader who knows `revision`; a snapshot if `revision` is 0, too old, or in the
// future.
v1::WatchWorkflowEvent EventSince(const WorkflowView& view, int64_t revision);

v1::Counts CountsOf(const std::vector<StepView>& steps);

google::rpc::Status ToProto(const absl::Status& status);

}  // namespace quench::gateway
