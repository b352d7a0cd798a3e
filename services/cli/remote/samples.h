// Samples on their way to a gateway.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "quench/step/v1/step.pb.h"
#include "services/cli/remote/client.h"

namespace quench::cli {

// Uploads the samples at `data`, as OpenSamples takes them: a file, a folder or a .zip archive.
// `files` become those of a step's request. X.pb goes as X.pb.npy, for services know nothing of
// ONNX; all .pb files that cannot are told at once.
absl::Status UploadSamples(const std::string& data, GatewayClient& client,
                           const StepContext& context,
                           google::protobuf::RepeatedPtrField<step::v1::File>& files);

}  // namespace quench::cli
