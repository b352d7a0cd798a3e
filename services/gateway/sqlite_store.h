// Workflows in a folder of one machine, in SQLite: one writer, which commits all queued writes in
// one transaction, and any number of concurrent readers.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>

#include "services/gateway/job_store.h"
#include "services/gateway/sqlite.h"

namespace quench::gateway {

class SqliteJobStore final : public JobStore {
 public:
  // Makes the folder. UNAVAILABLE while another gateway has it open, FAILED_PRECONDITION if a newer
  // Quench wrote it, DATA_LOSS if it is damaged.
  static absl::StatusOr<std::unique_ptr<SqliteJobStore>> Open(const std::filesystem::path& folder);
  // Completes the queued writes.
  ~SqliteJobStore() override;

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
  struct Write {
    std::function<absl::Status(Sqlite&)> apply;
    Done done;
  };
  class Reader;
  class FolderLock;

  SqliteJobStore(std::filesystem::path file, std::unique_ptr<FolderLock> lock,
                 std::unique_ptr<Sqlite> writer);
  void ExpireMore(int64_t now_us, const EndedLimits& limits,
                  const std::shared_ptr<std::vector<std::string>>& forgotten, Forgotten done);
  void Enqueue(std::function<absl::Status(Sqlite&)> apply, Done done);
  void WriteAll();
  // The outcome of each write; writes that fail leave no trace and do not affect the others.
  std::vector<absl::Status> Commit(const std::vector<Write>& batch);
  absl::Status CommitOne(const Write& write);

  const std::filesystem::path file_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<Sqlite> writer_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Write> queue_;
  bool stopping_ = false;
  std::mutex readers_mutex_;
  std::vector<std::unique_ptr<Sqlite>> idle_readers_;
  std::thread thread_;
};

}  // namespace quench::gateway
