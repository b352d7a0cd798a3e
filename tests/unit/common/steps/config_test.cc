#include "common/steps/config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/steps/host.h"
#include "common/steps/limits.h"
#include "quench/config/v1/config.pb.h"
#include "tests/support/matchers.h"

namespace quench::steps::config_test {
namespace {

using testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  absl::StatusOr<ServiceConfig> Read(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
    return ReadServiceConfig(folder_.path() / name);
  }
  TempDir folder_ = *TempDir::Create();
};

TEST_F(ConfigTest, ReadsProtobufTextAndJson) {
  const auto text = Read("c.txtpb",
                         "server { listen: \"127.0.0.1:1\" grace { seconds: 5 } }\n"
                         "steps { slots: 3 isolation: ISOLATION_NONE }");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->server.listen(), "127.0.0.1:1");
  EXPECT_EQ(*SlotsOf(text->steps), 3);
  EXPECT_TRUE(RunnerOptionsOf(text->steps)->in_process);
  const auto json = Read("c.json", R"({"server": {"listen": "127.0.0.1:1", "grace": "5s"}})");
  ASSERT_TRUE(json.ok()) << json.status();
  const auto server = ServerOptionsOf(json->server, "127.0.0.1:7");
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server->listen, "127.0.0.1:1");
  EXPECT_EQ(server->grace, std::chrono::seconds(5));
}

TEST_F(ConfigTest, AbsentFieldsTakeTheStatedDefaults) {
  const auto server = ServerOptionsOf({}, "127.0.0.1:7");
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server->listen, "127.0.0.1:7");
  EXPECT_EQ(server->grace, std::chrono::seconds(30));
  EXPECT_EQ(server->drain_delay, std::chrono::seconds(0));
  EXPECT_EQ(server->max_message_bytes, 8 << 20);
  EXPECT_EQ(server->max_calls, 1000);
  EXPECT_EQ(server->max_connection_idle, std::chrono::hours(2));
  EXPECT_EQ(server->stream_idle, std::chrono::minutes(5));
  EXPECT_TRUE(server->reflection);
  EXPECT_GE(*SlotsOf({}), 1);
  const auto runner = RunnerOptionsOf({});
  ASSERT_TRUE(runner.ok());
  EXPECT_FALSE(runner->in_process);
  EXPECT_GE(runner->limits.memory_bytes, int64_t{4} << 30);
  EXPECT_GE(runner->limits.cpu_seconds, 4 * 3600);
  EXPECT_GE(runner->limits.disk_bytes, int64_t{1} << 30);
  EXPECT_EQ(runner->limits.open_files, 4096);
  EXPECT_GE(runner->limits.processes, 1024 + 16);
  EXPECT_EQ(runner->max_wall_time, std::chrono::hours(24));
  EXPECT_EQ(runner->max_stall_time, std::chrono::minutes(5));
}

TEST_F(ConfigTest, SlotsShareTheMemoryUnlessToldOtherwise) {
  constexpr int64_t kGib = int64_t{1} << 30;
  EXPECT_EQ(MemoryOfEachSlot(64 * kGib, 1), 64 * kGib);
  EXPECT_EQ(MemoryOfEachSlot(64 * kGib, 4), 16 * kGib);
  EXPECT_EQ(MemoryOfEachSlot(8 * kGib, 4), 4 * kGib) << "a process maps more than it holds";
  config::v1::Steps steps;
  steps.set_slots(1);
  const int64_t whole = RunnerOptionsOf(steps)->limits.memory_bytes;
  steps.set_slots(3);
  EXPECT_EQ(RunnerOptionsOf(steps)->limits.memory_bytes, std::max(4 * kGib, whole / 3));
  EXPECT_GE(RunnerOptionsOf(steps)->limits.most_memory_bytes, MemoryForSteps(whole));
  steps.set_memory_bytes(60 * kGib);
  EXPECT_EQ(RunnerOptionsOf(steps)->limits.memory_bytes, 20 * kGib);
  EXPECT_EQ(RunnerOptionsOf(steps)->limits.most_memory_bytes, 60 * kGib);
  steps.set_max_memory_bytes(7 * kGib);
  EXPECT_EQ(RunnerOptionsOf(steps)->limits.memory_bytes, 7 * kGib);
  EXPECT_EQ(RunnerOptionsOf(steps)->limits.most_memory_bytes, 7 * kGib) << "a hard limit";
}

TEST_F(ConfigTest, StepsShareWhatTheSystemLeaves) {
  constexpr int64_t kMib = int64_t{1} << 20, kGib = int64_t{1} << 30;
  EXPECT_EQ(MemoryForSteps(100 * kGib), 90 * kGib);
  EXPECT_EQ(MemoryForSteps(2 * kGib), 1536 * kMib);
  EXPECT_EQ(MemoryForSteps(256 * kMib), 128 * kMib);
  metrics::Registry registry;
  config::v1::Steps steps;
  EXPECT_EQ((*OpenMemory(steps, "", &registry))->bytes(), MemoryForSteps(MemoryOfThisMachine()));
  steps.set_memory_bytes(3 * kGib);
  EXPECT_EQ((*OpenMemory(steps, "", &registry))->bytes(), 3 * kGib);
  steps.set_memory_bytes(kMib);
  EXPECT_THAT(MessageOf(OpenMemory(steps, "", &registry).status()),
              HasSubstr("steps.memory_bytes: 1048576, must be"));
  steps.set_isolation(config::v1::ISOLATION_NONE);
  EXPECT_EQ(*OpenMemory(steps, "", &registry), nullptr) << "nobody can tell what a thread takes";
}

TEST_F(ConfigTest, ReflectionIsForThisMachineUnlessToldOtherwise) {
  config::v1::Server server;
  server.set_listen("unix:/tmp/socket");
  EXPECT_TRUE(ServerOptionsOf(server, "")->reflection);
  server.set_listen("10.0.0.1:7450");
  EXPECT_FALSE(ServerOptionsOf(server, "")->reflection);
  server.set_reflection(true);
  EXPECT_TRUE(ServerOptionsOf(server, "")->reflection);
  server.set_listen("127.0.0.1:7450");
  server.set_reflection(false);
  EXPECT_FALSE(ServerOptionsOf(server, "")->reflection);
}

TEST_F(ConfigTest, ConnectionsAreAsOldAsOneSays) {
  config::v1::Server server;
  EXPECT_EQ(ServerOptionsOf(server, "x:1")->max_connection_age, std::chrono::seconds(60));
  server.mutable_limits()->mutable_max_connection_age()->set_seconds(7);
  EXPECT_EQ(ServerOptionsOf(server, "x:1")->max_connection_age, std::chrono::seconds(7));
}

TEST_F(ConfigTest, CertificatesAndTenantsAreChecked) {
  EXPECT_EQ(*CallersOf({}), nullptr) << "anybody may call";
  const auto read = Read("c.txtpb",
                         "server { certificate_tenants { name: \"a\" tenant: \"Red\" }\n"
                         "certificate_tenants { name: \"b\" tenant: \"blue\" }\n"
                         "certificate_tenants { name: \"b\" tenant: \"red\" } }");
  ASSERT_TRUE(read.ok()) << read.status();
  const std::string wrong = MessageOf(CallersOf(read->server).status());
  EXPECT_THAT(wrong, HasSubstr("`Red` for `a`"));
  EXPECT_THAT(wrong, HasSubstr("`b` is there twice"));
  EXPECT_THAT(wrong, HasSubstr("needs `tls.ca_file`"));
  config::v1::Server role;
  role.mutable_tls()->set_ca_file("ca");
  auto* certificate = role.add_certificate_tenants();
  certificate->set_name("a");
  certificate->set_tenant("red");
  certificate->set_role(config::v1::ROLE_VIEWER);
  EXPECT_EQ(*(*CallersOf(role))->CallerOf("", {"a"}), (rpc::Caller{"red", CallerRole::kViewer}));
  certificate->set_role(static_cast<config::v1::Role>(9));
  EXPECT_THAT(MessageOf(CallersOf(role).status()), HasSubstr("`a`: 9 is not a role"));
  config::v1::Server optional;
  optional.set_tokens_optional(true);
  EXPECT_THAT(MessageOf(CallersOf(optional).status()), HasSubstr("needs a `token_file`"));
}

TEST_F(ConfigTest, TheIssuerOfTokensIsChecked) {
  const auto server = [this](const std::string& jwt) {
    const auto read = Read("c.txtpb", "server { jwt { " + jwt + " } }");
    EXPECT_TRUE(read.ok()) << read.status();
    return MessageOf(CallersOf(read->server).status());
  };
  const std::string nothing = server("");
  for (const char* missing : {"server.jwt: issuer: missing", "server.jwt: audience: missing",
                              "must have `jwks_file` or `jwks_url`"}) {
    EXPECT_THAT(nothing, HasSubstr(missing));
  }
  const std::string good = "issuer: 'https://i' audience: 'a' ";
  EXPECT_THAT(server(good + "jwks_url: 'http://elsewhere.example/keys'"),
              HasSubstr("server.jwt: jwks_url: `http://elsewhere.example/keys`: must be https://"));
  EXPECT_THAT(server(good + "jwks_file: '/nowhere/keys'"), HasSubstr("/nowhere/keys"));
  const std::string url = good + "jwks_url: 'http://127.0.0.1:1/keys' ";
  EXPECT_EQ(server(url), "") << "an issuer that is not there yet";
  EXPECT_THAT(server(url + "max_key_age { seconds: 90000 }"),
              HasSubstr("max_key_age: must be from a second to a day"));
  EXPECT_THAT(server(url + "rules { claim: 'sub' value: '*' tenant: 'Red' }"),
              HasSubstr("rules: `sub` `*` for `Red`"));
  EXPECT_THAT(server(url + "rules { claim: 'sub' tenant: 'red' }"), HasSubstr("rules: `sub` ``"));
  EXPECT_EQ(server(url + "rules { claim: 'sub' value: '*' tenant: 'red' role: ROLE_VIEWER }"), "");
}

TEST_F(ConfigTest, MistakesSayWhere) {
  const absl::Status unknown = Read("c.txtpb", "server {\n  lisen: \"x\"\n}").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(unknown), HasSubstr("c.txtpb:2:"));
  EXPECT_THAT(MessageOf(unknown), HasSubstr("lisen"));
  EXPECT_THAT(MessageOf(Read("c.json", R"({"sever": {}})").status()), HasSubstr("sever"));
  EXPECT_THAT(MessageOf(Read("c.yaml", "").status()), HasSubstr(".txtpb"));
  EXPECT_EQ(ReadServiceConfig(folder_.path() / "none.txtpb").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ConfigTest, ATracerNeedsItsCollector) {
  metrics::Registry registry;
  config::v1::Server server;
  EXPECT_EQ(*TracerOf(server, "importer", &registry), nullptr);
  server.mutable_tracing();
  EXPECT_THAT(MessageOf(TracerOf(server, "importer", &registry).status()),
              HasSubstr("server.tracing.collector: address: missing"));
  server.mutable_tracing()->mutable_collector()->set_address("127.0.0.1:4317");
  server.mutable_tracing()->set_sample_ratio(-1);
  EXPECT_THAT(MessageOf(TracerOf(server, "importer", &registry).status()),
              HasSubstr("sample_ratio"));
  server.mutable_tracing()->set_sample_ratio(0);
  EXPECT_NE(*TracerOf(server, "importer", &registry), nullptr);
}

TEST_F(ConfigTest, EveryFieldOutOfRangeIsNamed) {
  config::v1::Server server;
  server.mutable_limits()->set_max_calls(-1);
  server.mutable_grace()->set_seconds(-5);
  server.mutable_limits()->mutable_max_connection_age()->set_seconds(-1);
  const std::string message = MessageOf(ServerOptionsOf(server, "x:1").status());
  EXPECT_THAT(message, HasSubstr("server.limits.max_calls: -1"));
  EXPECT_THAT(message, HasSubstr("server.grace"));
  EXPECT_THAT(message, HasSubstr("server.limits.max_connection_age"));
  config::v1::Steps steps;
  steps.set_max_memory_bytes(5);
  steps.set_max_threads(5000);
  steps.set_max_disk_bytes(5);
  steps.set_max_open_files(5);
  steps.set_max_processes(5);
  const std::string limits = MessageOf(RunnerOptionsOf(steps).status());
  EXPECT_THAT(limits, HasSubstr("steps.max_memory_bytes: 5"));
  EXPECT_THAT(limits, HasSubstr("steps.max_threads: 5000"));
  EXPECT_THAT(limits, HasSubstr("steps.max_disk_bytes: 5"));
  EXPECT_THAT(limits, HasSubstr("steps.max_open_files: 5"));
  EXPECT_THAT(limits, HasSubstr("steps.max_processes: 5"));
  steps = {};
  steps.set_isolation(config::v1::ISOLATION_NONE);
  steps.set_max_memory_bytes(int64_t{1} << 30);
  EXPECT_THAT(MessageOf(RunnerOptionsOf(steps).status()), HasSubstr("isolation PROCESS"));
  EXPECT_THAT(MessageOf(ChannelOptionsOf({}).status()), HasSubstr("address"));
}

}  // namespace
}  // namespace quench::steps::config_test
