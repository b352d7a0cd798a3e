#include "common/metrics/endpoint.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "common/base/status.h"
#include "tests/support/matchers.h"

namespace quench::metrics::endpoint_test {
namespace {

using quench::testing::HasSubstr;

// Status line, headers and body of GET `path`; empty if nobody answers.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string request =
        "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      char buffer[4096];
      for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) answer.append(buffer, n);
    }
  }
  close(fd);
  return answer;
}

// One endpoint for all: stopping one takes two seconds.
class RunningEndpointTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    registry_ = new Registry();
    auto endpoint = Endpoint::Start("127.0.0.1:0", *registry_);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = std::move(*endpoint).release();
  }
  static void TearDownTestSuite() {
    delete endpoint_;
    delete registry_;
  }
  static Registry* registry_;
  static Endpoint* endpoint_;
};
Registry* RunningEndpointTest::registry_ = nullptr;
Endpoint* RunningEndpointTest::endpoint_ = nullptr;

TEST_F(RunningEndpointTest, ServesTheRegistryAsItIsNow) {
  ASSERT_GT(endpoint_->port(), 0);
  const std::string before = Get(endpoint_->port(), "/metrics");
  EXPECT_THAT(before, HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(before, HasSubstr("Content-Type: text/plain"));
  EXPECT_THAT(before, HasSubstr("\nquench_cas_size_bytes 0\n"));
  EXPECT_THAT(before, HasSubstr("\nprocess_cpu_seconds_total "));
  registry_->Get(kCasSize).Set(5);
  EXPECT_THAT(Get(endpoint_->port(), "/metrics"), HasSubstr("\nquench_cas_size_bytes 5\n"));
}

TEST_F(RunningEndpointTest, OtherPathsAreNotFound) {
  EXPECT_THAT(Get(endpoint_->port(), "/etc/passwd"), HasSubstr("HTTP/1.1 404"));
}

TEST_F(RunningEndpointTest, AnAddressInUseIsUnavailable) {
  const std::string address = "127.0.0.1:" + std::to_string(endpoint_->port());
  const auto second = Endpoint::Start(address, *registry_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MessageOf(second.status()), "cannot serve metrics on `" + address +
                                            "`: the address is in use or not of this machine");
  EXPECT_THAT(Get(endpoint_->port(), "/metrics"), HasSubstr("HTTP/1.1 200"));
}

TEST(EndpointTest, AnAddressOfAnotherMachineIsUnavailable) {
  const Registry registry;
  EXPECT_EQ(Endpoint::Start("192.0.2.1:0", registry).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(EndpointTest, WhatIsNoAddressIsInvalid) {
  const Registry registry;
  for (const char* text :
       {"", ":", "9090", ":9090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536",
        "127.0.0.1:9090s", "127.0.0.1:80,127.0.0.1:81", "127.0.0.1:80r", "+:80", "a b:80"}) {
    EXPECT_EQ(Endpoint::Start(text, registry).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(EndpointTest, GivesItsPortBack) {
  const Registry registry;
  auto first = Endpoint::Start("127.0.0.1:0", registry);
  ASSERT_TRUE(first.ok()) << first.status();
  const int port = (*first)->port();
  first->reset();
  EXPECT_EQ(Get(port, "/metrics"), "");
}

}  // namespace
}  // namespace quench::metrics::endpoint_test
