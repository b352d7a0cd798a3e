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
