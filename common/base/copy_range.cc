#include "common/base/copy_range.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/base/errno_status.h"
#include "common/base/status.h"

namespace quench {
namespace {

// Whether the kernel says that this pair of files has to be copied through memory.
bool CannotCopy(int error) {
  return error == EXDEV || error == EINVAL || error == ENOSYS || error == EOPNOTSUPP ||
         error == EPERM;
}

absl::Status Shorter(const FileRange& from) {
  return absl::AbortedError(
      fmt::format("`{}` became shorter while it was copied", from.path.string()));
}

absl::Status WriteAll(const FileRange& to, const char* bytes, size_t count) {
  for (size_t done = 0; done < count;) {
    const ssize_t written =
        ::pwrite(to.fd, bytes + done, count - done, static_cast<off_t>(to.offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write", to.path);
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status CopyThroughMemory(FileRange from, FileRange to, uint64_t size) {
  std::vector<char> buffer(std::min<uint64_t>(size, uint64_t{1} << 20));
  while (size > 0) {
    const size_t most = std::min<uint64_t>(size, buffer.size());
    const ssize_t count = ::pread(from.fd, buffer.data(), most, static_cast<off_t>(from.offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, "read", from.path);
    if (count == 0) return Shorter(from);
    QUENCH_RETURN_IF_ERROR(WriteAll(to, buffer.data(), static_cast<size_t>(count)));
    from.offset += static_cast<uint64_t>(count);
    to.offset += static_cast<uint64_t>(count);
    size -= static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyRange(const FileRange& from, const FileRange& to, uint64_t size) {
  auto source = static_cast<off_t>(from.offset), target = static_cast<off_t>(to.offset);
  while (size > 0) {
    const ssize_t count = ::copy_file_range(from.fd, &source, to.fd, &target, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && CannotCopy(errno)) {
      return CopyThroughMemory({from.fd, static_cast<uint64_t>(source), from.path},
                               {to.fd, static_cast<uint64_t>(target), to.path}, size);
    }
    if (count < 0) return ErrnoStatus(errno, "write", to.path);
    if (count == 0) return Shorter(from);
    size -= static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace quench
