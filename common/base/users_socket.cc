#include "common/base/users_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr char kUnixScheme[] = "unix:";

// XDG base directory specification: relative values are ignored.
fs::path FolderIn(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? fs::path(value) : fs::path();
}

}  // namespace

absl::StatusOr<std::string> UsersSocket() {
  fs::path folder = FolderIn("XDG_RUNTIME_DIR");
  if (!folder.empty()) return kUnixScheme + (folder / "quench" / "gateway.sock").string();
  folder = FolderIn("XDG_STATE_HOME");
  if (folder.empty()) {
    const fs::path home = FolderIn("HOME");
    if (home.empty()) {
      return InvalidArgument(
          "there is neither XDG_RUNTIME_DIR nor HOME to find the user's socket in: give an "
          "address");
    }
    folder = home / ".local" / "state";
  }
  return kUnixScheme + (folder / "quench" / "run" / "gateway.sock").string();
}

absl::Status MakeFolderOf(const std::string& users_socket) {
  const fs::path folder = fs::path(users_socket.substr(sizeof kUnixScheme - 1)).parent_path();
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "make", folder);
  }
  struct stat found{};
  if (::lstat(folder.c_str(), &found) != 0) return ErrnoStatus(errno, "look at", folder);
  if (S_ISDIR(found.st_mode) && found.st_uid == ::geteuid() && (found.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      fmt::format("`{}` must be a folder of this user with mode 0700: anyone who can reach the "
                  "socket in it can run code here",
                  folder.string()));
}

}  // namespace quench
