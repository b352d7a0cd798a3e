// Scratch space of a server: a folder of its own, in which each step has one.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>

#include "common/base/files.h"

namespace quench::steps {

// Removed with everything in it when the server ends; what a killed server left behind is removed
// by the next one that uses the same parent.
class ScratchFolder {
 public:
  // `parent` empty: the system's folder for temporary files.
  static absl::StatusOr<ScratchFolder> Create(const std::filesystem::path& parent);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  // For one step.
  absl::StatusOr<TempDir> Step() const { return TempDir::Create(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  ScratchFolder(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;
  int lock_;  // of a file in it: as long as it is held, the folder is in use
};

}  // namespace quench::steps
