// Services in this process whose steps do as a test says, behind the real adapters and servers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "common/rpc/channel.h"
#include "common/rpc/on_pool.h"
#include "common/rpc/server.h"
#include "quench/codegen/v1/codegen.grpc.pb.h"
#include "quench/importer/v1/importer.grpc.pb.h"
#include "services/gateway/step_client.h"
#include "tests/unit/services/gateway/sample_specs.h"

namespace quench::gateway {

// Asked for each step with its method's name; OK: a result follows.
using StepScript = std::function<absl::Status(const std::string& method, const StepContext& step)>;

class FakeImporter final : public importer::v1::Importer::CallbackService {
 public:
  FakeImporter(rpc::CallPool& pool, const StepScript& script)
      : script_(script),
        import_(pool, importer::v1::Importer::service_full_name(), "Import",
                metrics::GrpcType::kServerStream),
        transform_(pool, importer::v1::Importer::service_full_name(), "Transform",
                   metrics::GrpcType::kServerStream) {}

  grpc::ServerWriteReactor<importer::v1::ImportEvent>* Import(
      grpc::CallbackServerContext* context, const importer::v1::ImportRequest* request) override {
    return rpc::StreamOnPool<importer::v1::ImportEvent>(
        import_, context, request,
        [this](const importer::v1::ImportRequest& asked,
               const StepContext& step) -> absl::StatusOr<importer::v1::ImportResult> {
          QUENCH_RETURN_IF_ERROR(script_("Import", step));
          importer::v1::ImportResult result;
          *result.mutable_imported()->mutable_digest() =
              DigestOf("imported" + asked.model().file().hash());
          *result.mutable_canonical()->mutable_digest() =
              DigestOf("canonical" + asked.model().file().hash());
          return result;
        });
  }
  grpc::ServerWriteReactor<importer::v1::TransformEvent>* Transform(
      grpc::CallbackServerContext* context,
      const importer::v1::TransformRequest* request) override {
    return rpc::StreamOnPool<importer::v1::TransformEvent>(
        transform_, context, request,
        [this](const importer::v1::TransformRequest& asked,
               const StepContext& step) -> absl::StatusOr<importer::v1::TransformResult> {
          QUENCH_RETURN_IF_ERROR(script_("Transform", step));
          importer::v1::TransformResult result;
          *result.mutable_module()->mutable_digest() =
              DigestOf("transformed" + asked.module().digest().hash());
          return result;
        });
  }

 private:
  const StepScript& script_;
  rpc::Method import_, transform_;
};

class FakeCompiler final : public codegen::v1::Codegen::CallbackService {
 public:
  FakeCompiler(rpc::CallPool& pool, const StepScript& script)
      : script_(script),
        compile_(pool, codegen::v1::Codegen::service_full_name(), "Compile",
                 metrics::GrpcType::kServerStream) {}

  grpc::ServerWriteReactor<codegen::v1::CompileEvent>* Compile(
      grpc::CallbackServerContext* context, const codegen::v1::CompileRequest* request) override {
    return rpc::StreamOnPool<codegen::v1::CompileEvent>(
        compile_, context, request,
        [this](const codegen::v1::CompileRequest& asked,
               const StepContext& step) -> absl::StatusOr<codegen::v1::CompileResult> {
          QUENCH_RETURN_IF_ERROR(script_("Compile", step));
          codegen::v1::CompileResult result;
          result.mutable_execution()->set_cache_hit(true);
          *result.mutable_library() = DigestOf("library" + asked.module().digest().hash());
          return result;
        });
  }

 private:
  const StepScript& script_;
  rpc::Method compile_;
};

// A server with both, and the channel to it; `script` may be changed while nothing runs.
class FakeServices {
 public:
  explicit FakeServices(int slots = 16, const std::string& listen = "127.0.0.1:0",
                        rpc::Tracer* tracer = nullptr) {
    rpc::CallPool::Options options;
    options.threads = slots;
    options.tracer = tracer;
    options.registry = &registry;
    options.retry_after = std::chrono::milliseconds(20);
    pool_ = std::make_unique<rpc::CallPool>(options);
    importer_ = std::make_unique<FakeImporter>(*pool_, script);
    compiler_ = std::make_unique<FakeCompiler>(*pool_, script);
    rpc::ServerOptions server;
    server.listen = listen;
    server.registry = &registry;
    server.grace = std::chrono::milliseconds(100);
    auto started = rpc::Server::Start(server, {importer_.get(), compiler_.get()});
    QUENCH_CHECK(started.ok());
    server_ = *std::move(started);
  }
  ~FakeServices() { server_.reset(); }

  ServiceChannels Channels() const {
    rpc::ChannelOptions options;
    options.address = server_->address();
    ServiceChannels channels;
    channels.importer = *rpc::Channel::Open(options);
    channels.codegen = *rpc::Channel::Open(options);
    return channels;
  }

  metrics::Registry registry;
  StepScript script = [](const std::string&, const StepContext&) { return absl::OkStatus(); };

 private:
  std::unique_ptr<rpc::CallPool> pool_;
  std::unique_ptr<FakeImporter> importer_;
  std::unique_ptr<FakeCompiler> compiler_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace quench::gateway
