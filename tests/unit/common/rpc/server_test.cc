#include "common/rpc/server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"

namespace quench::rpc {
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

// In a fresh process, as a binary would: a signal ends the server with exit code 0.
TEST(ServerDeathTest, TerminationSignalDrainsAndExitsCleanly) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        BlockTerminationSignals();
        _exit(RunServer({}, {}, [](int) { kill(getpid(), SIGTERM); }));
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace quench::rpc
