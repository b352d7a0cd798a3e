#include "services/gateway/blobs/action_cache.h"

#include <spdlog/spdlog.h>

#include "common/base/status.h"
#include "common/rpc/on_pool.h"

namespace quench::gateway {
namespace {

using metrics::CacheResult;

bool Has(LocalBlobStore& store, const reapi::Digest& digest) {
  return store.Use({digest.hash(), static_cast<uint64_t>(digest.size_bytes())});
}

bool HasFiles(LocalBlobStore& store, const reapi::Directory& folder) {
  const auto& files = folder.files();
  return std::all_of(files.begin(), files.end(),
                     [&](const reapi::FileNode& file) { return Has(store, file.digest()); });
}

bool HasTree(LocalBlobStore& store, const reapi::Digest& digest) {
  if (!Has(store, digest)) return false;
  const auto bytes = store.Open(digest.hash());
  reapi::Tree tree;
  if (!bytes.ok() ||
      !tree.ParseFromArray((*bytes)->bytes().data(), static_cast<int>((*bytes)->bytes().size()))) {
    return false;
  }
  return HasFiles(store, tree.root()) &&
         std::all_of(tree.children().begin(), tree.children().end(),
                     [&](const reapi::Directory& folder) { return HasFiles(store, folder); });
}

absl::StatusOr<reapi::ActionResult> GetResult(const BlobServerParts& parts,
                                              const reapi::GetActionResultRequest& request,
                                              const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckFunction(request.digest_function()));
  QUENCH_ASSIGN_OR_RETURN(const BlobId key, BlobIdOf(request.action_digest(), "action_digest"));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                          BlobsOf(parts, request.instance_name(), step));
  QUENCH_ASSIGN_OR_RETURN(const std::optional<std::string> value,
                          blobs->actions->Get(key.hash, step));
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
  if (!IsComplete(result, *blobs->store)) {
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
      blobs->actions->Put(key.hash, request.action_result().SerializeAsString(), step));
  return request.action_result();
}

}  // namespace

bool IsComplete(const reapi::ActionResult& result, LocalBlobStore& store) {
  for (const reapi::OutputFile& file : result.output_files()) {
    if (!Has(store, file.digest())) return false;
  }
  for (const reapi::OutputDirectory& folder : result.output_directories()) {
    if (!HasTree(store, folder.tree_digest())) return false;
  }
  return (!result.has_stdout_digest() || Has(store, result.stdout_digest())) &&
         (!result.has_stderr_digest() || Has(store, result.stderr_digest()));
}

ActionCacheService::ActionCacheService(BlobServerParts& parts)
    : parts_(parts),
      get_(parts.pool, reapi::ActionCache::service_full_name(), "GetActionResult",
           metrics::GrpcType::kUnary),
      update_(parts.pool, reapi::ActionCache::service_full_name(), "UpdateActionResult",
              metrics::GrpcType::kUnary) {}

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
