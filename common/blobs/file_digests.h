// The digests of a user's files, remembered from run to run: a large model is read once, not each time it is named.
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace quench {

// A file is the one that was hashed when device, inode, size, mtime and ctime say so: a program may set
// mtime, the kernel alone sets ctime. Within the clock's granularity a second change leaves no trace,
// so that what changed less than two seconds before it was hashed is not remembered (Git calls such
// files racily clean). Processes may share the file; one may lose what another adds, which costs another
// look and nothing else. Failures to read or write it are not errors: it has just forgotten.
class FileDigests {
 public:
  static constexpr off_t kWorthwhileBytes = off_t{1} << 20;  // smaller files are hashed in no time
  static constexpr size_t kMost = 1000;                      // the oldest are forgotten

  // `path`: where they are kept, beneath folders that exist.
  explicit FileDigests(std::filesystem::path path) : path_(std::move(path)) {}

  std::optional<std::string> Find(const struct stat& file) const;
  // `hashed`: the time when somebody began to read the file. Replaces what is known of it.
  void Add(const struct stat& file, const timespec& hashed, const std::string& digest) const;
  void Forget(const struct stat& file) const;

 private:
  using Entry = std::pair<std::string, std::string>;  // what identifies the file, digest
  std::vector<Entry> Read() const;
  void Write(const std::vector<Entry>& entries) const;

  const std::filesystem::path path_;
};

}  // namespace quench
