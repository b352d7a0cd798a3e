// The events of a streamed call, and their order: `accepted`, then progress, then the result, then the
// end - with at most one write outstanding. Independent of gRPC.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/metrics/metrics.h"
#include "common/rpc/call_pool.h"

namespace quench::rpc {

// The transport below. Never called with a lock held; never again after End.
template <typename Event>
class EventTransport {
 public:
  virtual ~EventTransport() = default;
  // Starts a write; `event` stays unchanged until EventSender::OnWritten.
  virtual void Write(const Event* event) = 0;
  virtual void End(const absl::Status& status) = 0;
  // Gives up a write that has not been sent, which then ends with EventSender::OnWritten(false).
  virtual void Break() = 0;
};

struct EventCounters {
  explicit EventCounters(metrics::Registry& registry)
      : sent(&registry.Get(metrics::kStreamEvents, metrics::EventFate::kSent)),
        conflated(&registry.Get(metrics::kStreamEvents, metrics::EventFate::kConflated)),
        heartbeat(&registry.Get(metrics::kStreamEvents, metrics::EventFate::kHeartbeat)) {}
  metrics::Counter* sent;
  metrics::Counter* conflated;
  metrics::Counter* heartbeat;
};

// Holds at most five events, however slow the reader: progress that the reader has not yet taken is
// replaced by newer progress. Thread-safe; the transport must live until its End.
template <typename Event>
class EventSender final : public Ticked {
 public:
  using Clock = std::chrono::steady_clock;

  EventSender(EventTransport<Event>* transport, const CallPool::Options& options)
      : transport_(transport), options_(options), counters_(*options.registry) {}

  // The first event, before any progress.
  void Accept(Event accepted) {
    std::unique_lock lock(mutex_);
    QUENCH_CHECK(!accepted_);
    accepted_ = true;
    first_ = std::move(accepted);
    Advance(std::move(lock), Clock::now());
  }

  void Report(Event progress) {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    if (progress_) counters_.conflated->Increment();
    KeepLines(&progress);
    newest_ = progress;
    progress_ = std::move(progress);
    Advance(std::move(lock), Clock::now());
  }

  // Ends the call; a result, if there is one, is sent first, after the waiting events.
  void Close(absl::Status status, std::optional<Event> result) {
    std::unique_lock lock(mutex_);
    QUENCH_CHECK(!closed_);
    closed_ = true;
    status_ = std::move(status);
    last_ = std::move(result);
    // Lines that a step's process wrote before it failed come before its error.
    if (!status_.ok() && progress_ && progress_->progress().log().empty()) progress_.reset();
    Advance(std::move(lock), Clock::now());
  }

  // The write in progress has been sent (`ok`), or nothing can be sent any more.
  void OnWritten(bool ok) {
    std::unique_lock lock(mutex_);
    writing_ = false;
    broken_ = broken_ || !ok;
    Advance(std::move(lock), Clock::now());
  }

  void Tick(Clock::time_point now) override {
    std::unique_lock lock(mutex_);
    if (writing_ && !broken_ && options_.stream_idle.count() > 0 &&
        now - last_write_ >= options_.stream_idle) {
      broken_ = breaking_ = true;
      lock.unlock();
      transport_->Break();
      lock.lock();
      breaking_ = false;
    }
    if (accepted_ && !closed_ && !writing_ && !progress_ &&
        now - last_write_ >= options_.heartbeat) {
      progress_ = newest_;
      counters_.heartbeat->Increment();
    }
    Advance(std::move(lock), now);
  }

 private:
  // Lines of a step's process that were reported before come along with progress that has none.
  void KeepLines(Event* progress) const {
    const auto& before = newest_.progress();
    auto* now = progress->mutable_progress();
    if (now->log_lines() > 0 || before.log_lines() == 0) return;
    *now->mutable_log() = before.log();
    now->set_log_lines(before.log_lines());
  }

  // Starts the next write, if none is in progress.
  void Advance(std::unique_lock<std::mutex> lock, Clock::time_point now) {
    if (writing_ || breaking_ || ended_) return;
    if (!broken_ && TakeNext(now)) {
      writing_ = true;
      last_write_ = now;
      counters_.sent->Increment();
      lock.unlock();
      transport_->Write(&outgoing_);
    } else if (closed_) {
      ended_ = true;
      const absl::Status status = status_;
      lock.unlock();
      transport_->End(status);
    }
  }

  bool TakeNext(Clock::time_point now) {
    if (first_) return Take(first_);
    if (progress_ && (closed_ || now - last_progress_ >= options_.progress_gap)) {
      last_progress_ = now;
      return Take(progress_);
    }
    return last_ && Take(last_);
  }

  bool Take(std::optional<Event>& event) {
    outgoing_ = *std::move(event);
    event.reset();
    return true;
  }

  EventTransport<Event>* const transport_;
  const CallPool::Options& options_;
  const EventCounters counters_;
  std::mutex mutex_;
  std::optional<Event> first_, progress_, last_;
  Event newest_ = EmptyProgress();  // repeated by a heartbeat
  Event outgoing_;                  // belongs to the transport while writing_
  Clock::time_point last_write_ = Clock::now(), last_progress_ = {};
  absl::Status status_;
  bool accepted_ = false, writing_ = false, broken_ = false, closed_ = false, ended_ = false;
  bool breaking_ = false;  // the transport is in use: it must not end

  static Event EmptyProgress() {
    Event event;
    event.mutable_progress();
    return event;
  }
};

}  // namespace quench::rpc
