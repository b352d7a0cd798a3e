// A service whose two methods do what a test says, behind the adapters and a real server.
#pragma once

#include <functional>
#include <memory>

#include "common/rpc/channel.h"
#include "common/rpc/on_pool.h"
#include "common/rpc/server.h"
#include "quench/codegen/v1/codegen.grpc.pb.h"

namespace quench::rpc {

namespace v1 = ::quench::codegen::v1;

class FakeCodegen : public v1::Codegen::CallbackService {
 public:
  using CompileHandler = std::function<absl::StatusOr<v1::CompileResult>(const v1::CompileRequest&,
                                                                         const StepContext&)>;
  using ListHandler = std::function<absl::StatusOr<v1::ListTargetsResponse>(
      const v1::ListTargetsRequest&, const StepContext&)>;

  FakeCodegen(CallPool& steps, CallPool& control)
      : compile_(steps, v1::Codegen::service_full_name(), "Compile",
                 metrics::GrpcType::kServerStream, Effect::kChanges),
        list_targets_(control, v1::Codegen::service_full_name(), "ListTargets",
                      metrics::GrpcType::kUnary) {}

  CompileHandler compile = [](const auto&, const StepContext&) { return v1::CompileResult(); };
  ListHandler list_targets = [](const auto&, const StepContext&) {
    return v1::ListTargetsResponse();
  };

 private:
  grpc::ServerWriteReactor<v1::CompileEvent>* Compile(grpc::CallbackServerContext* context,
                                                      const v1::CompileRequest* request) override {
    return StreamOnPool<v1::CompileEvent>(compile_, context, request, compile);
  }
  grpc::ServerUnaryReactor* ListTargets(grpc::CallbackServerContext* context,
                                        const v1::ListTargetsRequest* request,
                                        v1::ListTargetsResponse* response) override {
    return UnaryOnPool(list_targets_, context, request, response, list_targets);
  }

  Method compile_;
  Method list_targets_;
};

// A client's view of a Compile.
struct Compiled {
  std::vector<v1::CompileEvent> events;
  absl::Status status;
  bool has_result() const { return !events.empty() && events.back().has_result(); }
};

// Server, service and a channel to it.
class CodegenFixture {
 public:
  static CallPool::Options PoolOptions(metrics::Registry& registry, int threads) {
    CallPool::Options options;
    options.threads = threads;
    options.registry = &registry;
    options.progress_gap = std::chrono::milliseconds(0);
    return options;
  }

  metrics::Registry registry;
  // `steps` and `control` take these at Start.
  CallPool::Options steps_options = PoolOptions(registry, 2);
  CallPool::Options control_options = PoolOptions(registry, 2);
  ServerOptions server_options;
  ChannelOptions channel_options;

  absl::Status Start() {
    steps = std::make_unique<CallPool>(steps_options);
    control = std::make_unique<CallPool>(control_options);
    service = std::make_unique<FakeCodegen>(*steps, *control);
    server_options.registry = &registry;
    QUENCH_ASSIGN_OR_RETURN(server, Server::Start(server_options, {service.get()}));
    if (server_options.listen.empty()) {
      channel = Channel::InProcess(*server);
    } else {
      channel_options.address = server->address();
      QUENCH_ASSIGN_OR_RETURN(channel, Channel::Open(channel_options));
    }
    stub = v1::Codegen::NewStub(channel->grpc());
    return absl::OkStatus();
  }

  Compiled Compile(const StepContext& step = {}, const v1::CompileRequest& request = {}) {
    ClientCall call(*channel, step);
    const auto reader = stub->Compile(call.context(), request);
    Compiled compiled;
    for (v1::CompileEvent event; reader->Read(&event);) compiled.events.push_back(event);
    compiled.status = FromGrpc(reader->Finish());
    return compiled;
  }

  absl::StatusOr<v1::ListTargetsResponse> ListTargets(const StepContext& step = {}) {
    ClientCall call(*channel, step);
    v1::ListTargetsResponse response;
    const absl::Status status =
        FromGrpc(stub->ListTargets(call.context(), v1::ListTargetsRequest(), &response));
    if (!status.ok()) return status;
    return response;
  }

  double Handled(const std::string& method, metrics::GrpcType type, metrics::GrpcCode code) {
    return registry
        .Get(metrics::kRpcHandled, type, metrics::GrpcService("quench.codegen.v1.Codegen"),
             metrics::GrpcMethod(method), code)
        .Value();
  }

  std::unique_ptr<CallPool> steps, control;
  std::unique_ptr<FakeCodegen> service;
  std::unique_ptr<Server> server;
  std::shared_ptr<Channel> channel;
  std::unique_ptr<v1::Codegen::Stub> stub;
};

}  // namespace quench::rpc
