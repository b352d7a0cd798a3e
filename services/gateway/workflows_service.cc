#include "services/gateway/workflows_service.h"

#include "common/rpc/errors.h"

namespace quench::gateway {
namespace {

using metrics::GrpcType;
using rpc::Effect;

class WatchReactor final : public grpc::ServerWriteReactor<v1::WatchWorkflowEvent>,
                           public rpc::EventTransport<v1::WatchWorkflowEvent> {
 public:
  WatchReactor(const rpc::Method& method, grpc::CallbackServerContext* context)
      : call_(std::make_shared<rpc::ServerCall>(method, context, "")),
        sender_(std::make_shared<WatchSender>(
            this, WatchSender::Options{method.pool().options().progress_gap,
                                       method.pool().options().heartbeat,
                                       method.pool().options().stream_idle})) {}

  const std::shared_ptr<rpc::ServerCall>& call() const { return call_; }
  const std::shared_ptr<WatchSender>& sender() const { return sender_; }
  absl::Status Admit() {
    const absl::Status status = call_->Admit();
    admitted_ = status.ok();
    return status;
  }

  void Write(const v1::WatchWorkflowEvent* event) override { StartWrite(event); }
  void End(const absl::Status& status) override {
    if (admitted_) call_->ReleaseSlot();
    Finish(call_->End(status));
  }
  void Break() override { call_->Break(); }
  void OnWriteDone(bool ok) override {
    const std::shared_ptr<WatchSender> sender = sender_;  // the reactor may go meanwhile
    sender->OnWritten(ok);
  }
  void OnCancel() override {
    call_->Cancel();
    const std::shared_ptr<WatchSender> sender = sender_;
    sender->Close(absl::CancelledError("the caller has gone"));
  }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<rpc::ServerCall> call_;
  const std::shared_ptr<WatchSender> sender_;
  bool admitted_ = false;
};

}  // namespace

absl::Status Draining() {
  return rpc::WithRetryAfter(rpc::Error(rpc::Reason::kUnavailable,
                                        "the gateway drains: watch again from the last revision"),
                             std::chrono::milliseconds(1000));
}

WorkflowsService::WorkflowsService(WorkflowApi& api, rpc::CallPool& control, rpc::CallPool& watches)
    : api_(api),
      create_(control, v1::Workflows::service_full_name(), "CreateWorkflow", GrpcType::kUnary,
              Effect::kChanges),
      get_(control, v1::Workflows::service_full_name(), "GetWorkflow", GrpcType::kUnary),
      list_steps_(control, v1::Workflows::service_full_name(), "ListWorkflowSteps",
                  GrpcType::kUnary),
      list_(control, v1::Workflows::service_full_name(), "ListWorkflows", GrpcType::kUnary),
      watch_(watches, v1::Workflows::service_full_name(), "WatchWorkflow", GrpcType::kServerStream),
      cancel_(control, v1::Workflows::service_full_name(), "CancelWorkflow", GrpcType::kUnary,
              Effect::kChanges),
      retry_(control, v1::Workflows::service_full_name(), "RetryWorkflow", GrpcType::kUnary,
             Effect::kChanges),
      delete_(control, v1::Workflows::service_full_name(), "DeleteWorkflow", GrpcType::kUnary,
              Effect::kChanges) {}

grpc::ServerUnaryReactor* WorkflowsService::CreateWorkflow(
    grpc::CallbackServerContext* context, const v1::CreateWorkflowRequest* request,
    google::longrunning::Operation* response) {
  return rpc::UnaryLater(create_, context, request, response,
                         [this](const auto& asked, const StepContext& step,
                                const rpc::Answer<google::longrunning::Operation>& answer) {
                           api_.Create(asked, step, [answer](const absl::StatusOr<ViewPtr>& view) {
                             if (view.ok()) {
                               answer(OperationOf(**view));
                             } else {
                               answer(view.status());
                             }
                           });
                         });
}

grpc::ServerUnaryReactor* WorkflowsService::GetWorkflow(grpc::CallbackServerContext* context,
                                                        const v1::GetWorkflowRequest* request,
                                                        v1::GetWorkflowResponse* response) {
  return rpc::UnaryOnPool(
      get_, context, request, response,
      [this](const auto& asked,
             const StepContext& step) -> absl::StatusOr<v1::GetWorkflowResponse> {
        QUENCH_ASSIGN_OR_RETURN(const ViewPtr view, api_.Get(asked.name(), step));
        v1::GetWorkflowResponse found;
        *found.mutable_workflow() =
            asked.view() == v1::WORKFLOW_VIEW_BASIC ? view->header : FullMessage(*view);
        return found;
      });
}

grpc::ServerUnaryReactor* WorkflowsService::ListWorkflowSteps(
    grpc::CallbackServerContext* context, const v1::ListWorkflowStepsRequest* request,
    v1::ListWorkflowStepsResponse* response) {
  return rpc::UnaryOnPool(
      list_steps_, context, request, response,
      [this](const auto& asked, const StepContext& step) { return api_.ListSteps(asked, step); });
}

grpc::ServerUnaryReactor* WorkflowsService::ListWorkflows(grpc::CallbackServerContext* context,
                                                          const v1::ListWorkflowsRequest* request,
                                                          v1::ListWorkflowsResponse* response) {
  return rpc::UnaryOnPool(
      list_, context, request, response,
      [this](const auto& asked, const StepContext& step) { return api_.List(asked, step); });
}

grpc::ServerWriteReactor<v1::WatchWorkflowEvent>* WorkflowsService::WatchWorkflow(
    grpc::CallbackServerContext* context, const v1::WatchWorkflowRequest* request) {
  auto* reactor = new WatchReactor(watch_, context);
  const std::shared_ptr<WatchSender> sender = reactor->sender();
  absl::Status admitted = reactor->Admit();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(senders_, [](const auto& each) { return each.expired(); });
    senders_.push_back(sender);
    if (admitted.ok() && draining_) admitted = Draining();
  }
  if (!admitted.ok()) {
    sender->Close(admitted);
    return reactor;
  }
  watch_.pool().Watch(sender);
  watch_.pool().Run([this, call = reactor->call(), sender, asked = *request] {
    const absl::Status status = call->Run([&](const StepContext& step) -> absl::Status {
      QUENCH_ASSIGN_OR_RETURN(const ViewPtr view, api_.Watch(asked.name(), step, sender));
      sender->Start(asked.after_revision(), view);
      return absl::OkStatus();
    });
    if (!status.ok()) sender->Close(status);
  });
  return reactor;
}

void WorkflowsService::EndWatches() {
  std::vector<std::weak_ptr<WatchSender>> senders;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    senders.swap(senders_);
  }
  for (const std::weak_ptr<WatchSender>& each : senders) {
    if (const auto sender = each.lock()) sender->Close(Draining());
  }
}

grpc::ServerUnaryReactor* WorkflowsService::CancelWorkflow(grpc::CallbackServerContext* context,
                                                           const v1::CancelWorkflowRequest* request,
                                                           v1::CancelWorkflowResponse* response) {
  return rpc::UnaryLater(cancel_, context, request, response,
                         [this](const auto& asked, const StepContext& step,
                                const rpc::Answer<v1::CancelWorkflowResponse>& answer) {
                           api_.Cancel(asked.name(), step, rpc::WithoutContent(answer));
                         });
}

grpc::ServerUnaryReactor* WorkflowsService::RetryWorkflow(grpc::CallbackServerContext* context,
                                                          const v1::RetryWorkflowRequest* request,
                                                          v1::RetryWorkflowResponse* response) {
  return rpc::UnaryLater(retry_, context, request, response,
                         [this](const auto& asked, const StepContext& step,
                                const rpc::Answer<v1::RetryWorkflowResponse>& answer) {
                           api_.Retry(asked.name(), step, rpc::WithoutContent(answer));
                         });
}

grpc::ServerUnaryReactor* WorkflowsService::DeleteWorkflow(grpc::CallbackServerContext* context,
                                                           const v1::DeleteWorkflowRequest* request,
                                                           v1::DeleteWorkflowResponse* response) {
  return rpc::UnaryLater(delete_, context, request, response,
                         [this](const auto& asked, const StepContext& step,
                                const rpc::Answer<v1::DeleteWorkflowResponse>& answer) {
                           api_.Delete(asked.name(), step, rpc::WithoutContent(answer));
                         });
}

}  // namespace quench::gateway
