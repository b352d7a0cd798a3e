// A store of workflows in memory, lost with the process.
#pragma once

#include <map>
#include <mutex>

#include "services/gateway/job_store.h"

namespace quench::gateway {

class MemoryJobStore final : public JobStore {
 public:
  void Create(StoredWorkflow workflow, Done done) override;
  void Update(WorkflowUpdate update, Done done) override;
  void Delete(const std::string& tenant, const std::string& id, Done done) override;
  void Expire(int64_t now_us, const EndedLimits& limits, Forgotten done) override;
  absl::StatusOr<StoredWorkflow> Get(const std::string& tenant, const std::string& id) override;
  absl::StatusOr<std::optional<StoredRequest>> FindRequest(const std::string& tenant,
                                                           const std::string& request_id) override;
  absl::StatusOr<WorkflowPage> List(const ListQuery& query) override;
  absl::StatusOr<std::vector<v1::Workflow>> ListFleet(const std::string& tenant,
                                                      const std::string& fleet) override;
  absl::StatusOr<FleetPage> ListFleets(const FleetQuery& query) override;
  absl::Status ForEachUnfinished(const std::function<void(StoredWorkflow)>& visit) override;
  void PutStepSeconds(std::vector<StepSecondsRow> rows, Done done) override;
  absl::StatusOr<std::vector<StepSecondsRow>> LoadStepSeconds(int64_t day) override;
  absl::Status ForEachKept(const std::function<bool(KeptOutputs)>& visit) override;
  absl::StatusOr<std::vector<QueuedEvent>> DueEvents(int64_t now_us, int most) override;
  void Delivered(const std::string& id) override;
  void PostLater(const std::string& id, int attempts, int64_t next_us) override;
  void Dropped(const std::string& id) override;

 private:
  absl::Status CreateLocked(StoredWorkflow workflow);
  absl::Status UpdateLocked(const WorkflowUpdate& update);
  absl::Status DeleteLocked(const std::string& tenant, const std::string& id);
  void Forget(const std::string& id);
  // By shard, without steps.
  std::vector<v1::Workflow> FleetLocked(const std::string& tenant, const std::string& fleet) const;
  void PutEvents(const std::vector<QueuedEvent>& events);

  struct Waiting {
    QueuedEvent event;
    int64_t next_us = 0;
  };

  std::mutex mutex_;
  std::map<std::string, Waiting> events_;                                  // by id
  std::map<std::string, StoredWorkflow> workflows_;                        // by id
  std::map<std::string, KeptOutputs> kept_;                                // by id
  std::map<std::pair<int64_t, std::string>, double> step_seconds_;         // day, tenant
  std::map<std::pair<std::string, std::string>, StoredRequest> requests_;  // tenant, request_id
};

}  // namespace quench::gateway
