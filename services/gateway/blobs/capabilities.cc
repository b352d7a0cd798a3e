#include "services/gateway/blobs/capabilities.h"

#include "common/base/status.h"
#include "common/rpc/on_pool.h"

namespace quench::gateway {
namespace {

absl::StatusOr<reapi::ServerCapabilities> Describe(const BlobServerParts& parts,
                                                   const StepContext& step) {
  reapi::ServerCapabilities capabilities;
  auto* cache = capabilities.mutable_cache_capabilities();
  cache->add_digest_functions(reapi::DigestFunction::SHA256);
  cache->mutable_action_cache_update_capabilities()->set_update_enabled(MayUpdateActions(step));
  cache->set_max_batch_total_size_bytes(parts.options.max_batch_bytes);
  cache->set_max_cas_blob_size_bytes(static_cast<int64_t>(std::min(
      parts.folders.max_upload_bytes(), static_cast<uint64_t>(parts.options.max_blob_bytes))));
  cache->set_symlink_absolute_path_strategy(reapi::SymlinkAbsolutePathStrategy::DISALLOWED);
  capabilities.mutable_low_api_version()->set_major(2);
  capabilities.mutable_high_api_version()->set_major(2);
  capabilities.mutable_high_api_version()->set_minor(3);
  return capabilities;
}

}  // namespace

CapabilitiesService::CapabilitiesService(BlobServerParts& parts)
    : parts_(parts),
      get_(parts.pool, reapi::Capabilities::service_full_name(), "GetCapabilities",
           metrics::GrpcType::kUnary) {}

grpc::ServerUnaryReactor* CapabilitiesService::GetCapabilities(
    grpc::CallbackServerContext* context, const reapi::GetCapabilitiesRequest* request,
    reapi::ServerCapabilities* response) {
  return rpc::UnaryOnPool(
      get_, context, request, response,
      [this](const auto&, const StepContext& step) { return Describe(parts_, step); });
}

}  // namespace quench::gateway
