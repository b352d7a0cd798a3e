// Runs steps for a server: looks into the action cache, checks that every input is there, does the work
// in a child process or on this thread, stores the outputs and caches the result.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/trace_context.h"
#include "common/rpc/tenant_store.h"
#include "common/steps/gpus.h"
#include "common/steps/limits.h"
#include "common/steps/memory_budget.h"
#include "common/steps/provenance.h"
#include "common/steps/sandbox.h"
#include "common/steps/scratch.h"
#include "common/steps/step.h"

namespace quench::step::v1 {
class Accepted;
class Execution;
class StepOptions;
}  // namespace quench::step::v1

namespace quench::rpc {
class Tracer;
}

namespace quench::steps {

struct Usage;

struct RunnerOptions {
  bool in_process = false;  // on the calling thread, for debugging
  // The program started for each step, with kChildArgument.
  std::filesystem::path program = "/proc/self/exe";
  std::filesystem::path scratch;  // folder for the steps' folders; default: the system's
  StepLimits limits;              // of one step's process; 0: no limit
  unsigned walls = kAllWalls;     // requested from the kernel
  bool require_sandbox = false;   // Create fails if kNeededWalls are not available
  std::chrono::milliseconds max_wall_time{0};  // of one step; 0: no limit
  // A step's process that does nothing for longer counts as hung; 0: no limit.
  std::chrono::milliseconds max_stall_time{0};
  int max_threads = 0;  // for runs of libraries; 0: all CPUs
  std::string server;   // this server's name, for callers
  Gpus gpus;            // for runs of libraries
  // Shared by the steps' processes; null: nothing is reserved, and none gets more than its limit.
  std::shared_ptr<MemoryBudget> memory;
  // If null, any library is run, whoever made it.
  std::shared_ptr<const Provenance> provenance;
  metrics::Registry* registry = &metrics::Global();
  rpc::Tracer* tracer = nullptr;  // not owned; null: traces are passed on only
};

class StepRunner {
 public:
  using StorageOf =
      std::function<absl::StatusOr<std::shared_ptr<rpc::TenantStore>>(const std::string& tenant)>;
  // FAILED_PRECONDITION names the required walls that this kernel lacks.
  static absl::StatusOr<std::unique_ptr<StepRunner>> Create(const RunnerOptions& options,
                                                            StorageOf storage);

  // Fills in the first event of a call. INVALID_ARGUMENT lists errors in StepOptions and
  // digests; PERMISSION_DENIED if the caller's token is another tenant's; NO_DEVICE as of CheckDevice.
  absl::Status Accept(const Step& step, const google::protobuf::Message& request,
                      const StepContext& context, step::v1::Accepted* accepted) const;
  // Reserves the memory that an accepted step will take: null if that is nothing, as for a result in the action cache,
  // which is looked up into `result`. MEMORY_FULL with RetryInfo if it is not free.
  absl::StatusOr<std::unique_ptr<MemoryBudget::Place>> Admit(
      const Step& step, const google::protobuf::Message& request, const StepContext& context,
      google::protobuf::Message* result) const;
  // Fills in `result`, including its `execution`. The request must have been accepted, and `place` is what Admit gave.
  // A process that is ended for want of memory runs once more, alone, if it can get more by that.
  // UNAVAILABLE with NODE_FAULT if this machine, or its store, cannot run the step.
  absl::Status Run(const Step& step, const google::protobuf::Message& request,
                   const StepContext& context, google::protobuf::Message* result,
                   MemoryBudget::Place* place = nullptr) const;
  // Whether scratch space and the default tenant's store can be used: writes a little to both.
  absl::Status Probe() const;

 private:
  struct Job;
  StepRunner(RunnerOptions options, StorageOf storage, ScratchFolder scratch)
      : options_(std::move(options)), storage_(std::move(storage)), scratch_(std::move(scratch)) {}
  static absl::StatusOr<std::string> TenantOf(const google::protobuf::Message& request,
                                              const StepContext& context);
  std::string KeyOf(const Step& step, const google::protobuf::Message& request,
                    const std::string& tenant) const;
  absl::StatusOr<bool> LookUp(Job& job) const;
  // The same without counting it; nothing if the action cache is not asked.
  absl::StatusOr<std::optional<metrics::CacheResult>> Find(Job& job) const;
  absl::StatusOr<bool> HasItsRecords(Job& job) const;
  absl::Status CheckLibraries(Job& job) const;
  absl::Status AttestLibraries(Job& job) const;
  absl::Status Do(Job& job) const;
  absl::Status FetchInputs(Job& job) const;
  static absl::Status Fetch(Job& job, const std::vector<BlobId>& inputs);
  absl::Status Work(Job& job) const;
  MemoryNeed NeedOf(const Step& step, const google::protobuf::Message& request) const;
  int64_t LimitOf(const MemoryNeed& need) const;
  absl::StatusOr<std::string> WorkInChildren(Job& job, TempDir& scratch) const;
  absl::StatusOr<std::string> WorkAlone(Job& job, TempDir& scratch, int64_t memory_limit,
                                        const std::shared_ptr<const WrittenLines>& log) const;
  absl::StatusOr<std::string> WorkInChild(Job& job, const std::filesystem::path& scratch,
                                          int64_t memory_limit, Usage* usage) const;
  void LearnFrom(const Job& job, const absl::Status& status, int64_t memory_limit,
                 const Usage& usage) const;
  void CompareMemory(const Job& job, int64_t peak_bytes) const;
  absl::StatusOr<TempDir> PlaceIn(const LocalBlobStore& store) const;
  static absl::Status AdoptDrafts(Job& job);
  absl::StatusOr<unsigned> Walls() const;
  absl::Status TryWalls(unsigned walls) const;
  absl::Status StoreOutputs(Job& job) const;
  void RecordStep(const Job& job, const TraceContext& context, const std::string& parent_id,
                  int64_t start_ns, bool cache_hit, const absl::Status& status) const;

  RunnerOptions options_;
  StorageOf storage_;
  ScratchFolder scratch_;
  mutable std::mutex mutex_;
  mutable std::optional<unsigned> walls_;                          // set once they have been tried
  mutable std::map<std::filesystem::path, ScratchFolder> places_;  // by the store's root
};

}  // namespace quench::steps
