// Uploads that survive broken connections and restarts of this process.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/blobs/blob_store.h"

namespace quench {

// Upload ids that may be part of a file's name: 1 to 64 letters, digits and `-`.
bool IsUploadId(const std::string& text);

namespace internal {
struct UploadFile;
}
class Uploads;

// A writer of an upload; at most one of an upload's writers is not aborted. Not thread-safe, except
// against the writer that takes over. Committed bytes stay when the writer is destroyed.
class Upload {
 public:
  Upload(Uploads* uploads, std::shared_ptr<internal::UploadFile> file, uint64_t turn);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // The number of bytes that need not be sent again.
  uint64_t committed() const;
  // Whether the blob is in the store, by this upload or another one, so that nothing is left to do.
  bool complete();

  // Writes `bytes` at `offset`; those already committed are skipped. OUT_OF_RANGE for an offset beyond the
  // committed bytes, ABORTED once another writer has taken over, INVALID_ARGUMENT for more bytes than the
  // blob has (which discards the upload). After any other error committed bytes stay.
  absl::Status Append(uint64_t offset, std::span<const std::byte> bytes);
  // Verifies and makes the blob visible. INVALID_ARGUMENT if bytes are missing or do not have
  // the digest, which discards the upload.
  absl::Status Finish();

 private:
  absl::Status CheckTurn() const;

  Uploads* const uploads_;
  const std::shared_ptr<internal::UploadFile> file_;
  const uint64_t turn_;
};

// The unfinished uploads of a store: files `uploads/<id>-<hash>-<size>` in its folder, whose sizes are
// the committed bytes, and whose space is reserved. One process at a time. Thread-safe.
class Uploads {
 public:
  // `keep`: how long an upload waits for its next writer. `max_bytes`: limit for all unfinished
  // ones; beyond it, waiting uploads are dropped, the longest waiting first.
  static absl::StatusOr<std::unique_ptr<Uploads>> Open(
      std::shared_ptr<LocalBlobStore> store, std::chrono::seconds keep = std::chrono::hours(1),
      uint64_t max_bytes = BlobSpace::kNoLimit);
  ~Uploads();

  struct State {
    uint64_t committed = 0;
    bool complete = false;
  };
  // The committed bytes; 0 for an upload that was never begun.
  absl::StatusOr<State> Query(const std::string& upload_id, const BlobId& id);

  // Takes over from a present writer, if any, whose next call is ABORTED; its `on_taken_over` is called
  // on this thread. After a restart, this hashes the committed bytes again. RESOURCE_EXHAUSTED if there is
  // no space for the whole blob, or if it and the uploads with a writer exceed `max_bytes`.
  absl::StatusOr<std::unique_ptr<Upload>> Begin(const std::string& upload_id, const BlobId& id,
                                                std::function<void()> on_taken_over = {});

  // Removes uploads that have waited too long; returns their number.
  int DropExpired();

 private:
  friend class Upload;
  using File = internal::UploadFile;
  Uploads(std::shared_ptr<LocalBlobStore> store, std::chrono::seconds keep, uint64_t max_bytes)
      : store_(std::move(store)), keep_(keep), max_bytes_(max_bytes) {}
  absl::Status MakeRoom(const File& file);
  bool DropIdle(const std::filesystem::path& path, uint64_t reserved);
  std::filesystem::path PathOf(const std::string& upload_id, const BlobId& id) const;
  void Leave(const std::shared_ptr<File>& file, uint64_t turn);
  void Drop(const std::shared_ptr<File>& file);
  void CloseIdle();

  const std::shared_ptr<LocalBlobStore> store_;
  const std::chrono::seconds keep_;
  const uint64_t max_bytes_;
  std::mutex opening_;  // before mutex_: one reservation after the other
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<File>> files_;  // by name; with a writer, or a few recent
};

}  // namespace quench
