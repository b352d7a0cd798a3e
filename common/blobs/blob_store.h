// Content-addressed bytes. A blob's name is the sha256 of its bytes.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/base/context.h"
#include "common/base/files.h"
#include "common/blobs/blob_id.h"
#include "common/blobs/space.h"
#include "common/blobs/verified.h"

namespace quench {

// A blob read piece by piece, unmapped. Holds its bytes while it lives, even if the blob is pruned.
class BlobReader {
 public:
  BlobReader(int fd, uint64_t size, std::filesystem::path path)
      : fd_(fd), size_(size), path_(std::move(path)) {}
  ~BlobReader();
  BlobReader(const BlobReader&) = delete;
  BlobReader& operator=(const BlobReader&) = delete;

  uint64_t size() const { return size_; }
  // Fills `into`, which must lie within the blob. DATA_LOSS when the file is shorter than it was.
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> into) const;
  // The file that it reads.
  int fd() const { return fd_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  int fd_;
  uint64_t size_;
  std::filesystem::path path_;
};

// Streams one blob into a store.
class BlobWriter {
 public:
  virtual ~BlobWriter() = default;
  virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  // All of another blob; writers of files copy it as CopyRange does.
  virtual absl::Status AppendAll(const BlobReader& from, const StepContext& step);
  virtual uint64_t size() const = 0;
  // Makes the blob visible and returns its digest. A writer destroyed before Commit leaves nothing
  // behind.
  virtual absl::StatusOr<std::string> Commit() = 0;
  // Commit if the bytes are those of `id`, else INVALID_ARGUMENT, and nothing is left behind.
  virtual absl::Status CommitAs(const BlobId& id) = 0;
};

// INVALID_ARGUMENT: what a writer has is not what was to be committed.
absl::Status WrongBlob(const std::string& digest, uint64_t size, const BlobId& expected);

class BlobStore {
 public:
  virtual ~BlobStore() = default;
  virtual absl::StatusOr<std::unique_ptr<BlobWriter>> Create() = 0;
  // NOT_FOUND names the digest.
  virtual absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string& digest) = 0;
  virtual bool Contains(const std::string& digest) = 0;

  absl::StatusOr<std::string> Put(std::span<const std::byte> bytes);
};

// Where blobs are read from.
class BlobSource {
 public:
  virtual ~BlobSource() = default;
  // NOT_FOUND also when the blob has another size.
  virtual absl::StatusOr<std::unique_ptr<BlobReader>> OpenReader(const BlobId& id) = 0;
};

struct BlobStat {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;
};

// Blobs in a folder: `blobs/sha256/ab/<digest>`, mode 0444. Write, verify, fsync, rename, fsync the
// folder. Processes may share it. The leftovers of a writer that crashed are removed by the next
// Open, RemoveAbandoned or Prune of any of them.
class LocalBlobStore : public BlobStore, public BlobSource {
 public:
  // Makes the folders, and prunes when more than `limit_bytes` lie there; writes are not limited.
  static absl::StatusOr<std::shared_ptr<LocalBlobStore>> Open(const std::filesystem::path& root,
                                                              uint64_t limit_bytes = uint64_t{20}
                                                                                     << 30);
  // Never prunes by itself (eviction.h does); writes that do not fit into `space`, which other
  // stores may share, are RESOURCE_EXHAUSTED. Null: no limit.
  static absl::StatusOr<std::shared_ptr<LocalBlobStore>> Open(const std::filesystem::path& root,
                                                              std::shared_ptr<BlobSpace> space);
  // For a process that is not trusted with a store: blobs are read in the folder `lent`, without
  // looking at their bytes, unless they are in the folder `drafts`, to which new ones are written
  // under their digests, neither flushed nor read-only. The owner of the two folders lends and
  // adopts.
  static std::shared_ptr<LocalBlobStore> OpenDrafts(const std::filesystem::path& drafts,
                                                    const std::filesystem::path& lent,
                                                    std::shared_ptr<BlobSpace> space);
  // $XDG_CACHE_HOME/quench, else ~/.cache/quench.
  static std::filesystem::path DefaultRoot();

  absl::StatusOr<std::unique_ptr<BlobWriter>> Create() override;
  // Both look at all bytes of a file that this process has neither written nor looked at before; a
  // damaged one is removed, and NOT_FOUND from then on.
  absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string& digest) override;
  absl::StatusOr<std::unique_ptr<BlobReader>> OpenReader(const BlobId& id) override;
  bool Contains(const std::string& digest) override;

  std::optional<uint64_t> SizeOf(const std::string& digest) const;
  // Whether the blob is there with this size; counts as a use of it.
  bool Use(const BlobId& id);
  // The same for a caller that is about to read it: a damaged one is not there.
  bool UseRight(const BlobId& id);
  // Told of damaged blobs, and of those that are right again, as far as this process reads and writes.
  void OnFinding(std::function<void(quench::blobs::Finding)> listener) {
    verified_->SetListener(std::move(listener));
  }
  // Looks at blobs in the order of their digests, those after `*cursor`, until `bytes` are read;
  // the cursor is empty after the last. Removes damaged ones; returns what was.
  absl::StatusOr<BlobStat> Scrub(uint64_t bytes, std::string* cursor);
  // Makes a blob of a file that only the caller knows and has finished: it is moved where it lies in
  // the store's file system, else copied, and gone afterwards.
  absl::StatusOr<BlobId> Adopt(const std::filesystem::path& file, const StepContext& step);
  // The same, if the file has the bytes of `id`, else INVALID_ARGUMENT.
  absl::Status AdoptAs(const BlobId& id, const std::filesystem::path& file,
                       const StepContext& step);

  // Puts the blob into `folder`, by its digest: a link, so that it stays the file that it is when the store
  // replaces or removes its own; a copy where the file system has no links, or not between the two.
  absl::Status Lend(const BlobId& id, const std::filesystem::path& folder);

  absl::StatusOr<BlobStat> Stat() const;
  // Removes what writers have left that ended in the middle; files that are being written stay.
  void RemoveAbandoned();
  // Removes least recently used blobs until at most `keep_bytes` remain; returns what was removed.
  absl::StatusOr<BlobStat> Prune(uint64_t keep_bytes);

  // Where the blob lies, if it is there.
  std::filesystem::path PathOf(const std::string& digest) const;
  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path blobs() const { return root_ / "blobs" / "sha256"; }
  const std::shared_ptr<BlobSpace>& space() const { return space_; }

 private:
  LocalBlobStore(std::filesystem::path root, uint64_t limit_bytes, std::shared_ptr<BlobSpace> space)
      : root_(std::move(root)), limit_bytes_(limit_bytes), space_(std::move(space)) {}
  friend class Upload;
  std::filesystem::path Temporaries() const { return drafts_.empty() ? root_ / "tmp" : drafts_; }
  // A writer whose bytes are those of `file`, which it takes over: the file is gone then.
  absl::StatusOr<std::unique_ptr<BlobWriter>> TakeOver(const std::filesystem::path& file,
                                                       const StepContext& step);
  bool IsRight(const std::string& digest, int fd);
  bool Look(const std::string& digest, int fd);
  // Records a blob that was just stored as right.
  static void AddRight(const std::filesystem::path& path, quench::blobs::VerifiedFiles* verified);

  std::filesystem::path root_;  // with drafts: of what is lent
  uint64_t limit_bytes_;
  std::shared_ptr<BlobSpace> space_;
  std::shared_ptr<quench::blobs::VerifiedFiles> verified_ =
      std::make_shared<quench::blobs::VerifiedFiles>();
  std::filesystem::path drafts_;  // "" for who is trusted with the store
};

}  // namespace quench
