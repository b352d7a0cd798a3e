// Content-addressed bytes. A blob's name is the sha256 of its bytes.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/files.h"

namespace quench {

inline constexpr uint64_t kMaxBlobBytes = uint64_t{256} << 20;

// Streams one blob into a store.
class BlobWriter {
 public:
  virtual ~BlobWriter() = default;
  virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  virtual uint64_t size() const = 0;
  // Makes the blob visible and returns its digest. A writer destroyed before Commit leaves nothing
  // behind.
  virtual absl::StatusOr<std::string> Commit() = 0;
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;
  virtual absl::StatusOr<std::unique_ptr<BlobWriter>> Create() = 0;
  // NOT_FOUND names the digest.
  virtual absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string& digest) = 0;
  virtual bool Contains(const std::string& digest) = 0;

  absl::StatusOr<std::string> Put(std::span<const std::byte> bytes);
};

struct BlobStat {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;
};

// Blobs in a folder: `blobs/sha256/ab/<digest>`, mode 0444. Write, verify, fsync, rename, fsync the
// folder. Least recently used blobs go first when Prune is called; unfinished writes older than an
// hour go too.
class LocalBlobStore : public BlobStore {
 public:
  // Makes the folders, and prunes when more than `limit_bytes` lie there.
  static absl::StatusOr<std::shared_ptr<LocalBlobStore>> Open(const std::filesystem::path& root,
                                                              uint64_t limit_bytes = uint64_t{20}
                                                                                     << 30);
  // $XDG_CACHE_HOME/quench, else ~/.cache/quench.
  static std::filesystem::path DefaultRoot();

  absl::StatusOr<std::unique_ptr<BlobWriter>> Create() override;
  absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string& digest) override;
  bool Contains(const std::string& digest) override;

  absl::StatusOr<BlobStat> Stat() const;
  // Removes least recently used blobs until at most `keep_bytes` remain; returns what was removed.
  absl::StatusOr<BlobStat> Prune(uint64_t keep_bytes);

 private:
  LocalBlobStore(std::filesystem::path root, uint64_t limit_bytes)
      : root_(std::move(root)), limit_bytes_(limit_bytes) {}
  std::filesystem::path PathOf(const std::string& digest) const;
  std::filesystem::path root_;
  uint64_t limit_bytes_;
};

}  // namespace quench
