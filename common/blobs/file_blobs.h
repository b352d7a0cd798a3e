// Files of a user as blobs, read where they lie and written where they belong: nothing is copied.
#pragma once

#include <sys/stat.h>

#include <map>

#include "common/base/atomic_file.h"
#include "common/blobs/blob_store.h"
#include "common/blobs/digest.h"
#include "common/blobs/file_digests.h"

namespace quench {

class FileBlobs final : public BlobSource {
 public:
  // `digests`: what is remembered of files; null: each is read.
  explicit FileBlobs(const FileDigests* digests = nullptr) : digests_(digests) {}

  // Reads the file for its digest, unless that is known; `step` is told how many bytes were read.
  absl::StatusOr<BlobId> Add(const std::filesystem::path& file, const StepContext& step);
  absl::StatusOr<std::unique_ptr<BlobReader>> OpenReader(const BlobId& id) override;
  // ABORTED when a file is not what it was when it was added, by its size and time: what was read
  // of it meanwhile may have another digest.
  absl::Status CheckUnchanged() const;
  // Forgets the digests that were remembered, not read; whether there were any.
  bool ForgetRemembered() const;

 private:
  struct File {
    std::filesystem::path path;
    struct stat added;
    bool remembered = false;
  };
  const FileDigests* const digests_;
  std::map<BlobId, File> files_;
};

// A blob on its way to be a file of the user, which appears whole and right or not at all.
class FileBlobWriter final : public BlobWriter {
 public:
  static absl::StatusOr<std::unique_ptr<FileBlobWriter>> Create(const std::filesystem::path& path);

  absl::Status Append(std::span<const std::byte> bytes) override;
  absl::Status AppendAll(const BlobReader& from, const StepContext& step) override;
  uint64_t size() const override { return file_->size(); }
  absl::StatusOr<std::string> Commit() override;
  absl::Status CommitAs(const BlobId& id) override;

 private:
  explicit FileBlobWriter(std::unique_ptr<AtomicFile> file) : file_(std::move(file)) {}
  const std::unique_ptr<AtomicFile> file_;
  Sha256 sha_;
  absl::Status failure_;  // the first; nothing is committed after it
};

}  // namespace quench
