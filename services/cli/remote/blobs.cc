#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "services/cli/labels.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/samples.h"

namespace quench::cli {
namespace {

// HASH/SIZE, as `put` prints it.
absl::StatusOr<Digest> ParseDigest(const std::string& text) {
  const size_t slash = text.find('/');
  Digest digest;
  digest.set_hash(text.substr(0, slash));
  int64_t size = -1;
  if (slash != std::string::npos) {
    const auto [end, error] =
        std::from_chars(text.data() + slash + 1, text.data() + text.size(), size);
    if (error != std::errc() || end != text.data() + text.size()) size = -1;
  }
  if (!IsDigest(digest.hash()) || size < 0) {
    return InvalidArgument(
        "`{}` is not HASH/SIZE as printed by `quench blobs put` and `quench workflow get`",
        text.substr(0, 120));
  }
  digest.set_size_bytes(size);
  return digest;
}

absl::StatusOr<std::unique_ptr<GatewayClient>> Open(const GatewayOptions& gateway,
                                                    const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(std::shared_ptr<LocalBlobStore> store, OpenStore());
  return GatewayClient::Open(gateway, std::move(store), context);
}

}  // namespace

absl::Status PutThere(const GatewayOptions& gateway, const std::vector<std::string>& files,
                      bool json, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const auto client, Open(gateway, context));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                          client->UploadFiles({files.begin(), files.end()}, context));
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < digests.size(); ++i) {
    list.push_back(
        {{"file", files[i]}, {"hash", digests[i].hash()}, {"size_bytes", digests[i].size_bytes()}});
    if (!json) fmt::print("{}/{}  {}\n", digests[i].hash(), digests[i].size_bytes(), files[i]);
  }
  if (json) fmt::print("{}\n", list.dump(2));
  return absl::OkStatus();
}

absl::Status PutSamplesThere(const GatewayOptions& gateway, const std::string& data,
                             const std::string& labels, bool json, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> classes, ReadLabels(labels));
  QUENCH_ASSIGN_OR_RETURN(const auto client, Open(gateway, context));
  QUENCH_ASSIGN_OR_RETURN(step::v1::SampleManifest manifest, UploadSamples(data, *client, context));
  manifest.mutable_labels()->Assign(classes.begin(), classes.end());
  QUENCH_ASSIGN_OR_RETURN(const Digest digest, UploadManifest(manifest, *client, context));
  if (json) {
    const nlohmann::json result = {{"hash", digest.hash()},
                                   {"size_bytes", digest.size_bytes()},
                                   {"files", manifest.files_size()},
                                   {"labels", manifest.labels_size()}};
    fmt::print("{}\n", result.dump(2));
  } else {
    fmt::print("{}/{}  manifest of {} files, {} labels\n", digest.hash(), digest.size_bytes(),
               manifest.files_size(), manifest.labels_size());
  }
  return absl::OkStatus();
}

absl::Status GetThere(const GatewayOptions& gateway, const std::string& digest,
                      const std::string& output, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const Digest parsed, ParseDigest(digest));
  QUENCH_ASSIGN_OR_RETURN(const auto client, Open(gateway, context));
  QUENCH_RETURN_IF_ERROR(client->DownloadFile(parsed, output, context));
  fmt::print("{}\n", output);
  return absl::OkStatus();
}

}  // namespace quench::cli
