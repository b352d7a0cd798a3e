#include "common/http/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "tests/support/certificates.h"
#include "tests/support/http_server.h"
#include "tests/support/matchers.h"

namespace quench::http::http_client_test {
namespace {

using quench::testing::Authority;
using quench::testing::HasSubstr;
using quench::testing::HttpReply;
using quench::testing::HttpRequest;
using quench::testing::HttpServer;
using quench::testing::WritePair;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kEmpty = [](const HttpRequest&) { return HttpReply{}; };

absl::StatusOr<Response> GetFrom(const std::string& url, const RequestOptions& options = {}) {
  const absl::StatusOr<Url> parsed = ParseUrl(url);
  return parsed.ok() ? Get(*parsed, {}, options) : parsed.status();
}

TEST(HttpClientTest, PostsABodyWithHeaders) {
  HttpServer server([](const HttpRequest&) {
    return HttpReply{.status = 503, .body = "later", .headers = {{"Retry-After", "7"}}};
  });
  const absl::StatusOr<Response> response = Post(*ParseUrl(server.Url("/a%20b?c=%2F")), "{}",
                                                 "application/json", {{"webhook-id", "x"}}, {});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(response->body, "later");
  EXPECT_EQ(response->headers.at("retry-after"), "7");
  ASSERT_EQ(server.received().size(), 1U);
  const HttpRequest request = server.received()[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/a%20b?c=%2F");
  EXPECT_EQ(request.body, "{}");
  EXPECT_EQ(request.headers.at("content-type"), "application/json");
  EXPECT_EQ(request.headers.at("webhook-id"), "x");
  EXPECT_EQ(request.headers.at("host"), "127.0.0.1:" + std::to_string(server.port()));
}

TEST(HttpClientTest, GetsABodyUpToItsLimit) {
  HttpServer server([](const HttpRequest&) {
    HttpReply reply;
    reply.body = std::string(1000, 'k');
    return reply;
  });
  RequestOptions options;
  options.max_body = 1000;
  const absl::StatusOr<Response> whole = GetFrom(server.Url("/"), options);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->body, std::string(1000, 'k'));
  options.max_body = 999;
  const absl::Status cut = GetFrom(server.Url("/"), options).status();
  EXPECT_EQ(cut.code(), absl::StatusCode::kResourceExhausted) << cut;
  options.cut_body = true;
  const absl::StatusOr<Response> part = GetFrom(server.Url("/"), options);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->status, 200);
  EXPECT_EQ(part->body, std::string(999, 'k'));
}

TEST(HttpClientTest, AnAnswerMayHaveNoBody) {
  HttpServer server([](const HttpRequest&) { return HttpReply{204, "", {{"X-Seen", "yes"}}}; });
  const absl::StatusOr<Response> response = GetFrom(server.Url("/"));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 204);
  EXPECT_EQ(response->headers.at("x-seen"), "yes");
}

TEST(HttpClientTest, FollowsNoRedirect) {
  HttpServer other(kEmpty);
  HttpServer server([&](const HttpRequest&) {
    return HttpReply{.status = 307, .body = "", .headers = {{"Location", other.Url("/secret")}}};
  });
  const absl::StatusOr<Response> response = GetFrom(server.Url("/"));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 307);
  EXPECT_TRUE(other.received().empty());
}

TEST(HttpClientTest, ARefusedConnectionIsUnavailable) {
  int port = 0;
  {
    const HttpServer server(kEmpty);
    port = server.port();
  }
  const absl::Status status = GetFrom("http://127.0.0.1:" + std::to_string(port)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("cannot connect"));
}

TEST(HttpClientTest, TlsChecksTheAuthorityAndTheName) {
  const TempDir folder = *TempDir::Create();
  const Authority authority("ours"), stranger("stranger");
  WritePair(folder.path() / "server", authority.Issue("server"));
  WritePair(folder.path() / "named", authority.Issue("named", std::chrono::hours(1), "DNS:other"));
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "ca.crt", authority.certificate()).ok());
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "stranger.crt", stranger.certificate()).ok());
  const auto serve = [&](const std::string& pair) {
    return std::make_unique<HttpServer>(kEmpty, (folder.path() / (pair + ".crt")).string(),
                                        (folder.path() / (pair + ".key")).string());
  };
  RequestOptions options;
  options.ca_file = folder.path() / "ca.crt";
  const auto server = serve("server"), named = serve("named");
  const absl::StatusOr<Response> trusted = GetFrom(server->Url("/"), options);
  EXPECT_TRUE(trusted.ok()) << trusted.status();
  EXPECT_THAT(MessageOf(GetFrom(named->Url("/"), options).status()), HasSubstr("certificate"));
  options.ca_file = folder.path() / "stranger.crt";
  EXPECT_THAT(MessageOf(GetFrom(server->Url("/"), options).status()), HasSubstr("certificate"));
  options.ca_file = "";  // the system's
  EXPECT_EQ(GetFrom(server->Url("/"), options).status().code(), absl::StatusCode::kUnavailable);
  options.ca_file = folder.path() / "none.crt";
  EXPECT_THAT(MessageOf(GetFrom(server->Url("/"), options).status()), HasSubstr("authorities"));
  EXPECT_EQ(server->received().size(), 1U);
  EXPECT_TRUE(named->received().empty());
}

// A server that answers every connection with `text`, then a byte each 10 ms.
class Dripping {
 public:
  explicit Dripping(const std::string& text) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, text] {
      const int peer = accept(listener_, nullptr, nullptr);
      (void)send(peer, text.data(), text.size(), MSG_NOSIGNAL);
      while (send(peer, "x", 1, MSG_NOSIGNAL) == 1) std::this_thread::sleep_for(milliseconds(10));
      close(peer);
    });
  }
  ~Dripping() {
    thread_.join();
    close(listener_);
  }
  std::string Url(const std::string& scheme) const {
    return scheme + "://127.0.0.1:" + std::to_string(port_);
  }

 private:
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

TEST(HttpClientTest, TimeIsForTheWholeAnswer) {
  RequestOptions options;
  options.timeout = milliseconds(300);
  for (const auto& [scheme, text] : std::vector<std::pair<std::string, std::string>>{
           {"http", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"},
           {"http", "HTTP/1.1 200 OK\r\nX-Long: "},
           // The beginning of a record of TLS that is never whole.
           {"https", std::string("\x16\x03\x03\x3f\xff", 5)}}) {
    const Dripping server(text);
    const auto begin = steady_clock::now();
    const absl::Status status = GetFrom(server.Url(scheme), options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  }
}

TEST(HttpClientTest, WhatComesBesidesABodyIsBounded) {
  const std::string endless(size_t{1} << 20, 'a');
  const std::string begin = "HTTP/1.1 200 OK\r\n", more = "HTTP/1.1 100 Continue\r\n\r\n";
  std::string many, again;
  while (many.size() < endless.size()) many += "a: b\r\n";
  while (again.size() < endless.size()) again += more;
  const char* const line = "answered with a line of more than 4096 bytes";
  const char* const header = "answered with more than 65536 bytes before its body";
  for (const auto& [text, problem] : std::vector<std::pair<std::string, const char*>>{
           {"HTTP/1.1 200 " + endless, line},
           {more + "HTTP/1.1 200 " + endless, line},
           {begin + "X-Long: " + endless, line},
           {begin + "Transfer-Encoding: chunked\r\n\r\n1\r\nb\r\n1;" + endless, line},
           {begin + many, header},
           {again, header}}) {
    const Dripping server(text);
    const absl::Status status = GetFrom(server.Url("http")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(problem)) << text.substr(0, 60);
  }
}

TEST(HttpClientTest, AHeaderUpToItsBoundsIsTaken) {
  const std::string most(4000, 'a');
  std::string text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 " + most + "\r\n";
  for (int i = 0; i < 14; ++i) text += fmt::format("X-{}: {}\r\n", i, most);
  const Dripping server(text + "Content-Length: 2\r\n\r\nok");
  const absl::StatusOr<Response> response = GetFrom(server.Url("http"));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->headers.at("x-13"), most);
  EXPECT_EQ(response->body, "ok");
}

TEST(HttpClientTest, ABodyMayHaveManyChunks) {
  constexpr size_t kChunks = 20'000;
  std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t i = 0; i < kChunks; ++i) text += "1\r\nk\r\n";
  const Dripping server(text + "0\r\n\r\n");
  const absl::StatusOr<Response> response = GetFrom(server.Url("http"));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->body, std::string(kChunks, 'k'));
}

TEST(HttpClientTest, ARequestCanBeCancelled) {
  const Dripping server("HTTP/1.1 200 OK\r\nX-Long: ");
  std::stop_source source;
  RequestOptions options;
  options.stop = source.get_token();
  std::jthread later([&source] {
    std::this_thread::sleep_for(milliseconds(50));
    source.request_stop();
  });
  const absl::Status status = GetFrom(server.Url("http"), options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

}  // namespace
}  // namespace quench::http::http_client_test
