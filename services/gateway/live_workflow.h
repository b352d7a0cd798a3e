// A workflow that has not ended, as the engine holds it. Touched by the engine's thread only.
#pragma once

#include <functional>
#include <memory>
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
  int unmet = 0;       // dependencies, and reruns of them, that it waits for
  uint64_t order = 0;  // among all steps, as they became ready; 0: not yet
  uint64_t epoch = 0;  // what was planned for it in an earlier one is void
  Failures failures;
  int64_t refused_since_us = 0;  // nobody has taken it since
  int64_t faulty_since_us = 0;   // nobody's machine could do it since
  uint64_t run = 0;              // does it, or does an identical one
  // Its request as it is sent, but for the id; and by what identical ones are known ("": never).
  std::shared_ptr<google::protobuf::Message> request;
  std::string key;

  // It has succeeded, and is done again for steps whose inputs have gone since.
  bool rerunning = false;
  std::vector<int> waiters;  // for that
  bool rewound = false;      // its missing inputs were made again once

  std::shared_ptr<v1::Step> value;
  int64_t revision = 0;
  bool shared = true;    // a view has it: copied before it is changed
  bool touched = false;  // changed since the last view
  bool unsaved = false;  // and since the last save
};

class LiveWorkflow {
 public:
  // For a workflow that was just created, or that the store remembers.
  explicit LiveWorkflow(StoredWorkflow stored);
  LiveWorkflow(const LiveWorkflow&) = delete;
  LiveWorkflow& operator=(const LiveWorkflow&) = delete;

  const std::string id;
  const v1::WorkflowSpec spec;
  const std::string traceparent;
  v1::Workflow header;  // without steps; its revision and counts are those of the last view
  std::vector<LiveStep> steps;
  int open = 0;       // steps that have not ended
  int64_t bytes = 0;  // that it takes of its tenant's

  bool changed = false;     // must be saved
  bool progressed = false;  // must be shown
  bool saving = false;
  int64_t stored_revision = 0;
  const int64_t known_since;
  std::vector<std::function<void()>> on_saved;  // once all changes of now are durable

  // To change a step by.
  v1::Step& Edit(int step);
  // As Edit, where a restart may forget the change.
  v1::Step& EditProgress(int step);
  // As it is now, at a new revision.
  ViewPtr TakeView();
  // As it was stored: at the revision that it has.
  ViewPtr FirstView() const { return ViewNow(); }
  // The changes since the last call; `view` is the present state.
  WorkflowUpdate TakeUpdate(const ViewPtr& view);
  // The update came to nothing: its steps are due again.
  void Unsave(const WorkflowUpdate& update);

  const v1::StepOutput* FindOutput(const std::string& step, const std::string& output) const;
  // The step before `step` that gave the blob; -1: none did.
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
