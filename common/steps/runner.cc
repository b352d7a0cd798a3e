#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/build_id.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/tenants.h"
#include "common/rpc/tracing.h"
#include "common/rpc/unknown_fields.h"
#include "common/runtime/quench_rt.h"
#include "common/steps/digests.h"
#include "common/steps/manifest.h"
#include "common/steps/node_guard.h"
#include "common/steps/runner_internal.h"
#include "quench/step/v1/step.pb.h"

namespace quench::steps {
namespace {

using build::bazel::remote::execution::v2::ActionResult;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::util::TimeUtil;
using metrics::CacheResult;
using step::v1::Execution;
using step::v1::StepOptions;

constexpr size_t kLongestSalt = 128;

const std::string& ThisBuild() {
  static const std::string id = BuildId();
  return id;
}

// The field `name` of a request or result; every step's has it.
const Message& PartOf(const Message& message, const char* name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  QUENCH_CHECK(field != nullptr);
  return message.GetReflection()->GetMessage(message, field);
}

const StepOptions& OptionsOf(const Message& request) {
  return static_cast<const StepOptions&>(PartOf(request, "step"));
}

Execution* ExecutionOf(Message* result) {
  const FieldDescriptor* field = result->GetDescriptor()->FindFieldByName("execution");
  QUENCH_CHECK(field != nullptr);
  return static_cast<Execution*>(result->GetReflection()->MutableMessage(result, field));
}

bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

absl::Status CheckOptions(const StepOptions& options) {
  StatusCollector problems;
  std::vector<rpc::FieldViolation> violations;
  const auto wrong = [&](const char* field, const std::string& what) {
    problems.Add(InvalidArgument("step.{}: {}", field, what));
    violations.push_back({fmt::format("step.{}", field), what});
  };
  if (!options.tenant().empty() && !rpc::IsTenant(options.tenant())) {
    wrong("tenant", "must be lower-case letters, digits and `-`, at most 63");
  }
  if (options.request_id().size() > 128 || !IsPrintable(options.request_id())) {
    wrong("request_id", "must be printable ASCII without spaces, at most 128 characters");
  }
  if (options.salt().size() > kLongestSalt) {
    wrong("salt", fmt::format("has {} characters, at most {} are taken", options.salt().size(),
                              kLongestSalt));
  }
  if (!step::v1::CacheMode_IsValid(options.cache())) {
    wrong("cache", fmt::format("{} is not a cache mode", static_cast<int>(options.cache())));
  }
  absl::Status status = problems.Finish();
  for (const auto& violation : violations) status = rpc::WithField(std::move(status), violation);
  return status;
}

// Features of the CPU that libraries of this server run on.
std::string ThisCpu() {
  std::array<char, 512> names{};
  quench_rt_cpu_names(names.data(), names.size());
  return names.data();
}

void AddBlobs(const std::vector<BlobId>& blobs, ActionResult* action) {
  for (const BlobId& blob : blobs) {
    auto* file = action->add_output_files();
    file->set_path(blob.hash);
    file->mutable_digest()->set_hash(blob.hash);
    file->mutable_digest()->set_size_bytes(static_cast<int64_t>(blob.size));
  }
}

}  // namespace

absl::StatusOr<std::string> StepRunner::TenantOf(const Message& request,
                                                 const StepContext& context) {
  return rpc::TenantOfCall(context.tenant(), OptionsOf(request).tenant());
}

absl::StatusOr<std::unique_ptr<StepRunner>> StepRunner::Create(const RunnerOptions& options,
                                                               StorageOf storage) {
  QUENCH_ASSIGN_OR_RETURN(ScratchFolder scratch, ScratchFolder::Create(options.scratch));
  RunnerOptions checked = options;
  if (checked.max_threads == 0) {
    checked.max_threads = static_cast<int>(quench_rt_cpus());
  }
  std::unique_ptr<StepRunner> runner(
      new StepRunner(std::move(checked), std::move(storage), std::move(scratch)));
  if (!options.require_sandbox) return runner;
  if (options.in_process) {
    return absl::FailedPreconditionError(
        "the sandbox is required, and steps on threads (isolation NONE) have none");
  }
  QUENCH_ASSIGN_OR_RETURN(const unsigned walls, runner->Walls());
  const absl::Status status = CheckWalls(walls);
  if (!status.ok()) return Annotate(status, "the sandbox is required, and not whole");
  return runner;
}

std::string StepRunner::KeyOf(const Step& step, const Message& request,
                              const std::string& tenant) const {
  std::string machine;
  if (step.caching(request) == Caching::kOfThisCpu) machine = ThisCpu();
  if (!machine.empty() && HasDevice(request)) {
    for (const std::string& gpu : options_.gpus.names) machine += ", " + gpu;
  }
  return StepKey(step.method, request, tenant, ThisBuild(), machine);
}

absl::Status StepRunner::Accept(const Step& step, const Message& request,
                                const StepContext& context, step::v1::Accepted* accepted) const {
  QUENCH_RETURN_IF_ERROR(rpc::CheckKnownFields(request));
  QUENCH_RETURN_IF_ERROR(CheckOptions(OptionsOf(request)));
  QUENCH_RETURN_IF_ERROR(CheckDigests(request));
  QUENCH_ASSIGN_OR_RETURN(const std::string tenant, TenantOf(request, context));
  QUENCH_RETURN_IF_ERROR(CheckDevice(request, options_.gpus, options_.server));
  accepted->set_step_key(KeyOf(step, request, tenant));
  accepted->set_build_id(ThisBuild());
  accepted->set_server(options_.server);
  *accepted->mutable_time() = TimeUtil::GetCurrentTime();
  return absl::OkStatus();
}

absl::Status StepRunner::Run(const Step& step, const Message& request, const StepContext& context,
                             Message* result, MemoryBudget::Place* place) const {
  StepContext limited = context;
  const auto end = std::chrono::steady_clock::now() + options_.max_wall_time;
  const bool is_limited =
      options_.max_wall_time.count() > 0 && (!context.deadline() || end < *context.deadline());
  if (is_limited) limited.set_deadline(end);
  QUENCH_ASSIGN_OR_RETURN(const std::string tenant, TenantOf(request, context));
  Job job{step, request, limited, result, tenant, "", nullptr, {}, {}, std::nullopt, {}};
  job.key = KeyOf(step, request, job.tenant);
  job.place = place;
  job.caller = &context;
  const std::optional<TraceContext> caller = ParseTraceparent(context.traceparent());
  const int64_t start_ns = rpc::UnixNanoseconds();
  TraceContext span;
  if (options_.tracer != nullptr) {
    span = options_.tracer->Begin(context.traceparent());
    limited.set_traceparent(span.traceparent());
  }
  const absl::Status status = Do(job);
  if (options_.tracer != nullptr) {
    RecordStep(job, span, caller ? caller->span_id : "", start_ns,
               status.ok() && ExecutionOf(result)->cache_hit(), status);
  }
  if (is_limited && absl::IsDeadlineExceeded(status)) {
    return rpc::Error(rpc::Reason::kStepTimedOut,
                      fmt::format("the step has not ended within {} s, this server's max_wall_time",
                                  static_cast<double>(options_.max_wall_time.count()) / 1000));
  }
  return WithNodeFault(status);
}

absl::Status StepRunner::Do(Job& job) const {
  absl::StatusOr<std::shared_ptr<rpc::TenantStore>> storage = storage_(job.tenant);
  if (!storage.ok()) return WithStoreFault(storage.status());
  job.storage = *std::move(storage);
  *job.execution.mutable_phases()->mutable_accepted() = TimeUtil::GetCurrentTime();
  const absl::StatusOr<bool> hit = LookUp(job);
  if (!hit.ok()) return WithStoreFault(hit.status());
  if (*hit) return absl::OkStatus();
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = Work(job);
  const auto outcome = status.ok()                 ? metrics::Result::kOk
                       : absl::IsCancelled(status) ? metrics::Result::kCancelled
                                                   : metrics::Result::kFailed;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  options_.registry->Get(metrics::kStepSeconds, job.step.stage, outcome)
      .Observe(took.count(), job.context.traceparent());
  return status;
}

absl::StatusOr<bool> StepRunner::LookUp(Job& job) const {
  QUENCH_ASSIGN_OR_RETURN(const std::optional<CacheResult> found, Find(job));
  if (!found) return false;
  options_.registry->Get(metrics::kActionCacheRequests, *found).Increment();
  const bool is_hit = found == CacheResult::kHit;
  if (is_hit) ExecutionOf(job.result)->set_cache_hit(true);
  return is_hit;
}

absl::StatusOr<std::optional<CacheResult>> StepRunner::Find(Job& job) const {
  const StepOptions& options = OptionsOf(job.request);
  const bool reads = options.cache() == step::v1::CACHE_MODE_UNSPECIFIED ||
                     options.cache() == step::v1::CACHE_MODE_USE;
  if (job.step.caching(job.request) == Caching::kNever || job.storage->actions() == nullptr ||
      !reads)
    return std::nullopt;
  QUENCH_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                          job.storage->actions()->Get(job.key, job.context));
  ActionResult action;
  // A cache that others write, or that leaves results out, may say anything: a result that is ours
  // says which step it is of.
  if (!bytes || !action.ParseFromString(*bytes) ||
      !job.result->ParseFromString(action.stdout_raw()) ||
      ExecutionOf(job.result)->step_key() != job.key) {
    job.result->Clear();
    return CacheResult::kMiss;
  }
  const std::vector<BlobId> blobs = DigestsIn(*job.result);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<BlobId> missing,
                          job.storage->Missing(blobs, job.context));
  QUENCH_ASSIGN_OR_RETURN(const bool has_records, HasItsRecords(job));
  if (missing.empty() && has_records) return CacheResult::kHit;
  job.result->Clear();
  return CacheResult::kIncomplete;
}

absl::Status StepRunner::FetchInputs(Job& job) const {
  QUENCH_RETURN_IF_ERROR(Fetch(job, DigestsIn(job.request)));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<BlobId> manifests, ManifestsIn(job.request));
  std::vector<BlobId> samples;
  for (const BlobId& id : manifests) {
    QUENCH_ASSIGN_OR_RETURN(const auto file, job.storage->local().Open(id.hash));
    const auto manifest =
        ParseManifest({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
    if (!manifest.ok()) return rpc::FieldError("samples.manifest", MessageOf(manifest.status()));
    for (BlobId& blob : BlobsOf(*manifest)) samples.push_back(std::move(blob));
  }
  return Fetch(job, samples);
}

// They stay until the job has ended.
absl::Status StepRunner::Fetch(Job& job, const std::vector<BlobId>& inputs) {
  job.held.push_back(job.storage->Hold(inputs));
  job.inputs.insert(job.inputs.end(), inputs.begin(), inputs.end());
  return job.storage->Fetch(inputs, job.context);
}

absl::Status StepRunner::Work(Job& job) const {
  QUENCH_RETURN_IF_ERROR(CheckLibraries(job));
  QUENCH_RETURN_IF_ERROR(WithStoreFault(FetchInputs(job)));
  auto& phases = *job.execution.mutable_phases();
  *phases.mutable_inputs_fetched() = TimeUtil::GetCurrentTime();
  absl::StatusOr<TempDir> scratch = scratch_.Step();
  if (!scratch.ok()) return NodeFault(scratch.status());
  *phases.mutable_started() = TimeUtil::GetCurrentTime();
  std::string bytes;
  if (options_.in_process) {
    const Workplace place{job.storage->local(), scratch->path(), options_.max_threads};
    QUENCH_ASSIGN_OR_RETURN(bytes,
                            job.step.run(job.request.SerializeAsString(), place, job.context));
  } else {
    QUENCH_ASSIGN_OR_RETURN(bytes, WorkInChildren(job, *scratch));
  }
  *phases.mutable_work_done() = TimeUtil::GetCurrentTime();
  if (!job.result->ParseFromString(bytes)) return Internal("the step's result is damaged");
  return WithStoreFault(StoreOutputs(job));
}

absl::Status StepRunner::Probe() const {
  const std::string bytes(size_t{1} << 20, 'p');
  QUENCH_ASSIGN_OR_RETURN(const TempDir scratch, scratch_.Step());
  QUENCH_RETURN_IF_ERROR(WriteFileAtomically(scratch.path() / "probe", bytes));
  QUENCH_ASSIGN_OR_RETURN(const auto storage, storage_(rpc::kDefaultTenant));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, storage->local().Create());
  QUENCH_RETURN_IF_ERROR(writer->Append(std::as_bytes(std::span(bytes))));
  return storage->Missing({BlobId{Sha256Hex(bytes), bytes.size()}}, {}).status();
}

absl::Status StepRunner::StoreOutputs(Job& job) const {
  if (job.drafts) QUENCH_RETURN_IF_ERROR(AdoptDrafts(job));
  const std::vector<BlobId> outputs = DigestsIn(*job.result);
  QUENCH_RETURN_IF_ERROR(job.storage->Publish(outputs, job.context));
  QUENCH_RETURN_IF_ERROR(AttestLibraries(job));
  *job.execution.mutable_phases()->mutable_outputs_stored() = TimeUtil::GetCurrentTime();
  job.execution.set_step_key(job.key);
  job.execution.set_build_id(ThisBuild());
  job.execution.set_server(options_.server);
  *ExecutionOf(job.result) = job.execution;
  if (job.step.caching(job.request) == Caching::kNever || job.storage->actions() == nullptr ||
      OptionsOf(job.request).cache() == step::v1::CACHE_MODE_OFF) {
    return absl::OkStatus();
  }
  ActionResult action;
  AddBlobs(outputs, &action);
  action.set_stdout_raw(job.result->SerializeAsString());
  // A result that cannot be remembered is a result all the same.
  const absl::Status status =
      job.storage->actions()->Put(job.key, action.SerializeAsString(), job.context);
  if (!status.ok()) spdlog::warn("action cache: {}", MessageOf(status));
  return absl::OkStatus();
}

}  // namespace quench::steps
