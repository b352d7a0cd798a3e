#include "common/rpc/parallel.h"

#include <mutex>
#include <thread>

#include "common/base/status.h"

namespace quench::rpc {
namespace {

// The same work for the same caller, with a cancellation of its own.
StepContext PartOf(const StepContext& step, std::shared_ptr<CancelToken> cancel) {
  StepContext part(std::move(cancel), [&step](const Progress& progress) { step.Report(progress); });
  if (step.deadline()) part.set_deadline(*step.deadline());
  part.set_request_id(step.request_id());
  part.set_traceparent(step.traceparent());
  part.set_tenant(step.tenant());
  part.set_role(step.role());
  return part;
}

}  // namespace

absl::Status RunTasks(const std::vector<Task>& tasks, int parallel, const StepContext& step) {
  const auto cancel = std::make_shared<CancelToken>();
  const std::stop_callback on_cancel(step.cancel_token()->stop_token(), [&] { cancel->Cancel(); });
  const StepContext part = PartOf(step, cancel);
  std::mutex mutex;
  size_t next = 0;
  absl::Status failure;
  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (failure.ok() && next < tasks.size()) {
      const Task& task = tasks[next++];
      lock.unlock();
      const absl::Status status = task(part);
      lock.lock();
      if (!status.ok() && failure.ok()) {
        failure = status;
        cancel->Cancel();
      }
    }
  };
  std::vector<std::thread> threads;
  const auto helpers = std::min<size_t>(static_cast<size_t>(std::max(parallel, 1)), tasks.size());
  for (size_t i = 1; i < helpers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return failure;
}

}  // namespace quench::rpc
