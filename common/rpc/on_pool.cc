#include "common/rpc/on_pool.h"

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

}  // namespace

grpc::ServerUnaryReactor* RunUnary(const Method& method, grpc::CallbackServerContext* context,
                                   const std::string& request_id, Work work) {
  auto call = std::make_shared<ServerCall>(method, context, request_id);
  auto* reactor = new UnaryReactor(call);
  if (const absl::Status admitted = call->Admit(); !admitted.ok()) {
    reactor->Finish(call->End(admitted));
    return reactor;
  }
  // The reactor lives until it is finished, which happens here and nowhere else.
  method.pool().Run([call, reactor, work = std::move(work)] {
    const absl::Status status = call->Run(work);
    call->ReleaseSlot();
    reactor->Finish(call->End(status));
  });
  return reactor;
}

}  // namespace quench::rpc::internal
