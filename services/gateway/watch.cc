#include "services/gateway/watch.h"

namespace quench::gateway {

void WatchSender::Start(int64_t revision, const ViewPtr& view) {
  std::unique_lock lock(mutex_);
  started_ = true;
  known_ = revision;
  if (newest_ == nullptr || newest_->header.revision() < view->header.revision()) newest_ = view;
  Advance(std::move(lock), Clock::now());
}

void WatchSender::OnView(const ViewPtr& view) {
  std::unique_lock lock(mutex_);
  if (newest_ == nullptr || newest_->header.revision() < view->header.revision()) newest_ = view;
  Advance(std::move(lock), Clock::now());
}

void WatchSender::OnWritten(bool ok) {
  std::unique_lock lock(mutex_);
  writing_ = false;
  if (!ok && !std::exchange(closed_, true)) status_ = absl::CancelledError("the caller has gone");
  Advance(std::move(lock), Clock::now());
}

void WatchSender::Tick(Clock::time_point now) {
  std::unique_lock lock(mutex_);
  if (writing_ && !broken_ && options_.idle.count() > 0 && now - last_write_ >= options_.idle) {
    closed_ = broken_ = breaking_ = true;
    status_ = rpc::StreamIdle(options_.idle);
    lock.unlock();
    transport_->Break();
    lock.lock();
    breaking_ = false;
  }
  Advance(std::move(lock), now);
}

void WatchSender::Close(const absl::Status& status) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  status_ = status;
  Advance(std::move(lock), Clock::now());
}

void WatchSender::Advance(std::unique_lock<std::mutex> lock, Clock::time_point now) {
  if (writing_ || breaking_ || ended_) return;
  if (closed_) {
    ended_ = true;
    const absl::Status status = status_;
    lock.unlock();
    transport_->End(status);
    return;
  }
  if (!started_ || !TakeNext(now)) return;
  writing_ = true;
  first_ = false;
  last_write_ = now;
  lock.unlock();
  transport_->Write(&outgoing_);
}

bool WatchSender::TakeNext(Clock::time_point now) {
  const int64_t revision = newest_->header.revision();
  const bool news = revision != known_ || newest_->ended();
  // The end waits for nothing: it is the last event, and what a short workflow is all about.
  if (news && (first_ || newest_->ended() || now - last_write_ >= options_.gap)) {
    outgoing_ = EventSince(*newest_, known_);
    known_ = revision;
    closed_ = newest_->ended();  // with OK, once this has left
    return true;
  }
  if (first_) {  // a reader that is up to date waits like any other
    first_ = false;
    last_write_ = now;
  }
  if (now - last_write_ < options_.heartbeat) return false;
  outgoing_.Clear();
  outgoing_.set_revision(known_);
  outgoing_.mutable_change();
  return true;
}

}  // namespace quench::gateway
