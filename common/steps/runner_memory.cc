// The memory of steps: what each reserves, what it may take, and what is learnt when it ends.
#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/rpc/errors.h"
#include "common/steps/child.h"
#include "common/steps/digests.h"
#include "common/steps/node_guard.h"
#include "common/steps/runner_internal.h"

namespace quench::steps {
namespace {

using google::protobuf::Message;

// The name of runs that are alike. A driver of GPUs takes memory of its own.
std::string KindOf(const Step& step, const Message& request, const Gpus& gpus) {
  const bool on_gpu = !gpus.names.empty() && HasDevice(request) && DeviceOf(request) != "cpu";
  return on_gpu ? step.method + "@gpu" : step.method;
}

constexpr int64_t kMost = int64_t{1} << 50;  // sizes are what the caller says

// Without samples, which steps read one after the other.
int64_t InputBytes(const Message& request) {
  int64_t bytes = 0;
  for (const BlobId& id : DigestsIn(request)) {
    bytes = std::min(bytes + static_cast<int64_t>(std::min<uint64_t>(id.size, kMost)), kMost);
  }
  return bytes;
}

int64_t Mebibytes(int64_t bytes) { return bytes >> 20; }

bool IsOfItsLimit(const absl::Status& status) {
  return rpc::ReasonOf(status) == rpc::ReasonName(rpc::Reason::kResourceLimit);
}

}  // namespace

MemoryNeed StepRunner::NeedOf(const Step& step, const Message& request) const {
  return options_.memory->book().Predict(KindOf(step, request, options_.gpus), InputBytes(request));
}

absl::StatusOr<std::unique_ptr<MemoryBudget::Place>> StepRunner::Admit(const Step& step,
                                                                       const Message& request,
                                                                       const StepContext& context,
                                                                       Message* result) const {
  if (options_.memory == nullptr) return std::unique_ptr<MemoryBudget::Place>();
  QUENCH_ASSIGN_OR_RETURN(const std::string tenant, TenantOf(request, context));
  const std::string key = KeyOf(step, request, tenant);
  auto place = options_.memory->Reserve(key, NeedOf(step, request).resident_bytes);
  if (place.ok()) return place;
  // A result that is known takes none. That it cannot be looked up is for Run to say.
  StepContext own = context;
  Job job{step, request, own, result, tenant, key, nullptr, {}, {}, std::nullopt, {}};
  if (absl::StatusOr<std::shared_ptr<rpc::TenantStore>> storage = storage_(tenant); storage.ok()) {
    job.storage = *std::move(storage);
    const auto found = Find(job);
    if (found.ok() && *found == metrics::CacheResult::kHit) {
      options_.memory->Forgo(key);
      return std::unique_ptr<MemoryBudget::Place>();
    }
  }
  options_.registry->Get(metrics::kStepsRefusedForMemory).Increment();
  return FromServer(Annotate(place.status(), options_.server), rpc::Reason::kMemoryFull,
                    options_.server);
}

// A process maps more than it holds in RAM.
int64_t StepRunner::LimitOf(const MemoryNeed& need) const {
  const StepLimits& limits = options_.limits;
  if (limits.memory_bytes == 0) return 0;
  if (need.too_small_limit >= limits.memory_bytes)  // nobody knows by how much it was too small
    return std::max(limits.memory_bytes, limits.most_memory_bytes);
  return std::max(limits.memory_bytes, std::min(2 * need.resident_bytes, limits.most_memory_bytes));
}

absl::StatusOr<std::string> StepRunner::WorkInChildren(Job& job, TempDir& scratch) const {
  Usage usage;
  if (options_.memory == nullptr) {
    return WorkInChild(job, scratch.path(), options_.limits.memory_bytes, &usage);
  }
  const int64_t limit = LimitOf(NeedOf(job.step, job.request));
  const int64_t most = std::max(limit, options_.limits.most_memory_bytes);
  absl::StatusOr<std::string> result = WorkInChild(job, scratch.path(), limit, &usage);
  LearnFrom(job, result.status(), limit, usage);
  if (result.ok()) CompareMemory(job, usage.peak_memory_bytes);
  if (!usage.ran_out_of_memory) return result;
  const bool is_limited = limit > 0 && IsOfItsLimit(result.status());
  const bool gets_more =
      job.place != nullptr && (is_limited ? limit < most : job.place->had_company());
  if (!gets_more) return Annotate(result.status(), fmt::format("on `{}`", options_.server));
  spdlog::warn("step={} request={} runs again alone: {}", job.step.method, job.context.request_id(),
               MessageOf(result.status()));
  // The files of this run would count twice while the other writes its own.
  job.drafts.reset();
  {
    const TempDir old = std::move(scratch);
  }
  return WorkAlone(job, scratch, limit == 0 ? 0 : most, usage.log);
}

// `log`: what the first process wrote.
absl::StatusOr<std::string> StepRunner::WorkAlone(
    Job& job, TempDir& scratch, int64_t memory_limit,
    const std::shared_ptr<const WrittenLines>& log) const {
  options_.registry->Get(metrics::kStepsRunAlone).Increment();
  job.context.Report({"wait for memory", "to run again alone", 0, 0});
  // The time that others take is none of the step's.
  const auto begin = std::chrono::steady_clock::now();
  QUENCH_RETURN_IF_ERROR(job.place->TakeAll(*job.caller));
  if (job.context.deadline()) {
    const auto end = *job.context.deadline() + (std::chrono::steady_clock::now() - begin);
    job.context.set_deadline(std::min(end, job.caller->deadline().value_or(end)));
  }
  absl::StatusOr<TempDir> empty = scratch_.Step();
  if (!empty.ok()) return NodeFault(empty.status());
  scratch = *std::move(empty);
  *job.execution.mutable_phases()->mutable_started() =
      google::protobuf::util::TimeUtil::GetCurrentTime();
  Usage usage;
  usage.log = log;
  absl::StatusOr<std::string> result = WorkInChild(job, scratch.path(), memory_limit, &usage);
  LearnFrom(job, result.status(), memory_limit, usage);
  if (!usage.ran_out_of_memory) return result;
  return Annotate(result.status(),
                  fmt::format("on `{}`, where it ran alone with the {} MiB for all steps (its "
                              "service's `steps.memory_bytes`)",
                              options_.server, Mebibytes(options_.memory->bytes())));
}

void StepRunner::LearnFrom(const Job& job, const absl::Status& status, int64_t memory_limit,
                           const Usage& usage) const {
  MemoryBook& book = options_.memory->book();
  const std::string kind = KindOf(job.step, job.request, options_.gpus);
  const int64_t input = InputBytes(job.request);
  if (usage.ran_out_of_memory) {
    book.LearnTooSmall(kind, input, usage.peak_memory_bytes,
                       IsOfItsLimit(status) ? memory_limit : 0);
  } else if (status.ok()) {  // one that failed early says nothing of those that do the work
    book.Learn(kind, input, usage.peak_memory_bytes);
  }
}

// For operators: how good the estimates are.
void StepRunner::CompareMemory(const Job& job, int64_t peak_bytes) const {
  if (job.place == nullptr) return;
  const int64_t reserved = job.place->bytes();
  const bool over = peak_bytes > reserved;
  options_.registry->Get(metrics::kStepMemoryPredicted).Increment(static_cast<double>(reserved));
  options_.registry->Get(metrics::kStepMemoryTaken).Increment(static_cast<double>(peak_bytes));
  if (over) options_.registry->Get(metrics::kStepsOverPrediction).Increment();
  spdlog::log(over ? spdlog::level::info : spdlog::level::debug,
              "step={} request={} memory: {} MiB reserved, {} MiB taken, for {} MiB of input",
              job.step.method, job.context.request_id(), Mebibytes(reserved), Mebibytes(peak_bytes),
              Mebibytes(InputBytes(job.request)));
}

}  // namespace quench::steps
