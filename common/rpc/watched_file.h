// A small file that is read again when it changes: tokens.
#pragma once

#include <absl/status/statusor.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>

namespace quench::rpc {

class WatchedFile {
 public:
  explicit WatchedFile(std::filesystem::path path) : path_(std::move(path)) {}

  // The contents if the file has changed since the last call, otherwise nothing. A file that
  // cannot be read is an error once for each change. Costs one stat when nothing changed.
  std::optional<absl::StatusOr<std::string>> Changed();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool read_ = false;
  struct stat last_{};
};

}  // namespace quench::rpc
