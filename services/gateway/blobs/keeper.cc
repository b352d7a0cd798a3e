#include "services/gateway/blobs/keeper.h"

#include <spdlog/spdlog.h>

#include "common/base/status.h"

namespace quench::gateway {

BlobKeeper::BlobKeeper(BlobFolders& folders, BlobKeeperOptions options)
    : folders_(folders), options_(std::move(options)) {
  metrics::Registry& registry = *options_.registry;
  registry.Get(metrics::kCasSizeLimit, metrics::CasLimit::kEvict)
      .Set(static_cast<double>(options_.limits.high));
  registry.Get(metrics::kCasSizeLimit, metrics::CasLimit::kReject)
      .Set(static_cast<double>(folders.space()->max_bytes()));
  thread_ = std::thread([this] { Work(); });
}

BlobKeeper::~BlobKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

absl::StatusOr<BlobStat> BlobKeeper::Sweep() {
  const std::lock_guard lock(sweeping_);
  const std::vector<std::shared_ptr<TenantBlobs>> all = folders_.All();
  std::vector<EvictableStore> stores;
  int expired = 0;
  for (const std::shared_ptr<TenantBlobs>& each : all) {
    expired += each->uploads->DropExpired();
    each->store->RemoveAbandoned();
    std::function<bool(const std::string&)> pinned;
    if (options_.pinned) {
      pinned = [this, &each](const std::string& hash) {
        return options_.pinned(each->tenant, hash);
      };
    }
    stores.push_back({each->store.get(), std::move(pinned)});
  }
  if (expired > 0) spdlog::info("{} unfinished uploads expired", expired);
  const absl::StatusOr<Eviction> eviction = Evict(stores, options_.limits);
  (void)folders_.space()->Measure();
  QUENCH_RETURN_IF_ERROR(eviction.status());
  metrics::Registry& registry = *options_.registry;
  registry.Get(metrics::kCasSize).Set(static_cast<double>(eviction->left.bytes));
  registry.Get(metrics::kCasEvictedBytes).Increment(static_cast<double>(eviction->removed.bytes));
  if (eviction->removed.count > 0) {
    spdlog::info("evicted {} blobs of {} bytes, {} bytes are left", eviction->removed.count,
                 eviction->removed.bytes, eviction->left.bytes);
  }
  if (eviction->left.bytes > options_.limits.high) {
    spdlog::warn("blobs take {} bytes, more than {}: what is left is pinned or in use",
                 eviction->left.bytes, options_.limits.high);
  }
  return eviction->removed;
}

void BlobKeeper::Work() {
  // A full folder whose blobs must all stay is not looked at all the time.
  constexpr auto kGlance = std::chrono::milliseconds(500);
  constexpr auto kRest = std::chrono::milliseconds(5000);
  auto swept = std::chrono::steady_clock::now() - options_.period;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = std::chrono::steady_clock::now();
    const bool above = folders_.space()->used() > options_.limits.high;
    if (now - swept >= options_.period ||
        (above && now - swept >= std::min(kRest, options_.period))) {
      lock.unlock();
      if (const auto removed = Sweep(); !removed.ok()) {
        spdlog::error("blobs cannot be looked after: {}", MessageOf(removed.status()));
      }
      swept = std::chrono::steady_clock::now();
      lock.lock();
    }
    wake_.wait_for(lock, std::min(kGlance, options_.period), [this] { return stopping_; });
  }
}

}  // namespace quench::gateway
