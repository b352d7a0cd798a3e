// The choice and timing of events for a watcher of a workflow, independent of gRPC.
#pragma once

#include <chrono>
#include <mutex>

#include "common/rpc/event_sender.h"
#include "services/gateway/board.h"

namespace quench::gateway {

// Holds the newest view only, however slow the reader: an event is the difference from the view that
// was sent before. Thread-safe; the transport must live until its End.
class WatchSender final : public Watcher, public rpc::Ticked {
 public:
  using Event = v1::WatchWorkflowEvent;
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::chrono::milliseconds gap{100};  // shortest time between events, except before the last
    std::chrono::milliseconds heartbeat{5000};  // longest time between events
    std::chrono::milliseconds idle{0};  // then a reader that reads nothing is cut off; 0: never
  };

  WatchSender(rpc::EventTransport<Event>* transport, Options options)
      : transport_(transport), options_(options) {}

  // The reader knows `revision`; `view` is the newest view that the caller found.
  void Start(int64_t revision, const ViewPtr& view);
  void OnView(const ViewPtr& view) override;
  // The write in progress has been sent (`ok`), or nothing can be sent any more.
  void OnWritten(bool ok);
  void Tick(Clock::time_point now) override;
  // Ends the call early.
  void Close(const absl::Status& status);

 private:
  void Advance(std::unique_lock<std::mutex> lock, Clock::time_point now);
  bool TakeNext(Clock::time_point now);

  rpc::EventTransport<Event>* const transport_;
  const Options options_;
  std::mutex mutex_;
  ViewPtr newest_;
  int64_t known_ = 0;  // revision that the reader has
  Event outgoing_;     // belongs to the transport while writing_
  Clock::time_point last_write_{};
  absl::Status status_;
  bool started_ = false, first_ = true, writing_ = false, closed_ = false, ended_ = false;
  bool broken_ = false;
  bool breaking_ = false;  // the transport is in use: it must not end
};

}  // namespace quench::gateway
