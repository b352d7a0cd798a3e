#include "services/gateway/blobs/storage.h"

#include "common/base/status.h"
#include "common/rpc/chunks_on_pool.h"
#include "common/rpc/on_pool.h"

namespace quench::gateway {
namespace {

using metrics::GrpcType;

void SetStatus(const absl::Status& status, google::rpc::Status* out) {
  out->set_code(static_cast<int>(status.code()));
  out->set_message(MessageOf(status));
}

absl::Status CheckBatch(const BlobServerParts& parts, int64_t bytes) {
  if (bytes <= parts.options.max_batch_bytes) return absl::OkStatus();
  return InvalidArgument("a batch of {} bytes, at most {} are served: use ByteStream", bytes,
                         parts.options.max_batch_bytes);
}

absl::StatusOr<reapi::FindMissingBlobsResponse> FindMissing(
    const BlobServerParts& parts, const reapi::FindMissingBlobsRequest& request,
    const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckFunction(request.digest_function()));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                          BlobsOf(parts, request.instance_name(), step));
  std::set<BlobId> asked;
  for (int i = 0; i < request.blob_digests_size(); ++i) {
    QUENCH_ASSIGN_OR_RETURN(BlobId id,
                            BlobIdOf(request.blob_digests(i), fmt::format("blob_digests[{}]", i)));
    asked.insert(std::move(id));
  }
  QUENCH_ASSIGN_OR_RETURN(const std::vector<BlobId> missing,
                          blobs->shared->Missing({asked.begin(), asked.end()}, step));
  reapi::FindMissingBlobsResponse response;
  for (const BlobId& id : missing) {
    reapi::Digest& digest = *response.add_missing_blob_digests();
    digest.set_hash(id.hash);
    digest.set_size_bytes(static_cast<int64_t>(id.size));
  }
  return response;
}

absl::Status Store(const BlobServerParts& parts, TenantBlobs& blobs,
                   const reapi::BatchUpdateBlobsRequest::Request& request, const BlobId& id,
                   const StepContext& step) {
  if (request.compressor() != reapi::Compressor::IDENTITY) {
    return Unsupported("blob `{}`: compressed data is not taken here", id.hash);
  }
  if (blobs.store->Use(id)) return blobs.shared->Publish({id}, step);
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, blobs.store->Create());
  QUENCH_RETURN_IF_ERROR(
      writer->Append(std::as_bytes(std::span(request.data().data(), request.data().size()))));
  QUENCH_RETURN_IF_ERROR(writer->CommitAs(id));
  parts.written.Increment(static_cast<double>(id.size));
  return blobs.shared->Publish({id}, step);
}

absl::StatusOr<reapi::BatchUpdateBlobsResponse> UpdateBatch(
    const BlobServerParts& parts, const reapi::BatchUpdateBlobsRequest& request,
    const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckFunction(request.digest_function()));
  int64_t bytes = 0;
  for (const auto& each : request.requests()) bytes += static_cast<int64_t>(each.data().size());
  QUENCH_RETURN_IF_ERROR(CheckBatch(parts, bytes));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                          BlobsOf(parts, request.instance_name(), step));
  reapi::BatchUpdateBlobsResponse response;
  for (int i = 0; i < request.requests_size(); ++i) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    const auto& each = request.requests(i);
    QUENCH_ASSIGN_OR_RETURN(const BlobId id,
                            BlobIdOf(each.digest(), fmt::format("requests[{}].digest", i)));
    auto* out = response.add_responses();
    *out->mutable_digest() = each.digest();
    SetStatus(Store(parts, *blobs, each, id, step), out->mutable_status());
  }
  return response;
}

absl::Status Load(const BlobServerParts& parts, const TenantBlobs& blobs, const BlobId& id,
                  const StepContext& step, std::string* data) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobReader> reader, OpenBlob(blobs, id, step));
  data->resize(static_cast<size_t>(id.size));
  const absl::Status status =
      reader->ReadAt(0, std::as_writable_bytes(std::span(data->data(), data->size())));
  if (!status.ok()) data->clear();
  parts.read.Increment(static_cast<double>(data->size()));
  return status;
}

absl::StatusOr<reapi::BatchReadBlobsResponse> ReadBatch(const BlobServerParts& parts,
                                                        const reapi::BatchReadBlobsRequest& request,
                                                        const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckFunction(request.digest_function()));
  std::vector<BlobId> ids;
  int64_t bytes = 0;
  for (int i = 0; i < request.digests_size(); ++i) {
    QUENCH_ASSIGN_OR_RETURN(BlobId id, BlobIdOf(request.digests(i), fmt::format("digests[{}]", i)));
    // Each is checked, so that the sum cannot overflow.
    QUENCH_RETURN_IF_ERROR(CheckBatch(parts, static_cast<int64_t>(id.size)));
    bytes += static_cast<int64_t>(id.size);
    ids.push_back(std::move(id));
  }
  QUENCH_RETURN_IF_ERROR(CheckBatch(parts, bytes));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                          BlobsOf(parts, request.instance_name(), step));
  reapi::BatchReadBlobsResponse response;
  for (size_t i = 0; i < ids.size(); ++i) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    auto* out = response.add_responses();
    *out->mutable_digest() = request.digests(static_cast<int>(i));
    SetStatus(Load(parts, *blobs, ids[i], step, out->mutable_data()), out->mutable_status());
  }
  return response;
}

class NoTrees final : public rpc::Producer<reapi::GetTreeResponse> {
 public:
  absl::StatusOr<bool> Next(reapi::GetTreeResponse*, const StepContext&) override {
    return Unsupported("trees of folders are not served here, only blobs are");
  }
};

rpc::Method MethodOf(BlobServerParts& parts, const char* name, GrpcType type = GrpcType::kUnary,
                     rpc::Effect effect = rpc::Effect::kReads) {
  return {parts.pool, reapi::ContentAddressableStorage::service_full_name(), name, type, effect};
}

}  // namespace

StorageService::StorageService(BlobServerParts& parts)
    : parts_(parts),
      find_(MethodOf(parts, "FindMissingBlobs")),
      update_(MethodOf(parts, "BatchUpdateBlobs", GrpcType::kUnary, rpc::Effect::kChanges)),
      read_(MethodOf(parts, "BatchReadBlobs")),
      tree_(MethodOf(parts, "GetTree", GrpcType::kServerStream)),
      split_(MethodOf(parts, "SplitBlob")),
      splice_(MethodOf(parts, "SpliceBlob")) {}

grpc::ServerUnaryReactor* StorageService::FindMissingBlobs(
    grpc::CallbackServerContext* context, const reapi::FindMissingBlobsRequest* request,
    reapi::FindMissingBlobsResponse* response) {
  return rpc::UnaryOnPool(find_, context, request, response,
                          [this](const auto& asked, const StepContext& step) {
                            return FindMissing(parts_, asked, step);
                          });
}

grpc::ServerUnaryReactor* StorageService::BatchUpdateBlobs(
    grpc::CallbackServerContext* context, const reapi::BatchUpdateBlobsRequest* request,
    reapi::BatchUpdateBlobsResponse* response) {
  return rpc::UnaryOnPool(update_, context, request, response,
                          [this](const auto& asked, const StepContext& step) {
                            return UpdateBatch(parts_, asked, step);
                          });
}

grpc::ServerUnaryReactor* StorageService::BatchReadBlobs(
    grpc::CallbackServerContext* context, const reapi::BatchReadBlobsRequest* request,
    reapi::BatchReadBlobsResponse* response) {
  return rpc::UnaryOnPool(read_, context, request, response,
                          [this](const auto& asked, const StepContext& step) {
                            return ReadBatch(parts_, asked, step);
                          });
}

grpc::ServerWriteReactor<reapi::GetTreeResponse>* StorageService::GetTree(
    grpc::CallbackServerContext* context, const reapi::GetTreeRequest*) {
  return rpc::SendOnPool<reapi::GetTreeResponse>(tree_, context, std::make_unique<NoTrees>());
}

grpc::ServerUnaryReactor* StorageService::SplitBlob(grpc::CallbackServerContext* context,
                                                    const reapi::SplitBlobRequest* request,
                                                    reapi::SplitBlobResponse* response) {
  return rpc::UnaryOnPool(
      split_, context, request, response,
      [](const auto&, const StepContext&) -> absl::StatusOr<reapi::SplitBlobResponse> {
        return Unsupported("blobs are not split here, read them with ByteStream");
      });
}

grpc::ServerUnaryReactor* StorageService::SpliceBlob(grpc::CallbackServerContext* context,
                                                     const reapi::SpliceBlobRequest* request,
                                                     reapi::SpliceBlobResponse* response) {
  return rpc::UnaryOnPool(
      splice_, context, request, response,
      [](const auto&, const StepContext&) -> absl::StatusOr<reapi::SpliceBlobResponse> {
        return Unsupported("blobs are not spliced here, write them with ByteStream");
      });
}

}  // namespace quench::gateway
