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
  // Fills `into`, which must lie within the blob. DATA_LOSS if the file has become shorter.
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> into) const;
  // The file that the reader reads.
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
  // Appends all of another blob; writers of files copy it like CopyRange.
  virtual absl::Status AppendAll(const BlobReader& from, const StepContext& step);
  virtual uint64_t size() const = 0;
  // Makes the blob visible and returns its digest. A writer destroyed before Commit leaves nothing
  // behind.
  virtual absl::StatusOr<std::string> Commit() = 0;
  // Like Commit if the bytes are those of `id`; otherwise INVALID_ARGUMENT, and nothing is left behind.
  virtual absl::Status CommitAs(const BlobId& id) = 0;
};

// INVALID_ARGUMENT for a writer whose bytes are not those to be committed.
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

// A source of blobs.
class BlobSource {
 public:
  virtual ~BlobSource() = default;
  // NOT_FOUND also if the blob's size differs.
  virtual absl::StatusOr<std::unique_ptr<BlobReader>> OpenReader(const BlobId& id) = 0;
};

struct BlobStat {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;
};

// Blobs in a folder: `blobs/sha256/ab/<digest>`, mode 0444. Each is written, verified, fsynced and
// renamed, then its folder is fsynced. Processes may share the folder. The leftovers of a writer that
// crashed are removed by the next Open, RemoveAbandoned or Prune of any process.
class LocalBlobStore : public BlobStore, public BlobSource {
 public:
  // Makes the folders, and prunes if they hold more than `limit_bytes`; writes are not limited.
  static absl::StatusOr<std::shared_ptr<LocalBlobStore>> Open(const std::filesystem::path& root,
                                                              uint64_t limit_bytes = uint64_t{20}
                                                                                     << 30);
  // Never prunes by itself (eviction.h does); writes that do not fit into `space`, which other
  // stores may share, are RESOURCE_EXHAUSTED. Null: no limit.
  static absl::StatusOr<std::shared_ptr<LocalBlobStore>> Open(const std::filesystem::path& root,
                                                              std::shared_ptr<BlobSpace> space);
  // A store for an untrusted process: blobs are read from the folder `lent`, without checking their
  // bytes, or from the folder `drafts`, to which new ones are written under their digests, neither
  // flushed nor read-only. The owner of the two folders lends blobs to the first, and adopts those in
  // the second.
  static std::shared_ptr<LocalBlobStore> OpenDrafts(const std::filesystem::path& drafts,
                                                    const std::filesystem::path& lent,
                                                    std::shared_ptr<BlobSpace> space);
  // $XDG_CACHE_HOME/quench, else ~/.cache/quench.
  static std::filesystem::path DefaultRoot();

  absl::StatusOr<std::unique_ptr<BlobWriter>> Create() override;
  // Both check all bytes of a file that this process has neither written nor checked before; a damaged
  // one is removed, and NOT_FOUND from then on.
  absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string& digest) override;
  absl::StatusOr<std::unique_ptr<BlobReader>> OpenReader(const BlobId& id) override;
  bool Contains(const std::string& digest) override;

  std::optional<uint64_t> SizeOf(const std::string& digest) const;
  // Whether the blob is there with this size; counts as a use of it.
  bool Use(const BlobId& id);
  // The same for a caller that is about to read it: a damaged blob counts as absent.
  bool UseRight(const BlobId& id);
  // Sets the listener for damaged and repaired blobs, among those that this process reads or writes.
  void OnFinding(std::function<void(quench::blobs::Finding)> listener) {
    verified_->SetListener(std::move(listener));
  }
  // Checks blobs in the order of their digests, beginning after `*cursor`, until `bytes` are read; the
  // cursor is empty after the last. Removes damaged ones; returns what it removed.
  absl::StatusOr<BlobStat> Scrub(uint64_t bytes, std::string* cursor);
  // Makes a blob of a finished file that only the caller uses: it is moved if it is on the store's file
  // system, otherwise copied, and no longer at `file` afterwards.
  absl::StatusOr<BlobId> Adopt(const std::filesystem::path& file, const StepContext& step);
  // The same if the file has the bytes of `id`; otherwise INVALID_ARGUMENT.
  absl::Status AdoptAs(const BlobId& id, const std::filesystem::path& file,
                       const StepContext& step);

  // Puts the blob into `folder`, named by its digest: as a hard link, which stays valid when the store replaces or
  // removes its own file, or as a copy if no link between the two folders is possible.
  absl::Status Lend(const BlobId& id, const std::filesystem::path& folder);

  absl::StatusOr<BlobStat> Stat() const;
  // Removes the files of writers that ended without finishing; files being written stay.
  void RemoveAbandoned();
  // Removes least recently used blobs until at most `keep_bytes` remain; returns what was removed.
  absl::StatusOr<BlobStat> Prune(uint64_t keep_bytes);

  // The path of the blob, if it is there.
  std::filesystem::path PathOf(const std::string& digest) const;
  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path blobs() const { return root_ / "blobs" / "sha256"; }
  const std::shared_ptr<BlobSpace>& space() const { return space_; }

 private:
  LocalBlobStore(std::filesystem::path root, uint64_t limit_bytes, std::shared_ptr<BlobSpace> space)
      : root_(std::move(root)), limit_bytes_(limit_bytes), space_(std::move(space)) {}
  friend class Upload;
  std::filesystem::path Temporaries() const { return drafts_.empty() ? root_ / "tmp" : drafts_; }
  // A writer with the bytes of `file`, which it takes over: the file is no longer there afterwards.
  absl::StatusOr<std::unique_ptr<BlobWriter>> TakeOver(const std::filesystem::path& file,
                                                       const StepContext& step);
  bool IsRight(const std::string& digest, int fd);
  bool Look(const std::string& digest, int fd);
  // Records that a blob that was just stored is undamaged.
  static void AddRight(const std::filesystem::path& path, quench::blobs::VerifiedFiles* verified);

  std::filesystem::path root_;  // with `drafts_`: the folder `lent`
  uint64_t limit_bytes_;
  std::shared_ptr<BlobSpace> space_;
  std::shared_ptr<quench::blobs::VerifiedFiles> verified_ =
      std::make_shared<quench::blobs::VerifiedFiles>();
  std::filesystem::path drafts_;  // "" for a trusted process
};

}  // namespace quench
