// Adapters for streams of large messages, like those of on_pool.h: while the pool works on one message,
// another is on the wire. A stream holds two messages, however slow its peer.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/base/context.h"
#include "common/base/status.h"
#include "common/rpc/call.h"

namespace quench::rpc {

// The receiver of a client stream. Its functions run on the pool, never two at once.
template <typename Request, typename Response>
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Takes one message. Returns true if no more are needed, whatever the client still has to send.
  virtual absl::StatusOr<bool> Receive(const Request& request, const StepContext& step) = 0;
  // Called after the client's last message, or after the last one needed.
  virtual absl::Status Finish(Response* response, const StepContext& step) = 0;
  // Name of the stream's resource, for the audit; called last.
  virtual std::string Resource() const { return ""; }
};

// The source of a server stream's messages.
template <typename Response>
class Producer {
 public:
  virtual ~Producer() = default;
  // Fills in the next message; false if there is none.
  virtual absl::StatusOr<bool> Next(Response* response, const StepContext& step) = 0;
};

namespace internal {

// Does a stream's operations one after the other, whichever threads find them due: nothing is
// started on a reactor that has been finished.
class Driver {
 public:
  virtual ~Driver() = default;

 protected:
  // Chooses the next operation, with the lock held; it is done without the lock. Empty if none is due.
  virtual std::function<void()> NextOperation() = 0;

  void Drive() {
    std::unique_lock lock(mutex_);
    again_ = true;
    if (driving_) return;
    driving_ = true;
    while (std::exchange(again_, false)) {
      if (const std::function<void()> operation = NextOperation()) {
        again_ = true;
        lock.unlock();
        operation();
        lock.lock();
      }
    }
    driving_ = false;
  }

  std::mutex mutex_;

 private:
  bool driving_ = false;
  bool again_ = false;
};

// The time spent waiting for the client.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  void Begin() { since_ = Clock::now(); }
  void End() { since_.reset(); }
  bool IsOver(Clock::time_point now, std::chrono::milliseconds idle) const {
    return since_ && idle.count() > 0 && now - *since_ >= idle;
  }

 private:
  std::optional<Clock::time_point> since_;
};

template <typename Request, typename Response>
class ReceiveStream final : public Driver,
                            public Ticked,
                            public std::enable_shared_from_this<ReceiveStream<Request, Response>> {
 public:
  using Handler = Receiver<Request, Response>;

  ReceiveStream(const Method& method, grpc::CallbackServerContext* context, Response* response,
                grpc::ServerReadReactor<Request>* reactor)
      : method_(method), call_(method, context, ""), response_(response), reactor_(reactor) {}

  void Start(std::unique_ptr<Handler> handler) {
    handler_ = std::move(handler);
    if (const absl::Status admitted = call_.Admit(); admitted.ok()) {
      admitted_ = true;
    } else {
      outcome_ = admitted;
    }
    method_.pool().Watch(this->weak_from_this());
    Drive();
  }
  void Tick(Patience::Clock::time_point now) override {
    {
      const std::lock_guard lock(mutex_);
      if (working_ || outcome_ || !waited_for_.IsOver(now, idle_)) return;
    }
    Abort(StreamIdle(idle_));
  }
  // Ends the stream as soon as no message is being worked on.
  void Abort(const absl::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (outcome_) return;
      outcome_ = status;
    }
    Drive();
  }
  void OnRead(bool ok) {
    {
      const std::lock_guard lock(mutex_);
      reading_ = false;
      waited_for_.End();
      if (ok) {
        full_[std::exchange(read_, 1 - read_)] = true;
      } else {
        all_read_ = true;
      }
    }
    Drive();
  }
  void Cancel() { call_.Cancel(); }

 private:
  std::function<void()> NextOperation() override {
    if (ended_) return {};
    if (!working_ && outcome_) {
      ended_ = true;
      return [self = this->shared_from_this()] { self->End(); };
    }
    if (!working_ && (full_[work_] || (all_read_ && !outcome_))) {
      working_ = true;
      return [self = this->shared_from_this(), last = !full_[work_]] {
        self->method_.pool().Run([self, last] { self->Work(last); });
      };
    }
    if (!reading_ && !all_read_ && !full_[read_] && !outcome_) {
      reading_ = true;
      waited_for_.Begin();
      return [this] { reactor_->StartRead(&messages_[read_]); };
    }
    return {};
  }

  void Work(bool last) {
    bool enough = last;
    absl::Status status = call_.Run([&](const StepContext& step) -> absl::Status {
      if (!last) {
        QUENCH_ASSIGN_OR_RETURN(enough, handler_->Receive(messages_[work_], step));
      }
      return enough ? handler_->Finish(response_, step) : absl::OkStatus();
    });
    {
      const std::lock_guard lock(mutex_);
      working_ = false;
      if (!last) full_[std::exchange(work_, 1 - work_)] = false;
      if ((enough || !status.ok()) && !outcome_) outcome_ = std::move(status);
    }
    Drive();
  }

  void End() {
    if (call_.is_audited()) call_.SetResource(handler_->Resource());
    handler_.reset();
    if (admitted_) call_.ReleaseSlot();
    reactor_->Finish(call_.End(*outcome_));
  }

  const Method& method_;
  ServerCall call_;
  Response* const response_;
  grpc::ServerReadReactor<Request>* const reactor_;  // valid until ended_
  std::unique_ptr<Handler> handler_;
  // Ticks come until the stream is gone, which may outlive its method.
  const std::chrono::milliseconds idle_ = method_.pool().options().stream_idle;
  Patience waited_for_;
  Request messages_[2];
  bool full_[2] = {false, false};  // until its work is done
  int read_ = 0, work_ = 0;        // whose turn it is
  bool admitted_ = false, reading_ = false, all_read_ = false, working_ = false, ended_ = false;
  std::optional<absl::Status> outcome_;
};

template <typename Response>
class SendStream final : public Driver,
                         public Ticked,
                         public std::enable_shared_from_this<SendStream<Response>> {
 public:
  SendStream(const Method& method, grpc::CallbackServerContext* context,
             grpc::ServerWriteReactor<Response>* reactor)
      : method_(method), call_(method, context, ""), reactor_(reactor) {}

  void Start(std::unique_ptr<Producer<Response>> producer) {
    producer_ = std::move(producer);
    if (const absl::Status admitted = call_.Admit(); admitted.ok()) {
      admitted_ = true;
    } else {
      outcome_ = admitted;
    }
    method_.pool().Watch(this->weak_from_this());
    Drive();
  }
  void Tick(Patience::Clock::time_point now) override {
    {
      const std::lock_guard lock(mutex_);
      if (!writing_ || broken_ || !waited_for_.IsOver(now, idle_)) return;
      outcome_ = StreamIdle(idle_);
      breaking_ = broken_ = true;
    }
    Drive();
  }
  void OnWritten(bool ok) {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      waited_for_.End();
      full_[std::exchange(send_, 1 - send_)] = false;
      if (!ok && !broken_) outcome_ = absl::CancelledError("the client has gone");
    }
    Drive();
  }
  void Cancel() { call_.Cancel(); }

 private:
  std::function<void()> NextOperation() override {
    if (ended_) return {};
    if (std::exchange(breaking_, false)) {
      return [self = this->shared_from_this()] { self->call_.Break(); };
    }
    const bool failed = outcome_ && !outcome_->ok();
    if (!writing_ && full_[send_] && !failed) {
      writing_ = true;
      waited_for_.Begin();
      return [this] { reactor_->StartWrite(&messages_[send_]); };
    }
    if (!working_ && !outcome_ && !full_[work_]) {
      working_ = true;
      return
          [self = this->shared_from_this()] { self->method_.pool().Run([self] { self->Work(); }); };
    }
    if (outcome_ && !working_ && !writing_) {
      ended_ = true;
      return [self = this->shared_from_this()] { self->End(); };
    }
    return {};
  }

  void Work() {
    bool more = false;
    absl::Status status = call_.Run([&](const StepContext& step) -> absl::Status {
      QUENCH_ASSIGN_OR_RETURN(more, producer_->Next(&messages_[work_], step));
      return absl::OkStatus();
    });
    {
      const std::lock_guard lock(mutex_);
      working_ = false;
      if (!more || !status.ok()) {
        if (!outcome_) outcome_ = std::move(status);
      } else {
        full_[std::exchange(work_, 1 - work_)] = true;
      }
    }
    Drive();
  }

  void End() {
    producer_.reset();
    if (admitted_) call_.ReleaseSlot();
    reactor_->Finish(call_.End(*outcome_));
  }

  const Method& method_;
  ServerCall call_;
  grpc::ServerWriteReactor<Response>* const reactor_;  // valid until ended_
  std::unique_ptr<Producer<Response>> producer_;
  // Ticks come until the stream is gone, which may outlive its method.
  const std::chrono::milliseconds idle_ = method_.pool().options().stream_idle;
  Patience waited_for_;
  Response messages_[2];
  bool full_[2] = {false, false};  // until it is written
  int work_ = 0, send_ = 0;        // whose turn it is
  bool admitted_ = false, working_ = false, writing_ = false, ended_ = false;
  bool breaking_ = false, broken_ = false;  // a stuck write is to be given up; was given up
  std::optional<absl::Status> outcome_;
};

template <typename Request, typename Response>
class ReceiveReactor final : public grpc::ServerReadReactor<Request> {
 public:
  ReceiveReactor(const Method& method, grpc::CallbackServerContext* context, Response* response)
      : stream_(
            std::make_shared<ReceiveStream<Request, Response>>(method, context, response, this)) {}
  const std::shared_ptr<ReceiveStream<Request, Response>>& stream() const { return stream_; }
  void OnReadDone(bool ok) override { Held()->OnRead(ok); }
  void OnCancel() override { stream_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<ReceiveStream<Request, Response>> Held() const { return stream_; }
  const std::shared_ptr<ReceiveStream<Request, Response>> stream_;
};

template <typename Response>
class SendReactor final : public grpc::ServerWriteReactor<Response> {
 public:
  SendReactor(const Method& method, grpc::CallbackServerContext* context)
      : stream_(std::make_shared<SendStream<Response>>(method, context, this)) {}
  const std::shared_ptr<SendStream<Response>>& stream() const { return stream_; }
  void OnWriteDone(bool ok) override { Held()->OnWritten(ok); }
  void OnCancel() override { stream_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<SendStream<Response>> Held() const { return stream_; }
  const std::shared_ptr<SendStream<Response>> stream_;
};

}  // namespace internal

using AbortStream = std::function<void(const absl::Status&)>;

// A client stream. `make`(AbortStream) gives its Receiver; the AbortStream ends the stream from any
// thread, and may also be called after its end.
template <typename Request, typename Response, typename Make>
grpc::ServerReadReactor<Request>* ReceiveOnPool(const Method& method,
                                                grpc::CallbackServerContext* context,
                                                Response* response, Make make) {
  auto* reactor = new internal::ReceiveReactor<Request, Response>(method, context, response);
  const std::shared_ptr<internal::ReceiveStream<Request, Response>> stream = reactor->stream();
  stream->Start(make(AbortStream([weak = std::weak_ptr(stream)](const absl::Status& status) {
    if (const auto alive = weak.lock()) alive->Abort(status);
  })));
  return reactor;
}

// A server stream.
template <typename Response>
grpc::ServerWriteReactor<Response>* SendOnPool(const Method& method,
                                               grpc::CallbackServerContext* context,
                                               std::unique_ptr<Producer<Response>> producer) {
  auto* reactor = new internal::SendReactor<Response>(method, context);
  const std::shared_ptr<internal::SendStream<Response>> stream = reactor->stream();
  stream->Start(std::move(producer));
  return reactor;
}

}  // namespace quench::rpc
