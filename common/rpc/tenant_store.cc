#include "common/rpc/tenant_store.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/base/status.h"
#include "common/blobs/eviction.h"
#include "common/rpc/tenants.h"

namespace quench::rpc {
namespace {

class LocalStore final : public TenantStore {
 public:
  LocalStore(std::shared_ptr<LocalBlobStore> blobs, std::shared_ptr<ActionCache> actions,
             std::shared_ptr<ActionCache> records)
      : blobs_(std::move(blobs)), actions_(std::move(actions)), records_(std::move(records)) {}

  LocalBlobStore& local() override { return *blobs_; }
  ActionCache* actions() override { return actions_.get(); }
  ActionCache* records() override { return records_.get(); }
  absl::StatusOr<std::vector<BlobId>> Missing(const std::vector<BlobId>& blobs,
                                              const StepContext& step) override {
    std::vector<BlobId> missing;
    for (size_t i = 0; i < blobs.size(); ++i) {
      if (i % 100 == 0) QUENCH_RETURN_IF_ERROR(step.Check());
      if (!blobs_->Use(blobs[i])) missing.push_back(blobs[i]);
    }
    return missing;
  }
  absl::Status Fetch(const std::vector<BlobId>& blobs, const StepContext& step) override {
    std::vector<BlobId> missing;
    for (const BlobId& blob : blobs) {
      QUENCH_RETURN_IF_ERROR(step.Check());
      if (!blobs_->UseRight(blob)) missing.push_back(blob);
    }
    return missing.empty() ? absl::OkStatus() : BlobsMissing(missing);
  }
  absl::Status Publish(const std::vector<BlobId>&, const StepContext&) override {
    return absl::OkStatus();
  }
  std::shared_ptr<void> Hold(const std::vector<BlobId>&) override { return nullptr; }

 private:
  const std::shared_ptr<LocalBlobStore> blobs_;
  const std::shared_ptr<ActionCache> actions_, records_;
};

class RemoteStore final : public TenantStore {
 public:
  RemoteStore(std::shared_ptr<RemoteBlobs> remote, std::shared_ptr<LocalBlobStore> local,
              std::shared_ptr<BlobCopies> copies, std::shared_ptr<ActionCache> actions,
              std::shared_ptr<ActionCache> records)
      : remote_(std::move(remote)),
        local_(std::move(local)),
        copies_(std::move(copies)),
        actions_(std::move(actions)),
        records_(std::move(records)) {}

  LocalBlobStore& local() override { return *local_; }
  ActionCache* actions() override { return actions_.get(); }
  ActionCache* records() override { return records_.get(); }
  absl::StatusOr<std::vector<BlobId>> Missing(const std::vector<BlobId>& blobs,
                                              const StepContext& step) override {
    return remote_->FindMissing(blobs, step);
  }
  absl::Status Fetch(const std::vector<BlobId>& blobs, const StepContext& step) override {
    return remote_->Download(blobs, *local_, step);
  }
  absl::Status Publish(const std::vector<BlobId>& blobs, const StepContext& step) override {
    QUENCH_RETURN_IF_ERROR(remote_->Upload(*local_, blobs, step));
    if (copies_ != nullptr) copies_->Trim();
    return absl::OkStatus();
  }
  std::shared_ptr<void> Hold(const std::vector<BlobId>& blobs) override {
    return copies_ == nullptr ? nullptr : copies_->Hold(blobs);
  }

 private:
  const std::shared_ptr<RemoteBlobs> remote_;
  const std::shared_ptr<LocalBlobStore> local_;
  const std::shared_ptr<BlobCopies> copies_;
  const std::shared_ptr<ActionCache> actions_, records_;
};

}  // namespace

std::shared_ptr<TenantStore> MakeLocalStore(std::shared_ptr<LocalBlobStore> blobs,
                                            std::shared_ptr<ActionCache> actions,
                                            std::shared_ptr<ActionCache> records) {
  return std::make_shared<LocalStore>(std::move(blobs), std::move(actions), std::move(records));
}

std::shared_ptr<TenantStore> MakeRemoteStore(std::shared_ptr<RemoteBlobs> remote,
                                             std::shared_ptr<LocalBlobStore> local,
                                             std::shared_ptr<BlobCopies> copies,
                                             std::shared_ptr<ActionCache> actions,
                                             std::shared_ptr<ActionCache> records) {
  return std::make_shared<RemoteStore>(std::move(remote), std::move(local), std::move(copies),
                                       std::move(actions), std::move(records));
}

void CountFindings(LocalBlobStore& store, metrics::CasPlace place, metrics::Registry& registry) {
  store.OnFinding([&damaged = registry.Get(metrics::kCasDamaged, place),
                   &repaired = registry.Get(metrics::kCasRepaired, place)](blobs::Finding finding) {
    (finding == blobs::Finding::kDamaged ? damaged : repaired).Increment();
  });
}

BlobCopies::BlobCopies(std::filesystem::path root, uint64_t max_bytes, metrics::Registry& registry)
    : root_(std::move(root)),
      max_bytes_(max_bytes),
      registry_(registry),
      space_(std::make_shared<BlobSpace>(max_bytes, DefaultReserve(root_))) {}

absl::StatusOr<std::shared_ptr<BlobCopies>> BlobCopies::Open(const std::filesystem::path& root,
                                                             uint64_t max_bytes,
                                                             metrics::Registry& registry) {
  std::shared_ptr<BlobCopies> copies(new BlobCopies(root, max_bytes, registry));
  copies->space_->SetMakeRoom(
      [self = copies.get()](uint64_t bytes) { self->Trim(std::max<uint64_t>(bytes, 1)); });
  QUENCH_RETURN_IF_ERROR(copies->Of(kDefaultTenant).status());
  // Copies that an earlier process left for other tenants count too.
  std::error_code error;
  for (std::filesystem::directory_iterator each(root / "tenants", error), end;
       !error && each != end; each.increment(error)) {
    const std::string tenant = each->path().filename().string();
    if (IsTenant(tenant)) QUENCH_RETURN_IF_ERROR(copies->Of(tenant).status());
  }
  copies->Trim();
  return copies;
}

BlobCopies::~BlobCopies() { space_->SetMakeRoom(nullptr); }

absl::StatusOr<std::shared_ptr<LocalBlobStore>> BlobCopies::Of(const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  if (const auto known = open_.find(tenant); known != open_.end()) return known->second;
  QUENCH_ASSIGN_OR_RETURN(auto store, LocalBlobStore::Open(TenantFolder(root_, tenant), space_));
  CountFindings(*store, metrics::CasPlace::kCopies, registry_);
  open_.emplace(tenant, store);
  return store;
}

std::shared_ptr<void> BlobCopies::Hold(const std::vector<BlobId>& blobs) {
  {
    const std::lock_guard lock(held_->mutex);
    for (const BlobId& blob : blobs) ++held_->counts[blob.hash];
  }
  const auto release = [held = held_, blobs](void*) {
    const std::lock_guard lock(held->mutex);
    for (const BlobId& blob : blobs) {
      const auto count = held->counts.find(blob.hash);
      if (--count->second == 0) held->counts.erase(count);
    }
  };
  return {this, release};
}

void BlobCopies::Trim(uint64_t room) {
  const std::lock_guard trimming(trimming_);
  const auto now = std::chrono::steady_clock::now();
  if (room == 0 && now - trimmed_ < std::chrono::seconds(1)) return;
  trimmed_ = now;
  const auto held = [this](const std::string& hash) {
    const std::lock_guard lock(held_->mutex);
    return held_->counts.contains(hash);
  };
  std::vector<EvictableStore> stores;
  std::vector<std::shared_ptr<LocalBlobStore>> alive;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [tenant, store] : open_) {
      alive.push_back(store);
      stores.push_back({store.get(), held});
    }
  }
  const uint64_t free = space_->FreeOnDisk();
  uint64_t fits = max_bytes_ - std::min(max_bytes_, room);
  if (free < room) fits = std::min(fits, space_->Measure() - std::min(space_->used(), room - free));
  EvictionLimits limits;
  limits.low = std::min(fits, max_bytes_ / 10 * 9);
  limits.high = limits.max = fits;
  if (const auto evicted = Evict(stores, limits); !evicted.ok()) {
    spdlog::error("copies of blobs cannot be removed: {}", MessageOf(evicted.status()));
  }
  (void)space_->Measure();
}

}  // namespace quench::rpc
