// Files of a user as blobs, read where they lie: nothing is copied.
#pragma once

#include <sys/stat.h>

#include <map>

#include "common/blobs/blob_store.h"

namespace quench {

class FileBlobs final : public BlobSource {
 public:
  // Reads the file for its digest; `step` is told how many bytes were read.
  absl::StatusOr<BlobId> Add(const std::filesystem::path& file, const StepContext& step);
  absl::StatusOr<std::unique_ptr<BlobReader>> OpenReader(const BlobId& id) override;
  // ABORTED when a file is not what it was when it was added, by its size and time: what was read
  // of it meanwhile may have another digest.
  absl::Status CheckUnchanged() const;

 private:
  struct File {
    std::filesystem::path path;
    struct stat added;
  };
  std::map<BlobId, File> files_;
};

}  // namespace quench
