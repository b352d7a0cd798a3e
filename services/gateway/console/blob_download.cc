#include "services/gateway/console/blob_download.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/rpc/metadata.h"
#include "common/rpc/resource_name.h"
#include "google/bytestream/bytestream.grpc.pb.h"

namespace quench::gateway {

namespace bytestream = ::google::bytestream;

struct BlobDownload::Call {
  Call(const rpc::Channel& gateway, const StepContext& step)
      : client(gateway, step), stub(gateway.grpc()) {}
  ~Call() {
    if (reader == nullptr) return;
    client.context()->TryCancel();
    bytestream::ReadResponse rest;
    while (reader->Read(&rest)) {
    }
    (void)reader->Finish();
  }
  rpc::ClientCall client;
  bytestream::ByteStream::Stub stub;
  std::unique_ptr<grpc::ClientReader<bytestream::ReadResponse>> reader;
};

BlobDownload::BlobDownload(std::shared_ptr<rpc::Channel> gateway,
                           std::shared_ptr<CancelToken> cancel, Link link)
    : gateway_(std::move(gateway)), cancel_(std::move(cancel)), link_(std::move(link)) {}

BlobDownload::~BlobDownload() = default;

absl::Status BlobDownload::Begin() { return Open(0); }

absl::Status BlobDownload::Open(uint64_t offset) {
  call_ = std::make_unique<Call>(*gateway_, StepContext(cancel_, nullptr));
  if (!link_.authorization.empty())
    call_->client.context()->AddMetadata(rpc::kAuthorizationKey, link_.authorization);
  bytestream::ReadRequest request;
  request.set_resource_name(rpc::FormatResourceName({link_.instance, "", link_.blob}));
  request.set_read_offset(static_cast<int64_t>(offset));
  call_->reader = call_->stub.Read(call_->client.context(), request);
  offset_ = offset;
  return Next();
}

absl::Status BlobDownload::Next() {
  bytestream::ReadResponse response;
  used_ = 0;
  chunk_.clear();
  if (call_->reader->Read(&response)) {
    chunk_ = std::move(*response.mutable_data());
    return absl::OkStatus();
  }
  const auto reader = std::move(call_->reader);
  return rpc::FromGrpc(reader->Finish());
}

bool BlobDownload::Give(uint64_t offset, uint64_t most,
                        const std::function<bool(const char* bytes, size_t size)>& take) {
  absl::Status status;
  if (offset != offset_ || call_ == nullptr) status = Open(offset);
  while (status.ok() && used_ == chunk_.size()) {
    if (call_->reader == nullptr) return false;  // it has ended before its size
    status = Next();
  }
  if (!status.ok()) {
    spdlog::info("console: blob {}: {}", link_.blob.hash, MessageOf(status));
    return false;
  }
  const size_t size = static_cast<size_t>(std::min<uint64_t>(most, chunk_.size() - used_));
  if (!take(chunk_.data() + used_, size)) return false;
  used_ += size;
  offset_ += size;
  return true;
}

}  // namespace quench::gateway
