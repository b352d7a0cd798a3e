#include "common/blobs/action_cache.h"

#include <unistd.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/blobs/folder.h"

namespace quench {
namespace {

absl::Status CheckKey(const std::string& key) {
  if (IsDigest(key)) return absl::OkStatus();
  return InvalidArgument("`{}` is not a key of actions, those have 64 lower-case hex characters",
                         key.substr(0, 80));
}

}  // namespace

absl::StatusOr<std::shared_ptr<LocalActionCache>> LocalActionCache::Open(
    const std::filesystem::path& root, uint64_t max_bytes) {
  QUENCH_RETURN_IF_ERROR(blobs::MakeFolders(root / "ac"));
  std::shared_ptr<LocalActionCache> cache(new LocalActionCache(root / "ac", max_bytes));
  cache->Prune();
  return cache;
}

absl::StatusOr<std::optional<std::string>> LocalActionCache::Get(const std::string& key,
                                                                 const StepContext&) {
  QUENCH_RETURN_IF_ERROR(CheckKey(key));
  const std::filesystem::path path = folder_ / key.substr(0, 2) / key;
  absl::StatusOr<std::string> value = ReadFile(path, kMaxActionBytes);
  if (absl::IsNotFound(value.status())) return std::nullopt;
  QUENCH_RETURN_IF_ERROR(value.status());
  blobs::MarkUsed(path);
  return *std::move(value);
}

absl::Status LocalActionCache::Put(const std::string& key, const std::string& value,
                                   const StepContext&) {
  QUENCH_RETURN_IF_ERROR(CheckKey(key));
  if (value.size() > kMaxActionBytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "an action's result of {} bytes, at most {} are stored", value.size(), kMaxActionBytes));
  }
  const std::filesystem::path folder = folder_ / key.substr(0, 2);
  QUENCH_RETURN_IF_ERROR(blobs::MakeFolders(folder));
  QUENCH_RETURN_IF_ERROR(WriteFileAtomically(folder / key, value));
  bytes_ += value.size();
  if (bytes_ > max_bytes_) Prune();
  return absl::OkStatus();
}

// Down to nine tenths, so that not every Put prunes.
void LocalActionCache::Prune() {
  std::vector<blobs::StoredFile> files = blobs::ListDigests(folder_);
  uint64_t bytes = 0;
  for (const blobs::StoredFile& file : files) bytes += file.bytes;
  if (bytes > max_bytes_) {
    std::sort(files.begin(), files.end(), blobs::UsedBefore);
    for (const blobs::StoredFile& file : files) {
      if (bytes <= max_bytes_ / 10 * 9) break;
      if (::unlink(file.path.c_str()) == 0) bytes -= file.bytes;
    }
  }
  bytes_ = bytes;
}

}  // namespace quench
