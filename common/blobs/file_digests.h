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

// A file is recognized by its device, inode, size, mtime and ctime: programs may set mtime, but only the
// kernel sets ctime. Within the clock's granularity a second change leaves no trace; therefore the digest
// of a file that changed less than two seconds before it was hashed is not remembered (Git calls such
// files racily clean). Processes may share the list of digests; one may lose entries that another adds,
// which only costs another hash. Failures to read or write the list are not errors: it counts as empty.
class FileDigests {
 public:
  static constexpr off_t kWorthwhileBytes = off_t{1} << 20;  // smaller files are hashed quickly
  static constexpr size_t kMost = 1000;                      // the oldest are forgotten

  // `path`: the file with the digests, in an existing folder.
  explicit FileDigests(std::filesystem::path path) : path_(std::move(path)) {}

  std::optional<std::string> Find(const struct stat& file) const;
  // `hashed`: the time at which reading of the file began. Replaces the file's entry.
  void Add(const struct stat& file, const timespec& hashed, const std::string& digest) const;
  void Forget(const struct stat& file) const;

 private:
  using Entry = std::pair<std::string, std::string>;  // the file's identity, its digest
  std::vector<Entry> Read() const;
  void Write(const std::vector<Entry>& entries) const;

  const std::filesystem::path path_;
};

}  // namespace quench
