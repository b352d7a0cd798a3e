// Manifests of samples: one blob that names the blobs of samples, so that requests stay small.
#pragma once

#include <absl/status/statusor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/blobs/blob_id.h"
#include "quench/step/v1/step.pb.h"

namespace quench::steps {

inline constexpr uint64_t kMaxManifestBytes = uint64_t{16} << 20;

// The manifests that `message` names, each once, in the order of first use. INVALID_ARGUMENT with a
// field violation for each that is too large to be one.
absl::StatusOr<std::vector<BlobId>> ManifestsIn(const google::protobuf::Message& message);

// INVALID_ARGUMENT if `bytes` are not a manifest, or have invalid digests.
absl::StatusOr<step::v1::SampleManifest> ParseManifest(std::string_view bytes);

// The blobs that the manifest names, each once.
std::vector<BlobId> BlobsOf(const step::v1::SampleManifest& manifest);

}  // namespace quench::steps
