#include "common/rpc/health.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/server.h"
#include "tests/support/certificates.h"

namespace quench::rpc::health_test {
namespace {

constexpr std::chrono::seconds kPatience{20};

// The options of a server, with the port it took.
ServerOptions Running(const Server& server, ServerOptions options, const std::string& host) {
  options.listen = fmt::format("{}:{}", host, server.port());
  return options;
}

TEST(HealthTest, AServerThatServesIsHealthyUntilItDoesNot) {
  auto server = Server::Start({}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const ServerOptions options = Running(**server, {}, "127.0.0.1");
  EXPECT_EQ(CheckHealth(options, kPatience), absl::OkStatus());
  EXPECT_EQ(CheckHealth(Running(**server, {}, "0.0.0.0"), kPatience), absl::OkStatus());
  (*server)->Drain();
  const absl::Status gone = CheckHealth(options, kPatience);
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(MessageOf(gone).find(options.listen), std::string::npos) << gone;
}

TEST(HealthTest, AUnixSocketIsAskedToo) {
  auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ServerOptions options;
  options.listen = "unix:" + (folder->path() / "s").string();
  auto server = Server::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(CheckHealth(options, kPatience), absl::OkStatus());
}

// The certificate is another name's, and the server asks for the caller's: its own will do.
TEST(HealthTest, AServerWithMutualTlsIsAskedWithItsOwnCertificate) {
  auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok()) << folder.status();
  const testing::Authority authority("test authority");
  testing::WritePair(folder->path() / "server",
                     authority.Issue("gateway", std::chrono::hours(1), "DNS:gateway.example.com"));
  ASSERT_TRUE(WriteFileAtomically(folder->path() / "ca.crt", authority.certificate()).ok());
  ServerOptions options;
  options.tls.emplace();
  options.tls->certificate = folder->path() / "server.crt";
  options.tls->key = folder->path() / "server.key";
  options.tls->ca = folder->path() / "ca.crt";
  options.tls->require_client_certificate = true;
  auto server = Server::Start(options, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const ServerOptions running = Running(**server, options, "127.0.0.1");
  EXPECT_EQ(CheckHealth(running, kPatience), absl::OkStatus());
  ServerOptions plain = running;
  plain.tls.reset();
  EXPECT_EQ(CheckHealth(plain, kPatience).code(), absl::StatusCode::kUnavailable);
}

TEST(HealthTest, WhatIsNoAddressIsRefused) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  EXPECT_EQ(CheckHealth(options, kPatience).code(), absl::StatusCode::kInvalidArgument);
  options.listen = "nowhere";
  EXPECT_EQ(CheckHealth(options, kPatience).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quench::rpc::health_test
