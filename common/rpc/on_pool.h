// The two adapters between gRPC's callback API and handlers: authenticate, admit or shed, build the
// StepContext, run on the pool, turn the outcome into a rich error, finish exactly once, count and
// log. A handler is a function of the request; with them a method of a service reads
//
//   grpc::ServerWriteReactor<CompileEvent>* Compile(grpc::CallbackServerContext* context,
//                                                   const CompileRequest* request) override {
//     return rpc::StreamOnPool<CompileEvent>(compile_, context, request, DoCompile);
//   }
//
// where `rpc::Method compile_` is a member and DoCompile(const CompileRequest&, const StepContext&)
// gives an absl::StatusOr<CompileResult>.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/context.h"
#include "common/base/status.h"
#include "common/rpc/call.h"
#include "common/rpc/event_sender.h"

namespace quench::rpc {
namespace internal {

using Work = std::function<absl::Status(const StepContext&)>;
using Resource = std::function<std::string()>;

// Runs `work`, then finishes the call with its status. `resource` is called for methods that are
// audited.
grpc::ServerUnaryReactor* RunUnary(const Method& method, grpc::CallbackServerContext* context,
                                   const std::string& request_id, Work work, Resource resource);

// Like RunUnary, but `work` may return before the outcome is known, and passes it to its argument later,
// once, on any thread. `fill` writes the response, if the call still waits for it. If the caller goes,
// the call ends at once, but its work goes on.
using Fill = std::function<void()>;
using Outcome = std::function<void(const absl::Status& status, const Fill& fill)>;
using LateWork = std::function<absl::Status(const StepContext&, Outcome)>;
grpc::ServerUnaryReactor* RunLate(const Method& method, grpc::CallbackServerContext* context,
                                  const std::string& request_id, LateWork work, Resource resource);

// Names an operation like its workflow, so that the audit has one name for one thing.
std::string OneName(const std::string& name);

// Name of a call's resource: in the request or, if the call creates it, in the response.
template <typename Request, typename Response>
std::string ResourceOf(const Request& request, const Response& response) {
  if constexpr (requires { request.name(); }) {
    return OneName(request.name());
  } else if constexpr (requires { request.action_digest(); }) {
    return "actions/" + request.action_digest().hash();
  } else if constexpr (requires { request.requests_size(); }) {
    return fmt::format("{} blobs", request.requests_size());
  } else if constexpr (requires { response.name(); }) {
    return OneName(response.name());
  } else {
    return "";
  }
}

// The tenant for which a step runs.
template <typename Request>
std::string TenantOf(const Request& request) {
  if constexpr (requires { request.step().tenant(); }) {
    return request.step().tenant();
  } else {
    return "";
  }
}

// The id in a request's StepOptions, if it is a step's.
template <typename Request>
std::string RequestIdOf(const Request& request) {
  if constexpr (requires { request.step().request_id(); }) {
    return request.step().request_id();
  } else {
    return "";
  }
}

template <typename Event>
class StreamReactor final : public grpc::ServerWriteReactor<Event>, public EventTransport<Event> {
 public:
  StreamReactor(const Method& method, grpc::CallbackServerContext* context,
                const std::string& request_id)
      : call_(std::make_shared<ServerCall>(method, context, request_id)),
        sender_(std::make_shared<EventSender<Event>>(this, method.pool().options())) {}

  const std::shared_ptr<ServerCall>& call() const { return call_; }
  const std::shared_ptr<EventSender<Event>>& sender() const { return sender_; }

  void Write(const Event* event) override { this->StartWrite(event); }
  void End(const absl::Status& status) override { this->Finish(call_->End(status)); }
  void Break() override { call_->Break(); }
  void OnWriteDone(bool ok) override {
    const std::shared_ptr<EventSender<Event>> sender = sender_;  // the reactor may go meanwhile
    sender->OnWritten(ok);
  }
  void OnCancel() override { call_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<ServerCall> call_;
  std::shared_ptr<EventSender<Event>> sender_;
};

template <typename Event>
Event ProgressEvent(const Progress& progress) {
  Event event;
  auto* out = event.mutable_progress();
  out->set_stage(progress.stage);
  out->set_detail(progress.detail);
  out->set_done(progress.done);
  out->set_total(progress.total);
  if (progress.written == nullptr) return event;
  const WrittenLines& written = *progress.written;
  out->mutable_log()->Assign(written.latest.begin(), written.latest.end());
  out->set_log_lines(written.count);
  return event;
}

}  // namespace internal

// A call with one answer: handler(const Request&, const StepContext&) -> absl::StatusOr<Response>.
// The request is valid while the handler runs.
template <typename Request, typename Response, typename Handler>
grpc::ServerUnaryReactor* UnaryOnPool(const Method& method, grpc::CallbackServerContext* context,
                                      const Request* request, Response* response, Handler handler) {
  return internal::RunUnary(
      method, context, internal::RequestIdOf(*request),
      [request, response, handler = std::move(handler)](const StepContext& step) -> absl::Status {
        QUENCH_ASSIGN_OR_RETURN(*response, handler(*request, step));
        return absl::OkStatus();
      },
      [request, response] { return internal::ResourceOf(*request, *response); });
}

// A call whose outcome is known later, while no thread waits for it: handler(const Request&, const
// StepContext&, Answer<Response>), with an answer that is given once, on any thread. The request is
// valid while the handler runs.
template <typename Response>
using Answer = std::function<void(absl::StatusOr<Response>)>;

// The same for calls whose outcome is only a status: the response is empty.
template <typename Response>
std::function<void(const absl::Status&)> WithoutContent(const Answer<Response>& answer) {
  return [answer](const absl::Status& status) {
    if (status.ok()) {
      answer(Response());
    } else {
      answer(status);
    }
  };
}

template <typename Request, typename Response, typename Handler>
grpc::ServerUnaryReactor* UnaryLater(const Method& method, grpc::CallbackServerContext* context,
                                     const Request* request, Response* response, Handler handler) {
  return internal::RunLate(
      method, context, internal::RequestIdOf(*request),
      [request, response, handler = std::move(handler)](
          const StepContext& step, const internal::Outcome& outcome) -> absl::Status {
        handler(*request, step, Answer<Response>([response, outcome](absl::StatusOr<Response> it) {
          outcome(it.status(), [&] { *response = *std::move(it); });
        }));
        return absl::OkStatus();
      },
      [request, response] { return internal::ResourceOf(*request, *response); });
}

// A step: handler(const Request&, const StepContext&) -> absl::StatusOr<Result>, whose reports
// become progress events. `Event` is a oneof of accepted, progress and result. `accept`(const
// Request&, const StepContext&, Accepted*) fills in what only the service knows of the first event,
// or refuses the call with a status.
template <typename Event, typename Request, typename Handler, typename Accept>
grpc::ServerWriteReactor<Event>* StreamOnPool(const Method& method,
                                              grpc::CallbackServerContext* context,
                                              const Request* request, Handler handler,
                                              Accept accept) {
  auto* reactor =
      new internal::StreamReactor<Event>(method, context, internal::RequestIdOf(*request));
  const std::shared_ptr<ServerCall> call = reactor->call();
  const std::shared_ptr<EventSender<Event>> sender = reactor->sender();
  if (const absl::Status admitted = call->Admit(); !admitted.ok()) {
    sender->Close(admitted, std::nullopt);
    return reactor;
  }
  call->SendProgressTo([sender](const Progress& progress) {
    sender->Report(internal::ProgressEvent<Event>(progress));
  });
  method.pool().Watch(sender);
  method.pool().Run(
      [call, sender, request, handler = std::move(handler), accept = std::move(accept)] {
        Event event;
        const absl::Status status = call->Run([&](const StepContext& step) -> absl::Status {
          Event first;
          first.mutable_accepted()->set_request_id(call->request_id());
          QUENCH_RETURN_IF_ERROR(accept(*request, step, first.mutable_accepted()));
          if (call->is_audited()) {
            call->SetResource("steps/" + first.accepted().step_key(), internal::TenantOf(*request));
          }
          sender->Accept(std::move(first));
          QUENCH_ASSIGN_OR_RETURN(*event.mutable_result(), handler(*request, step));
          return absl::OkStatus();
        });
        call->ReleaseSlot();
        sender->Close(status, status.ok() ? std::optional<Event>(std::move(event)) : std::nullopt);
      });
  return reactor;
}

template <typename Event, typename Request, typename Handler>
grpc::ServerWriteReactor<Event>* StreamOnPool(const Method& method,
                                              grpc::CallbackServerContext* context,
                                              const Request* request, Handler handler) {
  return StreamOnPool<Event>(
      method, context, request, std::move(handler),
      [](const Request&, const StepContext&, auto*) { return absl::OkStatus(); });
}

}  // namespace quench::rpc
