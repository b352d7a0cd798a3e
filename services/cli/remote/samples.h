// Samples on their way to a gateway.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "quench/step/v1/step.pb.h"
#include "services/cli/remote/client.h"

namespace quench::cli {

// Uploads the samples at `data`, as OpenSamples takes them: a file, a folder or a .zip archive. X.pb
// goes as X.pb.npy, for services know nothing of ONNX; all .pb files that cannot are told at once.
absl::StatusOr<step::v1::SampleManifest> UploadSamples(const std::string& data,
                                                       GatewayClient& client,
                                                       const StepContext& context);

// Uploads the manifest; the digest is for step::v1::Samples.
absl::StatusOr<Digest> UploadManifest(const step::v1::SampleManifest& manifest,
                                      GatewayClient& client, const StepContext& context);

}  // namespace quench::cli
