#include "services/gateway/blobs/action_cache.h"

#include <spdlog/spdlog.h>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/on_pool.h"

namespace quench::gateway {
namespace {

using metrics::CacheResult;

BlobId IdOf(const reapi::Digest& digest) {
  return {digest.hash(), static_cast<uint64_t>(digest.size_bytes())};
}

void AddFiles(const reapi::Directory& folder, std::vector<BlobId>* blobs) {
  for (const reapi::FileNode& file : folder.files()) blobs->push_back(IdOf(file.digest()));
}

// The blobs of a tree, itself among them. False: it is not there, or no tree.
absl::StatusOr<bool> AddTree(const reapi::Digest& digest, rpc::TenantStore& store,
                             const StepContext& step, std::vector<BlobId>* blobs) {
  if (!IsDigest(digest.hash())) return false;
  const absl::Status fetched = store.Fetch({IdOf(digest)}, step);
  if (rpc::ReasonOf(fetched) == rpc::ReasonName(rpc::Reason::kBlobMissing)) return false;
  QUENCH_RETURN_IF_ERROR(fetched);
  const auto bytes = store.local().Open(digest.hash());
  reapi::Tree tree;
  if (!bytes.ok() ||
      !tree.ParseFromArray((*bytes)->bytes().data(), static_cast<int>((*bytes)->bytes().size()))) {
    return false;
  }
  AddFiles(tree.root(), blobs);
  for (const reapi::Directory& folder : tree.children()) AddFiles(folder, blobs);
  return true;
}

absl::StatusOr<reapi::ActionResult> GetResult(const BlobServerParts& parts,
                                              const reapi::GetActionResultRequest& request,
                                              const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckFunction(request.digest_function()));
  QUENCH_ASSIGN_OR_RETURN(const BlobId key, BlobIdOf(request.action_digest(), "action_digest"));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                          BlobsOf(parts, request.instance_name(), step));
  QUENCH_ASSIGN_OR_RETURN(const std::optional<std::string> value,
                          blobs->shared->actions()->Get(key.hash, step));
  const auto count = [&](CacheResult result) {
    parts.pool.options().registry->Get(metrics::kActionCacheRequests, result).Increment();
  };
  reapi::ActionResult result;
  if (!value) {
    count(CacheResult::kMiss);
    return absl::NotFoundError(fmt::format("no result of action `{}` is known", key.hash));
  }
  if (!result.ParseFromString(*value)) {
    spdlog::error("the stored result of action `{}` is damaged, it counts as unknown", key.hash);
    count(CacheResult::kMiss);
    return absl::NotFoundError(fmt::format("no result of action `{}` is known", key.hash));
  }
  QUENCH_ASSIGN_OR_RETURN(const bool complete, IsComplete(result, *blobs->shared, step));
  if (!complete) {
    count(CacheResult::kIncomplete);
    return absl::NotFoundError(
        fmt::format("the result of action `{}` names a blob that is gone", key.hash));
  }
  count(CacheResult::kHit);
  return result;
}

absl::StatusOr<reapi::ActionResult> UpdateResult(const BlobServerParts& parts,
                                                 const reapi::UpdateActionResultRequest& request,
                                                 const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckFunction(request.digest_function()));
  QUENCH_ASSIGN_OR_RETURN(const BlobId key, BlobIdOf(request.action_digest(), "action_digest"));
  if (!MayUpdateActions(step)) {
    return absl::PermissionDeniedError(
        "results of actions are written by services only: the call brings no token of tenant "
        "`gateway`");
  }
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                          BlobsOf(parts, request.instance_name(), step));
  QUENCH_RETURN_IF_ERROR(
      blobs->shared->actions()->Put(key.hash, request.action_result().SerializeAsString(), step));
  return request.action_result();
}

}  // namespace

absl::StatusOr<bool> IsComplete(const reapi::ActionResult& result, rpc::TenantStore& store,
                                const StepContext& step) {
  std::vector<BlobId> blobs;
  for (const reapi::OutputFile& file : result.output_files()) blobs.push_back(IdOf(file.digest()));
  if (result.has_stdout_digest()) blobs.push_back(IdOf(result.stdout_digest()));
  if (result.has_stderr_digest()) blobs.push_back(IdOf(result.stderr_digest()));
  for (const reapi::OutputDirectory& folder : result.output_directories()) {
    QUENCH_ASSIGN_OR_RETURN(const bool is_tree, AddTree(folder.tree_digest(), store, step, &blobs));
    if (!is_tree) return false;
  }
  for (const BlobId& blob : blobs) {
    if (!IsDigest(blob.hash)) return false;
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<BlobId> missing, store.Missing(blobs, step));
  return missing.empty();
}

ActionCacheService::ActionCacheService(BlobServerParts& parts)
    : parts_(parts),
      get_(parts.pool, reapi::ActionCache::service_full_name(), "GetActionResult",
           metrics::GrpcType::kUnary),
      update_(parts.pool, reapi::ActionCache::service_full_name(), "UpdateActionResult",
              metrics::GrpcType::kUnary, rpc::Effect::kChanges) {}

grpc::ServerUnaryReactor* ActionCacheService::GetActionResult(
    grpc::CallbackServerContext* context, const reapi::GetActionResultRequest* request,
    reapi::ActionResult* response) {
  return rpc::UnaryOnPool(get_, context, request, response,
                          [this](const auto& asked, const StepContext& step) {
                            return GetResult(parts_, asked, step);
                          });
}

grpc::ServerUnaryReactor* ActionCacheService::UpdateActionResult(
    grpc::CallbackServerContext* context, const reapi::UpdateActionResultRequest* request,
    reapi::ActionResult* response) {
  return rpc::UnaryOnPool(update_, context, request, response,
                          [this](const auto& asked, const StepContext& step) {
                            return UpdateResult(parts_, asked, step);
                          });
}

}  // namespace quench::gateway
