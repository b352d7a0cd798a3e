#include "common/rpc/tls.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/callers.h"
#include "common/rpc/errors.h"
#include "tests/support/certificates.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/common/rpc/fake_codegen.h"

namespace quench::rpc::tls_test {
namespace {

using quench::testing::Authority;
using quench::testing::HasSubstr;
using quench::testing::WaitFor;
using quench::testing::WritePair;
using std::chrono::hours;
using std::chrono::seconds;

class TlsTest : public ::testing::Test, protected CodegenFixture {
 protected:
  TlsTest() {
    Write("ca.crt", authority_.certificate());
    WritePair(folder_.path() / "server", authority_.Issue("server"));
    WritePair(folder_.path() / "client", authority_.Issue("client"));
    channel_options.attempts = 1;
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
  }
  TlsFiles Files(const std::string& pair, const std::string& ca) const {
    TlsFiles files;
    if (!pair.empty()) {
      files.certificate = folder_.path() / (pair + ".crt");
      files.key = folder_.path() / (pair + ".key");
    }
    if (!ca.empty()) files.ca = folder_.path() / ca;
    files.refresh = seconds(1);
    return files;
  }
  // How a call over a new connection ends.
  absl::Status Call(const std::optional<TlsFiles>& files) {
    ChannelOptions options = channel_options;
    options.tls = files;
    absl::StatusOr<std::shared_ptr<Channel>> opened = Channel::Open(options);
    if (!opened.ok()) return opened.status();
    channel = *std::move(opened);
    stub = v1::Codegen::NewStub(channel->grpc());
    StepContext step;
    step.set_deadline(std::chrono::steady_clock::now() + seconds(20));
    return ListTargets(step).status();
  }
  // The certificate that a new connection sees.
  std::string ServersCertificate() {
    if (!Call(Files("", "ca.crt")).ok()) return "";
    grpc::ClientContext context;
    v1::ListTargetsResponse response;
    if (!stub->ListTargets(&context, {}, &response).ok()) return "";
    const auto values = context.auth_context()->FindPropertyValues("x509_pem_cert");
    return values.empty() ? "" : std::string(values[0].data(), values[0].size());
  }

  TempDir folder_ = *TempDir::Create();
  Authority authority_{"the authority"};
};

TEST_F(TlsTest, TheClientChecksTheServer) {
  server_options.tls = Files("server", "");
  channel_options.tls = Files("", "ca.crt");
  ASSERT_EQ(Start(), absl::OkStatus());
  EXPECT_TRUE(Compile().has_result());
  Write("other.crt", Authority("another").certificate());
  EXPECT_EQ(Call(Files("", "other.crt")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Call(std::nullopt).code(), absl::StatusCode::kUnavailable) << "plain text";
}

TEST_F(TlsTest, TheServersCertificateMustBeOfItsAddress) {
  WritePair(folder_.path() / "server",
            authority_.Issue("server", hours(1), "DNS:elsewhere.example"));
  server_options.tls = Files("server", "");
  channel_options.tls = Files("", "ca.crt");
  ASSERT_EQ(Start(), absl::OkStatus());
  EXPECT_EQ(ListTargets().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TlsTest, TheServerWantsTheClientsCertificate) {
  server_options.tls = Files("server", "ca.crt");
  server_options.tls->require_client_certificate = true;
  channel_options.tls = Files("client", "ca.crt");
  ASSERT_EQ(Start(), absl::OkStatus());
  EXPECT_TRUE(Compile().has_result());
  EXPECT_EQ(Call(Files("", "ca.crt")).code(), absl::StatusCode::kUnavailable) << "none";
  const Authority another("another");
  WritePair(folder_.path() / "stranger", another.Issue("client"));
  EXPECT_EQ(Call(Files("stranger", "ca.crt")).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Call(Files("client", "ca.crt")).ok());
}

TEST_F(TlsTest, NamesOfCertificatesAreTenants) {
  WritePair(folder_.path() / "blue",
            authority_.Issue("a client", hours(1), "URI:spiffe://example.org/blue"));
  WritePair(folder_.path() / "both",
            authority_.Issue("red.example.org", hours(1), "DNS:blue.example.org"));
  WritePair(folder_.path() / "stranger",
            authority_.Issue("nobody", hours(1), "DNS:nobody.example"));
  WritePair(folder_.path() / "red", authority_.Issue("red.example.org"));
  const auto callers = *Callers::Open({{},
                                       {{"red.example.org", {"red"}},
                                        {"blue.example.org", {"blue"}},
                                        {"spiffe://example.org/blue", {"blue"}}},
                                       false});
  steps_options.callers = control_options.callers = callers.get();
  server_options.tls = Files("server", "ca.crt");
  channel_options.tls = Files("red", "ca.crt");
  ASSERT_EQ(Start(), absl::OkStatus());
  std::string tenant;
  service->list_targets = [&](const auto&, const StepContext& step) {
    tenant = step.tenant();
    return v1::ListTargetsResponse();
  };
  EXPECT_EQ(Call(Files("red", "ca.crt")), absl::OkStatus());
  EXPECT_EQ(tenant, "red");
  EXPECT_EQ(Call(Files("blue", "ca.crt")), absl::OkStatus());
  EXPECT_EQ(tenant, "blue");
  const absl::Status stranger = Call(Files("stranger", "ca.crt"));
  EXPECT_EQ(stranger.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(MessageOf(stranger), HasSubstr("nobody.example"));
  const absl::Status both = Call(Files("both", "ca.crt"));
  EXPECT_EQ(both.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(MessageOf(both), HasSubstr("several tenants: blue, red"));
  EXPECT_EQ(Call(Files("", "ca.crt")).code(), absl::StatusCode::kUnauthenticated) << "none";
}

TEST_F(TlsTest, NewConnectionsSeeNewCertificates) {
  server_options.tls = Files("server", "");
  channel_options.tls = Files("", "ca.crt");
  ASSERT_EQ(Start(), absl::OkStatus());
  const auto old_channel = channel;
  EXPECT_TRUE(ListTargets().ok());
  const std::string before = ServersCertificate();
  EXPECT_EQ(before, *ReadFile(folder_.path() / "server.crt"));
  const auto pair = authority_.Issue("server, renewed", hours(2));
  WritePair(folder_.path() / "server", pair);
  EXPECT_TRUE(WaitFor([&] { return ServersCertificate() == pair.certificate; }, seconds(60)));
  // Connections that stand go on.
  stub = v1::Codegen::NewStub(old_channel->grpc());
  channel = old_channel;
  EXPECT_TRUE(ListTargets().ok());
  const auto expiry = CertificateExpiry(folder_.path() / "server.crt");
  ASSERT_TRUE(expiry.ok()) << expiry.status();
  registry.Collect();
  EXPECT_EQ(registry.Get(metrics::kCertificateExpiry).Value(),
            std::chrono::duration<double>(expiry->time_since_epoch()).count());
  EXPECT_GT(*expiry, std::chrono::system_clock::now() + hours(1));
}

TEST_F(TlsTest, WrongFilesAreRefusedAtTheStart) {
  const auto refused = [&](const TlsFiles& files) {
    const absl::Status status = ServerTls(files).status();
    EXPECT_FALSE(status.ok());
    return MessageOf(status);
  };
  EXPECT_THAT(refused(Files("", "")), HasSubstr("a certificate and its key"));
  EXPECT_THAT(refused(Files("none", "")), HasSubstr("none.crt"));
  EXPECT_THAT(refused(Files("server", "none.crt")), HasSubstr("none.crt"));
  TlsFiles mixed = Files("server", "");
  mixed.key = Files("client", "").key;
  EXPECT_THAT(refused(mixed), HasSubstr("is not that of the certificate"));
  WritePair(folder_.path() / "old", authority_.Issue("old", seconds(-60)));
  EXPECT_THAT(refused(Files("old", "")), HasSubstr("has expired"));
  Write("garbage.crt", "not a certificate");
  Write("garbage.key", "not a key");
  EXPECT_THAT(refused(Files("garbage", "")), HasSubstr("holds no certificate"));
  TlsFiles no_key = Files("server", "");
  no_key.key = folder_.path() / "garbage.key";
  EXPECT_THAT(refused(no_key), HasSubstr("holds no private key"));
  TlsFiles nobody = Files("server", "");
  nobody.require_client_certificate = true;
  EXPECT_THAT(refused(nobody), HasSubstr("authorities"));
  EXPECT_FALSE(ChannelTls(Files("", "garbage.crt")).ok());
  TlsFiles half = Files("client", "ca.crt");
  half.key.clear();
  EXPECT_FALSE(ChannelTls(half).ok());
}

TEST_F(TlsTest, AnExpiredClientIsRefused) {
  server_options.tls = Files("server", "ca.crt");
  server_options.tls->require_client_certificate = true;
  channel_options.tls = Files("client", "ca.crt");
  ASSERT_EQ(Start(), absl::OkStatus());
  const auto expired = authority_.Issue("old", seconds(-60));
  WritePair(folder_.path() / "old", expired);
  EXPECT_EQ(Call(Files("old", "ca.crt")).code(), absl::StatusCode::kInvalidArgument)
      << "our own clients look first";
  stub = v1::Codegen::NewStub(grpc::CreateChannel(
      server->address(),
      grpc::SslCredentials({authority_.certificate(), expired.key, expired.certificate})));
  EXPECT_EQ(ListTargets().status().code(), absl::StatusCode::kUnavailable);
  const auto fresh = authority_.Issue("new");
  stub = v1::Codegen::NewStub(grpc::CreateChannel(
      server->address(),
      grpc::SslCredentials({authority_.certificate(), fresh.key, fresh.certificate})));
  EXPECT_TRUE(ListTargets().ok());
}

TEST(PlainTextTest, StaysOnThisMachineUnlessMeant) {
  ServerOptions options;
  options.listen = "0.0.0.0:0";
  const absl::Status status = Server::Start(options, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), HasSubstr("there is no TLS"));
  options.insecure = true;
  EXPECT_TRUE(Server::Start(options, {}).ok());
}

TEST(PlainTextTest, CarriesNoTokenToOtherMachines) {
  const auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(WriteFileAtomically(folder->path() / "token", "secret").ok());
  ChannelOptions options;
  options.address = "codegen.example:9000";
  options.token_file = folder->path() / "token";
  const absl::Status status = Channel::Open(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), HasSubstr("needs TLS"));
  options.address = "127.0.0.1:9000";
  EXPECT_TRUE(Channel::Open(options).ok());
}

}  // namespace
}  // namespace quench::rpc::tls_test
