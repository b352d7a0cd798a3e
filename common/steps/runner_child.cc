// Steps in child processes: what these are given, and what is taken from them.
#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <set>

#include "common/rpc/errors.h"
#include "common/rpc/remote_blobs.h"
#include "common/steps/child.h"
#include "common/steps/digests.h"
#include "common/steps/node_guard.h"
#include "common/steps/runner_internal.h"
#include "quench/child/v1/child.pb.h"

namespace quench::steps {

using google::protobuf::util::TimeUtil;

// Starts a process that enters its sandbox and does nothing else.
absl::Status StepRunner::TryWalls(unsigned walls) const {
  QUENCH_ASSIGN_OR_RETURN(const TempDir scratch, scratch_.Step());
  QUENCH_ASSIGN_OR_RETURN(const TempDir drafts, scratch_.Step());
  child::v1::Order order;
  order.set_scratch(scratch.path().string());
  order.set_drafts(drafts.path().string());
  order.set_inputs(drafts.path().string());
  order.set_walls(walls);
  metrics::Registry unseen;  // it is not a step
  return RunInChild(options_.program, order, {}, unseen, nullptr).status();
}

absl::StatusOr<unsigned> StepRunner::Walls() const {
  const std::lock_guard lock(mutex_);
  if (walls_) return *walls_;
  unsigned walls = options_.walls & WallsOfThisKernel();
  absl::Status status = TryWalls(walls);
  if (!status.ok() && (walls & kNamespaces) != 0) {
    spdlog::info("no namespaces for steps: {}", MessageOf(status));
    walls &= ~unsigned{kNamespaces};
    status = TryWalls(walls);
  }
  QUENCH_RETURN_IF_ERROR(status);
  const absl::Status whole = CheckWalls(walls);
  if (!whole.ok()) spdlog::warn("the sandbox of steps is not whole: {}", MessageOf(whole));
  spdlog::info("sandbox of steps: {}", Describe(walls));
  walls_ = walls;
  return walls;
}

// Beside the blobs, so that they can be linked there, and what lies there becomes one by a rename.
absl::StatusOr<TempDir> StepRunner::PlaceIn(const LocalBlobStore& store) const {
  const std::lock_guard lock(mutex_);
  auto found = places_.find(store.root());
  if (found == places_.end()) {
    const std::filesystem::path folder = std::filesystem::absolute(store.root()) / "drafts";
    QUENCH_ASSIGN_OR_RETURN(ScratchFolder made, ScratchFolder::Create(folder));
    found = places_.emplace(store.root(), std::move(made)).first;
  }
  return found->second.Step();
}

absl::StatusOr<std::string> StepRunner::WorkInChild(Job& job, const std::filesystem::path& scratch,
                                                    int64_t memory_limit, Usage* usage) const {
  LocalBlobStore& store = job.storage->local();
  QUENCH_ASSIGN_OR_RETURN(const unsigned walls, Walls());
  absl::StatusOr<TempDir> inputs = PlaceIn(store), drafts = PlaceIn(store);
  if (!inputs.ok()) return NodeFault(inputs.status());
  if (!drafts.ok()) return NodeFault(drafts.status());
  for (const BlobId& input : job.inputs) {
    const absl::Status lent = store.Lend(input, inputs->path());
    if (absl::IsNotFound(lent)) return rpc::BlobsMissing({input});
    QUENCH_RETURN_IF_ERROR(WithStoreFault(lent));
  }
  job.drafts = *std::move(drafts);
  child::v1::Order order;
  order.set_method(job.step.method);
  order.set_request(job.request.SerializeAsString());
  order.set_request_id(job.context.request_id());
  order.set_traceparent(job.context.traceparent());
  order.set_inputs(inputs->path().string());
  order.set_drafts(job.drafts->path().string());
  order.set_scratch(std::filesystem::absolute(scratch).string());
  order.set_walls(walls);
  order.set_max_threads(options_.max_threads);
  order.set_max_memory_bytes(memory_limit);
  order.set_max_cpu_seconds(options_.limits.cpu_seconds);
  order.set_max_disk_bytes(options_.limits.disk_bytes);
  order.set_max_open_files(options_.limits.open_files);
  order.set_max_processes(options_.limits.processes);
  order.set_max_stall_milliseconds(options_.max_stall_time.count());
  order.set_gpus(!options_.gpus.names.empty() && HasDevice(job.request) &&
                 DeviceOf(job.request) != "cpu");
  absl::StatusOr<std::string> result =
      RunInChild(options_.program, order, job.context, *options_.registry, usage);
  *job.execution.mutable_cpu_time() =
      TimeUtil::MillisecondsToDuration(std::llround(usage->cpu_seconds * 1e3));
  job.execution.set_peak_memory_bytes(usage->peak_memory_bytes);
  options_.registry->Get(metrics::kStepCpuSeconds, job.step.stage).Increment(usage->cpu_seconds);
  if (usage->peak_memory_bytes > 0) {  // there was a process
    options_.registry->Get(metrics::kStepPeakMemory, job.step.stage)
        .Set(static_cast<double>(usage->peak_memory_bytes));
  }
  const std::string reason = rpc::ReasonOf(result.status());
  if (reason == rpc::ReasonName(rpc::Reason::kStepCrashed) ||
      reason == rpc::ReasonName(rpc::Reason::kStepStalled)) {
    spdlog::error("step={} request={} {}", job.step.method, job.context.request_id(),
                  MessageOf(result.status()));
  }
  return result;
}

// The child's word for what it made is not taken: bytes are hashed here.
absl::Status StepRunner::AdoptDrafts(Job& job) {
  std::set<std::string> inputs;
  for (const BlobId& input : job.inputs) inputs.insert(input.hash);
  QUENCH_RETURN_IF_ERROR(CheckDigests(*job.result));
  LocalBlobStore& store = job.storage->local();
  for (const BlobId& output : DigestsIn(*job.result)) {
    const std::filesystem::path draft = job.drafts->path() / output.hash;
    const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(draft));
    if (!is_there && inputs.contains(output.hash)) continue;
    if (!is_there)
      return Internal("the step's result names blob `{}`, which it has not made", output.hash);
    const absl::Status status = store.AdoptAs(output, draft, job.context);
    if (absl::IsInvalidArgument(status))
      return Internal("the step's result: {}", MessageOf(status));
    QUENCH_RETURN_IF_ERROR(status);
  }
  job.drafts.reset();
  return absl::OkStatus();
}

}  // namespace quench::steps
