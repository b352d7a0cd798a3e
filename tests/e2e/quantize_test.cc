#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/quench_process.h"

namespace quench::testing::quantize_test {
namespace {

constexpr char kSamples[] = QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy";

class QuantizeTest : public ::testing::Test {
 protected:
  Outcome Calibrate(const std::string& output, const std::vector<std::string>& more = {}) {
    std::vector<std::string> line = {"calibrate", DigitsModel(), "--batch", "1",
                                     "--data",    kSamples,      "-o",      output};
    line.insert(line.end(), more.begin(), more.end());
    return work_.Run(line);
  }
  nlohmann::json Compare(const std::string& other, const std::vector<std::string>& more = {}) {
    std::vector<std::string> line = {"compare", DigitsModel(), other,      "--batch", "1",
                                     "--data",  kSamples,      "--format", "json"};
    line.insert(line.end(), more.begin(), more.end());
    const Outcome outcome = work_.Run(line);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out, nullptr, false);
  }
  const Workspace work_;
};

TEST_F(QuantizeTest, CalibratedQuantizedAndCompared) {
  const Outcome calibrated = Calibrate("s.stats");
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  const Outcome shown = work_.Run({"calibrate", "s.stats", "--format", "json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  const nlohmann::json statistics = nlohmann::json::parse(shown.out);
  EXPECT_EQ(statistics.at("samples"), 8);
  EXPECT_FALSE(statistics.at("random"));
  EXPECT_GT(statistics.at("values").size(), 5u);
  EXPECT_NE(work_.Run({"calibrate", "s.stats"}).out.find("8 samples"), std::string::npos);

  for (const char* output : {"q.qir", "q.ir.txt", "q.onnx"}) {
    const Outcome quantized = work_.Run({"quantize", DigitsModel(), "--batch", "1", "-c", "s.stats",
                                         "--per-channel", "--type", "static", "-o", output});
    ASSERT_EQ(quantized.exit_code, 0) << quantized.err;
    EXPECT_NE(quantized.err.find("calibrated on 8 samples"), std::string::npos);
    EXPECT_NE(quantized.out.find("4 of 4 quantized"), std::string::npos) << quantized.out;
    const nlohmann::json report = Compare(output);
    EXPECT_EQ(report.at("accuracy").at("agreement"), 1) << output;
    EXPECT_GT(report.at("outputs").at(0).at("sqnr_db"), 25) << output;
  }
}

TEST_F(QuantizeTest, CompiledToIntegersInOneGo) {
  const Outcome compiled =
      work_.Run({"compile", DigitsModel(), "--batch", "1", "--quantize", "int8", "--per-channel",
                 "--calibration-data", kSamples, "--export-metadata", "-o", "out"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_NE(compiled.out.find("4 of 4 quantized"), std::string::npos) << compiled.out;
  const nlohmann::json metadata = nlohmann::json::parse(*ReadFile(work_.path("out/metadata.json")));
  EXPECT_EQ(metadata.at("layers").size(), 4u);
  int of_bytes = 0;
  for (const nlohmann::json& kernel : metadata.at("kernels")) {
    const auto reason =
        kernel.at("reason").get<std::string>();  // i8, or u8 where CPUs multiply that
    of_bytes += reason.starts_with("i8") || reason.starts_with("u8") ? 1 : 0;
  }
  EXPECT_EQ(of_bytes, 4);
  EXPECT_EQ(Compare("out/model.so").at("accuracy").at("agreement"), 1);

  // The same through the commands one by one, and held against the interpreter to the last bit.
  ASSERT_EQ(Calibrate("s.stats").exit_code, 0);
  ASSERT_EQ(work_
                .Run({"quantize", DigitsModel(), "--batch", "1", "-c", "s.stats", "--per-channel",
                      "-o", "q.qir"})
                .exit_code,
            0);
  ASSERT_EQ(work_.Run({"compile", "q.qir", "-o", "steps"}).exit_code, 0);
  EXPECT_EQ(*ReadFile(work_.path("steps/model.so")), *ReadFile(work_.path("out/model.so")));
  const Outcome verified =
      work_.Run({"verify", "q.qir", "out/model.so", "--tolerance", "0", "--format", "json"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  const nlohmann::json report = nlohmann::json::parse(verified.out);
  EXPECT_TRUE(report.at("kernels").at("passed"));
  const nlohmann::json& rewrites = report.at("rewrites");
  EXPECT_TRUE(rewrites.at("passed"));
  EXPECT_TRUE(rewrites.at("quantized"));
  EXPECT_GE(rewrites.at("groups"), 4);
  EXPECT_EQ(rewrites.at("failures").size(), 0u);
  EXPECT_GT(rewrites.at("outputs").at(0).at("sqnr_db"), 40);
}

TEST_F(QuantizeTest, RoundingIsAdaptedToSamples) {
  ASSERT_EQ(Calibrate("s.stats").exit_code, 0);
  const auto quantize = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"quantize", DigitsModel(), "--batch",  "1",
                                      "-c",       "s.stats",     "--format", "json",
                                      "--output", "q.qir",       "--force"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome quantized = work_.Run(words);
    EXPECT_EQ(quantized.exit_code, 0) << quantized.err;
    return nlohmann::json::parse(quantized.out);
  };
  EXPECT_FALSE(quantize({}).contains("rounding"));
  const double nearest = Compare("q.qir").at("outputs").at(0).at("sqnr_db");
  const nlohmann::json rounding =
      quantize({"--rounding", "adaptive", "--rounding-data", kSamples}).at("rounding");
  EXPECT_EQ(rounding.at("samples"), 8);
  ASSERT_EQ(rounding.at("kernels").size(), 4u);
  for (const nlohmann::json& kernel : rounding.at("kernels"))
    EXPECT_GE(kernel.at("adapted_sqnr_db"), kernel.at("nearest_sqnr_db")) << kernel.at("node");
  EXPECT_GT(Compare("q.qir").at("outputs").at(0).at("sqnr_db"), nearest);
  const Outcome told = work_.Run({"compile", DigitsModel(), "--batch", "1", "--quantize", "int8",
                                  "--calibration-data", kSamples, "--rounding", "adaptive"});
  EXPECT_NE(told.out.find("rounding adapted on 8 samples: 4 kernels"), std::string::npos)
      << told.out << told.err;
}

TEST_F(QuantizeTest, ABudgetKeepsLayersInFloat) {
  const auto compile = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"compile",
                                      DigitsModel(),
                                      "--batch",
                                      "1",
                                      "--quantize",
                                      "int8",
                                      "--calibration-data",
                                      kSamples,
                                      "--split-tensors",
                                      "2",
                                      "--export-metadata",
                                      "--force",
                                      "-o",
                                      "out"};
    words.insert(words.end(), more.begin(), more.end());
    return work_.Run(words);
  };
  const auto selection = [&] {
    return nlohmann::json::parse(*ReadFile(work_.path("out/metadata.json"))).at("selection");
  };
  Outcome compiled = compile({"--max-drop", "20%"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_EQ(selection().at("trials").size(), 1u);
  const double all = selection().at("cost").at("sqnr_db");
  compiled = compile({"--min-sqnr", std::to_string(all + 1)});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_NE(compiled.out.find("kept by the budget"), std::string::npos) << compiled.out;
  EXPECT_GE(selection().at("cost").at("sqnr_db"), all + 1);
  EXPECT_GE(Compare("out/model.so").at("outputs")[0].at("sqnr_db"), all + 0.9);

  compiled = compile({"--min-sqnr", "500"});
  EXPECT_EQ(compiled.exit_code, 1);
  EXPECT_NE(compiled.err.find("can be in integers within this budget"), std::string::npos)
      << compiled.err;
  compiled = compile({"--max-drop", "0.5"});
  EXPECT_NE(compiled.err.find("write 0.5%"), std::string::npos) << compiled.err;
  compiled = compile({"--labels", "labels.txt"});
  EXPECT_NE(compiled.err.find("--labels needs --max-drop or --min-sqnr"), std::string::npos)
      << compiled.err;
}

// The import of what was written, as text: types of its integers stand in it.
TEST_F(QuantizeTest, OnnxIsForOtherRuntimes) {
  ASSERT_EQ(Calibrate("s.stats").exit_code, 0);
  const auto quantize = [&](const std::string& output, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"quantize", DigitsModel(), "--batch", "1",   "-c",
                                      "s.stats",  "--force",     "-o",      output};
    words.insert(words.end(), more.begin(), more.end());
    return work_.Run(words);
  };
  const auto types = [&](const std::vector<std::string>& more) {
    const Outcome quantized = quantize("q.onnx", more);
    EXPECT_EQ(quantized.exit_code, 0) << quantized.err;
    EXPECT_GT(Compare("q.onnx").at("outputs").at(0).at("sqnr_db"), 20);
    EXPECT_EQ(work_.Run({"import", "q.onnx", "-o", "q.ir.txt", "--force"}).exit_code, 0);
    const std::string text = *ReadFile(work_.path("q.ir.txt"));
    std::string found;
    for (const char* each :
         {"image.zero_point: u8[]", "image.zero_point: i8[]", ".q: i8[", ".q: u8[", ".q: i32["}) {
      if (text.find(each) != std::string::npos) found += std::string(each) + " ";
    }
    return found;
  };
  const std::string unsigned_activations = types({});
  EXPECT_EQ(types({"--for", "openvino"}), unsigned_activations);
  EXPECT_EQ(types({"--for", "onnxruntime"}), unsigned_activations);
  EXPECT_EQ(types({"--activation-dtype", "uint8", "--kernel-dtype", "int8"}), unsigned_activations);
  EXPECT_NE(types({"--activation-dtype", "int8"}), unsigned_activations);
  const std::string signed_activations = types({"--for", "tensorrt"});
  EXPECT_NE(signed_activations, unsigned_activations);
  EXPECT_EQ(types({"--for", "tensorrt", "--activation-dtype", "int8", "--bias-dtype", "float32"}),
            signed_activations);

  const Outcome clash =
      quantize("q.onnx", {"--for", "tensorrt", "--activation-dtype", "uint8", "--type", "dynamic"});
  EXPECT_NE(clash.exit_code, 0);
  EXPECT_NE(
      clash.err.find("--for tensorrt requires --activation-dtype int8, not --activation-dtype "
                     "uint8; --for tensorrt requires --type static, not --type dynamic"),
      std::string::npos)
      << clash.err;
  const Outcome module = quantize("q.qir", {"--for", "openvino"});
  EXPECT_NE(module.err.find("--for openvino needs an ONNX file"), std::string::npos) << module.err;
}

// One weight, of a pixel that counts for nothing, is so large that all the others are 0 in integers.
TEST_F(QuantizeTest, NothingButNoiseIsAnError) {
  std::string weights = "10000.0", mask = "0.0";
  for (int i = 1; i < 64 * 32; ++i) weights += fmt::format(", {}", 0.01 * (i * 37 % 101 - 50));
  for (int i = 1; i < 64; ++i) mask += ", 1.0";
  work_.Write("noise.ir.txt", fmt::format(R"(quench.ir 1
module "noise" canonical {{
  input %image: f32[1, 1, 8, 8]
  const %mask: f32[64] = [{}]
  const %w: f32[64, 32] = [{}]
  %flat: f32[1, 64] = Flatten(%image)
  %some: f32[1, 64] = Mul(%flat, %mask)
  %y: f32[1, 32] = MatMul(%some, %w) as "product"
  output %y
}}
)",
                                          mask, weights));
  const Outcome calibrated =
      work_.Run({"calibrate", "noise.ir.txt", "--data", kSamples, "-o", "noise.stats"});
  ASSERT_EQ(calibrated.exit_code, 0) << calibrated.err;
  const std::vector<std::string> words = {"quantize",          "noise.ir.txt", "-c",
                                          "noise.stats",       "-o",           "noise.qir",
                                          "--evaluation-data", kSamples};
  const Outcome failed = work_.Run(words);
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_NE(failed.err.find("mostly noise: 0.00 dB over 8 samples; the worst layer is `product`"),
            std::string::npos)
      << failed.err;
  EXPECT_FALSE(std::filesystem::exists(work_.path("noise.qir")));
  std::vector<std::string> rescued = words;
  rescued.emplace_back("--per-channel");
  const Outcome saved = work_.Run(rescued);
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_NE(saved.out.find("with 0 layers left in float: "), std::string::npos) << saved.out;
}

// A product of three columns is done in float before its left side could be integers.
TEST_F(QuantizeTest, LayersThatGainNothingStayInFloat) {
  std::string weights = "0.5";
  for (int i = 1; i < 64 * 3; ++i) weights += fmt::format(", {}", 0.01 * (i * 37 % 101 - 50));
  work_.Write("few.ir.txt", fmt::format(R"(quench.ir 1
module "few" canonical {{
  input %x: f32[8, 64]
  const %w: f32[64, 3] = [{}]
  %y: f32[8, 3] = MatMul(%x, %w) as "product"
  output %y
}}
)",
                                        weights));
  const Outcome kept = work_.Run({"quantize", "few.ir.txt", "--type", "dynamic", "-o", "few.qir"});
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_NE(kept.out.find("float    product (MatMul): integers would save no time: only 3.0"),
            std::string::npos)
      << kept.out;
  const Outcome named = work_.Run({"quantize", "few.ir.txt", "--type", "dynamic", "--include",
                                   "product", "-o", "few.qir", "--force"});
  EXPECT_NE(named.out.find("1 of 1 quantized"), std::string::npos) << named.out;
}

TEST_F(QuantizeTest, LayersAndLabelsAreCompared) {
  ASSERT_EQ(Calibrate("s.stats").exit_code, 0);
  ASSERT_EQ(work_.Run({"quantize", DigitsModel(), "--batch", "1", "-c", "s.stats", "-o", "q.qir"})
                .exit_code,
            0);
  ASSERT_TRUE(WriteFileAtomically(work_.path("labels.txt"), "0\n1\n2\n3\n4\n5\n6\n7\n").ok());
  const nlohmann::json report = Compare("q.qir", {"--layers", "--labels", "labels.txt"});
  EXPECT_GT(report.at("layers").size(), 4u);
  int saturated = 0;
  for (const nlohmann::json& layer : report.at("layers")) {
    EXPECT_GT(layer.at("cosine"), 0.99) << layer;
    saturated += layer.contains("saturation") ? 1 : 0;
  }
  EXPECT_GT(saturated, 2);
  EXPECT_EQ(report.at("accuracy").at("reference_top1"), report.at("accuracy").at("other_top1"));
  ASSERT_TRUE(WriteFileAtomically(work_.path("labels.txt"), "0\n1\n").ok());
  const Outcome few = work_.Run({"compare", DigitsModel(), "q.qir", "--batch", "1", "--data",
                                 kSamples, "--labels", "labels.txt"});
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_NE(few.err.find("2 labels for 8 rows"), std::string::npos) << few.err;
}

TEST_F(QuantizeTest, WeightsAloneInFourBits) {
  std::string numbers;
  for (int i = 0; i < 64 * 80; ++i)
    numbers += fmt::format("{}{}", i == 0 ? "" : ", ", 0.01 * (i * 37 % 101 - 50));
  for (const auto& [name, rows] : {std::pair("lm.ir.txt", 2), {"many.ir.txt", 100}}) {
    ASSERT_TRUE(WriteFileAtomically(work_.path(name), fmt::format(R"(quench.ir 1
module "lm" canonical {{
  input %x: f32[{}, 64]
  const %w: f32[64, 80] = [{}]
  %y: f32[{}, 80] = MatMul(%x, %w)
  output %y
}}
)",
                                                                  rows, numbers, rows))
                    .ok());
  }
  const auto compile = [&](const std::vector<std::string>& how, const std::string& output) {
    std::vector<std::string> line = {"compile", "lm.ir.txt", "-o", output, "--export-metadata"};
    line.insert(line.end(), how.begin(), how.end());
    const Outcome outcome = work_.Run(line);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const auto text = ReadFile(work_.path(output) / "metadata.json");
    return nlohmann::json::parse(text.value_or(""), nullptr, false);
  };
  const nlohmann::json plain = compile({}, "f32"), four = compile({"--quantize", "int4"}, "i4");
  EXPECT_EQ(plain.at("weight_bytes"), 64 * 80 * 4);
  EXPECT_EQ(four.at("weight_bytes"), 64 * 80 / 2 + 2 * 80 * 4);  // and scales
  EXPECT_TRUE(four.at("kernels").at(0).at("reason").get<std::string>().starts_with("i4 weights"))
      << four.at("kernels").dump();

  EXPECT_EQ(
      work_.Run({"compile", "lm.ir.txt", "-o", "few", "--quantize", "int4"}).out.find("  slow "),
      std::string::npos);
  const Outcome many = work_.Run({"compile", "many.ir.txt", "-o", "many", "--quantize", "int4"});
  EXPECT_NE(many.out.find("  slow     "), std::string::npos) << many.out;
  EXPECT_NE(many.out.find("scaled a panel at a time"), std::string::npos) << many.out;

  // The same in three steps: quantized, compiled, verified.
  const Outcome quantized = work_.Run(
      {"quantize", "lm.ir.txt", "--type", "weights", "--kernel-dtype", "int4", "-o", "q.qir"});
  ASSERT_EQ(quantized.exit_code, 0) << quantized.err;
  ASSERT_EQ(work_.Run({"compile", "q.qir", "-o", "q"}).exit_code, 0);
  EXPECT_EQ(ReadFile(work_.path("q") / "model.so"), ReadFile(work_.path("i4") / "model.so"));
  const Outcome verified = work_.Run({"verify", "q.qir", "q/model.so"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
}

// A matrix that both branches capture: as it is, and after a node that is computed while compiling.
TEST_F(QuantizeTest, WeightsInsideBranches) {
  std::string numbers;
  for (int i = 0; i < 64 * 80; ++i)
    numbers += fmt::format("{}{}", i == 0 ? "" : ", ", 0.01 * (i * 37 % 101 - 50));
  work_.Write("if.ir.txt", fmt::format(R"(quench.ir 1
module "branches" canonical {{
  input %x: f32[2, 64]
  const %w: f32[64, 80] = [{}]
  const %zero: f32[] = [0.0]
  %sum: f32[] = ReduceSum(%x) {{keepdims = 0}}
  %which: bool[] = Greater(%sum, %zero)
  %y: f32[2, 80] = If(%which, %x, %w) {{
    else_branch = graph "no" {{
      input %x: f32[2, 64]
      input %w: f32[64, 80]
      %n: f32[64, 80] = Neg(%w)
      %p: f32[2, 80] = MatMul(%x, %n) as "negative"
      output %p
    }},
    then_branch = graph "yes" {{
      input %x: f32[2, 64]
      input %w: f32[64, 80]
      %p: f32[2, 80] = MatMul(%x, %w) as "positive"
      output %p
    }}
  }}
  output %y
}}
)",
                                       numbers));
  const Outcome quantized = work_.Run({"quantize", "if.ir.txt", "--type", "weights", "--format",
                                       "json", "--kernel-dtype", "int8", "-o", "q.qir"});
  ASSERT_EQ(quantized.exit_code, 0) << quantized.err;
  const nlohmann::json layers = nlohmann::json::parse(quantized.out).at("layers");
  ASSERT_EQ(layers.size(), 2U) << quantized.out;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(layers.at(i).at("node"), i == 0 ? "negative" : "positive");
    EXPECT_TRUE(layers.at(i).at("quantized"));
  }
  const auto weight_bytes = [&](const std::string& module, const std::string& output) {
    const Outcome compiled = work_.Run({"compile", module, "-o", output, "--export-metadata"});
    EXPECT_EQ(compiled.exit_code, 0) << compiled.err;
    const auto text = ReadFile(work_.path(output) / "metadata.json");
    return nlohmann::json::parse(text.value_or("{}")).value("weight_bytes", 0);
  };
  EXPECT_LT(weight_bytes("q.qir", "i8") * 3, weight_bytes("if.ir.txt", "f32"));
  EXPECT_LT(std::filesystem::file_size(work_.path("i8/model.so")),
            std::filesystem::file_size(work_.path("f32/model.so")));
  const Outcome verified = work_.Run({"verify", "q.qir", "i8/model.so"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  const Outcome compared =
      work_.Run({"compare", "f32/model.so", "i8/model.so", "--random", "6", "--format", "json"});
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_GT(nlohmann::json::parse(compared.out).at("outputs").at(0).at("sqnr_db"), 35);
}

TEST_F(QuantizeTest, ComparisonIsAPageToo) {
  ASSERT_EQ(Calibrate("s.stats").exit_code, 0);
  const Outcome quantized = work_.Run({"quantize", DigitsModel(), "--batch", "1", "-c", "s.stats",
                                       "--type", "static", "-o", "q.qir"});
  ASSERT_EQ(quantized.exit_code, 0) << quantized.err;
  const auto compare = [&](const std::string& report, const std::vector<std::string>& more = {}) {
    std::vector<std::string> line = {"compare",  DigitsModel(), "q.qir",    "--batch",
                                     "1",        "--data",      kSamples,   "--layers",
                                     "--format", "json",        "--report", report};
    line.insert(line.end(), more.begin(), more.end());
    return work_.Run(line);
  };
  const Outcome compared = compare("cost.html");
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const nlohmann::json layers = nlohmann::json::parse(compared.out).at("layers");
  const std::string page = ReadFile(work_.path("cost.html")).value_or("");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
  ASSERT_GT(layers.size(), 4U);
  for (const nlohmann::json& layer : layers)
    EXPECT_NE(page.find(">" + layer.at("value").get<std::string>() + "<"), std::string::npos)
        << layer;

  const auto refused = [&](const std::string& report, const char* text,
                           const std::vector<std::string>& more = {}) {
    const std::vector<std::string> files = work_.Files();
    const Outcome outcome = compare(report, more);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");  // before anything is computed
    EXPECT_EQ(work_.Files(), files);
  };
  work_.Write("cost.html", "mine");
  refused("cost.html", "--force replaces it");
  EXPECT_EQ(ReadFile(work_.path("cost.html")).value_or(""), "mine");
  refused("missing/cost.html", "there is no folder `missing`");
  refused(".", "not a regular file", {"--force"});
  ASSERT_EQ(compare("cost.html", {"--force"}).exit_code, 0);
  EXPECT_EQ(ReadFile(work_.path("cost.html")).value_or(""), page);
}

TEST_F(QuantizeTest, MoreSamplesAreAddedOnRequest) {
  ASSERT_EQ(Calibrate("s.stats").exit_code, 0);
  const Outcome again = Calibrate("s.stats");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.err.find("--add"), std::string::npos) << again.err;
  const Outcome added = Calibrate("s.stats", {"--add"});
  ASSERT_EQ(added.exit_code, 0) << added.err;
  EXPECT_NE(added.out.find("samples  16"), std::string::npos) << added.out;
  // Statistics of another model: with its batch norms, values and weights are others.
  const Outcome other = Calibrate("s.stats", {"--add", "--no-fold-batch-norms"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_NE(other.err.find("cannot be merged with those of module"), std::string::npos)
      << other.err;
  const Outcome wrong = work_.Run({"quantize", DigitsModel(), "-c", "s.stats"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_NE(wrong.err.find("calibrate again"), std::string::npos) << wrong.err;
}

TEST_F(QuantizeTest, RandomSamplesAreWarnedOf) {
  const Outcome outcome =
      work_.Run({"calibrate", DigitsModel(), "--random", "3", "--use-cuda", "--show"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("random inputs"), std::string::npos);
  EXPECT_NE(outcome.err.find("on the CPU"), std::string::npos);
  EXPECT_NE(outcome.out.find("3 random samples"), std::string::npos);
}

TEST_F(QuantizeTest, BadRequestsSayWhatIsWanted) {
  const auto expect = [&](const std::vector<std::string>& line, int code, const char* text) {
    const Outcome outcome = work_.Run(line);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_NE((outcome.out + outcome.err).find(text), std::string::npos) << outcome.err;
  };
  expect({"calibrate", DigitsModel()}, 2, "no samples");
  expect({"calibrate", DigitsModel(), "--data", "missing.npy"}, 1, "missing.npy");
  expect({"calibrate", DigitsModel(), "--data", DigitsModel()}, 1,
         "samples are .npy, .npz, .pb, .png or .jpg");
  expect({"quantize", DigitsModel(), "--type", "static"}, 1, "calibrate first");
  expect({"quantize", DigitsModel(), "--method", "kl"}, 2, "average");
  expect({"quantize", DigitsModel()}, 2, "--type dynamic");
  expect({"quantize", "nope.onnx", "--output", "labels.txt"}, 1, "cannot open `nope.onnx`");
  expect({"calibrate", DigitsModel(), "--data", "nodir"}, 1, "cannot open `nodir`");
  expect({"quantize", DigitsModel(), "--type", "dynamic", "--include", "nothing"}, 1,
         "no node fits `nothing`");
  expect({"quantize", DigitsModel(), "-c", DigitsModel()}, 1, "no statistics of calibration");
  ASSERT_EQ(work_.Run({"quantize", DigitsModel(), "--type", "dynamic"}).exit_code, 0);
  expect({"quantize", DigitsModel(), "--type", "dynamic"}, 1, "--force");
  expect({"quantize", "quantized.qir", "--type", "dynamic", "--force"}, 1, "quantized already");
  expect({"compare", DigitsModel(), "quantized.qir"}, 2, "no samples");
  expect({"compile", DigitsModel(), "--quantize", "int8"}, 2, "--calibration-data PATH");
  expect({"compile", DigitsModel(), "--quantize", "int2"}, 2, "int8");
  expect({"compile", DigitsModel(), "--quantize", "int4", "--type", "static"}, 2,
         "applies to weights only");
  expect({"compile", DigitsModel(), "--quantize", "int4", "--kernel-dtype", "int8"}, 2,
         "different types");
  expect({"compile", DigitsModel(), "--quantize", "int4", "--calibration-random", "3"}, 2,
         "none with int4");
  expect({"quantize", DigitsModel(), "--type", "dynamic", "--kernel-dtype", "int4", "--force"}, 1,
         "kernel dtype is i4");
  expect({"compile", DigitsModel(), "--calibration-data", kSamples}, 2, "needs --quantize");
  expect({"compile", DigitsModel(), "--per-channel"}, 2, "needs --quantize");
  expect({"calibrate", DigitsModel(), "--data", kSamples, "--images", "imagnet"}, 1,
         "there are imagenet, unit, signed and bytes");
  expect({"quantize", DigitsModel(), "--type", "dynamic", "--images", "unit", "--force"}, 1,
         "--images needs --evaluation-data");
  expect({"quantize", DigitsModel(), "--rounding", "adaptive", "--force"}, 1,
         "--rounding-data PATH");
  expect({"quantize", DigitsModel(), "--rounding-data", kSamples, "--force"}, 2,
         "needs --rounding");
  expect({"compile", DigitsModel(), "--quantize", "int4", "--rounding", "adaptive"}, 2,
         "--rounding-data PATH");
  expect({"compile", DigitsModel(), "--rounding", "adaptive"}, 2, "needs --quantize");
}

}  // namespace
}  // namespace quench::testing::quantize_test
