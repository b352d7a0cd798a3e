#include "common/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "common/base/atomic_file.h"
#include "common/base/folder_tree.h"
#include "common/base/status.h"

namespace quench {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const FileMapping>> FileMapping::Open(
    const std::filesystem::path& path) {
  // A pipe is refused below, not waited for.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return ErrnoStatus(errno, "open", path);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "inspect", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("`{}` is not a regular file", path.string());
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return ErrnoStatus(errno, "map", path);
  }
  return std::shared_ptr<const FileMapping>(new FileMapping(data, size));
}

std::shared_ptr<const FileMapping> FileMapping::Part(std::shared_ptr<const FileMapping> whole,
                                                     size_t offset, size_t size) {
  QUENCH_CHECK(offset <= whole->size_ && size <= whole->size_ - offset);
  void* const data = static_cast<std::byte*>(whole->data_) + offset;
  return std::shared_ptr<const FileMapping>(new FileMapping(data, size, std::move(whole)));
}

FileMapping::~FileMapping() {
  if (data_ != nullptr && whole_ == nullptr) ::munmap(data_, size_);
}

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path, size_t limit) {
  QUENCH_ASSIGN_OR_RETURN(std::shared_ptr<const FileMapping> mapping, FileMapping::Open(path));
  const std::span<const std::byte> bytes = mapping->bytes();
  if (bytes.size() > limit) {
    return absl::ResourceExhaustedError(
        fmt::format("`{}` has {} bytes, at most {} are read", path.string(), bytes.size(), limit));
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::Status WriteFileAtomically(const std::filesystem::path& path, std::string_view contents) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  QUENCH_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(contents))));
  return file->Commit();
}

absl::StatusOr<TempDir> TempDir::Create(const std::filesystem::path& parent) {
  std::error_code error;
  std::filesystem::path base =
      parent.empty() ? std::filesystem::temp_directory_path(error) : parent;
  if (base.empty()) base = "/tmp";
  std::string name = (base / ".quench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return ErrnoStatus(errno, "create a folder in", base);
  return TempDir(name);
}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TempDir::~TempDir() {
  if (!path_.empty()) RemoveTree(path_);
}

std::filesystem::path TempDir::Release() {
  std::filesystem::path path;
  std::swap(path, path_);
  return path;
}

}  // namespace quench
