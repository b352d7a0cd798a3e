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
  free_ = registry.AddRefresh([space = folders_.space(), &registry] {
    const uint64_t missing = space->MissingOfReserve(), free = space->FreeOnDisk();
    if (free == BlobSpace::kNoLimit) return;
    registry.Get(metrics::kCasFree)
        .Set(missing > 0 ? -static_cast<double>(missing) : static_cast<double>(free));
  });
  folders_.space()->SetMakeRoom([this](uint64_t bytes) {
    if (const auto removed = Sweep(bytes); !removed.ok()) {
      spdlog::error("no room can be made for blobs: {}", MessageOf(removed.status()));
    }
  });
  thread_ = std::thread([this] { Work(); });
}

BlobKeeper::~BlobKeeper() {
  folders_.space()->SetMakeRoom(nullptr);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

// Files that are not blobs (unfinished files, reservations) take room too, and so do others on the
// disk: when a database beside the blobs has grown into their reserve, blobs give it back, and half
// as much again, so that the database is not at the end of its disk at once.
EvictionLimits BlobKeeper::LimitsFor(uint64_t room, uint64_t blobs) {
  const auto less = [](uint64_t from, uint64_t bytes) { return from - std::min(from, bytes); };
  BlobSpace& space = *folders_.space();
  const uint64_t others = less(space.Measure(), blobs);
  uint64_t fits = less(less(options_.limits.max, others), room);
  if (const uint64_t missing = space.MissingOfReserve(); missing > 0) {
    room += missing + space.reserve() / 2;
  }
  // Nothing is taken from the blobs while there is room, whatever has arrived since they were counted.
  const uint64_t lacking = space.reserve() > 0 ? less(room, space.FreeOnDisk()) : 0;
  if (lacking > 0) fits = std::min(fits, less(blobs, lacking));
  EvictionLimits limits = options_.limits;
  limits.max = fits;
  limits.high = std::min(limits.high, fits);
  limits.low = std::min(limits.low, fits);
  return limits;
}

absl::StatusOr<BlobStat> BlobKeeper::Sweep(uint64_t room) {
  const std::lock_guard lock(sweeping_);
  const std::vector<std::shared_ptr<TenantBlobs>> all = folders_.All();
  std::vector<EvictableStore> stores;
  int expired = 0;
  for (const std::shared_ptr<TenantBlobs>& each : all) {
    if (room == 0) Scrub(*each, options_.scrub_bytes / all.size());
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
  uint64_t blobs = 0;
  for (const std::shared_ptr<TenantBlobs>& each : all) {
    QUENCH_ASSIGN_OR_RETURN(const BlobStat stat, each->store->Stat());
    blobs += stat.bytes;
  }
  const absl::StatusOr<Eviction> eviction = Evict(stores, LimitsFor(room, blobs));
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

// Blobs that have not been read for long may have been damaged since they were written.
void BlobKeeper::Scrub(TenantBlobs& blobs, uint64_t bytes) {
  const auto removed = blobs.store->Scrub(bytes, &scrubbed_[blobs.tenant]);
  if (!removed.ok()) spdlog::error("blobs cannot be scrubbed: {}", MessageOf(removed.status()));
}

void BlobKeeper::Work() {
  // A full folder whose blobs must all stay is not looked at all the time.
  constexpr auto kGlance = std::chrono::milliseconds(100);
  constexpr auto kRest = std::chrono::milliseconds(5000);
  auto swept = std::chrono::steady_clock::now() - options_.period;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    BlobSpace& space = *folders_.space();
    lock.unlock();
    space.MakeRoomForFollowers();
    lock.lock();
    const auto now = std::chrono::steady_clock::now();
    const bool above = space.used() > options_.limits.high || space.MissingOfReserve() > 0;
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
