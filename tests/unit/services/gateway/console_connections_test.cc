// The console's server against clients that send too much, too slowly or nothing, and its TLS.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/files.h"
#include "common/http/http_client.h"
#include "common/http/http_stream.h"
#include "quench/codegen/v1/codegen.pb.h"
#include "services/gateway/host.h"
#include "tests/support/certificates.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway::console_connections_test {
namespace {

using quench::testing::HasSubstr;
using quench::testing::WaitFor;

// A connection to a port of this machine.
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int small = 4096;
    (void)::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    const timeval limit{20, 0};
    (void)::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int socket() const { return socket_; }
  bool Send(const std::string& text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // At most `most` bytes of what comes before the server closes.
  std::string Read(size_t most = size_t{1} << 20) const {
    std::string all;
    std::array<char, 1024> bytes{};
    while (all.size() < most) {
      const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
      if (got <= 0) break;
      all.append(bytes.data(), static_cast<size_t>(got));
    }
    return all;
  }

 private:
  const int socket_;
};

// Clients that send a byte of a header every now and then, for as long as this lives.
class Tricklers {
 public:
  Tricklers(int port, int count) {
    for (int i = 0; i < count; ++i) clients_.push_back(std::make_unique<Client>(port));
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        for (const auto& client : clients_) (void)client->Send("G");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  }

 private:
  std::vector<std::unique_ptr<Client>> clients_;
  std::jthread thread_;
};

struct TlsReply {
  bool answered = false;
  std::shared_ptr<SSL_SESSION> session;  // to be resumed
};

// A request over TLS with the pair at `prefix`, "" for none, which resumes `session` if there is one.
TlsReply GetByTls(int port, const std::string& prefix, SSL_SESSION* session, int version) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  SSL_CTX_free);
  SSL_CTX_set_max_proto_version(context.get(), version);
  if (!prefix.empty()) {
    SSL_CTX_use_certificate_chain_file(context.get(), (prefix + ".crt").c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), (prefix + ".key").c_str(), SSL_FILETYPE_PEM);
  }
  const Client client(port);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_fd(ssl.get(), client.socket());
  if (session != nullptr) SSL_set_session(ssl.get(), session);
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  TlsReply reply;
  if (SSL_connect(ssl.get()) != 1 || SSL_write(ssl.get(), kRequest.data(), kRequest.size()) <= 0)
    return reply;
  std::array<char, 64> bytes{};
  const int got = SSL_read(ssl.get(), bytes.data(), bytes.size());
  reply.answered = got > 12 && std::string(bytes.data(), 12) == "HTTP/1.1 200";
  SSL_shutdown(ssl.get());  // else the session counts as broken
  reply.session.reset(SSL_get1_session(ssl.get()), SSL_SESSION_free);
  return reply;
}

// The socket of this process that takes connections to `port`; -1: there is none.
int ListenerOf(int port) {
  constexpr int kMost = 1024;
  for (int fd = 0; fd < kMost; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    sockaddr_in address{};
    socklen_t address_size = sizeof(address);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_size) == 0 &&
        ntohs(address.sin_port) == port) {
      return fd;
    }
  }
  return -1;
}

class ConsoleConnectionsTest : public ::testing::Test {
 protected:
  ConsoleConnectionsTest() {
    options_.config.mutable_server()->set_listen("127.0.0.1:0");
    options_.config.mutable_console()->set_listen("127.0.0.1:0");
    options_.config.set_state_dir((folder_.path() / "state").string());
    options_.config.mutable_blob_limits()->set_min_free_bytes(1);
    options_.channels = services_.Channels();
    options_.registry = &registry_;
  }
  void Start() {
    auto host = GatewayHost::Start(options_);
    ASSERT_TRUE(host.ok()) << host.status();
    host_ = *std::move(host);
  }
  int port() const { return host_->console()->port(); }
  http::Url UrlOf(const std::string& target) const {
    return *http::ParseUrl(fmt::format("http://127.0.0.1:{}{}", port(), target));
  }
  absl::StatusOr<http::Response> Get() const {
    return http::Get(UrlOf("/"), {}, http::RequestOptions());
  }
  // Asks for `bytes` in a form and reads the first part of the answer into `begin`. The server keeps the rest, if that is
  // more than the system holds.
  std::unique_ptr<Client> BeginDownload(const std::string& bytes, const std::string& form,
                                        std::string* begin) const {
    const auto store = LocalBlobStore::Open(folder_.path() / "state/store", nullptr);
    const std::string hash = *(*store)->Put(std::as_bytes(std::span(bytes)));
    const nlohmann::json asked = {{"hash", hash}, {"size", bytes.size()}, {"form", form}};
    const auto made = http::Post(UrlOf("/api/links"), asked.dump(), "application/json", {},
                                 http::RequestOptions());
    const std::string url = nlohmann::json::parse(made->body).value("url", "");
    auto client = std::make_unique<Client>(port());
    client->Send("GET " + url + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    *begin = client->Read(1);
    return client;
  }

  const TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  FakeServices services_;
  GatewayHost::Options options_;
  std::unique_ptr<GatewayHost> host_;
};

TEST_F(ConsoleConnectionsTest, HeadersWithoutAnEndAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  constexpr size_t kTooMuch = size_t{40} << 10;
  const Client line(port());
  line.Send("GET /" + std::string(kTooMuch, 'a'));
  EXPECT_THAT(line.Read(), HasSubstr("HTTP/1.1 431"));
  std::string many;
  while (many.size() < kTooMuch) many += "a: b\r\n";
  const Client headers(port());
  headers.Send("GET / HTTP/1.1\r\nHost: localhost\r\n" + many);
  EXPECT_THAT(headers.Read(), HasSubstr("HTTP/1.1 431"));
  EXPECT_EQ(Get()->status, 200);
}

TEST_F(ConsoleConnectionsTest, AStopWaitsForNoClient) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const Client idle(port());
  const Tricklers slow(port(), 3);
  std::string begin;
  const auto paused = BeginDownload(std::string(32'000'000, 'b'), "file", &begin);
  EXPECT_THAT(begin, HasSubstr("HTTP/1.1 200"));
  const auto stop = std::async(std::launch::async, [this] { host_.reset(); });
  const auto has_stopped = [&] {
    return stop.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  EXPECT_TRUE(WaitFor(has_stopped, std::chrono::seconds(10)));  // less than they have otherwise
}

TEST_F(ConsoleConnectionsTest, AReportCountsAsADownloadUntilItIsRead) {
  ASSERT_NO_FATAL_FAILURE(Start());
  constexpr size_t kMostDownloads = 16, kEach = 50'000;
  codegen::v1::CompileReport report;  // 1 MB, of which each byte becomes six
  for (int i = 0; i < 20; ++i) report.add_kernels()->set_reason(std::string(kEach, '\x01'));
  const std::string bytes = report.SerializeAsString();
  std::vector<std::unique_ptr<Client>> paused;
  std::string begin;
  while (paused.size() < kMostDownloads) {
    paused.push_back(BeginDownload(bytes, "compile_report", &begin));
    EXPECT_THAT(begin, HasSubstr("HTTP/1.1 200"));
  }
  (void)BeginDownload(bytes, "compile_report", &begin);
  EXPECT_THAT(begin, HasSubstr("HTTP/1.1 503"));
  paused.clear();
  EXPECT_TRUE(WaitFor([&] {
    (void)BeginDownload(bytes, "compile_report", &begin);
    return begin.starts_with("HTTP/1.1 200");
  }));
}

TEST_F(ConsoleConnectionsTest, SlowClientsKeepNobodyOut) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const Tricklers slow(port(), http::Limits().threads + 8);
  http::RequestOptions options;
  options.timeout = std::chrono::seconds(10);  // less than a slow client has otherwise
  const auto page = http::Get(UrlOf("/"), {}, options);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->status, 200);
}

TEST_F(ConsoleConnectionsTest, AListenerThatEndsIsBoundAgain) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const int listener = ListenerOf(port());
  ASSERT_GE(listener, 0);
  ASSERT_EQ(::shutdown(listener, SHUT_RDWR), 0);
  EXPECT_TRUE(WaitFor([this] { return Get().ok(); }));
}

TEST_F(ConsoleConnectionsTest, ClientsProveWhoTheyAreWhereCertificatesAreRequired) {
  const quench::testing::Authority authority("us"), others("others");
  const std::string prefix = folder_.path() / "pair", other = folder_.path() / "other";
  const std::filesystem::path ca = folder_.path() / "ca.pem";
  std::ofstream(ca) << authority.certificate();
  quench::testing::WritePair(prefix, authority.Issue("pair"));
  quench::testing::WritePair(other, others.Issue("other"));
  config::v1::Tls& tls = *options_.config.mutable_server()->mutable_tls();
  tls.set_certificate_file(prefix + ".crt");
  tls.set_key_file(prefix + ".key");
  tls.set_ca_file(ca.string());
  tls.set_require_client_certificate(true);
  ASSERT_NO_FATAL_FAILURE(Start());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const TlsReply first = GetByTls(port(), prefix, nullptr, version);
    EXPECT_TRUE(first.answered);
    EXPECT_TRUE(GetByTls(port(), prefix, first.session.get(), version).answered);
    EXPECT_FALSE(GetByTls(port(), "", nullptr, version).answered);
    EXPECT_FALSE(GetByTls(port(), other, nullptr, version).answered);
  }
  std::ofstream(ca) << others.certificate();
  EXPECT_TRUE(GetByTls(port(), other, nullptr, TLS1_3_VERSION).answered);
  EXPECT_FALSE(GetByTls(port(), prefix, nullptr, TLS1_3_VERSION).answered);
}

}  // namespace
}  // namespace quench::gateway::console_connections_test
