#include "common/blobs/file_digests.h"

#include <algorithm>
#include <tuple>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"

namespace quench {
namespace {

constexpr time_t kRacySeconds = 2;  // FAT has the coarsest times, of two seconds
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kDigestSize = 64;

std::string KeyOf(const struct stat& file) {
  return fmt::format("{} {} {} {}.{:09} {}.{:09}", file.st_dev, file.st_ino, file.st_size,
                     file.st_mtim.tv_sec, file.st_mtim.tv_nsec, file.st_ctim.tv_sec,
                     file.st_ctim.tv_nsec);
}

bool IsOlder(const timespec& change, const timespec& hashed) {
  return std::pair(change.tv_sec + kRacySeconds, change.tv_nsec) <
         std::pair(hashed.tv_sec, hashed.tv_nsec);
}

}  // namespace

std::optional<std::string> FileDigests::Find(const struct stat& file) const {
  if (file.st_size < kWorthwhileBytes) return std::nullopt;
  const std::string key = KeyOf(file);
  for (const auto& [known, digest] : Read()) {
    if (known == key) return digest;
  }
  return std::nullopt;
}

void FileDigests::Add(const struct stat& file, const timespec& hashed,
                      const std::string& digest) const {
  if (file.st_size < kWorthwhileBytes) return;
  if (!IsOlder(file.st_mtim, hashed) || !IsOlder(file.st_ctim, hashed)) return;
  std::vector<Entry> entries = Read();
  const std::string key = KeyOf(file);
  std::erase_if(entries, [&](const Entry& each) { return each.first == key; });
  entries.emplace_back(key, digest);
  if (entries.size() > kMost) entries.erase(entries.begin(), entries.end() - kMost);
  Write(entries);
}

void FileDigests::Forget(const struct stat& file) const {
  std::vector<Entry> entries = Read();
  const std::string key = KeyOf(file);
  if (std::erase_if(entries, [&](const Entry& each) { return each.first == key; }) > 0) {
    Write(entries);
  }
}

// Lines of a digest and what identifies its file; others are passed over.
std::vector<FileDigests::Entry> FileDigests::Read() const {
  std::vector<Entry> entries;
  const absl::StatusOr<std::string> text = ReadFile(path_, kMostBytes);
  if (!text.ok()) return entries;
  const std::string_view all = *text;
  for (size_t begin = 0, end = 0; (end = all.find('\n', begin)) != all.npos; begin = end + 1) {
    const std::string_view line = all.substr(begin, end - begin);
    if (line.size() <= kDigestSize || line[kDigestSize] != ' ') continue;
    if (!IsDigest(line.substr(0, kDigestSize))) continue;
    entries.emplace_back(line.substr(kDigestSize + 1), line.substr(0, kDigestSize));
  }
  return entries;
}

void FileDigests::Write(const std::vector<Entry>& entries) const {
  std::string text;
  for (const auto& [key, digest] : entries) text += fmt::format("{} {}\n", digest, key);
  (void)WriteFileAtomically(path_, text);
}

}  // namespace quench
