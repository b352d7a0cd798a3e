// Blobs that this process has read completely, or written, and verified, once for each file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace quench::blobs {

// Findings that a store's readers report about its bytes.
enum class Finding {
  kDamaged,   // a blob's bytes had another digest; it was removed
  kRepaired,  // a blob that had been damaged is there again, undamaged
};

// Thread-safe.
class VerifiedFiles {
 public:
  // Called without a lock, by the reader or writer of a blob.
  void SetListener(std::function<void(Finding)> listener) {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }
  bool Contains(const std::string& digest, uint64_t inode) {
    const std::lock_guard lock(mutex_);
    const auto found = inodes_.find(digest);
    return found != inodes_.end() && found->second == inode;
  }
  void Add(const std::string& digest, uint64_t inode) {
    std::function<void(Finding)> tell;
    {
      const std::lock_guard lock(mutex_);
      if (inodes_.size() >= kMost) inodes_.clear();
      inodes_[digest] = inode;
      if (damaged_.erase(digest) > 0) tell = listener_;
    }
    if (tell) tell(Finding::kRepaired);
  }
  void AddDamaged(const std::string& digest) {
    std::function<void(Finding)> tell;
    {
      const std::lock_guard lock(mutex_);
      inodes_.erase(digest);
      if (damaged_.size() >= kMost) damaged_.clear();
      damaged_.insert(digest);
      tell = listener_;
    }
    if (tell) tell(Finding::kDamaged);
  }

 private:
  static constexpr size_t kMost = 200'000;  // forgotten blobs are read again

  std::mutex mutex_;
  std::function<void(Finding)> listener_;
  std::map<std::string, uint64_t> inodes_;  // by digest
  std::set<std::string> damaged_;           // and not repaired since
};

}  // namespace quench::blobs
