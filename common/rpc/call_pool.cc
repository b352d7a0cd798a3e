#include "common/rpc/call_pool.h"

#include <algorithm>
#include <iterator>

#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::rpc {

CallPool::CallPool(const Options& options) : options_(options) {
  if (options_.threads <= 0) {
    options_.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency() / 2));
  }
  ShowSlots();
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { Work(); });
  threads_.emplace_back([this] { TickAll(); });
}

CallPool::~CallPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  tick_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status CallPool::Admit() {
  {
    const std::lock_guard lock(mutex_);
    if (admitted_ < options_.threads + options_.queue) {
      ++admitted_;
      ShowSlots();
      return absl::OkStatus();
    }
  }
  return WithRetryAfter(
      Error(Reason::kSlotsFull, fmt::format("all {} slots are taken", options_.threads)),
      options_.retry_after);
}

void CallPool::Release() {
  const std::lock_guard lock(mutex_);
  --admitted_;
  ShowSlots();
}

void CallPool::ShowSlots() {
  if (!options_.slots_of) return;
  const int busy = std::min(admitted_, options_.threads);
  options_.registry->Get(metrics::kSlots, *options_.slots_of, metrics::SlotState::kBusy).Set(busy);
  options_.registry->Get(metrics::kSlots, *options_.slots_of, metrics::SlotState::kFree)
      .Set(options_.threads - busy);
}

void CallPool::Run(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void CallPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

void CallPool::Watch(std::weak_ptr<Ticked> what) {
  {
    const std::lock_guard lock(mutex_);
    ticked_.push_back(std::move(what));
  }
  tick_.notify_one();
}

void CallPool::TickAll() {
  const auto period = std::max(std::chrono::milliseconds(1),
                               std::min(std::chrono::milliseconds(100),
                                        std::min(options_.heartbeat / 2, options_.progress_gap)));
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (ticked_.empty()) {
      tick_.wait(lock, [this] { return stopping_ || !ticked_.empty(); });
    } else {
      tick_.wait_for(lock, period, [this] { return stopping_; });
    }
    std::erase_if(ticked_, [](const std::weak_ptr<Ticked>& each) { return each.expired(); });
    std::vector<std::shared_ptr<Ticked>> alive;
    for (const std::weak_ptr<Ticked>& each : ticked_) {
      if (auto locked = each.lock()) alive.push_back(std::move(locked));
    }
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    for (const std::shared_ptr<Ticked>& each : alive) each->Tick(now);
    alive.clear();
    lock.lock();
  }
}

}  // namespace quench::rpc
