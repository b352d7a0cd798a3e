#include "services/gateway/pins.h"

#include <algorithm>

#include "common/blobs/digest.h"

namespace quench::gateway {

// Whatever else names a blob is known by the digest of its name.
Pins::Key Pins::KeyOf(const std::string& hash) {
  const std::string& digest = IsDigest(hash) ? hash : Sha256Hex(hash);
  const auto nibble = [&](size_t i) {
    return digest[i] <= '9' ? digest[i] - '0' : digest[i] - 'a' + 10;
  };
  Key key;
  for (size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<char>(nibble(2 * i) << 4 | nibble(2 * i + 1));
  return key;
}

Pins::Kept Pins::KeptOf(const std::string& tenant, const std::vector<BlobId>& blobs,
                        int64_t until_us) {
  Kept kept{tenant, {}, until_us};
  kept.blobs.reserve(blobs.size());
  for (const BlobId& blob : blobs) kept.blobs.push_back({KeyOf(blob.hash), blob.size});
  std::sort(kept.blobs.begin(), kept.blobs.end(),
            [](const KeptBlob& a, const KeptBlob& b) { return a.key < b.key; });
  const auto same = [](const KeptBlob& a, const KeptBlob& b) { return a.key == b.key; };
  kept.blobs.erase(std::unique(kept.blobs.begin(), kept.blobs.end(), same), kept.blobs.end());
  return kept;
}

bool Pins::IsPinned(const std::string& hash) const {
  const std::lock_guard lock(mutex_);
  return loading_ || counts_.contains(KeyOf(hash));
}

void Pins::SetLoading(bool loading) {
  const std::lock_guard lock(mutex_);
  loading_ = loading;
  released_.clear();
}

void Pins::Unpin(const Key& key) {
  const auto count = counts_.find(key);
  if (--count->second == 0) counts_.erase(count);
}

void Pins::Add(const std::string& owner, const std::vector<std::string>& hashes) {
  const std::lock_guard lock(mutex_);
  std::vector<Key>& owned = owners_[owner];
  for (const std::string& hash : hashes) {
    owned.push_back(KeyOf(hash));
    Pin(owned.back());
  }
}

void Pins::Remove(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  for (const Key& key : found->second) Unpin(key);
  owners_.erase(found);
}

bool Pins::Keep(const std::string& owner, const std::string& tenant,
                const std::vector<BlobId>& blobs, int64_t until_us) {
  const std::lock_guard lock(mutex_);
  ReleaseLocked(owner);
  Kept kept = KeptOf(tenant, blobs, until_us);
  uint64_t more = 0;
  const Tenant& known = tenants_[tenant];
  for (const KeptBlob& blob : kept.blobs) {
    if (!known.counts.contains(blob.key)) more += blob.size;
  }
  const uint64_t most = LimitOf(tenant);
  if (more > most || known.bytes > most - more) return false;
  if (more > limits_.total_bytes || kept_bytes_ > limits_.total_bytes - more) return false;
  KeepLocked(owner, std::move(kept));
  return true;
}

void Pins::KeepPromised(const std::string& owner, const std::string& tenant,
                        const std::vector<BlobId>& blobs, int64_t until_us) {
  const std::lock_guard lock(mutex_);
  if (released_.contains(owner)) return;
  ReleaseLocked(owner);
  KeepLocked(owner, KeptOf(tenant, blobs, until_us));
}

void Pins::KeepLocked(const std::string& owner, Kept kept) {
  Tenant& tenant = tenants_[kept.tenant];
  for (const KeptBlob& blob : kept.blobs) {
    Pin(blob.key);
    if (++tenant.counts[blob.key] > 1) continue;
    tenant.bytes += blob.size;
    kept_bytes_ += blob.size;
  }
  kept_[owner] = std::move(kept);
}

void Pins::Release(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  if (loading_) released_.insert(owner);
  ReleaseLocked(owner);
}

void Pins::ReleaseLocked(const std::string& owner) {
  const auto found = kept_.find(owner);
  if (found == kept_.end()) return;
  Tenant& tenant = tenants_[found->second.tenant];
  for (const KeptBlob& blob : found->second.blobs) {
    Unpin(blob.key);
    const auto count = tenant.counts.find(blob.key);
    if (--count->second > 0) continue;
    tenant.counts.erase(count);
    tenant.bytes -= blob.size;
    kept_bytes_ -= blob.size;
  }
  if (tenant.counts.empty()) tenants_.erase(found->second.tenant);
  kept_.erase(found);
}

void Pins::Expire(int64_t now_us) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> expired;
  for (const auto& [owner, kept] : kept_) {
    if (kept.until_us <= now_us) expired.push_back(owner);
  }
  for (const std::string& owner : expired) ReleaseLocked(owner);
}

uint64_t Pins::LimitOf(const std::string& tenant) const {
  const auto own = limits_.own_bytes.find(tenant);
  return own == limits_.own_bytes.end() ? limits_.tenant_bytes : own->second;
}

std::map<std::string, uint64_t> Pins::kept_by_tenant() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, uint64_t> kept;
  for (const auto& [tenant, its] : tenants_) {
    if (its.bytes > 0) kept[tenant] = its.bytes;
  }
  return kept;
}

size_t Pins::size() const {
  const std::lock_guard lock(mutex_);
  return counts_.size();
}

uint64_t Pins::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace quench::gateway
