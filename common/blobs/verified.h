// Which blobs this process has read to their end, or written, and found right: once for each file.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace quench::blobs {

// Thread-safe.
class VerifiedFiles {
 public:
  bool Contains(const std::string& digest, uint64_t inode) {
    const std::lock_guard lock(mutex_);
    const auto found = inodes_.find(digest);
    return found != inodes_.end() && found->second == inode;
  }
  void Add(const std::string& digest, uint64_t inode) {
    constexpr size_t kMost = 200'000;  // what is forgotten is read again
    const std::lock_guard lock(mutex_);
    if (inodes_.size() >= kMost) inodes_.clear();
    inodes_[digest] = inode;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, uint64_t> inodes_;  // by digest
};

}  // namespace quench::blobs
