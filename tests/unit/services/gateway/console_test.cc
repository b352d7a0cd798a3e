// The console of a gateway as its program runs it, by HTTP.
#include "services/gateway/console/console.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/http/http_client.h"
#include "common/rpc/message_json.h"
#include "common/rpc/tenants.h"
#include "google/longrunning/operations.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "quench/codegen/v1/codegen.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "services/gateway/console/api.h"
#include "services/gateway/host.h"
#include "tests/support/captured_log.h"
#include "tests/support/certificates.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace quench::gateway::console_test {
namespace {

using nlohmann::json;
using quench::testing::HasSubstr;
using quench::testing::WaitFor;

constexpr char kJson[] = "application/json";
constexpr char kViewer[] = "viewer-token", kUser[] = "user-token", kOperator[] = "operator-token";

class ConsoleTest : public ::testing::Test {
 protected:
  ConsoleTest() {
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
    ASSERT_NE(host_->console(), nullptr);
    word_ = host_->console()->word();
    for (const char* tenant : {rpc::kDefaultTenant, "red"}) {
      const auto store =
          LocalBlobStore::Open(rpc::TenantFolder(folder_.path() / "state/store", tenant), nullptr);
      ASSERT_TRUE(store.ok()) << store.status();
      ASSERT_TRUE((*store)->Put(std::as_bytes(std::span("model", 5))).ok());
    }
  }
  void DemandTokens() {
    const std::filesystem::path file = folder_.path() / "tokens";
    std::ofstream(file) << "red " << Sha256Hex(std::string(kViewer)) << " role=viewer\n"
                        << "red " << Sha256Hex(std::string(kUser)) << "\n"
                        << "ops " << Sha256Hex(std::string(kOperator)) << " role=operator\n";
    options_.config.mutable_server()->set_token_file(file.string());
  }
  http::Url UrlOf(const std::string& target) const {
    return *http::ParseUrl(fmt::format("http://127.0.0.1:{}{}", host_->console()->port(), target));
  }
  http::Response Get(const std::string& target, const http::Headers& headers = {}) const {
    auto response = http::Get(UrlOf(target), headers, http::RequestOptions());
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : http::Response();
  }
  http::Response Post(const std::string& target, const json& body, const std::string& token = "",
                      const std::string& type = kJson, http::Headers headers = {}) const {
    if (!token.empty()) headers["Authorization"] = "Bearer " + token;
    auto response = http::Post(UrlOf(target), body.dump(), type, headers, http::RequestOptions());
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *response : http::Response();
  }
  // The id of a new workflow.
  std::string Create(const std::string& token = "") {
    rpc::ChannelOptions options;
    options.address = host_->server().address();
    const auto channel = *rpc::Channel::Open(options);
    const auto stub = v1::Workflows::NewStub(channel->grpc());
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    v1::CreateWorkflowRequest request;
    *request.mutable_spec() = ChainSpec();
    request.mutable_spec()->set_title("chain");
    google::longrunning::Operation operation;
    const grpc::Status status = stub->CreateWorkflow(&context, request, &operation);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return operation.name().substr(operation.name().rfind('/') + 1);
  }
  std::string StateOf(const std::string& id, const std::string& token = "") const {
    const http::Response got =
        Post("/api/Workflows/GetWorkflow", {{"name", "workflows/" + id}}, token);
    return json::parse(got.body).value("workflow", json::object()).value("state", "");
  }

  const TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  FakeServices services_;
  GatewayHost::Options options_;
  std::unique_ptr<GatewayHost> host_;
  std::string word_;
};

TEST_F(ConsoleTest, ThePageComesWithAPolicyAndIsNotSentTwice) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const http::Response page = Get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, HasSubstr("<script type=\"module\" src=\"/main.js\">"));
  EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("frame-ancestors 'none'"));
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(page.headers.at("referrer-policy"), "no-referrer");
  EXPECT_EQ(page.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(Get("/", {{"If-None-Match", page.headers.at("etag")}}).status, 304);
  for (const char* file :
       {"/console.css", "/main.js", "/api.js", "/dom.js", "/format.js", "/graph.js",
        "/workflows.js", "/workflow.js", "/fleets.js", "/machine.js"}) {
    EXPECT_EQ(Get(file).status, 200) << file;
  }
  for (const char* other :
       {"/nothing", "/page/main.js", "/blobs/0123", "/blobs/", "/api/session"}) {
    const http::Response missing = Get(other);
    EXPECT_EQ(missing.status, 404) << other;
    EXPECT_EQ(json::parse(missing.body).at("code"), 5) << other;
    EXPECT_THAT(missing.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
  }
}

TEST_F(ConsoleTest, RequestsOfOtherSitesAreRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const json none = json::object();
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", none).status, 200);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", none, "", "text/plain").status, 415);
  EXPECT_EQ(
      Post("/api/Workflows/ListWorkflows", none, "", "application/json; charset=utf-8").status,
      200);
  EXPECT_EQ(Get("/", {{"Host", "evil.example:80"}}).status, 421);
  EXPECT_EQ(Get("/", {{"Host", "127.0.0.1.evil.example"}}).status, 421);
  EXPECT_EQ(Get("/", {{"Host", "localhost:1"}}).status, 200);  // forwarded by ssh
  EXPECT_EQ(Get("/", {{"Host", "[::1]:1"}}).status, 200);
}

TEST_F(ConsoleTest, RequestsAreBounded) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const json large = {{"filter", std::string(100'000, 'a')}};
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", large).status, 413);
  EXPECT_EQ(Get("/" + std::string(600, 'a')).status, 414);
  EXPECT_EQ(Get("/", {{"Range", "bytes=0-1,2-3"}}).status, 416);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", json::object(), "", kJson,
                 {{"Content-Encoding", "gzip"}})
                .status,
            411);
}

TEST_F(ConsoleTest, OnlyCallsOfTheTableAreMade) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (const char* call : {"Workflows/CreateWorkflow", "Workflows/DeleteWorkflow", "Workflows", "",
                           "Workflows/WatchWorkflow", "LocalBlobs/Locate"}) {
    EXPECT_EQ(Post(fmt::format("/api/{}", call), json::object(), word_).status, 404) << call;
  }
}

TEST_F(ConsoleTest, ErrorsComeAsTheGatewayGivesThem) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const http::Response missing =
      Post("/api/Workflows/GetWorkflow", {{"name", "workflows/nothing"}});
  EXPECT_EQ(missing.status, 404);
  const json error = json::parse(missing.body);
  EXPECT_EQ(error.at("code"), 5);
  EXPECT_EQ(error.at("details").at(0).at("reason"), "NOT_FOUND");
  const http::Response unknown = Post("/api/Workflows/GetWorkflow", {{"nonsense", 1}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_THAT(unknown.body, HasSubstr("nonsense"));
  const http::Response filter = Post("/api/Workflows/ListWorkflows", {{"filter", "colour = red"}});
  EXPECT_EQ(filter.status, 400);
  EXPECT_THAT(filter.body, HasSubstr("model"));
  EXPECT_EQ(HttpStatusOf(absl::StatusCode::kUnauthenticated), 401);
  EXPECT_EQ(HttpStatusOf(absl::StatusCode::kUnavailable), 503);
}

TEST_F(ConsoleTest, ChangesTakeTheWordWhereTheGatewayDemandsNoToken) {
  ASSERT_NO_FATAL_FAILURE(Start());
  std::atomic<bool> hold{true};
  services_.script = [&](const std::string&, const StepContext& step) {
    EXPECT_TRUE(WaitFor([&] { return !hold || !step.Check().ok(); }));
    return step.Check();
  };
  EXPECT_THAT(host_->console()->url(), HasSubstr("/#token=" + word_));
  const std::string id = Create();
  const json named = {{"name", "workflows/" + id}};
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named).status, 401);
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named, "wrong").status, 401);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", json::object(), "wrong").status, 401);
  EXPECT_EQ(json::parse(Post("/api/session", json::object()).body).at("mayChange"), false);
  EXPECT_EQ(json::parse(Post("/api/session", json::object(), word_).body).at("mayChange"), true);
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named, word_).status, 200);
  EXPECT_TRUE(WaitFor([&] { return StateOf(id) == "STATE_CANCELLED"; }));
  hold = false;
  EXPECT_EQ(Post("/api/Workflows/RetryWorkflow", named, word_).status, 200);
  EXPECT_TRUE(WaitFor([&] { return StateOf(id) == "STATE_SUCCEEDED"; }));
  EXPECT_EQ(Post("/api/session", json::object(), "", kJson, {{"Authorization", "\x80"}}).status,
            200);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", json::object(), "", kJson,
                 {{"Authorization", "Bearer \xff"}})
                .status,
            401);
}

TEST_F(ConsoleTest, AGatewayOfItsUserAloneIsNotReadWithoutTheWord) {
  options_.config.mutable_server()->set_listen("unix:" + (folder_.path() / "socket").string());
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(Get("/").status, 200);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", json::object()).status, 401);
  EXPECT_EQ(Post("/api/links", {{"hash", Sha256Hex(std::string("x"))}, {"size", 1}}).status, 401);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", json::object(), word_).status, 200);
}

TEST_F(ConsoleTest, TokensAreTheGatewaysWhereItDemandsThem) {
  DemandTokens();
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(word_, "");
  EXPECT_EQ(host_->console()->url().find('#'), std::string::npos);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", json::object()).status, 401);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", json::object(), "wrong").status, 401);
  const std::string id = Create(kUser);
  const http::Response list = Post("/api/Workflows/ListWorkflows", json::object(), kViewer);
  EXPECT_EQ(json::parse(list.body).at("workflows").at(0).at("title"), "chain");
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", {{"name", "workflows/" + id}}, kViewer).status,
            403);
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", {{"name", "workflows/" + id}}, kUser).status,
            200);
  const json seen = json::parse(Post("/api/Overview/GetOverview", json::object(), kViewer).body);
  EXPECT_EQ(seen.at("role"), "viewer");
  EXPECT_EQ(seen.at("tenant"), "red");
}

TEST_F(ConsoleTest, TheWordIsForThoseWithoutATokenWhereTokensAreOptional) {
  DemandTokens();
  options_.config.mutable_server()->set_tokens_optional(true);
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::string id = Create();
  const json named = {{"name", "workflows/" + id}};
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named).status, 401);
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named, kUser).status, 404);  // of tenant red
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named, word_).status, 200);
}

TEST_F(ConsoleTest, BlobsAreStreamedByAddressesThatNobodyGuesses) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::string bytes(3'000'000, 'b');
  const auto store = LocalBlobStore::Open(folder_.path() / "state/store", nullptr);
  const std::string hash = *(*store)->Put(std::as_bytes(std::span(bytes)));
  const auto address = [&](const json& more) {
    json asked = {{"hash", hash}, {"size", bytes.size()}, {"name", "a/b/li\"b.so"}};
    asked.update(more);
    const http::Response made = Post("/api/links", asked);
    EXPECT_EQ(made.status, 200) << made.body;
    return json::parse(made.body).at("url").get<std::string>();
  };
  http::RequestOptions options;
  options.max_body = 4'000'000;
  const auto file = http::Get(UrlOf(address(json::object())), {}, options);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->status, 200);
  EXPECT_TRUE(file->body == bytes);
  EXPECT_EQ(file->headers.at("content-disposition"), "attachment; filename=\"li_b.so\"");
  EXPECT_THAT(file->headers.at("content-security-policy"), HasSubstr("sandbox"));
  const http::Response part = Get(address(json::object()), {{"Range", "bytes=2999990-"}});
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, std::string(10, 'b'));
  const auto page = http::Get(UrlOf(address({{"form", "page"}})), {}, options);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page->headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
  EXPECT_EQ(page->headers.count("content-disposition"), 0);
  EXPECT_EQ(Get(address({{"hash", Sha256Hex(std::string("gone"))}})).status, 404);
  EXPECT_EQ(Post("/api/links", {{"hash", "../x"}, {"size", 1}}).status, 400);
  EXPECT_EQ(Post("/api/links", {{"hash", hash}}).status, 400);
  EXPECT_EQ(Post("/api/links", json::array()).status, 400);
}

TEST_F(ConsoleTest, ReportsOfCompilationsAreTextUpToAMebibyte) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto store = LocalBlobStore::Open(folder_.path() / "state/store", nullptr);
  const auto show = [&](const std::string& bytes) {
    const std::string hash = *(*store)->Put(std::as_bytes(std::span(bytes)));
    const http::Response made =
        Post("/api/links", {{"hash", hash}, {"size", bytes.size()}, {"form", "compile_report"}});
    EXPECT_EQ(made.status, 200) << made.body;
    return Get(json::parse(made.body).at("url").get<std::string>());
  };
  codegen::v1::CompileReport report;
  report.set_target("x86-64");
  const http::Response text = show(report.SerializeAsString());
  EXPECT_EQ(text.status, 200);
  EXPECT_EQ(json::parse(text.body).at("target"), "x86-64");
  EXPECT_EQ(text.headers.at("content-type"), "text/plain; charset=utf-8");
  EXPECT_THAT(text.headers.at("content-security-policy"), HasSubstr("sandbox"));
  EXPECT_EQ(show("\xff").status, 400);
  report.set_uuid(std::string(size_t{1} << 20, 'u'));
  const http::Response large = show(report.SerializeAsString());
  EXPECT_EQ(large.status, 429);
  EXPECT_THAT(large.body, HasSubstr("at most 1048576 are shown"));
}

TEST_F(ConsoleTest, TheOverviewTellsOfServicesAndTheStore) {
  ASSERT_NO_FATAL_FAILURE(Start());
  json seen;
  EXPECT_TRUE(WaitFor([&] {
    seen = json::parse(Post("/api/Overview/GetOverview", json::object()).body);
    return seen.value("services", json::array()).size() == 2;
  }));
  EXPECT_EQ(seen.at("services").at(0).at("name"), "importer");
  EXPECT_EQ(seen.at("services").at(1).at("serving"), true);
  EXPECT_EQ(seen.at("role"), "operator");
  EXPECT_EQ(seen.at("store").at("highBytes"), std::to_string(int64_t{20} << 30));
}

TEST_F(ConsoleTest, ModelsAndTargetsAreFilteredBy) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto channel = rpc::Channel::InProcess(host_->server());
  v1::CreateWorkflowRequest request;
  v1::CompileBatch& batch = *request.mutable_spec()->mutable_compile();
  batch.add_models()->set_name("resnet");
  *batch.mutable_models(0)->mutable_model()->mutable_file() = DigestOf("model");
  batch.add_choices()->set_name("plain");
  batch.add_targets()->set_name("x86-64-v3");
  grpc::ClientContext context;
  google::longrunning::Operation operation;
  const grpc::Status created =
      v1::Workflows::NewStub(channel->grpc())->CreateWorkflow(&context, request, &operation);
  ASSERT_TRUE(created.ok()) << created.error_message();
  const auto found = [&](const std::string& filter) {
    const http::Response list = Post("/api/Workflows/ListWorkflows", {{"filter", filter}});
    return json::parse(list.body).value("workflows", json::array()).size();
  };
  EXPECT_EQ(found("model = resnet AND target = \"x86*\""), 1);
  EXPECT_EQ(found("model = vgg"), 0);
  EXPECT_EQ(found("target != x86-64-v3"), 0);
}

TEST_F(ConsoleTest, TlsIsTheGatewaysAndItsCertificateMayChange) {
  const quench::testing::Authority authority("us"), others("others");
  const std::filesystem::path prefix = folder_.path() / "server", ca = folder_.path() / "ca.pem";
  std::ofstream(ca) << authority.certificate();
  quench::testing::WritePair(prefix, authority.Issue("server"));
  config::v1::Tls& tls = *options_.config.mutable_server()->mutable_tls();
  tls.set_certificate_file(prefix.string() + ".crt");
  tls.set_key_file(prefix.string() + ".key");
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_THAT(host_->console()->url(), HasSubstr("https://127.0.0.1:"));
  http::Url url = UrlOf("/");
  url.tls = true;
  http::RequestOptions options;
  options.ca_file = ca;
  const auto page = http::Get(url, {}, options);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->status, 200);
  quench::testing::WritePair(prefix, others.Issue("server"));
  EXPECT_TRUE(absl::IsUnavailable(http::Get(url, {}, options).status()));
}

TEST_F(ConsoleTest, WrongAddressesAreRefused) {
  for (const char* listen : {"nonsense", "unix:/tmp/socket", "0.0.0.0:0"}) {
    options_.config.mutable_console()->set_listen(listen);
    const auto host = GatewayHost::Start(options_);
    EXPECT_TRUE(absl::IsInvalidArgument(host.status())) << host.status();
    EXPECT_THAT(host.status().ToString(), HasSubstr("console"));
  }
  options_.config.mutable_console()->set_listen("none");
  auto host = GatewayHost::Start(options_);
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ((*host)->console(), nullptr);
}

TEST_F(ConsoleTest, APortInUseIsAnErrorOnlyIfItWasAskedFor) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ConsoleOptions other;
  other.listen = fmt::format("127.0.0.1:{}", host_->console()->port());
  other.gateway = rpc::Channel::InProcess(host_->server());
  EXPECT_TRUE(absl::IsUnavailable(Console::Start(other).status()));
  other.any_port = true;
  const auto console = Console::Start(other);
  ASSERT_TRUE(console.ok()) << console.status();
  EXPECT_NE((*console)->port(), host_->console()->port());
}

TEST_F(ConsoleTest, LinksAreForCallersThatTheGatewayTakes) {
  DemandTokens();
  ASSERT_NO_FATAL_FAILURE(Start());
  const json model = {{"hash", Sha256Hex(std::string("model"))}, {"size", 5}};
  EXPECT_EQ(Post("/api/links", model).status, 401);
  EXPECT_EQ(Post("/api/links", model, "wrong").status, 401);
  const http::Response made = Post("/api/links", model, kViewer);
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(Get(json::parse(made.body).at("url")).body, "model");
  json other = model;
  other["tenant"] = "../red";
  EXPECT_EQ(Post("/api/links", other, kViewer).status, 400);
}

TEST_F(ConsoleTest, TheAuditNamesBrowsersWhetherTheGatewayOrTheConsoleRefusesThem) {
  const std::filesystem::path file = folder_.path() / "audit";
  options_.config.mutable_server()->set_audit_file(file.string());
  ASSERT_NO_FATAL_FAILURE(Start());
  const json named = {{"name", "workflows/nothing"}};
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named, "wrong").status, 401);
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named, "", "text/plain").status, 415);
  EXPECT_EQ(Post("/api/Workflows/CancelWorkflow", named, word_).status, 404);
  EXPECT_EQ(Post("/api/Workflows/ListWorkflows", named, "wrong").status, 401);
  std::ifstream in(file);
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 3);
  for (const json& line : lines) {
    EXPECT_EQ(line.at("call"), "quench.gateway.v1.Workflows/CancelWorkflow");
  }
  EXPECT_EQ(lines.at(0).at("code"), "UNAUTHENTICATED");
  EXPECT_THAT(lines.at(0).at("peer"), HasSubstr("ipv4:127.0.0.1:"));
  EXPECT_EQ(lines.at(1).at("code"), "INVALID_ARGUMENT");
  EXPECT_EQ(lines.at(2).at("code"), "NOT_FOUND");
  EXPECT_THAT(lines.at(2).at("request"), HasSubstr("console/ipv4:127.0.0.1:"));
}

TEST_F(ConsoleTest, TheAddressIsLoggedAtAnyLevel) {
  quench::testing::CapturedLog log;
  spdlog::default_logger()->set_level(spdlog::level::err);
  ASSERT_NO_FATAL_FAILURE(Start());
  host_.reset();
  EXPECT_THAT(log.Take(), HasSubstr("/#token=" + word_));
}

TEST_F(ConsoleTest, OperatorsAloneSeeWhyAServiceDoesNotAnswer) {
  DemandTokens();
  rpc::ChannelOptions nowhere;
  nowhere.address = "unix:" + (folder_.path() / "nowhere").string();
  options_.channels.codegen = *rpc::Channel::Open(nowhere);
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto problem = [this](const char* token) {
    std::string seen;
    EXPECT_TRUE(WaitFor([&] {
      const json overview =
          json::parse(Post("/api/Overview/GetOverview", json::object(), token).body);
      for (const json& service : overview.value("services", json::array())) {
        if (service.at("name") == "codegen") seen = service.value("problem", "");
      }
      return !seen.empty();
    }));
    return seen;
  };
  EXPECT_EQ(problem(kViewer), "does not answer");
  EXPECT_NE(problem(kOperator), "does not answer");
}

TEST(ConsoleApiTest, ADamagedDetailDoesNotHideTheResponse) {
  v1::Workflow workflow;
  workflow.set_title("chain");
  workflow.mutable_error()->set_message("broken");
  workflow.mutable_error()->add_details()->set_type_url("type.googleapis.com/nobody.knows.This");
  v1::ListWorkflowsResponse list;
  *list.add_workflows() = workflow;
  const absl::StatusOr<std::string> text = rpc::MessageJson(list);
  ASSERT_TRUE(text.ok()) << text.status();
  const json read = json::parse(*text).at("workflows").at(0);
  EXPECT_EQ(read.at("title"), "chain");
  EXPECT_EQ(read.at("error").at("message"), "broken");
  google::rpc::Status late;
  late.set_message("later");
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(1'000'000'000'000'000'000);
  late.add_details()->PackFrom(retry);
  EXPECT_EQ(json::parse(*rpc::MessageJson(late)).at("message"), "later");
}

TEST(LinksTest, AnAddressIsForAWhileAndItsCallersOldestGoesFirst) {
  Links links;
  const auto now = Links::Clock::now();
  const std::string first = *links.Add({.authorization = "one", .name = "first"}, now);
  EXPECT_EQ(links.Find(first, now)->name, "first");
  EXPECT_FALSE(links.Find(first, now + Links::kLife).has_value());
  const std::string second = *links.Add({.authorization = "one", .name = "second"}, now);
  const std::string others = *links.Add({.authorization = "two"}, now);
  for (size_t i = 0; i < Links::kMostOfCaller; ++i) {
    EXPECT_TRUE(links.Add({.authorization = "one"}, now).ok());
  }
  EXPECT_FALSE(links.Find(second, now).has_value());
  EXPECT_TRUE(links.Find(others, now).has_value());
}

TEST(LinksTest, AFullTableRefusesUntilAnAddressEnds) {
  Links links;
  const auto now = Links::Clock::now();
  const std::string first = *links.Add({.authorization = "first"}, now);
  for (size_t i = 1; i < Links::kMost; ++i) {
    EXPECT_TRUE(links.Add({.authorization = fmt::format("{}", i)}, now).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(links.Add({}, now).status()));
  EXPECT_TRUE(links.Find(first, now).has_value());
  EXPECT_TRUE(links.Add({}, now + Links::kLife).ok());
}

TEST(LinksTest, FileNamesAreHarmless) {
  EXPECT_EQ(FileNameOf("resnet/x86/lib.so"), "lib.so");
  EXPECT_EQ(FileNameOf("..\"\n"), "file..__");
  EXPECT_EQ(FileNameOf("a/"), "file");
}

}  // namespace
}  // namespace quench::gateway::console_test
