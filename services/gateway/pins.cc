#include "services/gateway/pins.h"

#include <algorithm>

namespace quench::gateway {
namespace {

std::vector<BlobId> WithoutRepetitions(std::vector<BlobId> blobs) {
  std::sort(blobs.begin(), blobs.end());
  blobs.erase(std::unique(blobs.begin(), blobs.end()), blobs.end());
  return blobs;
}

}  // namespace

bool Pins::IsPinned(const std::string& hash) const {
  const std::lock_guard lock(mutex_);
  return counts_.contains(hash);
}

void Pins::Unpin(const std::string& hash) {
  const auto count = counts_.find(hash);
  if (--count->second == 0) counts_.erase(count);
}

void Pins::Add(const std::string& owner, const std::vector<std::string>& hashes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string>& owned = owners_[owner];
  for (const std::string& hash : hashes) {
    owned.push_back(hash);
    Pin(hash);
  }
}

void Pins::Remove(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  for (const std::string& hash : found->second) Unpin(hash);
  owners_.erase(found);
}

bool Pins::Keep(const std::string& owner, const std::string& tenant,
                const std::vector<BlobId>& blobs, int64_t until_us) {
  const std::lock_guard lock(mutex_);
  ReleaseLocked(owner);
  Kept kept{tenant, WithoutRepetitions(blobs), until_us};
  uint64_t more = 0;
  const Tenant& known = tenants_[tenant];
  for (const BlobId& blob : kept.blobs) {
    if (!known.counts.contains(blob.hash)) more += blob.size;
  }
  if (more > limits_.tenant_bytes || known.bytes > limits_.tenant_bytes - more) return false;
  if (more > limits_.total_bytes || kept_bytes_ > limits_.total_bytes - more) return false;
  KeepLocked(owner, std::move(kept));
  return true;
}

void Pins::KeepPromised(const std::string& owner, const std::string& tenant,
                        const std::vector<BlobId>& blobs, int64_t until_us) {
  const std::lock_guard lock(mutex_);
  ReleaseLocked(owner);
  KeepLocked(owner, {tenant, WithoutRepetitions(blobs), until_us});
}

void Pins::KeepLocked(const std::string& owner, Kept kept) {
  Tenant& tenant = tenants_[kept.tenant];
  for (const BlobId& blob : kept.blobs) {
    Pin(blob.hash);
    if (++tenant.counts[blob.hash] > 1) continue;
    tenant.bytes += blob.size;
    kept_bytes_ += blob.size;
  }
  kept_[owner] = std::move(kept);
}

void Pins::Release(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  ReleaseLocked(owner);
}

void Pins::ReleaseLocked(const std::string& owner) {
  const auto found = kept_.find(owner);
  if (found == kept_.end()) return;
  Tenant& tenant = tenants_[found->second.tenant];
  for (const BlobId& blob : found->second.blobs) {
    Unpin(blob.hash);
    const auto count = tenant.counts.find(blob.hash);
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

size_t Pins::size() const {
  const std::lock_guard lock(mutex_);
  return counts_.size();
}

uint64_t Pins::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace quench::gateway
