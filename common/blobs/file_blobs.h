// A user's files as blobs, read and written in their own places: nothing is copied.
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
  // `digests`: remembered digests of files; null: each file is read.
  explicit FileBlobs(const FileDigests* digests = nullptr) : digests_(digests) {}

  // Reads the file for its digest, unless that is known; `step` is told how many bytes were read.
  absl::StatusOr<BlobId> Add(const std::filesystem::path& file, const StepContext& step);
  absl::StatusOr<std::unique_ptr<BlobReader>> OpenReader(const BlobId& id) override;
  // ABORTED if a file's size or time has changed since it was added: bytes read from it meanwhile may
  // have another digest.
  absl::Status CheckUnchanged() const;
  // Forgets the digests that were remembered rather than computed; returns whether there were any.
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

// Writes a blob as a file of the user, which appears complete and verified, or not at all.
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
  absl::Status failure_;  // the first failure; nothing is committed after it
};

}  // namespace quench
