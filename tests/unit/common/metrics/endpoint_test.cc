#include "common/metrics/endpoint.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "common/base/status.h"
#include "tests/support/matchers.h"

namespace quench::metrics::endpoint_test {
namespace {

using quench::testing::HasSubstr;
using quench::testing::Not;

// Status line, headers and body of the answer to `what`; empty if nobody answers.
std::string Ask(int port, const std::string& what, const std::string& headers = "") {
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
        what + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "Connection: close\r\n\r\n";
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      char buffer[4096];
      for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) answer.append(buffer, n);
    }
  }
  close(fd);
  return answer;
}

std::string Get(int port, const std::string& path, const std::string& headers = "") {
  return Ask(port, "GET " + path, headers);
}

class RunningEndpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto endpoint = Endpoint::Start("127.0.0.1:0", registry_);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *std::move(endpoint);
  }
  Registry registry_;
  std::unique_ptr<Endpoint> endpoint_;
};

TEST_F(RunningEndpointTest, ServesTheRegistryAsItIsNow) {
  ASSERT_GT(endpoint_->port(), 0);
  const std::string before = Get(endpoint_->port(), "/metrics");
  EXPECT_THAT(before, HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(before, HasSubstr("Content-Type: text/plain"));
  EXPECT_THAT(before, HasSubstr("\nquench_cas_size_bytes 0\n"));
  EXPECT_THAT(before, HasSubstr("\nprocess_cpu_seconds_total "));
  registry_.Get(kCasSize).Set(5);
  EXPECT_THAT(Get(endpoint_->port(), "/metrics"), HasSubstr("\nquench_cas_size_bytes 5\n"));
}

// Prometheus's own header, and one of a browser.
TEST_F(RunningEndpointTest, WhoAsksForOpenMetricsGetsExemplars) {
  registry_.Get(kQueuedSeconds, Stage::kImport)
      .Observe(0.003, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  const std::string exemplar = "# {trace_id=\"0af7651916cd43dd8448eb211c80319c\"} 0.003 ";
  const std::string answer = Get(endpoint_->port(), "/metrics",
                                 "Accept: application/openmetrics-text;version=1.0.0,"
                                 "application/openmetrics-text;version=0.0.1;q=0.75,text/"
                                 "plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0"));
  EXPECT_THAT(answer, HasSubstr(exemplar));
  EXPECT_TRUE(answer.ends_with("\n# EOF\n"));
  const std::string text =
      Get(endpoint_->port(), "/metrics", "Accept: text/html,application/xml;q=0.9,*/*;q=0.8\r\n");
  EXPECT_THAT(text, HasSubstr("Content-Type: text/plain"));
  EXPECT_THAT(text, Not(HasSubstr("trace_id")));
}

// A body without a length would be read until memory ends; each of many ranges would be the whole again.
TEST_F(RunningEndpointTest, RequestsThatTakeMemoryAreRefused) {
  EXPECT_THAT(Ask(endpoint_->port(), "POST /metrics", "Transfer-Encoding: chunked\r\n"),
              HasSubstr("HTTP/1.1 411"));
  EXPECT_THAT(Ask(endpoint_->port(), "PUT /metrics"), HasSubstr("HTTP/1.1 411"));
  EXPECT_THAT(Get(endpoint_->port(), "/metrics", "Range: bytes=0-,0-,0-,0-\r\n"),
              HasSubstr("HTTP/1.1 416"));
}

TEST_F(RunningEndpointTest, AnErrorSaysNothingOfItself) {
  const Registry::Refresh failing =
      registry_.AddRefresh([] { throw std::runtime_error("secret"); });
  const std::string answer = Get(endpoint_->port(), "/metrics");
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 500"));
  EXPECT_THAT(answer, Not(HasSubstr("secret")));
}

TEST(EndpointTest, ServesOnIPv6) {
  const Registry registry;
  const auto endpoint = Endpoint::Start("[::1]:0", registry);
  if (!endpoint.ok()) GTEST_SKIP() << "no IPv6 here: " << endpoint.status();
  EXPECT_GT((*endpoint)->port(), 0);
}

TEST_F(RunningEndpointTest, OtherPathsAreNotFound) {
  EXPECT_THAT(Get(endpoint_->port(), "/etc/passwd"), HasSubstr("HTTP/1.1 404"));
}

TEST_F(RunningEndpointTest, AnAddressInUseIsUnavailable) {
  const std::string address = "127.0.0.1:" + std::to_string(endpoint_->port());
  const auto second = Endpoint::Start(address, registry_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MessageOf(second.status()), "metrics: cannot listen on `" + address +
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
