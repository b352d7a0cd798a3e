// Scratch space of a server: its own folder, in which each step has a folder.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <mutex>
#include <utility>

#include "common/base/files.h"

namespace quench::steps {

// The folder is removed with everything in it when the server ends; that of a killed server is removed
// by the next server with the same parent.
class ScratchFolder {
 public:
  // An empty `parent` means the system's folder for temporary files.
  static absl::StatusOr<ScratchFolder> Create(const std::filesystem::path& parent);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  // A new folder for one step, also where a cleaner of temporary files has removed this one meanwhile.
  absl::StatusOr<TempDir> Step() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  ScratchFolder(std::filesystem::path path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::filesystem::path path_;
  mutable std::mutex mutex_;  // for who makes the folder anew
  mutable int lock_;          // on a file in it: while it is held, the folder is in use
};

}  // namespace quench::steps
