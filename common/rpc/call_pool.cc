#include "common/rpc/call_pool.h"

#include <algorithm>
#include <iterator>

#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::rpc {

absl::Status StreamIdle(std::chrono::milliseconds idle) {
  return WithRetryAfter(
      Error(Reason::kStreamIdle, fmt::format("the client has moved nothing on this stream for {} s",
                                             static_cast<double>(idle.count()) / 1000)),
      std::chrono::milliseconds(0));
}

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

// As in switches that share a buffer between queues: with n clients that take all they get, each
// has one of n + 1 parts, and one part is free for the next client.
// (https://doi.org/10.1109/90.664262)
absl::Status CallPool::Admit(const std::string& client) {
  const int places = options_.threads + options_.queue;
  int held = 0;
  {
    const std::lock_guard lock(mutex_);
    if (options_.shared) {
      const auto found = held_.find(client);
      held = found == held_.end() ? 0 : found->second;
    }
    const int free = places - admitted_;
    if (held < free) {
      ++admitted_;
      if (options_.shared) ++held_[client];
      ShowSlots();
      return absl::OkStatus();
    }
  }
  return WithRetryAfter(
      Error(Reason::kSlotsFull,
            held > 0
                ? fmt::format("this client has {} calls here, its share of {} slots", held, places)
                : fmt::format("all slots are taken (slots: {})",
                              options_.shared ? places : options_.threads)),
      options_.retry_after);
}

void CallPool::Release(const std::string& client) {
  const std::lock_guard lock(mutex_);
  --admitted_;
  if (const auto found = held_.find(client); found != held_.end() && --found->second == 0) {
    held_.erase(found);
  }
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
