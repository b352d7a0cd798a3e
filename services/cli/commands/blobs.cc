#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/blobs/blob_store.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kBlobsExamples[] = R"(Examples:
  quench blobs stat                  how much the local store holds, and where
  quench blobs prune                 shrinks the store to its limit, least recently used first
  quench blobs prune --keep 5G       shrinks it to 5 GB
  quench blobs prune --keep 0        empties it; only text printed by `quench ir` without --output needs it
  quench blobs put model.onnx weights.bin --gateway build-farm:7450   uploads; prints digest and size of each
  quench blobs put-samples data/ --labels labels.txt --gateway build-farm:7450   prints the digest that workflows give as `samples.manifest`
  quench blobs get DIGEST/SIZE --output model.so --gateway build-farm:7450)";

struct BlobsArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::vector<std::string> files;
  std::string digest, output;
  std::string data, labels;
  std::string keep;
  std::string format = "text";
};

// "5G", "200M", "10K" or bytes; powers of 1024.
absl::StatusOr<uint64_t> ParseBytes(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (error != std::errc() || shift < 0 || (shift > 0 && value > (UINT64_MAX >> shift))) {
    return InvalidArgument("--keep: `{}` is not a size like 5G, 200M or 0", text);
  }
  return value << shift;
}

absl::Status Stat(const BlobsArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store,
                          LocalBlobStore::Open(LocalBlobStore::DefaultRoot()));
  QUENCH_ASSIGN_OR_RETURN(const BlobStat stat, store->Stat());
  const std::string root = LocalBlobStore::DefaultRoot().string();
  if (args.format == "json") {
    const nlohmann::json json = {{"path", root},
                                 {"count", stat.count},
                                 {"bytes", stat.bytes},
                                 {"limit_bytes", stat.limit_bytes}};
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{} blobs, {:.1f} MB of {:.1f} GB, in {}\n", stat.count,
               static_cast<double>(stat.bytes) / 1e6, static_cast<double>(stat.limit_bytes) / 1e9,
               root);
  }
  return absl::OkStatus();
}

absl::Status Prune(const BlobsArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store,
                          LocalBlobStore::Open(LocalBlobStore::DefaultRoot()));
  QUENCH_ASSIGN_OR_RETURN(const BlobStat before, store->Stat());
  uint64_t keep = before.limit_bytes;
  if (!args.keep.empty()) {
    QUENCH_ASSIGN_OR_RETURN(keep, ParseBytes(args.keep));
  }
  QUENCH_ASSIGN_OR_RETURN(const BlobStat removed, store->Prune(keep));
  if (args.format == "json") {
    const nlohmann::json json = {{"removed", removed.count}, {"removed_bytes", removed.bytes}};
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("removed {} blobs, {:.1f} MB\n", removed.count,
               static_cast<double>(removed.bytes) / 1e6);
  }
  return absl::OkStatus();
}

absl::Status NeedGateway(const BlobsArgs& args) {
  if (UsesGateway(*args.gateway)) return absl::OkStatus();
  return InvalidArgument("blobs go to a gateway: give --gateway or set QUENCH_GATEWAY");
}

absl::Status Put(const BlobsArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(NeedGateway(args));
  return PutThere(*args.gateway, args.files, args.format == "json", context);
}

absl::Status PutSamples(const BlobsArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(NeedGateway(args));
  return PutSamplesThere(*args.gateway, args.data, args.labels, args.format == "json", context);
}

absl::Status Get(const BlobsArgs& args, const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(NeedGateway(args));
  return GetThere(*args.gateway, args.digest, args.output, context);
}

}  // namespace

Action DeclareBlobs(const Options& options) {
  auto args = std::make_shared<BlobsArgs>();
  options.Examples(kBlobsExamples);
  const Options stat =
      options.Subcommand("stat", "Show the number and size of the blobs in the local store");
  const Options prune = options.Subcommand("prune", "Remove the least recently used blobs");
  for (const Options& sub : {stat, prune}) AddFormat(sub, args->format);
  prune.Add("--keep", args->keep, "Size to shrink the store to (default: its limit)", "5G|200M|0");
  const Options put = options.Subcommand("put", "Upload files to a gateway");
  put.Add("FILE", args->files, "Files to upload", "FILE...").Required();
  AddFormat(put, args->format);
  const Options put_samples =
      options.Subcommand("put-samples", "Upload samples and a manifest that lists them");
  put_samples
      .Add("DATA", args->data, "Samples, in any form that `quench calibrate --data` accepts",
           "FILE|FOLDER|ZIP")
      .Required();
  put_samples.Add("--labels", args->labels,
                  "The right class of each row of the first output: .npy, or a number a line",
                  "FILE");
  AddFormat(put_samples, args->format);
  const Options get = options.Subcommand("get", "Download a blob from a gateway");
  get.Add("DIGEST", args->digest, "Digest and size, as printed by `quench blobs put`", "HASH/SIZE")
      .Required();
  get.Add("--output,-o", args->output, "File to write", "FILE").Required();
  AddGatewayOptions(put, args->gateway);
  AddGatewayOptions(put_samples, args->gateway);
  AddGatewayOptions(get, args->gateway);
  return [args, prune, put, put_samples, get](const StepContext& context) {
    return put.parsed()           ? Put(*args, context)
           : put_samples.parsed() ? PutSamples(*args, context)
           : get.parsed()         ? Get(*args, context)
           : prune.parsed()       ? Prune(*args)
                                  : Stat(*args);
  };
}

}  // namespace quench::cli
