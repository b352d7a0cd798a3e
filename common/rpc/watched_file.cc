#include "common/rpc/watched_file.h"

#include <tuple>

#include "common/base/files.h"

namespace quench::rpc {
namespace {

constexpr size_t kLargest = size_t{1} << 20;

bool Same(const struct stat& a, const struct stat& b) {
  const auto identity = [](const struct stat& s) {
    return std::make_tuple(s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                           s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
  };
  return identity(a) == identity(b);
}

}  // namespace

std::optional<absl::StatusOr<std::string>> WatchedFile::Changed() {
  struct stat now{};
  if (stat(path_.c_str(), &now) != 0) now = {};
  if (read_ && Same(now, last_)) return std::nullopt;
  read_ = true;
  last_ = now;
  return ReadFile(path_, kLargest);
}

}  // namespace quench::rpc
