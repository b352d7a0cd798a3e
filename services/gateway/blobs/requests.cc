#include "services/gateway/blobs/requests.h"

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/tokens.h"

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
  const std::string& caller = step.tenant();
  if (!instance.empty() && !caller.empty() && caller != rpc::kGatewayTenant && caller != instance) {
    return absl::PermissionDeniedError(fmt::format("the token is of tenant `{}`, the blobs of `{}`",
                                                   caller, instance.substr(0, 80)));
  }
  absl::StatusOr<std::shared_ptr<TenantBlobs>> blobs =
      parts.folders.Of(instance.empty() ? caller : instance);
  if (absl::IsInvalidArgument(blobs.status())) {
    return BadField("instance_name", MessageOf(blobs.status()));
  }
  return blobs;
}

}  // namespace quench::gateway
