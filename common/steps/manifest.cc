#include "common/steps/manifest.h"

#include <set>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/wire/walk.h"
#include "common/rpc/errors.h"

namespace quench::steps {

absl::StatusOr<std::vector<BlobId>> ManifestsIn(const google::protobuf::Message& message) {
  std::vector<BlobId> found;
  std::set<std::string> seen;
  StatusCollector problems;
  std::vector<rpc::FieldViolation> violations;
  wire::ForEachMessage<step::v1::Samples>(
      message, [&](const step::v1::Samples& samples, const std::string& path) {
        const auto& digest = samples.manifest();
        if (digest.hash().empty() || !seen.insert(digest.hash()).second) return;
        const auto size = static_cast<uint64_t>(digest.size_bytes());
        if (size <= kMaxManifestBytes) {
          found.push_back({digest.hash(), size});
          return;
        }
        const std::string what =
            fmt::format("has {} bytes, manifests have at most {}", size, kMaxManifestBytes);
        violations.push_back({path + ".manifest", what});
        problems.Add(InvalidArgument("{}.manifest: {}", path, what));
      });
  absl::Status status = problems.Finish();
  for (const rpc::FieldViolation& violation : violations)
    status = rpc::WithField(std::move(status), violation);
  if (!status.ok()) return status;
  return found;
}

absl::StatusOr<step::v1::SampleManifest> ParseManifest(std::string_view bytes) {
  step::v1::SampleManifest manifest;
  if (bytes.size() > kMaxManifestBytes ||
      !manifest.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("the blob is not a serialised quench.step.v1.SampleManifest");
  }
  if (manifest.files().empty()) return InvalidArgument("the manifest has no files");
  for (const step::v1::File& file : manifest.files()) {
    if (IsDigest(file.digest().hash()) && file.digest().size_bytes() >= 0) continue;
    return InvalidArgument(
        "digest of `{}`: `{}` with {} bytes is none, must be a sha256 and a size",
        file.path().substr(0, 80), file.digest().hash().substr(0, 80), file.digest().size_bytes());
  }
  return manifest;
}

std::vector<BlobId> BlobsOf(const step::v1::SampleManifest& manifest) {
  std::vector<BlobId> blobs;
  std::set<std::string_view> seen;
  for (const step::v1::File& file : manifest.files()) {
    if (seen.insert(file.digest().hash()).second)
      blobs.push_back({file.digest().hash(), static_cast<uint64_t>(file.digest().size_bytes())});
  }
  return blobs;
}

}  // namespace quench::steps
