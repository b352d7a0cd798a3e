// Commands at a gateway, and the same in one process.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "common/ir/npy.h"
#include "common/runner/runner.h"
#include "tests/e2e/gateway_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"
#include "tests/support/recorded_models.h"

namespace quench::testing::gateway_commands_test {
namespace {

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
  // Constants that passes computed lie in blobs after a service has stored them; the tensors are
  // the same.
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
  for (const std::filesystem::directory_entry& left :
       std::filesystem::directory_iterator(work_.path("here").parent_path()))
    EXPECT_FALSE(left.path().filename().string().starts_with(".quench-")) << left.path();
}

TEST_F(GatewayTest, OtherCompilationsAreTheSameToo) {
  const std::vector<std::vector<std::string>> choices = {
      {"--target", "aarch64", "--emit", "a"},
      {"--uuid", "123e4567-e89b-12d3-a456-426614174000"},
      {"--float16"},
      {"--bfloat16"},
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

// Options in a file, with some of the command line: the same as without a file, here and there.
TEST_F(GatewayTest, OptionsInAFileAreThoseOfTheCommandLine) {
  work_.Write("float.txtpb",
              "targets { name: \"aarch64\" } choices { name: \"small\" "
              "uuid: \"123e4567-e89b-12d3-a456-426614174000\" passes { batch: 2 disabled: "
              "\"fold_constants\" } "
              "compile_options { opt_level: 2 header_prefix: \"net\" class_names: [\"a\", \"b\"] "
              "max_size: 8 "
              "preprocessing: '{\"scale\": 2}' } }");
  work_.Write("names.txt", "a\nb\n");
  work_.Write("preprocess.json", "{\"scale\": 2}");
  const std::string project = std::string(QUENCH_SOURCE_DIR) + "/examples/options/project.txtpb";
  work_.Write("digits.txt", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
  using Words = std::vector<std::string>;
  const std::vector<std::pair<Words, Words>> choices = {
      {{"--options", "float.txtpb", "--opt-level", "1"},
       {"--target", "aarch64", "--uuid", "123e4567-e89b-12d3-a456-426614174000", "--batch", "2",
        "--no-fold-constants", "--opt-level", "1", "--prefix", "net", "--class-names", "names.txt",
        "--preprocess", "preprocess.json", "--max-size", "8"}},
      {{"--options", project, "--calibration-random", "2"},
       {"--target", "aarch64", "--batch", "1", "--quantize", "int8", "--per-channel", "--exclude",
        "op:Gemm", "--calibration-random", "2", "--prefix", "digits", "--class-names", "digits.txt",
        "--max-size", "1"}}};
  for (const auto& [file, words] : choices) {
    SCOPED_TRACE(file[1]);
    const auto compile = [&](const std::string& folder, const Words& more) {
      Words command = {"compile", DigitsModel(), "--force", "--output", folder};
      command.insert(command.end(), more.begin(), more.end());
      return command;
    };
    const Outcome plain = work_.Run(compile("plain", words));
    ASSERT_EQ(plain.exit_code, 0) << plain.err;
    const Outcome here = work_.Run(compile("here", file));
    ASSERT_EQ(here.exit_code, 0) << here.err;
    const Outcome there = Run(compile("there", file));
    ASSERT_EQ(there.exit_code, 0) << there.err;
    for (const char* name : {"model.so", "model.h"}) {
      const std::string expected = *ReadFile(work_.path("plain") / name);
      EXPECT_TRUE(*ReadFile(work_.path("here") / name) == expected) << name;
      EXPECT_TRUE(*ReadFile(work_.path("there") / name) == expected) << name;
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
  // A tensor that does not fit the model is named in the error too.
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
  // A model that is imported there runs here.
  const std::vector<std::string> run = {"run", DigitsModel(), "--random", "7", "--size", "batch=2"};
  const Outcome here = work_.Run(run), there = Run(run);
  ASSERT_EQ(here.exit_code, 0) << here.err;
  EXPECT_EQ(here.out, there.out) << there.err;
}

TEST_F(GatewayTest, PartsAreThoseOfOneProcess) {
  work_.Write("list.txt", "Conv\nRelu\n");
  for (const char* backend : {"tensorrt", "list.txt"}) {
    const std::vector<std::string> command = {
        "partition", DigitsModel(),  "--backend", backend,    "--export", "parts",
        "-o",        "parts.ir.txt", "--force",   "--format", "json"};
    const Outcome here = work_.Run(command);
    ASSERT_EQ(here.exit_code, 0) << here.err;
    const std::string module = *ReadFile(work_.path("parts.ir.txt"));
    std::filesystem::rename(work_.path("parts"), work_.path("here"));
    const Outcome there = Run(command);
    EXPECT_EQ(here.out, there.out) << there.err;
    EXPECT_EQ(module, *ReadFile(work_.path("parts.ir.txt")));
    for (const auto& part : std::filesystem::directory_iterator(work_.path("here")))
      EXPECT_EQ(*ReadFile(part.path()), *ReadFile(work_.path("parts") / part.path().filename()));
    std::filesystem::remove_all(work_.path("here"));
    std::filesystem::remove_all(work_.path("parts"));
    const std::vector<std::string> back = {"partition", "parts.ir.txt", "--inline"};
    EXPECT_THAT(Run(back).out, HasSubstr("put back"));
    EXPECT_EQ(Run(back).out, work_.Run(back).out);
  }
}

TEST_F(GatewayTest, TiledAndEditedModulesAreThoseOfOneProcess) {
  work_.Write("edits.txt",
              "remove relu3 constant %fc.bias = file \"bias.npy\" outputs %features, %logits");
  const Tensor bias = Tensor::Of<float>(DataType::kF32, {10}, std::vector<float>(10, 1));
  ASSERT_TRUE(WriteNpy(bias, work_.path("bias.npy")).ok());
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"tile", "--gemm", "9,20,7", "--limits", "4,4,4", "--random", "5"},
        {"tile", DigitsModel(), "--batch", "3", "--limits", "2,8,8", "--samples", "2"},
        {"edit", DigitsModel(), "--script", "edits.txt"},
        {"edit", DigitsModel(), "--batch", "2", "-e", "set pool {strides = [1, 1]}"}}) {
    std::vector<std::string> all = command;
    const std::vector<std::string> more = {"--format", "json", "-o", "made.ir.txt", "--force"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome here = work_.Run(all);
    ASSERT_EQ(here.exit_code, 0) << here.err;
    const std::string module = *ReadFile(work_.path("made.ir.txt"));
    const Outcome there = Run(all);
    EXPECT_EQ(here.out, there.out) << there.err;
    EXPECT_EQ(module, *ReadFile(work_.path("made.ir.txt")));
  }
  EXPECT_THAT(Run({"edit", DigitsModel(), "-e", "remove nothing"}).err,
              HasSubstr("no node is named `nothing`"));
}

TEST_F(GatewayTest, DifferencesAreThoseOfOneProcess) {
  ASSERT_EQ(work_.Run({"import", DigitsModel(), "--batch", "4", "-o", "four.qir"}).exit_code, 0);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{DigitsModel(), DigitsModel()},
        {DigitsModel(), "four.qir", "--stage", "canonical"},
        {"four.qir", DigitsModel()}}) {
    std::vector<std::string> command = {"diff", "--format", "json"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome here = work_.Run(command), there = Run(command);
    ASSERT_EQ(here.exit_code, 0) << here.err;
    EXPECT_EQ(here.out, there.out) << there.err;
    EXPECT_EQ(nlohmann::json::parse(here.out).at("equal"),
              more[1] == DigitsModel() && more[0] == DigitsModel());
  }
}

TEST_F(GatewayTest, InnerValuesAreThoseOfOneProcess) {
  const std::string input = "image=" QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy";
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--input", input, "--op", "Conv", "--pictures"},
        {"--random", "3", "--size", "batch=2", "--all"},
        {"--random", "3", "--batch", "2", "--node", "relu*", "--target", "host"}}) {
    std::vector<std::string> command = {"infer", DigitsModel(), "--format", "json", "--save"};
    const auto run = [&](const char* folder, bool there) {
      std::vector<std::string> all = command;
      all.emplace_back(folder);
      all.insert(all.end(), more.begin(), more.end());
      const Outcome outcome = there ? Run(all) : work_.Run(all);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      return outcome.out;
    };
    const std::string here = run("here", false);
    EXPECT_EQ(here, run("there", true));
    size_t files = 0;
    for (const auto& file : std::filesystem::directory_iterator(work_.path("here"))) {
      ++files;
      EXPECT_TRUE(*ReadFile(file.path()) == *ReadFile(work_.path("there") / file.path().filename()))
          << file.path();
    }
    EXPECT_GE(files, nlohmann::json::parse(here).at("values").size());
    std::filesystem::remove_all(work_.path("here"));
    std::filesystem::remove_all(work_.path("there"));
  }
}

TEST_F(GatewayTest, LibrariesAreMeasuredThereAndRunHere) {
  ASSERT_EQ(Run({"compile", DigitsModel(), "--batch", "1", "--output", "out"}).exit_code, 0);
  const Outcome measured = Run({"bench", "out/model.so", "--seconds", "0.1", "--format", "json"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  const nlohmann::json there = nlohmann::json::parse(measured.out);
  const nlohmann::json here = nlohmann::json::parse(
      work_.Run({"bench", "out/model.so", "--seconds", "0.1", "--format", "json"}).out);
  EXPECT_EQ(there.at("arena_bytes"), here.at("arena_bytes"));
  EXPECT_EQ(there.size(), here.size());
  EXPECT_GT(there.at("median_ms"), 0);
  EXPECT_GT(there.at("runs"), 0);
  const Outcome refused = Run({"run", "out/model.so", "--random", "1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("locally, without the option"));
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
  for (const char* told : {"quench: equalized ", "quench: duplicated the outlier channels of "}) {
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
        {"--type", "any"},
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

TEST_F(GatewayTest, RandomSamplesHaveTheSizesThatAreAskedFor) {
  const std::vector<std::string> calibrate = {"calibrate", DigitsModel(), "--random",
                                              "2",         "--size",      "batch=3",
                                              "--output",  "r.stats",     "--force"};
  ASSERT_EQ(work_.Run(calibrate).exit_code, 0);
  const std::string here = work_.Run({"calibrate", "r.stats"}).out;
  const Outcome outcome = Run(calibrate);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(work_.Run({"calibrate", "r.stats"}).out, here);
  const Outcome compared = Run({"compare", DigitsModel(), DigitsModel(), "--random", "1", "--size",
                                "batch=3", "--format", "json"});
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_EQ(nlohmann::json::parse(compared.out).at("outputs").at(0).at("elements"), 30);
  const Outcome refused =
      Run({"compare", DigitsModel(), DigitsModel(), "--random", "1", "--size", "bacth=3"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("no input has a symbolic dim `bacth`"));
}

// Native code of others: a gateway runs what it has compiled.
TEST_F(GatewayTest, LibrariesOfOthersAreNotRun) {
  ASSERT_EQ(work_
                .Run({"compile", DigitsModel(), "--output", "out", "--uuid",
                      "00000000-0000-4000-8000-000000000001"})
                .exit_code,
            0);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"bench", "out/model.so", "--seconds", "0.1"},
        {"verify", DigitsModel(), "out/model.so"},
        {"compare", DigitsModel(), "out/model.so", "--random", "1"}}) {
    const Outcome refused = Run(command);
    EXPECT_EQ(refused.exit_code, 1) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("was not compiled by these services")) << command[0];
  }
  EXPECT_EQ(work_.Run({"verify", DigitsModel(), "out/model.so"}).exit_code, 0);
}

TEST_F(GatewayTest, ComparesAsOneProcessDoes) {
  const std::string samples = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy";
  ASSERT_EQ(
      work_.Run({"quantize", DigitsModel(), "--batch", "1", "--type", "dynamic", "-o", "q.qir"})
          .exit_code,
      0);
  ASSERT_EQ(Run({"compile", DigitsModel(), "--batch", "1", "--output", "out"}).exit_code, 0);
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
  // Its earlier outputs, in a folder like ONNX's test data.
  ASSERT_EQ(work_.Run({"run", "out/model.so", "--random", "3", "--output", "set"}).exit_code, 0);
  std::filesystem::rename(work_.path("set/logits.npy"), work_.path("set/output_0.npy"));
  ASSERT_TRUE(WriteNpy((*RandomInputs(
                           std::vector<ArtifactTensor>{
                               {"image",
                                DataType::kF32,
                                {{1, "", 1, 1}, {1, "", 1, 1}, {8, "", 8, 8}, {8, "", 8, 8}}}},
                           3))[0],
                       work_.path("set/input_0.npy"))
                  .ok());
  const std::vector<std::string> files = {"compare", "set", "out/model.so", "--format", "json"};
  const Outcome here = work_.Run(files), there = Run(files);
  ASSERT_EQ(here.exit_code, 0) << here.err;
  EXPECT_EQ(here.out, there.out) << there.err;
  EXPECT_EQ(nlohmann::json::parse(here.out).at("outputs")[0].at("max_error"), 0.0);
  EXPECT_THAT(work_.Run({"compare", "set", "out/model.so", "--layers"}).err,
              HasSubstr("contains only outputs"));

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
  ASSERT_EQ(Run({"compile", "q.qir", "--output", "out"}).exit_code, 0);
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

// Keras' HDF5 is read by a child of the step's child; a saved model is a folder, whose variables go up as files.
TEST_F(GatewayTest, ModelsOfKerasAndTensorflowAreThoseOfOneProcess) {
  const std::filesystem::path cases = std::filesystem::path(QUENCH_SOURCE_DIR) / "tests" / "cases";
  std::vector<std::string> models;
  for (const char* name :
       {"keras/LSTM", "tensorflow/Conv2D", "tensorflow/SavedModelV1", "tensorflow/SavedModelV2"}) {
    for (const auto& [each, model] : ReadRecordedModels(cases / (std::string(name) + ".zip")))
      models.push_back(WriteRecordedModel(model, work_.path("models") / name / each).string());
  }
  ASSERT_GE(models.size(), 5U);
  for (const std::string& model : models) {
    std::vector<std::string> command = {"compile", model, "--force", "--output", "here"};
    const Outcome here = work_.Run(command);
    ASSERT_EQ(here.exit_code, 0) << here.err;
    command.back() = "there";
    const Outcome there = Run(command);
    ASSERT_EQ(there.exit_code, 0) << there.err << server_->Log();
    EXPECT_TRUE(*ReadFile(work_.path("here") / "model.so") ==
                *ReadFile(work_.path("there") / "model.so"))
        << model;
    // A folder is a model here, not one of test data.
    const Outcome same = Run({"compare", model, "here/model.so", "--random", "2"});
    EXPECT_EQ(same.exit_code, 0) << same.err;
  }
  std::filesystem::remove(work_.path("models") / "tensorflow/SavedModelV2/folder/model" /
                          "variables/variables.data-00000-of-00001");
  const std::vector<std::string> broken = {
      "compile", work_.path("models") / "tensorflow/SavedModelV2/folder/model", "--output", "out"};
  const Outcome missing = Run(broken);
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("variables/variables.data-00000-of-00001")) << missing.err;
  // Here it is missed when its variables are read, there before anything is uploaded.
  const Outcome here = work_.Run(broken);
  EXPECT_EQ(here.exit_code, 1);
  EXPECT_THAT(here.err, HasSubstr("variables/variables.data-00000-of-00001")) << here.err;
}

// Archives go up as they are; what TorchScript's files do not say goes along as options.
TEST_F(GatewayTest, ModelsOfPytorchAreThoseOfOneProcess) {
  const std::filesystem::path cases =
      std::filesystem::path(QUENCH_SOURCE_DIR) / "tests" / "cases" / "torch";
  const std::vector<std::vector<std::string>> models = {
      {"net_export_2.15.pt2"},
      {"batch_export_2.15.pt2", "--size", "s17=2..8"},
      {"counter_export_2.15.pt2"},
      {"counter_script_2.15.pt", "--shape", "x=3"},
      {"decides_script_2.15.pt", "--shape", "x=3:f32"},
      {"words_trace_2.15.pt", "--shape", "words=1,3", "--default-dtype", "i64"},
      {"quantized_trace_2.15.pt", "--shape", "x=1,2,4,4", "--keep-quantized-weight"}};
  for (const std::vector<std::string>& words : models) {
    std::vector<std::string> command = {"compile", (cases / words[0]).string()};
    command.insert(command.end(), words.begin() + 1, words.end());
    command.insert(command.end(), {"--force", "--output", "here"});
    const Outcome here = work_.Run(command);
    ASSERT_EQ(here.exit_code, 0) << words[0] << here.err;
    command.back() = "there";
    const Outcome there = Run(command);
    ASSERT_EQ(there.exit_code, 0) << words[0] << there.err << server_->Log();
    EXPECT_TRUE(*ReadFile(work_.path("here") / "model.so") ==
                *ReadFile(work_.path("there") / "model.so"))
        << words[0];
    command = {"compare", (cases / words[0]).string(), "here/model.so", "--random", "2"};
    command.insert(command.end(), words.begin() + 1, words.end());
    const Outcome same = Run(command);
    EXPECT_EQ(same.exit_code, 0) << words[0] << same.err;
  }
  // The error about inputs without shapes is the same there as here.
  const std::vector<std::string> shapeless = {"compile", cases / "net_trace_2.15.pt", "--output",
                                              "out"};
  const Outcome here = work_.Run(shapeless), there = Run(shapeless);
  EXPECT_EQ(here.exit_code, 1);
  EXPECT_EQ(there.exit_code, 1);
  for (const Outcome& each : {here, there})
    EXPECT_THAT(each.err, HasSubstr("input `x`: has no shape; give one")) << each.err;
}

TEST_F(GatewayTest, ErrorsAreThoseOfOneProcess) {
  work_.Write("bad.onnx", "this is not a model");
  const Outcome bad = Run({"compile", "bad.onnx", "--output", "out"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, HasSubstr("bad.onnx"));
  EXPECT_FALSE(std::filesystem::exists(work_.path("out")));
  const Outcome unknown = Run({"compile", DigitsModel(), "--target", "x86-65", "--output", "out"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("similar ones are"));
  const std::string address = address_;
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  const Outcome gone = Run({"workflow", "list"});
  EXPECT_EQ(gone.exit_code, 3) << gone.err;
  EXPECT_THAT(gone.err, HasSubstr("gateway `127.0.0.1:"));
}

}  // namespace
}  // namespace quench::testing::gateway_commands_test
