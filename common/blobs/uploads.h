// Uploads that survive: broken connections, and restarts of this process.
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

// One writer of an upload; at most one is not aborted. Not thread-safe, except against the writer
// that takes over. Committed bytes stay when the writer goes.
class Upload {
 public:
  Upload(Uploads* uploads, std::shared_ptr<internal::UploadFile> file, uint64_t turn);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Bytes that need not be sent again.
  uint64_t committed() const;
  // Whether the blob is in the store, by this upload or another one: nothing is left to do.
  bool complete();

  // `bytes` belong at `offset`; those that are committed already are skipped. OUT_OF_RANGE beyond
  // what is committed, ABORTED once another writer has taken over, INVALID_ARGUMENT for more bytes
  // than the blob has (and the upload is gone). After another error what was committed stays.
  absl::Status Append(uint64_t offset, std::span<const std::byte> bytes);
  // Verifies and makes the blob visible. INVALID_ARGUMENT if bytes are missing or are not those of
  // the digest; the upload is gone then.
  absl::Status Finish();

 private:
  absl::Status CheckTurn() const;

  Uploads* const uploads_;
  const std::shared_ptr<internal::UploadFile> file_;
  const uint64_t turn_;
};

// The unfinished uploads of a store: `uploads/<id>-<hash>-<size>` in its folder, whose size is what
// is committed, and whose space is reserved. One process at a time. Thread-safe.
class Uploads {
 public:
  // `keep`: how long an upload waits for its next writer. `max_bytes`: of all unfinished ones; for
  // more, those that wait are dropped, longest waiting first.
  static absl::StatusOr<std::unique_ptr<Uploads>> Open(
      std::shared_ptr<LocalBlobStore> store, std::chrono::seconds keep = std::chrono::hours(1),
      uint64_t max_bytes = BlobSpace::kNoLimit);
  ~Uploads();

  struct State {
    uint64_t committed = 0;
    bool complete = false;
  };
  // An upload that nobody began has committed nothing.
  absl::StatusOr<State> Query(const std::string& upload_id, const BlobId& id);

  // Takes over from the writer there may be, whose next call is ABORTED; its `on_taken_over` is
  // called, from this thread. After a restart, what is committed is hashed again here.
  // RESOURCE_EXHAUSTED without space for the whole blob, or when it and those that have a writer are
  // above `max_bytes`.
  absl::StatusOr<std::unique_ptr<Upload>> Begin(const std::string& upload_id, const BlobId& id,
                                                std::function<void()> on_taken_over = {});

  // Removes uploads that wait too long; returns how many.
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
  std::map<std::string, std::shared_ptr<File>> files_;  // by name; those with a writer, a few more
};

}  // namespace quench
