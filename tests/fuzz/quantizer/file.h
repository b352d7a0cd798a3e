// Bytes as a file, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

namespace quench::fuzz {

inline void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::cerr << what << "\n";
  std::abort();
}

// In memory, for as long as the object lives; its name ends as a file of that kind does.
class File {
 public:
  File(const uint8_t* data, size_t size, const std::string& extension) {
    fd_ = ::memfd_create("fuzz", 0);
    Require(fd_ >= 0, "no file in memory");
    for (size_t done = 0; done < size;) {
      const ssize_t n = ::write(fd_, data + done, size - done);
      Require(n > 0, "the file in memory is full");
      done += static_cast<size_t>(n);
    }
    path_ =
        std::filesystem::temp_directory_path() / ("fuzz-" + std::to_string(::getpid()) + extension);
    std::error_code error;
    std::filesystem::remove(path_, error);
    std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(fd_), path_, error);
    Require(!error, error.message());
  }
  ~File() {
    std::error_code error;
    std::filesystem::remove(path_, error);
    ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

}  // namespace quench::fuzz
