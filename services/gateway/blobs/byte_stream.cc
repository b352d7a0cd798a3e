#include "services/gateway/blobs/byte_stream.h"

#include "common/base/status.h"
#include "common/rpc/chunks_on_pool.h"
#include "common/rpc/on_pool.h"
#include "common/rpc/resource_name.h"

namespace quench::gateway {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

class BlobProducer final : public rpc::Producer<bytestream::ReadResponse> {
 public:
  BlobProducer(const BlobServerParts& parts, const bytestream::ReadRequest& request)
      : parts_(parts), request_(request) {}

  absl::StatusOr<bool> Next(bytestream::ReadResponse* response, const StepContext& step) override {
    if (reader_ == nullptr) QUENCH_RETURN_IF_ERROR(Open(step));
    if (position_ == end_) return false;
    const uint64_t count = std::min(kChunkBytes, end_ - position_);
    std::string* const data = response->mutable_data();
    data->resize(static_cast<size_t>(count));
    QUENCH_RETURN_IF_ERROR(
        reader_->ReadAt(position_, std::as_writable_bytes(std::span(data->data(), data->size()))));
    position_ += count;
    parts_.read.Increment(static_cast<double>(count));
    return true;
  }

 private:
  absl::Status Open(const StepContext& step) {
    QUENCH_ASSIGN_OR_RETURN(const rpc::ResourceName name,
                            rpc::ParseReadName(request_.resource_name()));
    if (request_.read_limit() < 0) {
      return InvalidArgument("`read_limit` is {}, it must not be negative", request_.read_limit());
    }
    if (request_.read_offset() < 0 ||
        static_cast<uint64_t>(request_.read_offset()) > name.blob.size) {
      return absl::OutOfRangeError(fmt::format("`read_offset` is {}, the blob has {} bytes",
                                               request_.read_offset(), name.blob.size));
    }
    QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                            BlobsOf(parts_, name.instance, step));
    QUENCH_ASSIGN_OR_RETURN(reader_, OpenBlob(*blobs, name.blob, step));
    position_ = static_cast<uint64_t>(request_.read_offset());
    const auto limit = static_cast<uint64_t>(request_.read_limit());
    end_ = limit == 0 ? name.blob.size : position_ + std::min(limit, name.blob.size - position_);
    return absl::OkStatus();
  }

  const BlobServerParts& parts_;
  const bytestream::ReadRequest request_;
  std::unique_ptr<BlobReader> reader_;
  uint64_t position_ = 0, end_ = 0;
};

class BlobReceiver final
    : public rpc::Receiver<bytestream::WriteRequest, bytestream::WriteResponse> {
 public:
  BlobReceiver(const BlobServerParts& parts, rpc::AbortStream abort)
      : parts_(parts), abort_(std::move(abort)) {}

  absl::StatusOr<bool> Receive(const bytestream::WriteRequest& request,
                               const StepContext& step) override {
    if (upload_ == nullptr) {
      QUENCH_RETURN_IF_ERROR(Open(request, step));
    } else if (!request.resource_name().empty() && request.resource_name() != name_) {
      return InvalidArgument("`resource_name` is another one than in the first message");
    }
    if (request.write_offset() < 0) {
      return InvalidArgument("`write_offset` is {}, it must not be negative",
                             request.write_offset());
    }
    if (upload_->complete()) return Completed(step);
    const std::string& data = request.data();
    QUENCH_RETURN_IF_ERROR(upload_->Append(static_cast<uint64_t>(request.write_offset()),
                                           std::as_bytes(std::span(data.data(), data.size()))));
    parts_.written.Increment(static_cast<double>(data.size()));
    if (!request.finish_write()) return false;
    QUENCH_RETURN_IF_ERROR(upload_->Finish());
    return Completed(step);
  }

  // A client that ends without `finish_write` learns how far it came, and may go on later.
  absl::Status Finish(bytestream::WriteResponse* response, const StepContext&) override {
    if (upload_ == nullptr) return InvalidArgument("the stream has no message");
    response->set_committed_size(
        static_cast<int64_t>(completed_ ? id_.size : upload_->committed()));
    return absl::OkStatus();
  }

  std::string Resource() const override { return name_; }

 private:
  absl::StatusOr<bool> Completed(const StepContext& step) {
    QUENCH_RETURN_IF_ERROR(blobs_->shared->Publish({id_}, step));
    completed_ = true;
    return true;
  }

  absl::Status Open(const bytestream::WriteRequest& request, const StepContext& step) {
    name_ = request.resource_name();
    QUENCH_ASSIGN_OR_RETURN(const rpc::ResourceName name, rpc::ParseWriteName(name_));
    id_ = name.blob;
    if (id_.size > static_cast<uint64_t>(parts_.options.max_blob_bytes)) {
      return InvalidArgument("a blob of {} bytes, at most {} are taken", id_.size,
                             parts_.options.max_blob_bytes);
    }
    QUENCH_ASSIGN_OR_RETURN(blobs_, BlobsOf(parts_, name.instance, step));
    QUENCH_ASSIGN_OR_RETURN(upload_,
                            blobs_->uploads->Begin(name.upload_id, name.blob, [abort = abort_] {
                              abort(absl::AbortedError("another call has taken over the upload"));
                            }));
    return absl::OkStatus();
  }

  const BlobServerParts& parts_;
  const rpc::AbortStream abort_;
  std::string name_;
  BlobId id_;
  bool completed_ = false;
  std::shared_ptr<TenantBlobs> blobs_;
  std::unique_ptr<Upload> upload_;
};

absl::StatusOr<bytestream::QueryWriteStatusResponse> QueryUpload(
    const BlobServerParts& parts, const bytestream::QueryWriteStatusRequest& request,
    const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const rpc::ResourceName name,
                          rpc::ParseWriteName(request.resource_name()));
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<TenantBlobs> blobs,
                          BlobsOf(parts, name.instance, step));
  QUENCH_ASSIGN_OR_RETURN(const Uploads::State state,
                          blobs->uploads->Query(name.upload_id, name.blob));
  bytestream::QueryWriteStatusResponse response;
  response.set_committed_size(static_cast<int64_t>(state.committed));
  response.set_complete(state.complete);
  return response;
}

}  // namespace

ByteStreamService::ByteStreamService(BlobServerParts& parts)
    : parts_(parts),
      read_(parts.pool, bytestream::ByteStream::service_full_name(), "Read",
            metrics::GrpcType::kServerStream),
      write_(parts.pool, bytestream::ByteStream::service_full_name(), "Write",
             metrics::GrpcType::kClientStream, rpc::Effect::kChanges),
      query_(parts.pool, bytestream::ByteStream::service_full_name(), "QueryWriteStatus",
             metrics::GrpcType::kUnary) {}

grpc::ServerWriteReactor<bytestream::ReadResponse>* ByteStreamService::Read(
    grpc::CallbackServerContext* context, const bytestream::ReadRequest* request) {
  return rpc::SendOnPool<bytestream::ReadResponse>(
      read_, context, std::make_unique<BlobProducer>(parts_, *request));
}

grpc::ServerReadReactor<bytestream::WriteRequest>* ByteStreamService::Write(
    grpc::CallbackServerContext* context, bytestream::WriteResponse* response) {
  return rpc::ReceiveOnPool<bytestream::WriteRequest>(
      write_, context, response, [this](rpc::AbortStream abort) {
        return std::make_unique<BlobReceiver>(parts_, std::move(abort));
      });
}

grpc::ServerUnaryReactor* ByteStreamService::QueryWriteStatus(
    grpc::CallbackServerContext* context, const bytestream::QueryWriteStatusRequest* request,
    bytestream::QueryWriteStatusResponse* response) {
  return rpc::UnaryOnPool(query_, context, request, response,
                          [this](const auto& asked, const StepContext& step) {
                            return QueryUpload(parts_, asked, step);
                          });
}

}  // namespace quench::gateway
