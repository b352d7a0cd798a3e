#include "services/gateway/blobs/requests.h"

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/tenants.h"

namespace quench::gateway {
namespace {

absl::Status BadField(const std::string& field, const std::string& description) {
  return rpc::WithField(InvalidArgument("`{}`: {}", field, description), {field, description});
}

}  // namespace

absl::Status CheckFunction(reapi::DigestFunction::Value function) {
  if (function == reapi::DigestFunction::UNKNOWN || function == reapi::DigestFunction::SHA256) {
    return absl::OkStatus();
  }
  return BadField("digest_function",
                  fmt::format("{} is not known here, only SHA256 is", static_cast<int>(function)));
}

absl::StatusOr<BlobId> BlobIdOf(const reapi::Digest& digest, const std::string& field) {
  if (!IsDigest(digest.hash())) {
    return BadField(field + ".hash", "must have 64 lower-case hex characters");
  }
  if (digest.size_bytes() < 0) return BadField(field + ".size_bytes", "must not be negative");
  return BlobId{digest.hash(), static_cast<uint64_t>(digest.size_bytes())};
}

bool MayUpdateActions(const StepContext& step) { return step.tenant() == rpc::kGatewayTenant; }

absl::StatusOr<std::shared_ptr<TenantBlobs>> BlobsOf(const BlobServerParts& parts,
                                                     const std::string& instance,
                                                     const StepContext& step) {
  const absl::StatusOr<std::string> tenant = rpc::TenantOfCall(step.tenant(), instance);
  if (absl::IsInvalidArgument(tenant.status())) {
    return BadField("instance_name", MessageOf(tenant.status()));
  }
  QUENCH_RETURN_IF_ERROR(tenant.status());
  return parts.folders.Of(*tenant);
}

absl::StatusOr<std::unique_ptr<BlobReader>> OpenBlob(const TenantBlobs& blobs, const BlobId& id,
                                                     const StepContext& step) {
  absl::StatusOr<std::unique_ptr<BlobReader>> reader = blobs.store->OpenReader(id);
  if (!absl::IsNotFound(reader.status())) return reader;
  const absl::Status fetched = blobs.shared->Fetch({id}, step);
  if (rpc::ReasonOf(fetched) == rpc::ReasonName(rpc::Reason::kBlobMissing)) return reader.status();
  QUENCH_RETURN_IF_ERROR(fetched);
  return blobs.store->OpenReader(id);
}

}  // namespace quench::gateway
