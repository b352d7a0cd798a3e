// The gateway's workflows, put together: what a server registers, and how it starts and stops.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/gateway/event_poster.h"
#include "services/gateway/fleets_service.h"
#include "services/gateway/overview_service.h"
#include "services/gateway/step_client.h"
#include "services/gateway/tenants_service.h"
#include "services/gateway/worker_watch.h"
#include "services/gateway/workflows_service.h"

namespace quench::gateway {

struct GatewayOptions {
  std::filesystem::path state_dir;  // empty: workflows are lost with the process
  ServiceChannels channels;
  BlobAccess blobs;                       // blobs that workflows may name
  PutBlob put_blob;                       // stores results
  TellStore tell_store;                   // for the overview; null: it says nothing of the store
  const rpc::Callers* callers = nullptr;  // not owned; null: anybody may call
  rpc::AuditLog* audit = nullptr;         // not owned; null: calls are not recorded
  EngineOptions engine;                   // its registry and tracer are for the whole gateway
  std::vector<http::Url> webhooks;  // beginnings of URLs that workflows may name; none: no events
  PosterOptions poster;             // its registry is the engine's
  KeepLimits keep;                  // for outputs of workflows that have ended
  int threads = 8;                  // for short calls
  int max_short = 1000;             // short calls at once that run or wait for a thread
  int64_t max_workflow_bytes = kMaxWorkflowBytes;
  int max_watches = 1000;                             // calls at once that wait for a workflow
  std::chrono::milliseconds stream_idle{5 * 60'000};  // ends watchers that read nothing; 0: never
  std::chrono::milliseconds ask_workers{5000};  // how often services are asked whether they serve
};

class Gateway {
 public:
  // Opens the state dir and resumes its workflows. UNAVAILABLE while another gateway has it open.
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(const GatewayOptions& options);
  // Ends like a crash, except that pending writes complete: call Stop first. The server must be gone.
  ~Gateway();

  // Services for Server::Start; they live as long as this object.
  std::vector<grpc::Service*> services();
  // Whether a queued or running workflow needs the blob, or it is a kept output of one that has
  // ended. Thread-safe.
  bool IsPinned(const std::string& hash) const { return pins_.IsPinned(hash); }

  // Called once calls are refused: starts no more steps, and tells callers who watch or wait to come
  // back later.
  void BeginDrain();
  // Calls BeginDrain, and waits until `end` for running steps.
  void AwaitSteps(std::chrono::system_clock::time_point end);
  // The next gateway on the same state dir runs the steps again that are still running.
  void Stop();

 private:
  explicit Gateway(const GatewayOptions& options, std::unique_ptr<JobStore> store);
  void LoadKept();
  EngineOptions WithPool(EngineOptions options);

  Pins pins_;
  Board board_;
  // All members below post to the loop until they are destroyed; once stopped it runs nothing.
  ThreadLoop loop_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<EventPoster> poster_;  // null: nobody may be told
  std::unique_ptr<StepClient> runner_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<rpc::CallPool> control_, watches_;
  std::unique_ptr<WorkflowApi> api_;
  std::unique_ptr<WorkflowsService> workflows_;
  std::unique_ptr<FleetsService> fleets_;
  std::unique_ptr<OperationsService> operations_;
  std::unique_ptr<TenantsService> tenants_;
  WorkerWatch workers_;
  std::unique_ptr<OverviewService> overview_;
  std::mutex mutex_;
  std::condition_variable drained_;
  bool is_drained_ = false, draining_ = false, halted_ = false, kept_loaded_ = false;
  std::atomic<bool> stop_loading_ = false;
  std::thread loading_;
};

}  // namespace quench::gateway
