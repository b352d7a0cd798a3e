// quench.gateway.v1.Samples over the blobs of the caller.
#pragma once

#include "common/rpc/call.h"
#include "quench/gateway/v1/samples.grpc.pb.h"
#include "services/gateway/blobs/requests.h"

namespace quench::gateway {

// Two messages in memory for each stream.
class SamplesService final : public v1::Samples::CallbackService {
 public:
  explicit SamplesService(BlobServerParts& parts);

 private:
  grpc::ServerReadReactor<v1::UploadSamplesRequest>* UploadSamples(
      grpc::CallbackServerContext* context, v1::UploadSamplesResponse* response) override;

  BlobServerParts& parts_;
  const rpc::Method upload_;
};

}  // namespace quench::gateway
