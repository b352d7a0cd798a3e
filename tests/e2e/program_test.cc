#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/ir/npy.h"
#include "tests/e2e/quench_process.h"
#include "tests/support/matchers.h"

namespace quench::testing::program_test {
namespace {

using Names = std::vector<std::string>;
using namespace std::string_literals;

TEST(ProgramTest, CarriesStatesFromStepToStep) {
  const Workspace work;
  work.Write("sums.ir.txt", kSumsModule);
  ASSERT_TRUE(
      WriteNpy(Tensor::Of<float>(DataType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6}), work.path("x.npy"))
          .ok());
  const Outcome compiled =
      work.Run({"compile", "sums.ir.txt", "--output", "out", "--export-metadata"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  const nlohmann::json metadata =
      nlohmann::json::parse(*ReadFile(work.path("out") / "metadata.json"));
  EXPECT_EQ(metadata.at("states"),
            nlohmann::json::parse(R"([{"input": "total", "output": "next", "initial": 10.0}])"));
  const auto values = [&](const std::string& name) {
    const Tensor tensor = *ReadNpy(work.path(name));
    return std::vector<float>(tensor.as<float>().begin(), tensor.as<float>().end());
  };
  for (const char* model : {"sums.ir.txt", "out/model.so"}) {
    const Outcome run =
        work.Run({"run", model, "--input", "x=x.npy", "--steps", "--output", model[0] + ""s});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::string folder = model[0] + "/"s;
    EXPECT_EQ(values(folder + "y.npy"), (std::vector<float>{11, 12, 14, 16, 19, 22}));
    EXPECT_EQ(values(folder + "next.npy"), (std::vector<float>{19, 22}));  // the last one
    const Outcome on = work.Run({"run", model, "--input", "x=x.npy", "--input",
                                 "total=" + folder + "next.npy", "--steps", "--output", "on"});
    ASSERT_EQ(on.exit_code, 0) << on.err;
    EXPECT_EQ(values("on/next.npy"), (std::vector<float>{28, 34}));
  }
}

TEST(ProgramTest, StepsNeedAnAxisOfTheirOwn) {
  const Workspace work;
  work.Write("sums.ir.txt", kSumsModule);
  const auto write = [&](const std::string& name, std::vector<int64_t> dims) {
    return WriteNpy(Tensor::Zeros(DataType::kF32, std::move(dims)), work.path(name)).ok();
  };
  ASSERT_TRUE(write("one.npy", {2}) && write("none.npy", {0, 2}));
  const auto error = [&](const std::string& file) {
    return work.Run({"run", "sums.ir.txt", "--input", "x=" + file, "--steps"}).err;
  };
  EXPECT_NE(error("one.npy").find("no file has a leading axis of steps"), std::string::npos);
  EXPECT_NE(error("none.npy").find("the axis of steps is empty"), std::string::npos);
}

TEST(ProgramTest, CompilesVerifiesRunsAndMeasuresADigitsNetwork) {
  const Workspace work;
  const Outcome compiled =
      work.Run({"compile", DigitsModel(), "--output", "out", "--export-ir", "--export-metadata"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  for (const char* name : {"model.so", "model.h", "model.ir.txt", "metadata.json"}) {
    EXPECT_TRUE(std::filesystem::exists(work.path("out") / name)) << name;
  }
  const nlohmann::json metadata =
      nlohmann::json::parse(*ReadFile(work.path("out") / "metadata.json"));
  EXPECT_EQ(metadata.at("inputs").at(0).at("name"), "image");
  EXPECT_EQ(metadata.at("fingerprint").get<std::string>().size(), 64u);
  // The parts are the whole file.
  const auto bytes = [&](const char* key) { return metadata.at(key).get<uint64_t>(); };
  EXPECT_EQ(bytes("weight_bytes") + bytes("code_bytes") + bytes("rest_bytes"),
            std::filesystem::file_size(work.path("out/model.so")));
  uint64_t weights = 0;
  for (const auto& [variant, brought] : metadata.at("variant_weights").items())
    weights += brought.get<uint64_t>();
  EXPECT_EQ(weights, bytes("weight_bytes"));
  EXPECT_NE(compiled.out.find("  size     0.0"), std::string::npos) << compiled.out;

  const Outcome analysed = work.Run({"analyse", "out/model.so", "--format", "json"});
  ASSERT_EQ(analysed.exit_code, 0) << analysed.err;
  const nlohmann::json library = nlohmann::json::parse(analysed.out);
  EXPECT_EQ(library.at("uuid"), metadata.at("uuid"));
  EXPECT_EQ(library.at("bytes").at("code"), metadata.at("code_bytes"));
  EXPECT_EQ(library.at("nodes").size(), metadata.at("kernels").size());
  EXPECT_NE(work.Run({"analyse", "out/model.so"}).out.find("conv1"), std::string::npos);
  EXPECT_EQ(work.Run({"analyse", "out/model.so", "--batch", "2"}).exit_code, 1);

  const Outcome verified = work.Run({"verify", DigitsModel(), "out/model.so", "--per-layer"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  EXPECT_NE(verified.out.find("verified"), std::string::npos);

  const Outcome run = work.Run({"run", "out/model.so", "--input",
                                "image="s + QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy",
                                "--output", "result", "--profile"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(std::filesystem::exists(work.path("result") / "logits.npy"));

  const Outcome bench =
      work.Run({"bench", "out/model.so", "--seconds", "0.05", "--format", "json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const nlohmann::json json = nlohmann::json::parse(bench.out);
  for (const char* key :
       {"median_ms", "min_ms", "p99_ms", "arena_bytes", "arena_lower_bound", "load_ms",
        "first_run_ms", "lower_quartile_ms", "upper_quartile_ms", "runs_per_second", "warnings"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(ProgramTest, ProfilesNameEachKernel) {
  const Workspace work;
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "out", "--export-metadata"}).exit_code,
            0);
  const Outcome table = work.Run({"bench", "out/model.so", "--seconds", "0.05", "--profile"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("GFLOP/s"), std::string::npos) << table.out;
  const Outcome outcome = work.Run({"bench", "out/model.so", "--seconds", "0.05", "--profile",
                                    "--format", "json", "--trace", "t.json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json profile = nlohmann::json::parse(outcome.out);
  ASSERT_FALSE(profile["kernels"].empty());
  double sum = 0;
  for (const nlohmann::json& kernel : profile["kernels"]) {
    sum += kernel["us"].get<double>();
    EXPECT_GT(kernel["bytes"].get<double>(), 0) << kernel;
    EXPECT_GT(kernel["predicted_us"].get<double>(), 0) << kernel;
  }
  EXPECT_NEAR(sum, profile["us"].get<double>(), 1e-6 * sum);
  std::ifstream file(work.path("t.json"));
  const nlohmann::json trace = nlohmann::json::parse(file);
  ASSERT_EQ(trace["traceEvents"].size(), profile["kernels"].size() + 1);
  double at = 0;
  for (size_t i = 1; i < trace["traceEvents"].size(); ++i) {
    EXPECT_NEAR(trace["traceEvents"][i]["ts"].get<double>(), at, 1e-6 * (at + 1));
    at += trace["traceEvents"][i]["dur"].get<double>();
  }
}

TEST(ProgramTest, TheModelIsLookedAtFirstAndAnEmptyFolderIsFine) {
  const Workspace work;
  std::filesystem::create_directories(work.path("out"));
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "out", "--opt-level", "1"}).exit_code,
            0);
  EXPECT_TRUE(std::filesystem::exists(work.path("out/model.so")));
  EXPECT_NE(work.Run({"compile", DigitsModel(), "--output", "out"}).err.find("exists"),
            std::string::npos);
  for (const char* command : {"compile", "import", "edit"}) {
    EXPECT_NE(
        work.Run({command, "nope.onnx", "--output", "out"}).err.find("cannot open `nope.onnx`"),
        std::string::npos)
        << command;
  }
  const Outcome foreign = work.Run({"compile", DigitsModel(), "--output", "new", "--opt-level", "4",
                                    "--target", "raspberry-pi/5"});
  EXPECT_NE(foreign.err.find("this machine cannot run code for"), std::string::npos) << foreign.err;
  EXPECT_EQ(foreign.err.find("passes"), std::string::npos) << foreign.err;  // nothing was built
  const Outcome fixed = work.Run(
      {"import", DigitsModel(), "--batch", "1", "--outputs", "relu1", "--export", "fixed.onnx"});
  ASSERT_EQ(fixed.exit_code, 0) << fixed.err;
  EXPECT_NE(work.Run({"import", "fixed.onnx", "--size", "batch=4"})
                .err.find("sizes of all inputs are fixed"),
            std::string::npos);
}

// The question that --check answers is about Quench; libonnx's opinion is there for ONNX.
TEST(ProgramTest, SupportIsToldForEveryFormat) {
  const Workspace work;
  ASSERT_EQ(work.Run({"import", DigitsModel(), "--output", "m.qir"}).exit_code, 0);
  for (const std::string& model : {std::string("m.qir"), DigitsModel()}) {
    const Outcome check = work.Run({"import", model, "--check"});
    EXPECT_EQ(check.exit_code, 0) << check.err;
    EXPECT_TRUE(check.out.starts_with("supported    yes\n")) << check.out;
    EXPECT_NE(check.out.find(model == "m.qir" ? "libonnx      not asked" : "libonnx      agrees"),
              std::string::npos)
        << check.out;
  }
}

// Nothing is measured or checked at sizes that nobody chose.
TEST(ProgramTest, OpenSizesAreAskedForAndShown) {
  const Workspace work;
  work.Write("m.ir.txt", R"(quench.ir 1
module "m" canonical {
  symbol batch = input(0, 0)
  symbol height = input(0, 2) in 2..64
  input %x: f32[batch, 1, height, 8]
  %y = MaxPool(%x) {kernel_shape = [2, 2]}
  output %y
})");
  ASSERT_EQ(work.Run({"compile", "m.ir.txt", "--output", "out"}).exit_code, 0);
  for (std::vector<std::string> command :
       {std::vector<std::string>{"bench", "out/model.so", "--seconds", "0.01"},
        {"verify", "m.ir.txt", "out/model.so"},
        {"compare", "m.ir.txt", "out/model.so", "--random", "1"},
        {"analyse", "m.ir.txt"},
        {"analyse", "out/model.so"},
        {"calibrate", "m.ir.txt", "--random", "1"},
        {"run", "m.ir.txt", "--random", "1"},
        {"run", "out/model.so", "--random", "1"}}) {
    const Outcome asks = work.Run(command);
    EXPECT_EQ(asks.exit_code, 1) << command[0];
    EXPECT_NE(asks.err.find("`height` (2 to 64) open"), std::string::npos) << asks.err;
    EXPECT_NE(asks.err.find("like `--size height=64`"), std::string::npos) << asks.err;
    command.insert(command.end(), {"--size", "height=6"});
    const Outcome told = work.Run(command);
    EXPECT_EQ(told.exit_code, 0) << command[0] << told.err;
    const std::string shown = command[0] == "analyse" ? "height = 6" : "batch=1, height=6";
    EXPECT_NE((told.out + told.err).find(shown), std::string::npos) << command[0] << told.out;
  }
  const Outcome bench = work.Run({"bench", "out/model.so", "--seconds", "0.01", "--format", "json",
                                  "--size", "height=6", "--size", "batch=2"});
  const nlohmann::json json = nlohmann::json::parse(bench.out);
  EXPECT_EQ(json.at("sizes"), (nlohmann::json{{"batch", 2}, {"height", 6}}));
  EXPECT_EQ(json.at("batch"), 2);
  EXPECT_DOUBLE_EQ(json.at("runs_per_second").get<double>(),
                   1e3 / json.at("median_ms").get<double>());
  EXPECT_DOUBLE_EQ(json.at("samples_per_second").get<double>(),
                   2 * json.at("runs_per_second").get<double>());
  EXPECT_TRUE(json.at("warnings").is_array());
  // A listing is not a result: it says which of its numbers want a size.
  const Outcome nodes = work.Run({"nodes", "m.ir.txt"});
  EXPECT_EQ(nodes.exit_code, 0) << nodes.err;
  EXPECT_NE(nodes.out.find("8], ? bytes"), std::string::npos) << nodes.out;
  EXPECT_NE(nodes.out.find("like `--size height=64`"), std::string::npos) << nodes.out;
  const Outcome counted = work.Run({"nodes", "m.ir.txt", "--size", "height=6"});
  EXPECT_NE(counted.out.find("counted at    batch=1, height=6\n"), std::string::npos)
      << counted.out;
  EXPECT_NE(counted.out.find(", 192 bytes"), std::string::npos) << counted.out;
}

// Counts at other sizes than those of the run say nothing about it.
TEST(ProgramTest, ProfilesCountAtTheSizesOfTheRun) {
  const Workspace work;
  std::ofstream(work.path("m.ir.txt")) << "quench.ir 1\nmodule \"m\" canonical {\n  symbol N = "
                                          "input(0, 0) in 1..64\n  input %x: f32[N, 64]\n"
                                          "  %y = Exp(%x)\n  output %y\n}\n";
  const Outcome made = work.Run({"compile", "m.ir.txt", "--output", "out", "--export-metadata"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto profile = [&](const std::string& size) {
    return work.Run({"bench", "out/model.so", "--seconds", "0.01", "--profile", "--size", size});
  };
  const Outcome by_itself = work.Run({"bench", "out/model.so", "--seconds", "0.01", "--profile"});
  EXPECT_NE(by_itself.out.find("GFLOP/s "), std::string::npos) << by_itself.out;
  nlohmann::json metadata = nlohmann::json::parse(*ReadFile(work.path("out/metadata.json")));
  for (const nlohmann::json& wrong :
       {nlohmann::json{{"M", 4}}, nlohmann::json{{"N", 65}}, nlohmann::json::array({1})}) {
    nlohmann::json changed = metadata;
    changed["typical_sizes"] = wrong;
    std::ofstream(work.path("out/metadata.json")) << changed;
    const Outcome outcome = work.Run({"bench", "out/model.so", "--seconds", "0.01", "--profile"});
    EXPECT_EQ(outcome.exit_code, 0) << wrong << outcome.err;
  }
  std::ofstream(work.path("out/metadata.json")) << metadata;
  const Outcome other = profile("N=2");
  EXPECT_EQ(other.out.find("GFLOP/s "), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("--size N=4\n"), std::string::npos) << other.out;
  const Outcome same = profile("N=4");
  EXPECT_NE(same.out.find("GFLOP/s "), std::string::npos) << same.out;
  EXPECT_EQ(same.out.find("--size"), std::string::npos) << same.out;
}

TEST(ProgramTest, ProfilesRefuseMetadataOfOthers) {
  const Workspace work;
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "out", "--export-metadata"}).exit_code,
            0);
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "other", "--opt-level", "2",
                      "--export-metadata"})
                .exit_code,
            0);
  const Names profile = {"bench", "out/model.so", "--seconds", "0.01", "--profile"};
  const auto with = [&](const std::string& metadata) {
    Names words = profile;
    words.insert(words.end(), {"--metadata", metadata});
    return work.Run(words);
  };
  const Outcome other = with("other/metadata.json");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_NE(other.err.find("belongs to library"), std::string::npos) << other.err;
  std::ofstream(work.path("broken.json")) << "{\"kernels\": 3}";
  EXPECT_NE(with("broken.json").err.find("no list of kernels"), std::string::npos);
  // Beside the library, such a file is not what it was asked about.
  std::ofstream(work.path("out/metadata.json")) << "{}";
  const Outcome plain = work.Run(profile);
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(plain.out.find("predicted "), std::string::npos) << plain.out;
}

TEST(ProgramTest, LibraryAndInterpreterAgreeOnFiles) {
  const Workspace work;
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "out"}).exit_code, 0);
  const std::string input = "image=" QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy";
  const Outcome native = work.Run({"run", "out/model.so", "--input", input, "--output", "native"});
  const Outcome interpreted =
      work.Run({"run", DigitsModel(), "--input", input, "--output", "interpreted"});
  ASSERT_EQ(native.exit_code, 0) << native.err;
  ASSERT_EQ(interpreted.exit_code, 0) << interpreted.err;
  const absl::StatusOr<Tensor> ours = ReadNpy(work.path("native/logits.npy").string());
  const absl::StatusOr<Tensor> theirs = ReadNpy(work.path("interpreted/logits.npy").string());
  ASSERT_TRUE(ours.ok() && theirs.ok()) << ours.status() << theirs.status();
  ASSERT_EQ(ours->dims(), theirs->dims());
  EXPECT_LE(RelativeError(*ours, *theirs), 1e-5);
}

// A graph says nothing of the placeholder `scale`: an empty shape is that of a single number.
TEST(ProgramTest, ShapesOfSingleNumbers) {
  Workspace work;
  work.Write("scaled.pbtxt", R"(
    node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
           attr { key: "shape" value { shape { dim { size: 2 } } } } }
    node { name: "scale" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
    node { name: "y" op: "Mul" input: "x" input: "scale" attr { key: "T" value { type: DT_FLOAT } } })");
  for (const std::string shape : {"scalar", "[]", "scalar:f32"}) {
    const Outcome run = work.Run({"import", "scaled.pbtxt", "--shape", "scale=" + shape});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("scale")) << shape;
    EXPECT_THAT(run.out, HasSubstr("f32[]")) << shape;
  }
  const Outcome none = work.Run({"import", "scaled.pbtxt"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(
      none.err,
      HasSubstr("give one, such as --shape scale=1,3,224,224 (of a single number: scale=scalar)"));
  const Outcome empty = work.Run({"import", "scaled.pbtxt", "--shape", "scale="});
  EXPECT_THAT(empty.err, HasSubstr("`scale=` has an empty value"));
}

TEST(ProgramTest, SameRequestSameBytes) {
  const Workspace work;
  for (const char* folder : {"a", "b"})
    ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", folder}).exit_code, 0);
  for (const char* name : {"model.so", "model.h"}) {
    EXPECT_EQ(*ReadFile(work.path("a") / name), *ReadFile(work.path("b") / name)) << name;
  }
}

TEST(ProgramTest, EveryOptLevelAndEmitKind) {
  const Workspace work;
  for (const char* level : {"0", "1", "2", "3"}) {
    const std::string folder = std::string("level") + level;
    ASSERT_EQ(
        work.Run({"compile", DigitsModel(), "--output", folder, "--opt-level", level}).exit_code,
        0);
    const Outcome verified =
        work.Run({"verify", DigitsModel(), folder + "/model.so", "--samples", "1"});
    EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  }
  for (const char* emit : {"obj", "a"}) {
    ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", emit, "--emit", emit}).exit_code, 0);
  }
  EXPECT_TRUE(std::filesystem::exists(work.path("obj") / "model.o"));
  EXPECT_TRUE(std::filesystem::exists(work.path("a") / "model.a"));
}

TEST(ProgramTest, ResultsThatCannotBeWrittenAreAnError) {
  const Workspace work;
  for (const char* command : {" completion bash", " targets"}) {
    const Outcome outcome =
        work.RunProgram("/bin/sh", {"-c", std::string(QUENCH_BINARY) + command + " > /dev/full"});
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_NE(outcome.err.find("cannot be written to stdout: No space left"), std::string::npos);
  }
}

TEST(ProgramTest, KernelsAreChosenByMeasurement) {
  const Workspace work;
  const Outcome made = work.Run({"compile", DigitsModel(), "--batch", "1", "--output", "measured",
                                 "--opt-level", "4", "--tune-seconds", "1"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.out.find("\n  measured "), std::string::npos) << made.out;
  const Outcome verified =
      work.Run({"verify", DigitsModel(), "measured/model.so", "--batch", "1", "--samples", "1"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  const Outcome without =
      work.Run({"compile", DigitsModel(), "--output", "other", "--tune-seconds", "5"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.err.find("--opt-level 4"), std::string::npos) << without.err;
  EXPECT_FALSE(std::filesystem::exists(work.path("other")));
  const Outcome elsewhere = work.Run({"compile", DigitsModel(), "--output", "other", "--opt-level",
                                      "4", "--target", "raspberry-pi/5"});
  EXPECT_EQ(elsewhere.exit_code, 1);
  EXPECT_NE(elsewhere.err.find("this machine cannot run code for"), std::string::npos)
      << elsewhere.err;
}

TEST(ProgramTest, AnalyseCountsTheModel) {
  const Workspace work;
  const Outcome outcome = work.Run({"analyse", DigitsModel(), "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("parameters"),
            14570 - 96);  // without the running statistics of two batch norms
  // conv1 8x8x16x9, conv2 8x8x32x16x9, conv3 4x4x32x32x9, fc 32x10
  EXPECT_EQ(json.at("macs").at("total"), 9216 + 294912 + 147456 + 320);
  EXPECT_EQ(json.at("macs").at("by_op").at("Gemm"), 320);
}

TEST(ProgramTest, AnalyseWritesListingsToFiles) {
  const Workspace work;
  const std::vector<std::string> command = {"analyse", DigitsModel(), "--listing", "bandwidth"};
  const Outcome printed = work.Run(command);
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_NE(printed.out.find("peak layer        bn2: 16,384 bytes"), std::string::npos);
  std::vector<std::string> written = command;
  written.insert(written.end(), {"--output", "listing.txt"});
  EXPECT_EQ(work.Run(written).out, "");
  EXPECT_EQ(*ReadFile(work.path("listing.txt")), printed.out);
  const Outcome again = work.Run(written);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.err.find("`listing.txt` exists; --force replaces it"), std::string::npos);
}

TEST(ProgramTest, AnalyseLooksIntoWeights) {
  const Workspace work;
  const Outcome outcome = work.Run({"analyse", DigitsModel(), "--weights", "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  int64_t elements = 0;
  for (const nlohmann::json& weight : json.at("weights")) {
    elements += weight.at("elements").get<int64_t>();
    int64_t counted = 0;
    for (const nlohmann::json& part : weight.at("histogram")) counted += part.get<int64_t>();
    EXPECT_EQ(counted, weight.at("elements")) << weight;
  }
  EXPECT_EQ(json.at("parameters"), elements);
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "out"}).exit_code, 0);
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--weights"}, {"--listing", "timeline"}, {"--depth", "1"}}) {
    std::vector<std::string> command = {"analyse", "out/model.so"};
    command.insert(command.end(), more.begin(), more.end());
    EXPECT_NE(work.Run(command).err.find("is a compiled library"), std::string::npos) << more[0];
  }
}

TEST(ProgramTest, ModulesRoundTripThroughTextAndBinary) {
  const Workspace work;
  for (const char* name : {"m.ir.txt", "m.qir"}) {
    ASSERT_EQ(work.Run({"import", DigitsModel(), "--output", name}).exit_code, 0) << name;
  }
  const Outcome original = work.Run({"ir", DigitsModel(), "--hash"});
  EXPECT_EQ(work.Run({"ir", "m.ir.txt", "--hash"}).out, original.out);
  EXPECT_EQ(work.Run({"ir", "m.qir", "--hash"}).out, original.out);
  EXPECT_EQ(work.Run({"ir", "m.ir.txt", "--verify"}).exit_code, 0);
  // Everything that a command wrote outlives the cache.
  ASSERT_EQ(work.Run({"import", DigitsModel(), "-o", "thin.qir", "--external-weights"}).exit_code,
            0);
  const Outcome piped = work.Run({"ir", DigitsModel()});
  const std::string& shown = piped.out;
  EXPECT_NE(shown.find("--output FILE"), std::string::npos);
  EXPECT_NE(piped.err.find("`--output FILE` writes them"), std::string::npos) << piped.err;
  work.Write("shown.ir.txt", shown);
  const Outcome redirected = work.RunProgram(
      "sh", {"-c", std::string(QUENCH_BINARY) + " ir " + DigitsModel() + " > redirected.ir.txt"});
  ASSERT_EQ(redirected.exit_code, 0) << redirected.err;
  ASSERT_EQ(work.Run({"blobs", "prune", "--keep", "0"}).exit_code, 0);
  for (const char* name : {"m.ir.txt", "m.qir", "thin.qir", "redirected.ir.txt"})
    EXPECT_EQ(work.Run({"ir", name, "--hash"}).out, original.out) << name;
  EXPECT_LT(std::filesystem::file_size(work.path("thin.qir")),
            std::filesystem::file_size(work.path("m.qir")) / 2);
  ASSERT_EQ(work.Run({"blobs", "prune", "--keep", "0"}).exit_code, 0);
  const Outcome gone = work.Run({"ir", "shown.ir.txt", "--hash"});
  EXPECT_NE(gone.err.find("refers to weights that were in the cache"), std::string::npos)
      << gone.err;
  ASSERT_EQ(work.Run({"import", DigitsModel(), "--export", "again.onnx"}).exit_code, 0);
  EXPECT_EQ(work.Run({"ir", "again.onnx", "--hash"}).out, original.out);
}

TEST(ProgramTest, StopAfterAPassWritesTheIr) {
  const Workspace work;
  const Outcome outcome =
      work.Run({"compile", DigitsModel(), "--output", "out", "--stop-after", "fold_batch_norms"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(ReadFile(work.path("out") / "model.ir.txt")->find("BatchNormalization"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(work.path("out") / "model.so"));
}

TEST(ProgramTest, InterruptedCompileLeavesNothing) {
  const Workspace work;
  const Outcome outcome = work.Run(
      {"compile", DigitsModel(), "--output", "out", "--target", "x86-64", "--progress", "json"},
      "\"passes\"");
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_EQ(work.Files(), Names{});
}

TEST(ProgramTest, HelpHasExamplesEverywhere) {
  const Workspace work;
  for (const char* command : {"compile", "run", "verify", "bench", "analyse", "import", "ir", "ops",
                              "targets", "blobs"}) {
    const Outcome outcome = work.Run({command, "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << command;
    EXPECT_NE(outcome.out.find("Examples:"), std::string::npos) << command;
  }
}

TEST(ProgramTest, ListingsForPeopleAndScripts) {
  const Workspace work;
  EXPECT_NE(work.Run({"ops", "conv"}).out.find("ConvTranspose"), std::string::npos);
  EXPECT_EQ(work.Run({"ops", "convoluted"}).exit_code, 1);
  EXPECT_GT(nlohmann::json::parse(work.Run({"ops", "--format", "json"}).out).size(), 100u);
  const auto squeeze =
      nlohmann::json::parse(work.Run({"ops", "unsqueeze", "--format", "json"}).out)[0];
  EXPECT_EQ(squeeze.at("state"), "restricted");
  EXPECT_EQ(squeeze.at("restrictions").size(), 1u);
  EXPECT_NE(work.Run({"ops", "SequenceAt"}).out.find("missing"), std::string::npos);
  EXPECT_GE(nlohmann::json::parse(work.Run({"targets", "--format", "json"}).out).size(), 5u);
  EXPECT_EQ(work.Run({"ops", "--model", DigitsModel()}).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(work.Run({"blobs", "stat", "--format", "json"}).out)
                    .at("count")
                    .get<int>() >= 0,
            true);
  EXPECT_EQ(work.Run({"blobs", "prune", "--keep", "0"}).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(work.Run({"blobs", "stat", "--format", "json"}).out).at("count"),
            0);
}

}  // namespace
}  // namespace quench::testing::program_test
