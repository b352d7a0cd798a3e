// Files of external tensor data, opened only beneath one root folder.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace quench::importer {

class ExternalFiles {
 public:
  // Opens nothing yet; the root need not exist until a tensor refers to it.
  explicit ExternalFiles(std::filesystem::path root);
  // Opens the files at these locations, and no others.
  explicit ExternalFiles(const std::map<std::string, std::filesystem::path>& files);
  ~ExternalFiles();
  ExternalFiles(const ExternalFiles&) = delete;
  ExternalFiles& operator=(const ExternalFiles&) = delete;

  struct File {
    int fd = -1;
    uint64_t size = 0;
  };
  // Opens a regular file beneath the root, reached without `..`, absolute paths or symbolic links
  // below it. The descriptor stays open, and is owned by this object.
  absl::StatusOr<File> Open(const std::string& location);

 private:
  absl::StatusOr<int> OpenBeneath(const std::string& location);
  absl::StatusOr<int> OpenGiven(const std::string& location) const;
  std::filesystem::path root_;
  std::optional<std::map<std::string, std::filesystem::path>> given_;
  int root_fd_ = -1;
  std::map<std::string, File> files_;
};

// Fills `into` from the file's bytes from `offset` on.
absl::Status ReadFileAt(const ExternalFiles::File& file, uint64_t offset,
                        std::span<std::byte> into);

// Opens `path` beneath `root_fd` one component at a time, for kernels without openat2. Returns a
// descriptor or -errno.
int OpenBeneathByWalking(int root_fd, const std::filesystem::path& path);

}  // namespace quench::importer
