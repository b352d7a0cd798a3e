#include "common/rpc/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "common/base/files.h"
#include "common/base/status.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "quench/codegen/v1/codegen.grpc.pb.h"

namespace quench::rpc::server_test {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

std::string AddressOf(int port) { return "127.0.0.1:" + std::to_string(port); }

grpc::Status CheckHealth(int port, const std::string& service, HealthCheckResponse* response) {
  auto stub =
      Health::NewStub(grpc::CreateChannel(AddressOf(port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  context.set_wait_for_ready(true);
  HealthCheckRequest request;
  request.set_service(service);
  return stub->Check(&context, request, response);
}

TEST(ServerTest, AnswersHealthForItselfAndItsServices) {
  ServerOptions options;
  options.health_services = {"quench.importer.v1.Importer"};
  auto server = Server::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  for (const std::string service : {"", "quench.importer.v1.Importer"}) {
    HealthCheckResponse response;
    const grpc::Status status = CheckHealth((*server)->port(), service, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING) << service;
  }
  HealthCheckResponse response;
  EXPECT_EQ(CheckHealth((*server)->port(), "no.such.Service", &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

// Whether a server says what services it has; the protocol has no generated code here.
bool Reflects(const Server& server) {
  const auto channel =
      grpc::CreateChannel(AddressOf(server.port()), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  context.set_wait_for_ready(true);
  const grpc::internal::RpcMethod method(
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      grpc::internal::RpcMethod::NORMAL_RPC);
  HealthCheckRequest request;
  HealthCheckResponse response;
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall(channel.get(), method, &context, request, &response);
  EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::UNIMPLEMENTED)
      << status.error_message();
  return status.ok();
}

TEST(ServerTest, ReflectsOnlyIfAsked) {
  ServerOptions options;
  codegen::v1::Codegen::CallbackService one, other;  // without any, the library starts none
  const auto open = Server::Start(options, {&one});
  ASSERT_TRUE(open.ok()) << open.status();
  options.reflection = false;
  const auto silent = Server::Start(options, {&other});  // in the same process
  ASSERT_TRUE(silent.ok()) << silent.status();
  EXPECT_TRUE(Reflects(**open));
  EXPECT_FALSE(Reflects(**silent));
}

TEST(ServerTest, RefusesAnAddressInUse) {
  auto first = Server::Start({}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  ServerOptions options;
  options.listen = AddressOf((*first)->port());
  auto second = Server::Start(options, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(second.status().message()).find(options.listen), std::string::npos);
}

TEST(ServerTest, WatchersSeeTheDrain) {
  auto server = Server::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  auto stub = Health::NewStub(
      grpc::CreateChannel(AddressOf((*server)->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  auto reader = stub->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  std::thread drain([&] { (*server)->Drain(); });
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
  reader->Finish();
  drain.join();
}

TEST(ServerTest, RefusesAUnixSocketInUse) {
  const auto folder = TempDir::Create("/tmp");
  ASSERT_TRUE(folder.ok());
  ServerOptions options;
  options.listen = "unix:" + (folder->path() / "s").string();
  auto first = Server::Start(options, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->address(), options.listen);
  EXPECT_EQ(Server::Start(options, {}).status().code(), absl::StatusCode::kUnavailable);
  first->reset();
  // The leftovers of a crash are not a server.
  ASSERT_TRUE(WriteFileAtomically(folder->path() / "s", "").ok());
  std::filesystem::remove(folder->path() / "s");
  EXPECT_TRUE(Server::Start(options, {}).ok());
}

TEST(ServerTest, RefusesWhatIsNoAddress) {
  for (const std::string listen :
       {"127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:x", "unix:", "127.0.0.1:65536", "dns:///x"}) {
    ServerOptions options;
    options.listen = listen;
    EXPECT_EQ(Server::Start(options, {}).status().code(), absl::StatusCode::kInvalidArgument)
        << listen;
  }
  ServerOptions options;
  options.listen = "unix:/tmp/" + std::string(120, 'x');
  const absl::Status status = Server::Start(options, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(status).find("1 to 107 bytes"), std::string::npos) << status;
}

TEST(ServerTest, ServesMetricsBesideCalls) {
  ServerOptions options;
  options.metrics_listen = "127.0.0.1:0";
  auto server = Server::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->metrics_port(), 0);
  options.metrics_listen = AddressOf((*server)->metrics_port());
  EXPECT_EQ(Server::Start(options, {}).status().code(), absl::StatusCode::kUnavailable);
}

// In a fresh process, as a binary would: a signal ends the server with exit code 0.
TEST(ServerDeathTest, TerminationSignalDrainsAndExitsCleanly) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        BlockTerminationSignals();
        const auto server = Server::Start({}, {});
        kill(getpid(), SIGTERM);
        const int received = AwaitTermination();
        (*server)->Drain();
        _exit(received == SIGTERM ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace quench::rpc::server_test
