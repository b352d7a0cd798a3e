// google.bytestream.ByteStream over the blobs of the caller.
#pragma once

#include "common/rpc/call.h"
#include "google/bytestream/bytestream.grpc.pb.h"
#include "services/gateway/blobs/requests.h"

namespace quench::gateway {

namespace bytestream = ::google::bytestream;

// Chunks of 1 MiB; two of them in memory for each stream.
class ByteStreamService final : public bytestream::ByteStream::CallbackService {
 public:
  explicit ByteStreamService(BlobServerParts& parts);

 private:
  grpc::ServerWriteReactor<bytestream::ReadResponse>* Read(
      grpc::CallbackServerContext* context, const bytestream::ReadRequest* request) override;
  grpc::ServerReadReactor<bytestream::WriteRequest>* Write(
      grpc::CallbackServerContext* context, bytestream::WriteResponse* response) override;
  grpc::ServerUnaryReactor* QueryWriteStatus(
      grpc::CallbackServerContext* context, const bytestream::QueryWriteStatusRequest* request,
      bytestream::QueryWriteStatusResponse* response) override;

  BlobServerParts& parts_;
  const rpc::Method read_, write_, query_;
};

}  // namespace quench::gateway
