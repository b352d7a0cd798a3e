// `quench serve` and the commands that use it, as users run them.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <thread>

#include "common/blobs/digest.h"
#include "tests/e2e/gateway_fixture.h"
#include "tests/support/certificates.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"
#include "tests/support/wait.h"

namespace quench::testing::gateway_test {
namespace {

TEST_F(GatewayTest, WorkflowsAreListedShownWatchedAndForgotten) {
  const Outcome put = Run({"blobs", "put", DigitsModel(), "--format", "json"});
  ASSERT_EQ(put.exit_code, 0) << put.err;
  const nlohmann::json blob = nlohmann::json::parse(put.out).at(0);
  const std::string digest = fmt::format("{}/{}", blob.at("hash").get<std::string>(),
                                         blob.at("size_bytes").get<int64_t>());
  ASSERT_EQ(Run({"blobs", "get", digest, "--output", "copy.onnx"}).exit_code, 0);
  EXPECT_TRUE(*ReadFile(work_.path("copy.onnx")) == *ReadFile(DigitsModel()));

  work_.Write("spec.txtpb", fmt::format(R"(
      title: "two targets"
      compile {{
        models {{ name: "digits" model {{ file {{ hash: "{}" size_bytes: {} }} name: "digits.onnx" }} }}
        choices {{ name: "plain" }}
        targets {{ name: "x86-64-v2" }}
        targets {{ name: "aarch64" }}
      }})",
                                        blob.at("hash").get<std::string>(),
                                        blob.at("size_bytes").get<int64_t>()));
  const Outcome created =
      Run({"workflow", "create", "spec.txtpb", "--request-id", "nightly-1", "--watch"});
  ASSERT_EQ(created.exit_code, 0) << created.err;
  EXPECT_THAT(created.out, HasSubstr("digits/plain/aarch64/compile"));
  // The same id again is the same workflow.
  const Outcome same = Run({"workflow", "create", "spec.txtpb", "--request-id", "nightly-1"});
  ASSERT_EQ(same.exit_code, 0) << same.err;
  const nlohmann::json workflows = List();
  ASSERT_EQ(workflows.size(), 1u);
  const std::string name = workflows[0].at("name");
  EXPECT_EQ(name + "\n", same.out);
  EXPECT_EQ(workflows[0].at("state"), "STATE_SUCCEEDED");
  const Outcome shown = Run({"workflow", "get", name});
  EXPECT_THAT(shown.out, HasSubstr("library"));
  EXPECT_EQ(Run({"workflow", "watch", name}).exit_code, 0);
  EXPECT_EQ(Run({"workflow", "delete", name}).exit_code, 0);
  EXPECT_EQ(Run({"workflow", "get", name}).exit_code, 1);
  EXPECT_TRUE(List().empty());
}

// Every part of quantization is a step, and steps take what others give.
TEST_F(GatewayTest, AWorkflowQuantizesAndComparesWithTheFloatModel) {
  const auto put = [&](const std::string& path) {
    const Outcome outcome = Run({"blobs", "put", path, "--format", "json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const nlohmann::json blob = nlohmann::json::parse(outcome.out).at(0);
    return fmt::format("hash: \"{}\" size_bytes: {}", blob.at("hash").get<std::string>(),
                       blob.at("size_bytes").get<int64_t>());
  };
  const std::string model = put(DigitsModel());
  const Outcome uploaded =
      Run({"blobs", "put-samples", QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy", "--format",
           "json"});
  ASSERT_EQ(uploaded.exit_code, 0) << uploaded.err;
  const nlohmann::json manifest = nlohmann::json::parse(uploaded.out);
  EXPECT_EQ(manifest.at("files"), 1);
  const std::string samples =
      fmt::format("hash: \"{}\" size_bytes: {}", manifest.at("hash").get<std::string>(),
                  manifest.at("size_bytes").get<int64_t>());
  const auto compile = [](const std::string& name, const std::string& from) {
    return fmt::format(
        "steps {{ name: \"{}\" compile {{ target {{ name: \"x86-64-v2\" }} options {{ taps: true "
        "opt_level: 2 }} }} bindings {{ input: PORT_MODULE step: \"{}\" output: PORT_MODULE }} "
        "}}\n",
        name, from);
  };
  work_.Write(
      "spec.txtpb",
      "steps {\n" +
          fmt::format(
              "steps {{ name: \"import\" import_model {{ model {{ file {{ {} }} name: "
              "\"digits.onnx\" "
              "}} }} }}\n"
              "steps {{ name: \"transform\" transform {{ options {{ batch: 1 }} }}\n"
              "  bindings {{ input: PORT_MODULE step: \"import\" output: PORT_CANONICAL }} }}\n"
              "steps {{ name: \"equalize\" equalize {{}}\n"
              "  bindings {{ input: PORT_MODULE step: \"transform\" output: PORT_MODULE }} }}\n"
              "steps {{ name: \"outliers\" split_outliers {{ share: 0.1 }}\n"
              "  bindings {{ input: PORT_MODULE step: \"equalize\" output: PORT_MODULE }} }}\n"
              "steps {{ name: \"split\" split_tensors {{ least_gain: 0.01 }}\n"
              "  bindings {{ input: PORT_MODULE step: \"outliers\" output: PORT_MODULE }} }}\n"
              "steps {{ name: \"calibrate\" calibrate {{ samples {{ manifest {{ {} "
              "}} }} "
              "}}\n"
              "  bindings {{ input: PORT_MODULE step: \"split\" output: PORT_MODULE }}\n"
              "  bindings {{ input: PORT_TAP_LIBRARY step: \"taps\" output: PORT_LIBRARY }} }}\n"
              "steps {{ name: \"switched\" quantize {{ options {{ per_channel: true switches: true "
              "}} }}\n"
              "  bindings {{ input: PORT_MODULE step: \"split\" output: PORT_MODULE }}\n"
              "  bindings {{ input: PORT_STATISTICS step: \"calibrate\" output: PORT_STATISTICS }} "
              "}}\n"
              "steps {{ name: \"select\" select {{ budget {{ max_drop: 0.2 min_sqnr_db: 25 }}\n"
              "    samples {{ manifest {{ {} }} }} }}\n"
              "  bindings {{ input: PORT_MODULE step: \"switched\" output: PORT_MODULE }}\n"
              "  bindings {{ input: PORT_LIBRARY step: \"trials\" output: PORT_LIBRARY }} }}\n"
              "steps {{ name: \"quantize\" quantize {{ options {{ per_channel: true method: "
              "\"mse\" }} "
              "}}\n"
              "  bindings {{ input: PORT_MODULE step: \"split\" output: PORT_MODULE }}\n"
              "  bindings {{ input: PORT_SELECTION step: \"select\" output: PORT_SELECTION }}\n"
              "  bindings {{ input: PORT_STATISTICS step: \"calibrate\" output: PORT_STATISTICS }} "
              "}}\n"
              "steps {{ name: \"compare\" compare {{ layers: true\n"
              "    samples {{ manifest {{ {} }} }} }}\n"
              "  bindings {{ input: PORT_REFERENCE_LIBRARY step: \"float\" output: PORT_LIBRARY "
              "}}\n"
              "  bindings {{ input: PORT_LIBRARY step: \"int8\" output: PORT_LIBRARY }} }}\n",
              model, samples, samples, samples) +
          compile("taps", "split") + compile("trials", "switched") + compile("float", "transform") +
          compile("int8", "quantize") + "}");
  const Outcome created = Run({"workflow", "create", "spec.txtpb", "--watch"});
  ASSERT_EQ(created.exit_code, 0) << created.err;
  const Outcome shown = Run({"workflow", "get", List()[0].at("name"), "--format", "json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  std::string report;
  const nlohmann::json workflow = nlohmann::json::parse(shown.out);
  for (const nlohmann::json& step : workflow.at("steps")) {
    if (step.at("name") != "compare") continue;
    for (const nlohmann::json& output : step.at("outputs")) {
      if (output.at("name") != "report_json") continue;
      const nlohmann::json& digest = output.at("digest");
      const nlohmann::json size =
          digest.contains("size_bytes") ? digest.at("size_bytes") : digest.at("sizeBytes");
      report = digest.at("hash").get<std::string>() + "/" +
               (size.is_string() ? size.get<std::string>() : size.dump());
    }
  }
  ASSERT_NE(report, "") << shown.out;
  ASSERT_EQ(Run({"blobs", "get", report, "--output", "report.json"}).exit_code, 0);
  const nlohmann::json compared = nlohmann::json::parse(*ReadFile(work_.path("report.json")));
  EXPECT_EQ(compared.at("samples"), 8);
  EXPECT_EQ(compared.at("accuracy").at("agreement"), 1);
}

TEST_F(GatewayTest, CtrlCCancelsTheWorkflow) {
  server_.reset();
  // The step takes as long as the test needs.
  ServeUnlucky({"UNLUCKY_HANG=digits.onnx"});
  const Outcome cancelled =
      Run({"compile", DigitsModel(), "--output", "out", "--progress", "json"}, "at the gateway");
  EXPECT_EQ(cancelled.exit_code, 130) << cancelled.err;
  EXPECT_FALSE(std::filesystem::exists(work_.path("out")));
  EXPECT_TRUE(WaitFor([&] {
    const nlohmann::json workflows = List();
    return workflows.size() == 1 && workflows[0].at("state") == "STATE_CANCELLED";
  }));
}

TEST_F(GatewayTest, AKilledGatewayGoesOnWhereItWas) {
  ASSERT_EQ(Run({"compile", DigitsModel(), "--output", "before"}).exit_code, 0);
  server_->Signal(SIGKILL);
  EXPECT_EQ(server_->Wait(), 128 + SIGKILL);
  Serve();
  EXPECT_EQ(List().size(), 1u);
  const Outcome after = Run({"compile", DigitsModel(), "--output", "after"});
  ASSERT_EQ(after.exit_code, 0) << after.err;
  EXPECT_THAT(after.err, HasSubstr("cached"));
}

TEST_F(GatewayTest, ACrashFailsItsWorkflowAfterTwoAttemptsAndNothingElse) {
  server_.reset();
  std::filesystem::copy_file(DigitsModel(), work_.path("unlucky.onnx"));
  ServeUnlucky({"UNLUCKY_CRASH=unlucky.onnx"});
  const Outcome crashed = Run({"compile", "unlucky.onnx", "--output", "out"});
  EXPECT_EQ(crashed.exit_code, 1) << crashed.err;
  EXPECT_THAT(crashed.err, HasSubstr("crashed"));
  EXPECT_EQ(Run({"compile", DigitsModel(), "--output", "other"}).exit_code, 0);
  const Outcome shown = Run({"workflow", "list", "--state", "failed", "--format", "json"});
  ASSERT_EQ(nlohmann::json::parse(shown.out).at("workflows").size(), 1u);
}

// A file's digest is remembered by what identifies the file; what is wrong is found out, not stored.
TEST_F(GatewayTest, AFileIsReadOnceUnlessWhatIsRememberedIsWrong) {
  work_.Write("weights", std::string(3'000'000, 'w'));
  const std::string digest = Sha256Hex(std::string(3'000'000, 'w'));
  const std::filesystem::path kept = work_.path(".cache/quench/file_digests");
  ASSERT_EQ(Run({"blobs", "put", "weights"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(kept));  // it had only just been written
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  ASSERT_EQ(Run({"blobs", "put", "weights"}).exit_code, 0);
  const std::string text = *ReadFile(kept);
  ASSERT_EQ(text.substr(0, 65), digest + " ");
  ASSERT_TRUE(WriteFileAtomically(kept, Sha256Hex(std::string("others")) + text.substr(64)).ok());
  const Outcome put = Run({"blobs", "put", "weights"});
  EXPECT_EQ(put.exit_code, 0) << put.err;
  EXPECT_THAT(put.out, HasSubstr(digest));
  EXPECT_EQ(*ReadFile(kept), text);
  // The result of a download is a file of its own, that its user may change.
  const Outcome got = Run({"blobs", "get", digest + "/3000000", "--output", "back"});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  const Outcome metrics = work_.RunProgram(
      "python3", {"-c",
                  "import sys, urllib.request as r\n"
                  "for line in r.urlopen(sys.argv[1]).read().decode().splitlines():\n"
                  "  if 'started_total{grpc_method=\"LocateBlob' in line: print(line[-3:])\n"
                  "  if 'quench_cas_bytes_total{op=\"read' in line: print(line[-3:])\n",
                  "http://127.0.0.1:" + server_->FromLog("metrics on port ") + "/metrics"});
  EXPECT_EQ(metrics.out, "} 1\n} 0\n");
  work_.Write("back", "changed");
  EXPECT_EQ(Run({"blobs", "get", digest + "/3000000", "--output", "again"}).exit_code, 0);
  EXPECT_TRUE(*ReadFile(work_.path("again")) == std::string(3'000'000, 'w'));
}

// Bytes that the processes of steps write count as uploads of clients do.
TEST_F(GatewayTest, AStepIsRefusedWhatIsAboveTheLimitOfBlobs) {
  server_.reset();
  std::filesystem::remove_all(work_.path("state"));
  work_.Write(
      "serve.txtpb",
      "gateway { patience { seconds: 1 } blob_limits { low_bytes: 100000 high_bytes: 110000 "
      "max_bytes: 125000 } }");  // the model takes half of it
  Serve({QUENCH_BINARY, "serve", "--config", work_.path("serve.txtpb").string()}, {});
  const Outcome outcome = Run({"compile", DigitsModel(), "--output", "out"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("the blob store is full: "));
  uint64_t bytes = 0;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(work_.path("state/store/blobs"))) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  EXPECT_LE(bytes, 125'000u);
  // With room for it, the same succeeds.
  server_.reset();
  Serve();
  EXPECT_EQ(Run({"compile", DigitsModel(), "--output", "out"}).exit_code, 0) << server_->Log();
}

TEST_F(GatewayTest, OneGatewayAtATimeHasAStateDir) {
  const Outcome second = work_.RunProgram(
      QUENCH_BINARY,
      {"serve", "--listen", "127.0.0.1:0", "--state-dir", work_.path("state").string()});
  EXPECT_EQ(second.exit_code, 3) << second.err;
}

// Without a word about where, it is reached by this user only, and by `local`.
TEST(UsersServerTest, ListensOnASocketThatNobodyElseReaches) {
  const Workspace work;
  const std::string run = work.path("run").string();
  std::filesystem::create_directory(run);
  const auto here = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"XDG_RUNTIME_DIR=" + run, QUENCH_BINARY});
    return work.RunProgram("env", words);
  };
  EXPECT_EQ(here({"serve", "--health"}).exit_code, 1) << "nobody serves yet";
  Background server(
      {QUENCH_BINARY, "serve", "--log-level", "debug", "--state-dir", work.path("state").string()},
      work.path("log"), {"XDG_RUNTIME_DIR=" + run});
  ASSERT_TRUE(server.WaitForLog("`--gateway local`")) << server.Log();
  struct stat status{};
  ASSERT_EQ(::stat((run + "/quench").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(server.FromLog("gateway serves on "), "unix:" + run + "/quench/gateway.sock");
  EXPECT_EQ(here({"serve", "--health"}).exit_code, 0);
  const Outcome compiled =
      here({"compile", DigitsModel(), "--gateway", "local", "--output", "out"});
  EXPECT_EQ(compiled.exit_code, 0) << compiled.err;
  // Changes are written down, and at this level also calls that only looked.
  EXPECT_THAT(server.Log(), HasSubstr("audit {\"time\""));
  EXPECT_THAT(server.Log(), HasSubstr("\"call\":\"quench.gateway.v1.Workflows/CreateWorkflow\""));
  EXPECT_THAT(server.Log(), HasSubstr("\"resource\":\"workflows/"));
  EXPECT_THAT(server.Log(), HasSubstr("[debug] call=quench.gateway.v1.Workflows/WatchWorkflow"));
  // A second one says how to have both.
  const Outcome second = here({"serve", "--state-dir", work.path("other").string()});
  EXPECT_EQ(second.exit_code, 3);
  EXPECT_THAT(second.err, HasSubstr("another server does"));
  // A folder that lets others in is refused.
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  std::filesystem::permissions(run + "/quench", std::filesystem::perms(0755));
  const Outcome open = here({"serve", "--state-dir", work.path("state").string()});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.err, HasSubstr("must be a folder of this user with mode 0700"));
}

TEST_F(GatewayTest, ItsHealthCanBeAsked) {
  EXPECT_EQ(work_.RunProgram(QUENCH_BINARY, {"serve", "--health", "--listen", address_}).exit_code,
            0);
  work_.Write("serve.txtpb", fmt::format("gateway {{ server {{ listen: \"{}\" }} }}", address_));
  EXPECT_EQ(
      work_.RunProgram(QUENCH_BINARY, {"serve", "--health", "--config", "serve.txtpb"}).exit_code,
      0);
  server_.reset();
  const Outcome gone =
      work_.RunProgram(QUENCH_BINARY, {"serve", "--health", "--config", "serve.txtpb"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr("does not answer"));
}

// A blob that cannot fit is refused at once and by name; promised blobs stay, and reads are served.
TEST(SmallDiskTest, AFullDiskRefusesWritesOnly) {
  const Workspace work;
  const auto on_disk = [&](const std::string& script) {
    return SmallDiskCommand(work, "small", 3072, script);
  };
  const std::vector<std::string> mounts = on_disk("true");
  if (work.RunProgram(mounts.front(), {mounts.begin() + 1, mounts.end()}).exit_code != 0) {
    GTEST_SKIP() << "no right to mount a small file system";
  }
  Background server(
      on_disk(fmt::format(
          "head -c 1000000 /dev/zero > {0}/filler && exec {1} serve --listen 127.0.0.1:0 "
          "--state-dir {0}/state",
          work.path("small").string(), QUENCH_BINARY)),
      work.path("log"));
  ASSERT_TRUE(server.WaitForLog("blobs in ")) << server.Log();
  const std::string address = server.FromLog("gateway serves on ");
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--gateway", address});
    return work.Run(words);
  };
  ASSERT_EQ(run({"compile", DigitsModel(), "--output", "out"}).exit_code, 0) << server.Log();
  const Outcome listed = run({"workflow", "list", "--format", "json"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  const nlohmann::json workflows = nlohmann::json::parse(listed.out).at("workflows");
  ASSERT_EQ(workflows.size(), 1u);
  const Outcome shown =
      run({"workflow", "get", workflows[0].at("name").get<std::string>(), "--format", "json"});
  std::string library;
  const nlohmann::json workflow = nlohmann::json::parse(shown.out);
  for (const nlohmann::json& step : workflow.at("steps")) {
    for (const nlohmann::json& output : step.at("outputs")) {
      if (output.at("name") == "library") {
        library = fmt::format("{}/{}", output.at("digest").at("hash").get<std::string>(),
                              output.at("digest").at("size_bytes").get<std::string>());
      }
    }
  }
  ASSERT_NE(library, "") << shown.out;
  // Again and again: all that may go has gone then.
  std::mt19937 random(1);
  for (int i = 0; i < 3; ++i) {
    std::string contents(2'500'000, 0);
    for (char& c : contents) c = static_cast<char>(random());
    work.Write("file", contents);
    const Outcome put = run({"blobs", "put", "file"});
    EXPECT_EQ(put.exit_code, 1);
    EXPECT_THAT(put.err, HasSubstr("no space left on the disk of the blob store"));
  }
  std::filesystem::remove_all(work.path(".cache"));  // the client's own copies
  const Outcome got = run({"blobs", "get", library, "--output", "back"});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_TRUE(*ReadFile(work.path("back")) == *ReadFile(work.path("out/model.so")));
}

// A port that takes connections and stays silent.
TEST(SilentGatewayTest, IsGivenUp) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(listener, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const Workspace work;
  const std::string gateway = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  const Outcome outcome = work.Run({"workflow", "list", "--gateway", gateway});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("wait for gateway " + gateway));
  EXPECT_THAT(outcome.err, HasSubstr("gateway `" + gateway + "`: it is not responding"));
  ::close(listener);
}

// The quickstart builds `quench` alone.
TEST(QuenchAloneTest, SaysWhatIsMissingForAGateway) {
  const Workspace work;
  std::filesystem::copy_file(QUENCH_BINARY, work.path("quench"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"workflow", "list", "--gateway", "127.0.0.1:1"}, {"serve"}}) {
    const Outcome outcome = work.RunProgram("./quench", command);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("is not beside `quench`: build it with"));
  }
}

// TLS, tokens and tenants, from the flags of a user to the folder of a tenant.
TEST(SecureGatewayTest, TokensOverTlsSayWhoseWorkItIs) {
  const Workspace work;
  const Authority authority("test authority");
  work.Write("ca.pem", authority.certificate());
  WritePair(work.path("server"), authority.Issue("gateway"));
  work.Write("tokens",
             "red " + Sha256Hex("red-token") + "\nblue " + Sha256Hex("blue-token") + "\n");
  work.Write("red", "red-token");
  work.Write("blue", "blue-token");
  work.Write("nobody", "wrong-token");
  work.Write("serve.txtpb",
             fmt::format("gateway {{ state_dir: \"{0}/state\" server {{ listen: \"127.0.0.1:0\" "
                         "token_file: \"{0}/tokens\" tls {{ certificate_file: \"{0}/server.crt\" "
                         "key_file: \"{0}/server.key\" }} }} }}",
                         work.path("").string()));
  Background server({QUENCH_BINARY, "serve", "--config", work.path("serve.txtpb").string()},
                    work.path("log"));
  ASSERT_TRUE(server.WaitForLog("blobs in ")) << server.Log();
  const std::string address = server.FromLog("gateway serves on ");
  const auto run = [&](const std::string& token, std::vector<std::string> words) {
    words.insert(words.end(), {"--gateway", address, "--tls-ca", "ca.pem", "--token-file", token});
    return work.Run(words);
  };
  const Outcome compiled = run("red", {"compile", DigitsModel(), "--output", "out"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err << server.Log();
  EXPECT_THAT(run("red", {"workflow", "list"}).out, HasSubstr("succeeded"));
  EXPECT_THAT(run("blue", {"workflow", "list"}).out, Not(HasSubstr("succeeded")));
  EXPECT_TRUE(std::filesystem::exists(work.path("state/store/tenants/red/blobs")));
  // Nothing of one tenant's work is another's: blue's is done anew.
  const Outcome again = run("blue", {"compile", DigitsModel(), "--output", "blue-out"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("cached")));
  const Outcome refused = run("nobody", {"workflow", "list"});
  EXPECT_EQ(refused.exit_code, 4) << refused.err << server.Log();
  EXPECT_EQ(work.Run({"workflow", "list", "--gateway", address}).exit_code, 3);
  const Outcome plain =
      work.Run({"workflow", "list", "--gateway", "build-farm.example:7450", "--token-file", "red"});
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_THAT(plain.err, HasSubstr("needs TLS"));
}

}  // namespace
}  // namespace quench::testing::gateway_test
