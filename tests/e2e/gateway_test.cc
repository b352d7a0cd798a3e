// `quench serve` and the commands that use it, as users run them.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <thread>

#include "common/blobs/digest.h"
#include "tests/e2e/quench_process.h"
#include "tests/support/background.h"
#include "tests/support/certificates.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"
#include "tests/support/wait.h"

namespace quench::testing {
namespace {

class GatewayTest : public ::testing::Test {
 protected:
  GatewayTest() { Serve(); }

  void Serve() { Serve({QUENCH_BINARY, "serve"}, {}); }
  // A server whose steps fail as `variables` say: unlucky_serve.cc.
  void ServeUnlucky(const std::vector<std::string>& variables) {
    Serve({UNLUCKY_SERVE}, variables);
  }
  void Serve(std::vector<std::string> command, const std::vector<std::string>& variables) {
    command.insert(command.end(), {"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
                                   "--state-dir", work_.path("state").string()});
    server_ = std::make_unique<Background>(command, work_.path("log" + std::to_string(++servers_)),
                                           variables);
    ASSERT_TRUE(server_->WaitForLog("gateway serves on ")) << server_->Log();
    ASSERT_TRUE(server_->WaitForLog("blobs in ")) << server_->Log();
    address_ = server_->FromLog("gateway serves on ");
  }
  Outcome Run(std::vector<std::string> arguments, const std::string& interrupt_when = "") {
    arguments.insert(arguments.end(), {"--gateway", address_});
    return work_.Run(arguments, interrupt_when);
  }
  nlohmann::json List() {
    const Outcome listed = Run({"workflow", "list", "--format", "json"});
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    return nlohmann::json::parse(listed.out).value("workflows", nlohmann::json::array());
  }

  Workspace work_;
  int servers_ = 0;
  std::unique_ptr<Background> server_;
  std::string address_;
};

TEST_F(GatewayTest, CompilesTheBytesThatOneProcessCompiles) {
  const std::vector<std::string> command = {"compile", DigitsModel(), "--export-ir",
                                            "--export-metadata", "--output"};
  const auto to = [&](const std::string& folder) {
    std::vector<std::string> words = command;
    words.push_back(folder);
    return words;
  };
  ASSERT_EQ(work_.Run(to("here")).exit_code, 0);
  const Outcome there = Run(to("there"));
  ASSERT_EQ(there.exit_code, 0) << there.err << server_->Log();
  for (const char* name : {"model.so", "model.h", "metadata.json"}) {
    EXPECT_TRUE(*ReadFile(work_.path("here") / name) == *ReadFile(work_.path("there") / name))
        << name;
  }
  // What passes computed lies in blobs after a service has stored it; the tensors are the same.
  const std::regex place(R"re( at "[0-9a-f]+"\[[0-9, ]+\])re");
  const auto text = [&](const std::string& folder) {
    return std::regex_replace(*ReadFile(work_.path(folder) / "model.ir.txt"), place, "");
  };
  EXPECT_EQ(text("here"), text("there"));
  const Outcome again = Run(to("again"));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("cached"));
  EXPECT_TRUE(*ReadFile(work_.path("here") / "model.so") ==
              *ReadFile(work_.path("again") / "model.so"));
}

TEST_F(GatewayTest, OtherCompilationsAreTheSameToo) {
  const std::vector<std::vector<std::string>> choices = {
      {"--target", "aarch64", "--emit", "a"},
      {"--uuid", "123e4567-e89b-12d3-a456-426614174000"},
      {"--float16"},
      {"--opt-level", "1", "--batch", "2", "--no-fold-constants", "--channel-layout", "last"}};
  for (const std::vector<std::string>& choice : choices) {
    std::vector<std::string> command = {"compile", DigitsModel(), "--force", "--output", "here"};
    command.insert(command.end(), choice.begin(), choice.end());
    ASSERT_EQ(work_.Run(command).exit_code, 0);
    command[4] = "there";
    const Outcome there = Run(command);
    ASSERT_EQ(there.exit_code, 0) << there.err;
    for (const char* name : {"model.so", "model.a", "model.h"}) {
      const auto here = ReadFile(work_.path("here") / name);
      const auto copy = ReadFile(work_.path("there") / name);
      EXPECT_EQ(here.ok(), copy.ok()) << name;
      EXPECT_TRUE(!here.ok() || *here == *copy) << name << " " << choice[0];
    }
  }
}

// Quantized by the same statistics, by samples that go up, with adapted rounding, and within a budget.
TEST_F(GatewayTest, CompilesToIntegersAsOneProcessDoes) {
  const std::string samples = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy";
  ASSERT_EQ(work_
                .Run({"calibrate", DigitsModel(), "--batch", "1", "--split-tensors", "2", "--data",
                      samples, "-o", "s.stats"})
                .exit_code,
            0);
  const std::vector<std::vector<std::string>> choices = {
      {"--calibration", "s.stats", "--split-tensors", "2", "--per-channel"},
      {"--type", "dynamic"},
      {"--calibration-data", samples, "--rounding", "adaptive", "--equalize"},
      {"--calibration-data", samples, "--equalize", "--min-sqnr", "20", "--max-drop", "50%"}};
  for (const std::vector<std::string>& choice : choices) {
    std::vector<std::string> command = {"compile", DigitsModel(),       "--force",    "--output",
                                        "here",    "--batch",           "1",          "--quantize",
                                        "int8",    "--export-metadata", "--export-ir"};
    command.insert(command.end(), choice.begin(), choice.end());
    const Outcome here = work_.Run(command);
    ASSERT_EQ(here.exit_code, 0) << here.err;
    command[4] = "there";
    const Outcome there = Run(command);
    ASSERT_EQ(there.exit_code, 0) << there.err;
    const auto metadata = [&](const std::string& folder) {
      return nlohmann::json::parse(*ReadFile(work_.path(folder) / "metadata.json"));
    };
    for (const char* part : {"layers", "quantization"})
      EXPECT_EQ(metadata("here").at(part), metadata("there").at(part)) << choice[0];
    for (const char* part : {"selection", "rounding"}) {
      EXPECT_EQ(metadata("here").contains(part), metadata("there").contains(part)) << part;
    }
    EXPECT_TRUE(*ReadFile(work_.path("here/model.so")) == *ReadFile(work_.path("there/model.so")))
        << choice[0];
  }
}

// An f32 TensorProto, as ONNX's test data has them.
std::string TensorProtoBytes(const std::vector<int>& dims, const std::string& data) {
  std::string bytes;
  const auto varint = [&](size_t value) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
  };
  for (const int dim : dims) {
    bytes += '\x08';
    varint(static_cast<size_t>(dim));
  }
  bytes += "\x10\x01\x4a";
  varint(data.size());
  return bytes + data;
}

// Files that hold several, and folders with a file for each input.
TEST_F(GatewayTest, SamplesInOnnxFilesGoUp) {
  const std::string npy = *ReadFile(QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy");
  const std::string images = npy.substr(128);  // f32[8, 1, 8, 8]
  for (const char* folder : {"pb/one", "bad/inner"})
    std::filesystem::create_directories(work_.path(folder));
  work_.Write("pb/many.pb", TensorProtoBytes({8, 1, 8, 8}, images));
  work_.Write("pb/one/input_0.pb", TensorProtoBytes({1, 1, 8, 8}, images.substr(0, 256)));
  work_.Write("pb/one/output_0.pb", "what nobody reads");  // as in ONNX's test data
  const auto compile = [&](const std::string& samples, const std::string& folder) {
    return std::vector<std::string>{"compile",    DigitsModel(), "--batch", "1",
                                    "--quantize", "int8",        "--force", "--calibration-data",
                                    samples,      "--output",    folder};
  };
  for (const char* samples : {"pb", "pb/many.pb"}) {
    const Outcome here = work_.Run(compile(samples, "here"));
    ASSERT_EQ(here.exit_code, 0) << here.err;
    const Outcome there = Run(compile(samples, "there"));
    ASSERT_EQ(there.exit_code, 0) << there.err;
    EXPECT_TRUE(*ReadFile(work_.path("here/model.so")) == *ReadFile(work_.path("there/model.so")))
        << samples;
  }
  work_.Write("bad/good.pb", TensorProtoBytes({8, 1, 8, 8}, images));
  work_.Write("bad/cut.pb", TensorProtoBytes({8, 1, 8, 8}, images).substr(0, 300));
  work_.Write("bad/inner/input_0.pb", "no tensor");
  // NumPy has no bf16.
  std::string wide = TensorProtoBytes({1, 2}, "1234");
  wide[5] = 16;
  work_.Write("bad/wide.pb", wide);
  const Outcome bad = Run(compile("bad", "there"));
  EXPECT_EQ(bad.exit_code, 1);
  for (const char* part :
       {"sample `cut.pb`", "sample `inner/input_0.pb`", "sample `wide.pb`", "bf16"})
    EXPECT_THAT(bad.err, HasSubstr(part));
  EXPECT_THAT(bad.err, Not(HasSubstr("good.pb")));
  // What does not fit the model is told by its name too.
  work_.Write("other.pb", TensorProtoBytes({1, 64}, images.substr(0, 256)));
  EXPECT_THAT(Run(compile("other.pb", "there")).err, HasSubstr("other.pb.npy` is f32[1, 64]"));
}

TEST_F(GatewayTest, AnalysesAndVerifiesAsOneProcessDoes) {
  ASSERT_EQ(Run({"compile", DigitsModel(), "--output", "out"}).exit_code, 0);
  ASSERT_EQ(work_.Run({"import", DigitsModel(), "--output", "module.qir"}).exit_code, 0);
  for (const std::vector<std::string>& more : {std::vector<std::string>{DigitsModel()},
                                               {DigitsModel(), "--batch", "4"},
                                               {DigitsModel(), "--weights", "--size", "batch=2"},
                                               {"module.qir", "--batch", "4"}}) {
    std::vector<std::string> command = {"analyse", "--format", "json"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome here = work_.Run(command), there = Run(command);
    EXPECT_EQ(here.exit_code, 0) << here.err;
    EXPECT_EQ(here.out, there.out) << there.err;
  }
  for (const char* stage : {"imported", "canonical"}) {
    const std::vector<std::string> command = {"nodes", DigitsModel(), "--stage",  stage,
                                              "--op",  "Conv",        "--format", "json"};
    const Outcome here = work_.Run(command), there = Run(command);
    EXPECT_EQ(here.exit_code, 0) << here.err;
    EXPECT_EQ(nlohmann::json::parse(here.out).at("nodes").size(), 3u);
    EXPECT_EQ(here.out, there.out) << there.err;
  }
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--per-layer"}, {"--oracle", "reference"}}) {
    std::vector<std::string> command = {"verify", DigitsModel(), "out/model.so"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome verified = Run(command);
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
    EXPECT_EQ(verified.out, work_.Run(command).out);
  }
  const Outcome mismatch = Run({"verify", DigitsModel(), "out/model.so", "--tolerance", "0"});
  EXPECT_EQ(mismatch.exit_code, 1);
  EXPECT_THAT(mismatch.err, HasSubstr("first layer out of tolerance"));
}

// A model with Dropout that says it is being trained.
std::string TrainedModel() {
  OnnxModel model(13);
  model.Input("x", DataType::kF32, {int64_t{1}, int64_t{4}});
  model.Initializer("ratio", F32({}, {0.5F}));
  model.Initializer("training", Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{1}));
  model.Node("Dropout", {"x", "ratio", "training"}, {"y"}, "drop");
  model.Output("y");
  return model.proto().SerializeAsString();
}

TEST_F(GatewayTest, ImportsWarnAsInOneProcess) {
  work_.Write("trained.onnx", TrainedModel());
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"compile", "trained.onnx", "--force", "--output", "out"},
        {"analyse", "trained.onnx"},
        {"ir", "trained.onnx"},
        {"run", "trained.onnx", "--random", "1"}}) {
    const Outcome here = work_.Run(command), there = Run(command);
    ASSERT_EQ(here.exit_code, 0) << here.err;
    ASSERT_EQ(there.exit_code, 0) << there.err;
    const std::regex warning("quench: warning: [^\n]*training_mode[^\n]*");
    std::smatch expected, found;
    ASSERT_TRUE(std::regex_search(here.err, expected, warning)) << here.err;
    ASSERT_TRUE(std::regex_search(there.err, found, warning)) << there.err;
    EXPECT_EQ(found.str(), expected.str());
  }
}

TEST_F(GatewayTest, ModulesAreThoseOfOneProcess) {
  ASSERT_EQ(work_.Run({"import", DigitsModel(), "--output", "module.qir"}).exit_code, 0);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{DigitsModel()},
        {DigitsModel(), "--stage", "imported"},
        {DigitsModel(), "--batch", "4", "--pass", "fold_constants", "--pass", "dead_code"},
        {DigitsModel(), "--stage", "codegen-ready", "--no-fold-constants"},
        {"module.qir"},
        {"module.qir", "--batch", "2", "--stage", "codegen-ready"}}) {
    std::vector<std::string> command = {"ir", "--hash"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome here = work_.Run(command), there = Run(command);
    ASSERT_EQ(here.exit_code, 0) << here.err;
    EXPECT_EQ(here.out, there.out) << there.err;
  }
  EXPECT_EQ(Run({"ir", DigitsModel(), "--lower", "conv1"}).out,
            work_.Run({"ir", DigitsModel(), "--lower", "conv1"}).out);
  // What a model is imported as there, runs here.
  const std::vector<std::string> run = {"run", DigitsModel(), "--random", "7", "--size", "batch=2"};
  const Outcome here = work_.Run(run), there = Run(run);
  ASSERT_EQ(here.exit_code, 0) << here.err;
  EXPECT_EQ(here.out, there.out) << there.err;
}

TEST_F(GatewayTest, LibrariesAreMeasuredThereAndRunHere) {
  ASSERT_EQ(work_.Run({"compile", DigitsModel(), "--batch", "1", "--output", "out"}).exit_code, 0);
  const Outcome measured = Run({"bench", "out/model.so", "--seconds", "0.1", "--json"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const nlohmann::json there = nlohmann::json::parse(measured.out);
  const nlohmann::json here =
      nlohmann::json::parse(work_.Run({"bench", "out/model.so", "--seconds", "0.1", "--json"}).out);
  EXPECT_EQ(there.at("arena_bytes"), here.at("arena_bytes"));
  EXPECT_EQ(there.size(), here.size());
  EXPECT_GT(there.at("median_ms"), 0);
  EXPECT_GT(there.at("runs"), 0);
  const Outcome refused = Run({"run", "out/model.so", "--random", "1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("runs here, without the option"));
}

TEST_F(GatewayTest, StatisticsAndIntegersAreThoseOfOneProcess) {
  const std::string samples = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy";
  const auto calibrate = [&](const std::string& output) {
    return std::vector<std::string>{"calibrate", DigitsModel(), "--batch",          "1",
                                    "--data",    samples,       "--equalize",       "-o",
                                    output,      "--force",     "--split-outliers", "10"};
  };
  const Outcome here = work_.Run(calibrate("here.stats")), there = Run(calibrate("there.stats"));
  ASSERT_EQ(here.exit_code, 0) << here.err;
  ASSERT_EQ(there.exit_code, 0) << there.err;
  EXPECT_TRUE(*ReadFile(work_.path("here.stats")) == *ReadFile(work_.path("there.stats")));
  for (const char* told : {"quench: equalized ", "quench: outliers of "}) {
    EXPECT_THAT(here.err, HasSubstr(told));
    EXPECT_THAT(there.err, HasSubstr(told));
  }
  // Samples are added to those that there are.
  const std::vector<std::string> more = {
      "calibrate", DigitsModel(), "--batch", "1",  "--equalize",  "--split-outliers",
      "10",        "--data",      samples,   "-o", "there.stats", "--add"};
  const Outcome added = Run(more);
  ASSERT_EQ(added.exit_code, 0) << added.err;
  EXPECT_THAT(added.out, HasSubstr("samples  16"));

  for (const std::vector<std::string>& choice :
       {std::vector<std::string>{"-c", "here.stats", "--equalize", "--split-outliers", "10"},
        {"--type", "dynamic"},
        {},
        {"-c", "here.stats", "--equalize", "--split-outliers", "10", "--evaluation-data", samples,
         "--min-sqnr", "20"}}) {
    std::vector<std::string> command = {"quantize", DigitsModel(), "--batch",  "1",    "--force",
                                        "--format", "json",        "--output", "q.qir"};
    command.insert(command.end(), choice.begin(), choice.end());
    const Outcome quantized = work_.Run(command);
    ASSERT_EQ(quantized.exit_code, 0) << quantized.err;
    const std::string text = work_.Run({"ir", "q.qir"}).out;
    const Outcome same = Run(command);
    ASSERT_EQ(same.exit_code, 0) << same.err;
    EXPECT_EQ(nlohmann::json::parse(same.out), nlohmann::json::parse(quantized.out));
    EXPECT_EQ(work_.Run({"ir", "q.qir"}).out, text) << fmt::format("{}", choice.size());
  }
}

TEST_F(GatewayTest, ComparesAsOneProcessDoes) {
  const std::string samples = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy";
  ASSERT_EQ(
      work_.Run({"quantize", DigitsModel(), "--batch", "1", "--type", "dynamic", "-o", "q.qir"})
          .exit_code,
      0);
  ASSERT_EQ(work_.Run({"compile", DigitsModel(), "--batch", "1", "--output", "out"}).exit_code, 0);
  work_.Write("labels.txt", "0\n1\n2\n3\n4\n5\n6\n7\n");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--data", samples, "--labels", "labels.txt"},
        {"--random", "3", "--seed", "9"},
        {"--data", samples, "--layers"}}) {
    std::vector<std::string> command = {"compare", DigitsModel(), "q.qir", "--batch",
                                        "1",       "--format",    "json"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome here = work_.Run(command), there = Run(command);
    ASSERT_EQ(here.exit_code, 0) << here.err;
    EXPECT_EQ(here.out, there.out) << there.err;
  }
  const std::vector<std::string> libraries = {"compare", "out/model.so", "out/model.so", "--data",
                                              samples};
  EXPECT_EQ(Run(libraries).out, work_.Run(libraries).out);
}

TEST_F(GatewayTest, VerifiesIntegersAsOneProcessDoes) {
  ASSERT_EQ(
      work_
          .Run({"calibrate", DigitsModel(), "--batch", "1", "--random", "4", "--output", "s.stats"})
          .exit_code,
      0);
  ASSERT_EQ(work_.Run({"quantize", DigitsModel(), "--batch", "1", "-c", "s.stats", "-o", "q.qir"})
                .exit_code,
            0);
  ASSERT_EQ(work_.Run({"compile", "q.qir", "--output", "out"}).exit_code, 0);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--per-layer"}, {"--oracle", "reference"}}) {
    std::vector<std::string> command = {"verify", "q.qir", "out/model.so", "--format", "json"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome there = Run(command);
    EXPECT_EQ(there.exit_code, 0) << there.out << there.err;
    EXPECT_EQ(there.out, work_.Run(command).out);
    EXPECT_THAT(there.out, HasSubstr("\"quantized\": true"));
  }
}

TEST_F(GatewayTest, ErrorsAreThoseOfOneProcess) {
  work_.Write("bad.onnx", "this is no model");
  const Outcome bad = Run({"compile", "bad.onnx", "--output", "out"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, HasSubstr("bad.onnx"));
  EXPECT_FALSE(std::filesystem::exists(work_.path("out")));
  const Outcome unknown = Run({"compile", DigitsModel(), "--target", "x86-65", "--output", "out"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("nearest"));
  const std::string address = address_;
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  const Outcome gone = Run({"workflow", "list"});
  EXPECT_EQ(gone.exit_code, 3) << gone.err;
  EXPECT_THAT(gone.err, HasSubstr("gateway `127.0.0.1:"));
}

TEST_F(GatewayTest, WorkflowsAreListedShownWatchedAndForgotten) {
  const Outcome put = Run({"blobs", "put", DigitsModel(), "--json"});
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
    const Outcome outcome = Run({"blobs", "put", path, "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const nlohmann::json blob = nlohmann::json::parse(outcome.out).at(0);
    return fmt::format("hash: \"{}\" size_bytes: {}", blob.at("hash").get<std::string>(),
                       blob.at("size_bytes").get<int64_t>());
  };
  const std::string model = put(DigitsModel());
  const Outcome uploaded =
      Run({"blobs", "put-samples", QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy", "--json"});
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
  // What comes back is a file of its own, that its user may change.
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

// What the processes of steps write counts as what clients upload does.
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
  const Outcome second =
      work_.Run({"serve", "--listen", "127.0.0.1:0", "--state-dir", work_.path("state").string()});
  EXPECT_EQ(second.exit_code, 3) << second.err;
}

TEST_F(GatewayTest, ItsHealthCanBeAsked) {
  EXPECT_EQ(work_.Run({"serve", "--health", "--listen", address_}).exit_code, 0);
  work_.Write("serve.txtpb", fmt::format("gateway {{ server {{ listen: \"{}\" }} }}", address_));
  EXPECT_EQ(work_.Run({"serve", "--health", "--config", "serve.txtpb"}).exit_code, 0);
  server_.reset();
  const Outcome gone = work_.Run({"serve", "--health", "--config", "serve.txtpb"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, HasSubstr("does not answer"));
}

// What cannot fit is refused at once and by name; what was promised stays, and reads are served.
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
  EXPECT_THAT(outcome.err, HasSubstr("gateway `" + gateway + "`: it does not answer"));
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
  EXPECT_EQ(run("nobody", {"workflow", "list"}).exit_code, 4);
  EXPECT_EQ(work.Run({"workflow", "list", "--gateway", address}).exit_code, 3);
  const Outcome plain =
      work.Run({"workflow", "list", "--gateway", "build-farm.example:7450", "--token-file", "red"});
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_THAT(plain.err, HasSubstr("needs TLS"));
}

}  // namespace
}  // namespace quench::testing
