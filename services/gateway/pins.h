// Blobs that no eviction takes: what live workflows need, and what those that have ended gave.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/blobs/blob_id.h"

namespace quench::gateway {

// Of what Keep keeps; a blob counts once for a tenant.
struct KeepLimits {
  uint64_t tenant_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t total_bytes = std::numeric_limits<uint64_t>::max();
};

// Thread-safe.
class Pins {
 public:
  explicit Pins(const KeepLimits& limits = {}) : limits_(limits) {}

  bool IsPinned(const std::string& hash) const;
  // Adds to what `owner` needs.
  void Add(const std::string& owner, const std::vector<std::string>& hashes);
  void Remove(const std::string& owner);

  // What `owner`, a workflow of `tenant`, gave: until Release, or Expire at a later time than
  // `until_us`, in Unix microseconds. False when it would go over a limit: then nothing is kept.
  bool Keep(const std::string& owner, const std::string& tenant, const std::vector<BlobId>& blobs,
            int64_t until_us);
  // As Keep, whatever the limits: they were asked when it was promised.
  void KeepPromised(const std::string& owner, const std::string& tenant,
                    const std::vector<BlobId>& blobs, int64_t until_us);
  void Release(const std::string& owner);
  void Expire(int64_t now_us);

  size_t size() const;          // blobs
  uint64_t kept_bytes() const;  // of all tenants

 private:
  struct Kept {
    std::string tenant;
    std::vector<BlobId> blobs;  // each once
    int64_t until_us = 0;
  };
  struct Tenant {
    std::map<std::string, int> counts;  // by hash
    uint64_t bytes = 0;
  };
  void Pin(const std::string& hash) { ++counts_[hash]; }
  void Unpin(const std::string& hash);
  void ReleaseLocked(const std::string& owner);
  void KeepLocked(const std::string& owner, Kept kept);

  const KeepLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> owners_;
  std::map<std::string, Kept> kept_;
  std::map<std::string, Tenant> tenants_;
  uint64_t kept_bytes_ = 0;
  std::map<std::string, int> counts_;
};

}  // namespace quench::gateway
