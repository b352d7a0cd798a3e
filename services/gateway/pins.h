// Blobs that are never evicted: inputs of live workflows, and kept outputs of ended ones.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/blobs/blob_id.h"

namespace quench::gateway {

// Limits of Keep, in bytes; a blob counts once per tenant.
struct KeepLimits {
  uint64_t tenant_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t total_bytes = std::numeric_limits<uint64_t>::max();
  std::map<std::string, uint64_t> own_bytes = {};  // of tenants with a limit of their own
};

// Thread-safe.
class Pins {
 public:
  explicit Pins(const KeepLimits& limits = {}) : limits_(limits) {}

  // Every blob is pinned while the promises are still being loaded (SetLoading).
  bool IsPinned(const std::string& hash) const;
  void SetLoading(bool loading);
  // Adds to the blobs that `owner` needs.
  void Add(const std::string& owner, const std::vector<std::string>& hashes);
  void Remove(const std::string& owner);

  // Keeps the outputs of `owner`, a workflow of `tenant`: until Release, or Expire at a later time
  // than `until_us`, in Unix microseconds. False if that would exceed a limit: then nothing is
  // kept.
  bool Keep(const std::string& owner, const std::string& tenant, const std::vector<BlobId>& blobs,
            int64_t until_us);
  // Like Keep without limits: they were checked when the promise was made. Does nothing for an owner that was
  // released while loading.
  void KeepPromised(const std::string& owner, const std::string& tenant,
                    const std::vector<BlobId>& blobs, int64_t until_us);
  void Release(const std::string& owner);
  void Expire(int64_t now_us);

  // Whether Keep may keep anything.
  bool keeps() const { return limits_.total_bytes > 0; }
  size_t size() const;          // blobs
  uint64_t kept_bytes() const;  // of all tenants
  std::map<std::string, uint64_t> kept_by_tenant() const;
  uint64_t LimitOf(const std::string& tenant) const;

 private:
  // A digest as bytes: there are millions.
  using Key = std::array<char, 32>;
  struct FirstBytes {
    size_t operator()(const Key& key) const {
      size_t hash = 0;
      std::memcpy(&hash, key.data(), sizeof(hash));
      return hash;
    }
  };
  using Counts = std::unordered_map<Key, int, FirstBytes>;
  struct KeptBlob {
    Key key{};
    uint64_t size = 0;
  };
  struct Kept {
    std::string tenant;
    std::vector<KeptBlob> blobs;  // each once
    int64_t until_us = 0;
  };
  struct Tenant {
    Counts counts;
    uint64_t bytes = 0;
  };
  static Key KeyOf(const std::string& hash);
  static Kept KeptOf(const std::string& tenant, const std::vector<BlobId>& blobs, int64_t until_us);
  void Pin(const Key& key) { ++counts_[key]; }
  void Unpin(const Key& key);
  void ReleaseLocked(const std::string& owner);
  void KeepLocked(const std::string& owner, Kept kept);

  const KeepLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<Key>> owners_;
  std::unordered_map<std::string, Kept> kept_;
  std::map<std::string, Tenant> tenants_;
  uint64_t kept_bytes_ = 0;
  bool loading_ = false;
  std::set<std::string> released_;  // owners, while loading
  Counts counts_;
};

}  // namespace quench::gateway
