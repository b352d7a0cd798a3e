#include "common/rpc/on_pool.h"

#include <mutex>
#include <optional>

namespace quench::rpc::internal {
namespace {

class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit UnaryReactor(std::shared_ptr<ServerCall> call) : call_(std::move(call)) {}
  void OnCancel() override { call_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<ServerCall> call_;
};

// A call whose outcome may come before or after its handler returns, and after its caller has gone.
class LateReactor final : public grpc::ServerUnaryReactor {
 public:
  // Outlives the reactor: others may hold it for long.
  class Ending {
   public:
    Ending(std::shared_ptr<ServerCall> call, LateReactor* reactor, Resource resource)
        : call_(std::move(call)), reactor_(reactor), resource_(std::move(resource)) {}

    void Tell(const absl::Status& status, const Fill& fill) {
      std::unique_lock lock(mutex_);
      if (outcome_) return;
      if (status.ok() && fill) fill();
      outcome_ = status;
      EndIfDone(std::move(lock));
    }
    // The handler reads the request no more.
    void Returned() {
      std::unique_lock lock(mutex_);
      returned_ = true;
      EndIfDone(std::move(lock));
    }

   private:
    void EndIfDone(std::unique_lock<std::mutex> lock) {
      if (!outcome_ || !returned_ || std::exchange(ended_, true)) return;
      lock.unlock();
      if (call_->is_audited()) call_->SetResource(resource_());
      call_->ReleaseSlot();
      reactor_->Finish(call_->End(*outcome_));
    }

    const std::shared_ptr<ServerCall> call_;
    LateReactor* const reactor_;
    const Resource resource_;
    std::mutex mutex_;
    std::optional<absl::Status> outcome_;
    bool returned_ = false, ended_ = false;
  };

  LateReactor(const std::shared_ptr<ServerCall>& call, Resource resource)
      : call_(call), ending_(std::make_shared<Ending>(call, this, std::move(resource))) {}
  const std::shared_ptr<Ending>& ending() const { return ending_; }
  void OnCancel() override {
    call_->Cancel();
    const std::shared_ptr<Ending> ending = ending_;  // the reactor may go meanwhile
    ending->Tell(absl::CancelledError("the caller has gone"), nullptr);
  }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<ServerCall> call_;
  const std::shared_ptr<Ending> ending_;
};

}  // namespace

std::string OneName(const std::string& name) {
  constexpr char kOperations[] = "operations/";
  return name.starts_with(kOperations) ? "workflows/" + name.substr(sizeof(kOperations) - 1) : name;
}

grpc::ServerUnaryReactor* RunLate(const Method& method, grpc::CallbackServerContext* context,
                                  const std::string& request_id, LateWork work, Resource resource) {
  auto call = std::make_shared<ServerCall>(method, context, request_id);
  if (const absl::Status admitted = call->Admit(); !admitted.ok()) {
    auto* reactor = new UnaryReactor(call);
    if (call->is_audited()) call->SetResource(resource());
    reactor->Finish(call->End(admitted));
    return reactor;
  }
  auto* reactor = new LateReactor(call, std::move(resource));
  method.pool().Run([call, ending = reactor->ending(), work = std::move(work)] {
    const absl::Status status = call->Run([&](const StepContext& step) {
      return work(step, [ending](const absl::Status& outcome, const Fill& fill) {
        ending->Tell(outcome, fill);
      });
    });
    if (!status.ok()) ending->Tell(status, nullptr);
    ending->Returned();
  });
  return reactor;
}

grpc::ServerUnaryReactor* RunUnary(const Method& method, grpc::CallbackServerContext* context,
                                   const std::string& request_id, Work work, Resource resource) {
  auto call = std::make_shared<ServerCall>(method, context, request_id);
  auto* reactor = new UnaryReactor(call);
  if (const absl::Status admitted = call->Admit(); !admitted.ok()) {
    if (call->is_audited()) call->SetResource(resource());
    reactor->Finish(call->End(admitted));
    return reactor;
  }
  // The reactor lives until it is finished, which happens here and nowhere else.
  method.pool().Run([call, reactor, work = std::move(work), resource = std::move(resource)] {
    const absl::Status status = call->Run(work);
    if (call->is_audited()) call->SetResource(resource());
    call->ReleaseSlot();
    reactor->Finish(call->End(status));
  });
  return reactor;
}

}  // namespace quench::rpc::internal
