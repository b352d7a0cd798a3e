// The gateway's workflows, put together: what a server registers, and how it starts and stops.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/gateway/step_client.h"
#include "services/gateway/worker_watch.h"
#include "services/gateway/workflows_service.h"

namespace quench::gateway {

struct GatewayOptions {
  std::filesystem::path state_dir;  // empty: workflows are gone with the process
  ServiceChannels channels;
  BlobAccess blobs;                       // what workflows may name
  PutBlob put_blob;                       // stores results
  const rpc::Callers* callers = nullptr;  // not owned; null: anybody may call
  rpc::AuditLog* audit = nullptr;         // not owned; null: nobody looks
  EngineOptions engine;                   // its registry is everybody's
  KeepLimits keep;                        // of what workflows that have ended gave
  int threads = 8;                        // of short calls
  int max_short = 1000;  // of those, at once; and with those that wait for a thread
  int64_t max_workflow_bytes = kMaxWorkflowBytes;
  int max_watches = 1000;                             // calls at once that wait for a workflow
  std::chrono::milliseconds stream_idle{5 * 60'000};  // of watchers who take nothing; 0: they may
  std::chrono::milliseconds ask_workers{5000};  // how often services are asked whether they serve
};

class Gateway {
 public:
  // Opens the state dir and takes up what it holds. UNAVAILABLE while another gateway has it.
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(const GatewayOptions& options);
  // As a crash would, but for what is being written: Stop first. The server must be gone.
  ~Gateway();

  // For Server::Start; they live as long as this.
  std::vector<grpc::Service*> services();
  // Whether a queued or running workflow needs a blob, or one that has ended gave it and it is kept.
  // Thread-safe.
  bool IsPinned(const std::string& hash) const { return pins_.IsPinned(hash); }

  // When calls are refused: no step is started any more, those who watch or wait come back later.
  void BeginDrain();
  // BeginDrain, and waits until `end` for running steps.
  void AwaitSteps(std::chrono::system_clock::time_point end);
  // Steps that are still running are done again by the next gateway on the same state dir.
  void Stop();

 private:
  explicit Gateway(const GatewayOptions& options, std::unique_ptr<JobStore> store);
  void LoadKept();

  Pins pins_;
  Board board_;
  // Everybody posts to the loop until he is gone; it runs nothing once it is stopped.
  ThreadLoop loop_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<StepClient> runner_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<rpc::CallPool> control_, watches_;
  std::unique_ptr<WorkflowApi> api_;
  std::unique_ptr<WorkflowsService> workflows_;
  std::unique_ptr<OperationsService> operations_;
  WorkerWatch workers_;
  std::mutex mutex_;
  std::condition_variable drained_;
  bool is_drained_ = false, draining_ = false, halted_ = false, kept_loaded_ = false;
  std::atomic<bool> stop_loading_ = false;
  std::thread loading_;
};

}  // namespace quench::gateway
