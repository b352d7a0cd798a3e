// The gateway's two services over gRPC.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "common/rpc/on_pool.h"
#include "google/longrunning/operations.grpc.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "services/gateway/watch.h"
#include "services/gateway/workflow_api.h"

namespace quench::gateway {

// The status for callers who watch or wait when the gateway drains.
absl::Status Draining();

class WorkflowsService final : public v1::Workflows::CallbackService {
 public:
  // Short calls run on `control`; `watches` bounds the number of simultaneous watchers.
  WorkflowsService(WorkflowApi& api, rpc::CallPool& control, rpc::CallPool& watches);

  // The gateway drains: watchers are told to come back later, and so are new ones from now on.
  void EndWatches();

  grpc::ServerUnaryReactor* CreateWorkflow(grpc::CallbackServerContext* context,
                                           const v1::CreateWorkflowRequest* request,
                                           google::longrunning::Operation* response) override;
  grpc::ServerUnaryReactor* GetWorkflow(grpc::CallbackServerContext* context,
                                        const v1::GetWorkflowRequest* request,
                                        v1::GetWorkflowResponse* response) override;
  grpc::ServerUnaryReactor* ListWorkflowSteps(grpc::CallbackServerContext* context,
                                              const v1::ListWorkflowStepsRequest* request,
                                              v1::ListWorkflowStepsResponse* response) override;
  grpc::ServerUnaryReactor* ListWorkflows(grpc::CallbackServerContext* context,
                                          const v1::ListWorkflowsRequest* request,
                                          v1::ListWorkflowsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchWorkflowEvent>* WatchWorkflow(
      grpc::CallbackServerContext* context, const v1::WatchWorkflowRequest* request) override;
  grpc::ServerUnaryReactor* CancelWorkflow(grpc::CallbackServerContext* context,
                                           const v1::CancelWorkflowRequest* request,
                                           v1::CancelWorkflowResponse* response) override;
  grpc::ServerUnaryReactor* RetryWorkflow(grpc::CallbackServerContext* context,
                                          const v1::RetryWorkflowRequest* request,
                                          v1::RetryWorkflowResponse* response) override;
  grpc::ServerUnaryReactor* DeleteWorkflow(grpc::CallbackServerContext* context,
                                           const v1::DeleteWorkflowRequest* request,
                                           v1::DeleteWorkflowResponse* response) override;

 private:
  WorkflowApi& api_;
  const rpc::Method create_, get_, list_steps_, list_, watch_, cancel_, retry_, delete_;
  std::mutex mutex_;
  bool draining_ = false;
  std::vector<std::weak_ptr<WatchSender>> senders_;
};

class Wait;

class OperationsService final : public google::longrunning::Operations::CallbackService {
 public:
  OperationsService(WorkflowApi& api, rpc::CallPool& control, rpc::CallPool& watches);

  // Like WorkflowsService::EndWatches.
  void EndWaits();

  grpc::ServerUnaryReactor* ListOperations(
      grpc::CallbackServerContext* context,
      const google::longrunning::ListOperationsRequest* request,
      google::longrunning::ListOperationsResponse* response) override;
  grpc::ServerUnaryReactor* GetOperation(grpc::CallbackServerContext* context,
                                         const google::longrunning::GetOperationRequest* request,
                                         google::longrunning::Operation* response) override;
  grpc::ServerUnaryReactor* DeleteOperation(
      grpc::CallbackServerContext* context,
      const google::longrunning::DeleteOperationRequest* request,
      google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* CancelOperation(
      grpc::CallbackServerContext* context,
      const google::longrunning::CancelOperationRequest* request,
      google::protobuf::Empty* response) override;
  // Waits until the operation is done, or `timeout` or the caller's deadline has passed.
  grpc::ServerUnaryReactor* WaitOperation(grpc::CallbackServerContext* context,
                                          const google::longrunning::WaitOperationRequest* request,
                                          google::longrunning::Operation* response) override;

 private:
  WorkflowApi& api_;
  const rpc::Method list_, get_, delete_, cancel_, wait_;
  std::mutex mutex_;
  bool draining_ = false;
  std::vector<std::weak_ptr<Wait>> waits_;
};

}  // namespace quench::gateway
