// The events that a watcher of a workflow is sent, and when: knows no gRPC.
#pragma once

#include <chrono>
#include <mutex>

#include "common/rpc/event_sender.h"
#include "services/gateway/board.h"

namespace quench::gateway {

// Holds the newest view only, however slow the reader: what is sent is the difference to what was
// sent before. Thread-safe; the transport must live until its End.
class WatchSender final : public Watcher, public rpc::Ticked {
 public:
  using Event = v1::WatchWorkflowEvent;
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::chrono::milliseconds gap{100};  // between events, at least, but for the one that ends it
    std::chrono::milliseconds heartbeat{5000};  // at most
    std::chrono::milliseconds idle{0};  // a reader that takes nothing for so long has gone; 0: none
  };

  WatchSender(rpc::EventTransport<Event>* transport, Options options)
      : transport_(transport), options_(options) {}

  // The reader knows `revision`; `view` is the newest that the caller found.
  void Start(int64_t revision, const ViewPtr& view);
  void OnView(const ViewPtr& view) override;
  // The write that was started has left (`ok`), or nothing can leave any more.
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
