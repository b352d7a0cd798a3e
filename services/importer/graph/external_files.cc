#include "services/importer/graph/external_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::importer {
namespace {

constexpr size_t kMaxOpenFiles = 512;

// Refuses locations that are wrong by their text alone, with a better sentence than the kernel's.
absl::Status CheckLocation(const std::string& location) {
  if (location.empty()) return InvalidArgument("external data has no location");
  if (location.find('\0') != std::string::npos || location.size() > 4096) {
    return InvalidArgument("the location of external data is not a file name");
  }
  const std::filesystem::path path(location);
  if (path.is_absolute()) {
    return InvalidArgument(
        "location `{}` is absolute, external data lies beneath the model's folder", location);
  }
  for (const std::filesystem::path& part : path) {
    if (part == "..") {
      return InvalidArgument(
          "location `{}` has `..`, external data lies beneath the model's folder", location);
    }
  }
  return absl::OkStatus();
}

// `a/./b` and `a/b` are one file.
std::string Normal(const std::string& location) {
  return std::filesystem::path(location).lexically_normal().string();
}

absl::Status OpenError(int error, const std::string& location) {
  if (error == ELOOP || error == EXDEV) {
    return InvalidArgument(
        "location `{}` leads through a symbolic link, which external data may not", location);
  }
  return ErrnoStatus(error, "open external data", location);
}

}  // namespace

ExternalFiles::ExternalFiles(std::filesystem::path root) : root_(std::move(root)) {
  if (root_.empty()) root_ = ".";
}

ExternalFiles::ExternalFiles(const std::map<std::string, std::filesystem::path>& files) {
  given_.emplace();
  for (const auto& [location, path] : files) given_->emplace(Normal(location), path);
}

ExternalFiles::~ExternalFiles() {
  for (const auto& [location, file] : files_) ::close(file.fd);
  if (root_fd_ >= 0) ::close(root_fd_);
}

int OpenBeneathByWalking(int root_fd, const std::filesystem::path& path) {
  int folder = ::fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
  if (folder < 0) return -errno;
  const auto last = std::prev(path.end());
  for (auto part = path.begin(); part != path.end(); ++part) {
    if (part->empty() || *part == ".") continue;
    const int kind = part == last ? O_NONBLOCK : O_DIRECTORY;
    const int next =
        *part == ".." ? -1
                      : ::openat(folder, part->c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind);
    int error = *part == ".." ? EXDEV : errno;
    // O_DIRECTORY | O_NOFOLLOW on a link to a folder says ENOTDIR.
    struct stat info{};
    if (next < 0 && error == ENOTDIR &&
        ::fstatat(folder, part->c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(info.st_mode)) {
      error = ELOOP;
    }
    ::close(folder);
    if (next < 0) return -error;
    folder = next;
  }
  return folder;
}

absl::StatusOr<int> ExternalFiles::OpenBeneath(const std::string& location) {
  if (root_fd_ < 0) {
    root_fd_ = ::open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd_ < 0) return ErrnoStatus(errno, "open the folder of external data", root_);
  }
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // a FIFO must not block before it is refused
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long fd = ::syscall(SYS_openat2, root_fd_, location.c_str(), &how, sizeof how);
  if (fd >= 0) return static_cast<int>(fd);
  // Older kernels lack the call, some sandboxes forbid it.
  if (errno != ENOSYS && errno != EPERM) return OpenError(errno, location);
  const int walked = OpenBeneathByWalking(root_fd_, location);
  if (walked < 0) return OpenError(-walked, location);
  return walked;
}

absl::StatusOr<int> ExternalFiles::OpenGiven(const std::string& location) const {
  const auto found = given_->find(Normal(location));
  if (found == given_->end()) {
    return InvalidArgument("location `{}`: no such file came with the model", location);
  }
  const int fd = ::open(found->second.c_str(), O_RDONLY | O_CLOEXEC);
  return fd >= 0 ? absl::StatusOr<int>(fd) : OpenError(errno, location);
}

absl::StatusOr<ExternalFiles::File> ExternalFiles::Open(const std::string& location) {
  if (const auto known = files_.find(location); known != files_.end()) return known->second;
  QUENCH_RETURN_IF_ERROR(CheckLocation(location));
  if (files_.size() >= kMaxOpenFiles) {
    return absl::ResourceExhaustedError(
        fmt::format("external data in more than {} files", kMaxOpenFiles));
  }
  QUENCH_ASSIGN_OR_RETURN(const int fd, given_ ? OpenGiven(location) : OpenBeneath(location));
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument("location `{}` is not a regular file", location);
  }
  const File file{fd, static_cast<uint64_t>(info.st_size)};
  files_.emplace(location, file);
  return file;
}

absl::Status ReadFileAt(const ExternalFiles::File& file, uint64_t offset,
                        std::span<std::byte> into) {
  for (size_t done = 0; done < into.size();) {
    const ssize_t got =
        ::pread(file.fd, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", "a file beside the model");
    if (got == 0) return InvalidArgument("a file beside the model became shorter");
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace quench::importer
