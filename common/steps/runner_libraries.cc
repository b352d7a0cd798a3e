// Libraries that steps run, and libraries that are the services' own.
#include <spdlog/spdlog.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/steps/node_guard.h"
#include "common/steps/runner_internal.h"

namespace quench::steps {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The blob that a field names, if it is set.
std::optional<BlobId> BlobIn(const Message& message, const std::string& name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  QUENCH_CHECK(field != nullptr);
  if (!message.GetReflection()->HasField(message, field)) return std::nullopt;
  const auto& digest = static_cast<const build::bazel::remote::execution::v2::Digest&>(
      message.GetReflection()->GetMessage(message, field));
  return BlobId{digest.hash(), static_cast<uint64_t>(digest.size_bytes())};
}

}  // namespace

// A result that somebody else has written into the cache makes no library one of ours.
absl::StatusOr<bool> StepRunner::HasItsRecords(Job& job) const {
  if (options_.provenance == nullptr || job.storage->records() == nullptr) return true;
  for (const std::string& field : job.step.makes_libraries) {
    const std::optional<BlobId> library = BlobIn(*job.result, field);
    if (!library) continue;
    QUENCH_ASSIGN_OR_RETURN(
        const bool known,
        options_.provenance->Knows(job.tenant, *library, *job.storage->records(), job.context));
    if (!known) return false;
  }
  return true;
}

absl::Status StepRunner::CheckLibraries(Job& job) const {
  if (options_.provenance == nullptr) return absl::OkStatus();
  StatusCollector problems;
  std::vector<rpc::FieldViolation> violations;
  for (const std::string& field : job.step.takes_libraries) {
    const std::optional<BlobId> library = BlobIn(job.request, field);
    if (!library) continue;
    bool known = false;
    if (ActionCache* const records = job.storage->records(); records != nullptr) {
      auto found = options_.provenance->Knows(job.tenant, *library, *records, job.context);
      if (!found.ok()) return WithStoreFault(found.status());
      known = *found;
    }
    if (known) continue;
    const std::string what = fmt::format(
        "library `{}` was not compiled by these services for tenant `{}`, and they run no other: "
        "compile the model with them, or use the library on a machine of your own, without a "
        "gateway",
        library->hash, job.tenant);
    problems.Add(InvalidArgument("{}: {}", field, what));
    violations.push_back({field, what});
  }
  absl::Status status = problems.Finish();
  for (const auto& violation : violations) status = rpc::WithField(std::move(status), violation);
  return status;
}

absl::Status StepRunner::AttestLibraries(Job& job) const {
  if (options_.provenance == nullptr || job.storage->records() == nullptr) return absl::OkStatus();
  for (const std::string& field : job.step.makes_libraries) {
    const std::optional<BlobId> library = BlobIn(*job.result, field);
    if (!library) continue;
    const absl::Status status =
        options_.provenance->Attest(job.tenant, *library, *job.storage->records(), job.context);
    // Somebody else's store, in which this service may not write: as with results.
    if (absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status)) {
      spdlog::warn("library `{}` cannot be run by steps: {}", library->hash, MessageOf(status));
      continue;
    }
    QUENCH_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace quench::steps
