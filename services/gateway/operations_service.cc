#include <google/protobuf/util/time_util.h>

#include "common/rpc/errors.h"
#include "services/gateway/workflows_service.h"

namespace quench::gateway {

namespace lro = google::longrunning;
using metrics::GrpcType;

// Answers a WaitOperation: once, by whichever comes first.
class Wait final : public Watcher, public rpc::Ticked {
 public:
  using Clock = std::chrono::steady_clock;
  using Finish = std::function<void(const absl::Status&)>;

  Wait(lro::Operation* response, Clock::time_point until, Finish finish)
      : response_(response), until_(until), finish_(std::move(finish)) {}

  void OnView(const ViewPtr& view) override {
    std::unique_lock lock(mutex_);
    newest_ = view;
    if (view->ended()) Answer(std::move(lock), absl::OkStatus());
  }
  void Tick(Clock::time_point now) override {
    std::unique_lock lock(mutex_);
    if (newest_ != nullptr && now >= until_) Answer(std::move(lock), absl::OkStatus());
  }
  void Close(const absl::Status& status) { Answer(std::unique_lock(mutex_), status); }

 private:
  void Answer(std::unique_lock<std::mutex> lock, const absl::Status& status) {
    if (std::exchange(answered_, true)) return;
    if (status.ok()) *response_ = OperationOf(*newest_);
    lock.unlock();
    finish_(status);
  }

  lro::Operation* const response_;
  const Clock::time_point until_;
  const Finish finish_;
  std::mutex mutex_;
  ViewPtr newest_;
  bool answered_ = false;
};

namespace {

class WaitReactor final : public grpc::ServerUnaryReactor {
 public:
  WaitReactor(const rpc::Method& method, grpc::CallbackServerContext* context,
              lro::Operation* response, Wait::Clock::time_point until)
      : call_(std::make_shared<rpc::ServerCall>(method, context, "")),
        wait_(std::make_shared<Wait>(response, until,
                                     [this](const absl::Status& status) { End(status); })) {}

  const std::shared_ptr<rpc::ServerCall>& call() const { return call_; }
  const std::shared_ptr<Wait>& wait() const { return wait_; }
  absl::Status Admit() {
    const absl::Status status = call_->Admit();
    admitted_ = status.ok();
    return status;
  }
  void OnCancel() override {
    call_->Cancel();
    const std::shared_ptr<Wait> wait = wait_;  // the reactor may go meanwhile
    wait->Close(absl::CancelledError("the caller has gone"));
  }
  void OnDone() override { delete this; }

 private:
  void End(const absl::Status& status) {
    if (admitted_) call_->ReleaseSlot();
    Finish(call_->End(status));
  }
  const std::shared_ptr<rpc::ServerCall> call_;
  const std::shared_ptr<Wait> wait_;
  bool admitted_ = false;
};

}  // namespace

OperationsService::OperationsService(WorkflowApi& api, rpc::CallPool& control,
                                     rpc::CallPool& watches)
    : api_(api),
      list_(control, lro::Operations::service_full_name(), "ListOperations", GrpcType::kUnary),
      get_(control, lro::Operations::service_full_name(), "GetOperation", GrpcType::kUnary),
      delete_(control, lro::Operations::service_full_name(), "DeleteOperation", GrpcType::kUnary,
              rpc::Effect::kChanges),
      cancel_(control, lro::Operations::service_full_name(), "CancelOperation", GrpcType::kUnary,
              rpc::Effect::kChanges),
      wait_(watches, lro::Operations::service_full_name(), "WaitOperation", GrpcType::kUnary) {}

grpc::ServerUnaryReactor* OperationsService::ListOperations(
    grpc::CallbackServerContext* context, const lro::ListOperationsRequest* request,
    lro::ListOperationsResponse* response) {
  return rpc::UnaryOnPool(
      list_, context, request, response,
      [this](const auto& asked,
             const StepContext& step) -> absl::StatusOr<lro::ListOperationsResponse> {
        if (!asked.filter().empty()) {
          return rpc::WithField(InvalidArgument("operations are listed without a filter"),
                                {"filter", "must be empty: Workflows.ListWorkflows has `states`"});
        }
        v1::ListWorkflowsRequest query;
        query.set_page_size(asked.page_size());
        query.set_page_token(asked.page_token());
        QUENCH_ASSIGN_OR_RETURN(const v1::ListWorkflowsResponse page, api_.List(query, step));
        lro::ListOperationsResponse operations;
        for (const v1::Workflow& workflow : page.workflows()) {
          *operations.add_operations() = OperationOf(ViewOf(workflow));
        }
        operations.set_next_page_token(page.next_page_token());
        return operations;
      });
}

grpc::ServerUnaryReactor* OperationsService::GetOperation(grpc::CallbackServerContext* context,
                                                          const lro::GetOperationRequest* request,
                                                          lro::Operation* response) {
  return rpc::UnaryOnPool(
      get_, context, request, response,
      [this](const auto& asked, const StepContext& step) -> absl::StatusOr<lro::Operation> {
        QUENCH_ASSIGN_OR_RETURN(const ViewPtr view, api_.Get(asked.name(), step));
        return OperationOf(*view);
      });
}

grpc::ServerUnaryReactor* OperationsService::DeleteOperation(
    grpc::CallbackServerContext* context, const lro::DeleteOperationRequest* request,
    google::protobuf::Empty* response) {
  return rpc::UnaryLater(delete_, context, request, response,
                         [this](const auto& asked, const StepContext& step,
                                const rpc::Answer<google::protobuf::Empty>& answer) {
                           api_.Delete(asked.name(), step, rpc::WithoutContent(answer));
                         });
}

grpc::ServerUnaryReactor* OperationsService::CancelOperation(
    grpc::CallbackServerContext* context, const lro::CancelOperationRequest* request,
    google::protobuf::Empty* response) {
  return rpc::UnaryLater(cancel_, context, request, response,
                         [this](const auto& asked, const StepContext& step,
                                const rpc::Answer<google::protobuf::Empty>& answer) {
                           api_.Cancel(asked.name(), step, rpc::WithoutContent(answer));
                         });
}

void OperationsService::EndWaits() {
  std::vector<std::weak_ptr<Wait>> waits;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    waits.swap(waits_);
  }
  for (const std::weak_ptr<Wait>& each : waits) {
    if (const auto wait = each.lock()) wait->Close(Draining());
  }
}

grpc::ServerUnaryReactor* OperationsService::WaitOperation(grpc::CallbackServerContext* context,
                                                           const lro::WaitOperationRequest* request,
                                                           lro::Operation* response) {
  auto until = Wait::Clock::time_point::max();
  if (request->has_timeout()) {
    const int64_t milliseconds =
        google::protobuf::util::TimeUtil::DurationToMilliseconds(request->timeout());
    until = Wait::Clock::now() + std::chrono::milliseconds(std::max<int64_t>(0, milliseconds));
  }
  auto* reactor = new WaitReactor(wait_, context, response, until);
  const std::shared_ptr<Wait> wait = reactor->wait();
  absl::Status admitted = reactor->Admit();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waits_, [](const auto& each) { return each.expired(); });
    waits_.push_back(wait);
    if (admitted.ok() && draining_) admitted = Draining();
  }
  if (!admitted.ok()) {
    wait->Close(admitted);
    return reactor;
  }
  wait_.pool().Watch(wait);
  wait_.pool().Run([this, call = reactor->call(), wait, name = request->name()] {
    const absl::Status status = call->Run([&](const StepContext& step) -> absl::Status {
      QUENCH_ASSIGN_OR_RETURN(const ViewPtr view, api_.Watch(name, step, wait));
      wait->OnView(view);
      return absl::OkStatus();
    });
    if (!status.ok()) wait->Close(status);
  });
  return reactor;
}

}  // namespace quench::gateway
