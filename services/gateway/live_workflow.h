// A workflow that has not ended, as the engine holds it. Touched by the engine's thread only.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/blobs/blob_id.h"
#include "services/gateway/retry.h"
#include "services/gateway/step_table.h"
#include "services/gateway/view.h"

namespace quench::gateway {

struct LiveStep {
  const v1::StepSpec* spec = nullptr;
  const StepRow* row = nullptr;
  std::vector<int> dependencies, dependents;
  int unmet = 0;       // dependencies, and reruns of them, still to wait for
  uint64_t order = 0;  // in which the steps of all workflows became ready; 0: not yet
  uint64_t epoch = 0;  // jobs planned for the step in an earlier epoch are void
  Failures failures;
  int64_t refused_since_us = 0;  // no service has accepted it since; 0: not so
  int64_t faulty_since_us = 0;   // no machine could run it since; 0: not so
  // Servers that lack its GPU, in this round of asking them, and how many rounds there were.
  std::set<std::string> without_device;
  std::set<std::string> without_memory;  // likewise, with too little free
  int device_rounds = 0;
  uint64_t run = 0;  // the run of this step, or of an identical one
  // The request as it is sent, except for the id; `key` is equal for identical steps ("": never).
  std::shared_ptr<google::protobuf::Message> request;
  std::string key;

  // Whether it has succeeded and runs again, for steps whose inputs have gone since.
  bool rerunning = false;
  std::vector<int> waiters;  // steps that wait for the rerun
  bool rewound = false;      // its missing inputs have been made again once

  std::shared_ptr<v1::Step> value;
  int64_t revision = 0;
  bool shared = true;    // a view has `value`: copied before it is changed
  bool touched = false;  // changed since the last view
  bool unsaved = false;  // changed since the last save
};

class LiveWorkflow {
 public:
  // Takes a workflow that was just created, or one from the store.
  explicit LiveWorkflow(StoredWorkflow stored);
  LiveWorkflow(const LiveWorkflow&) = delete;
  LiveWorkflow& operator=(const LiveWorkflow&) = delete;

  const std::string id;
  const v1::WorkflowSpec spec;
  const std::string traceparent;
  v1::Workflow header;  // without steps; its revision and counts are those of the last view
  std::vector<LiveStep> steps;
  int open = 0;       // steps that have not ended
  int64_t bytes = 0;  // counted against its tenant's limit

  bool changed = false;     // must be saved
  bool progressed = false;  // must be shown
  bool saving = false;
  int64_t stored_revision = 0;
  const int64_t known_since;
  std::vector<std::function<void()>> on_saved;  // called once all present changes are durable

  // The step, for a change.
  v1::Step& Edit(int step);
  // Like Edit, for a change that a restart may forget.
  v1::Step& EditProgress(int step);
  // The present state, at a new revision.
  ViewPtr TakeView();
  // The state as stored, at its present revision.
  ViewPtr FirstView() const { return ViewNow(); }
  // The changes since the last call; `view` is the present state.
  WorkflowUpdate TakeUpdate(const ViewPtr& view);
  // The update failed: its steps must be saved again.
  void Unsave(const WorkflowUpdate& update);

  const v1::StepOutput* FindOutput(const std::string& step, const std::string& output) const;
  // The step before `step` whose output is the blob; -1 if there is none.
  int ProducerOf(const std::string& hash, int step) const;

 private:
  ViewPtr ViewNow() const;
};

// A workflow from a spec with its presets expanded: queued, at its first revision.
StoredWorkflow NewWorkflow(const std::string& id, const std::string& tenant,
                           const std::string& request_id, const v1::WorkflowSpec& spec,
                           const std::string& spec_hash, int64_t now_us);

// Hashes of the blobs that a step's outputs name.
std::vector<std::string> HashesOf(const v1::Step& step);
// The same with their sizes.
void AddOutputs(const v1::Step& step, std::vector<BlobId>* blobs);

}  // namespace quench::gateway
