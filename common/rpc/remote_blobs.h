// Blobs in a store that speaks the Remote Execution API: a gateway of ours, or any other server.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/blobs/blob_store.h"
#include "common/rpc/channel.h"

namespace quench::rpc {

// FAILED_PRECONDITION with reason BLOB_MISSING and a violation `MISSING` for each blob, whose
// subject is `blobs/HASH/SIZE`.
absl::Status BlobsMissing(const std::vector<BlobId>& blobs);

struct RemoteBlobsOptions {
  std::string instance;  // REAPI's instance name
  // How long failing transfers are retried without progress.
  std::chrono::milliseconds retry_time{60'000};
  int parallel = 4;  // transfers at once
};

// Transfers are resumed where they broke off (uploads also by another process), verified by their digest, and stop
// within a second of their step's cancellation. Progress is reported in bytes. Thread-safe.
class RemoteBlobs {
 public:
  RemoteBlobs(std::shared_ptr<Channel> channel, const RemoteBlobsOptions& options);
  ~RemoteBlobs();

  // Not while others use it.
  void set_retry_time(std::chrono::milliseconds time) { options_.retry_time = time; }

  // Whether a server answers; keeps asking for `patience`.
  absl::Status Reach(const StepContext& step, std::chrono::milliseconds patience);
  absl::StatusOr<std::vector<BlobId>> FindMissing(const std::vector<BlobId>& blobs,
                                                  const StepContext& step);
  // Uploads the blobs that the server lacks. NOT_FOUND if `from` lacks one.
  absl::Status Upload(BlobSource& from, const std::vector<BlobId>& blobs, const StepContext& step);
  // Downloads the blobs that `into` lacks; each appears there once it is complete and verified.
  // BlobsMissing names all blobs that the server lacks; then the others are in `into`.
  absl::Status Download(const std::vector<BlobId>& blobs, LocalBlobStore& into,
                        const StepContext& step);
  // Downloads one blob through `writer`, which is committed once it is complete and verified.
  absl::Status Download(const BlobId& blob, BlobWriter& writer, const StepContext& step);
  // Downloads one blob that is small enough to be held in memory.
  absl::StatusOr<std::string> Read(const BlobId& blob, const StepContext& step);

 private:
  struct Stubs;
  class Transfer;
  // Largest sum of bytes in one batch.
  absl::StatusOr<uint64_t> BatchLimit(const StepContext& step,
                                      std::chrono::milliseconds retry_time);

  const std::shared_ptr<Channel> channel_;
  RemoteBlobsOptions options_;
  const std::unique_ptr<Stubs> stubs_;
  std::mutex mutex_;
  std::optional<uint64_t> batch_limit_;
};

}  // namespace quench::rpc
