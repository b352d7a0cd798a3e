// `compile --precision fastest` with the real program. The machine decides which types are fastest; the tests hold
// for any choice.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "tests/e2e/quench_process.h"

namespace quench::testing::precision_test {
namespace {

constexpr char kSamples[] = QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy";

class PrecisionTest : public ::testing::Test {
 protected:
  Outcome Compile(const std::vector<std::string>& more) const {
    std::vector<std::string> line = {"compile", DigitsModel(), "--batch", "1",      "--precision",
                                     "fastest", "--output",    "out",     "--force"};
    line.insert(line.end(), more.begin(), more.end());
    return work_.Run(line);
  }
  nlohmann::json Report(std::vector<std::string> more) const {
    more.insert(more.end(), {"--format", "json"});
    const Outcome outcome = Compile(more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out, nullptr, false).value("precision", nlohmann::json());
  }
  // SQNR of the library against the model, by another command.
  double Sqnr() const {
    const Outcome outcome = work_.Run({"compare", DigitsModel(), "out/model.so", "--batch", "1",
                                       "--data", kSamples, "--format", "json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const nlohmann::json db = nlohmann::json::parse(outcome.out).at("outputs").at(0).at("sqnr_db");
    return db.is_number() ? db.get<double>() : INFINITY;
  }
  void Refuses(const std::vector<std::string>& more, int code, const std::string& text) const {
    const Outcome outcome = Compile(more);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(work_.path("out")));
  }
  const Workspace work_;
};

const nlohmann::json& BuildNamed(const nlohmann::json& report, const std::string& name) {
  for (const nlohmann::json& build : report.at("builds")) {
    if (build.at("name") == name) return build;
  }
  ADD_FAILURE() << "no build `" << name << "`";
  return report;
}

TEST_F(PrecisionTest, WithoutDataFloatsAreTimed) {
  const nlohmann::json report = Report({});
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report.at("samples"), 0);
  EXPECT_FALSE(report.at("int8_tried"));
  ASSERT_EQ(report.at("layers").size(), 4u);
  for (const nlohmann::json& layer : report.at("layers")) {
    EXPECT_NE(layer.at("type"), "int8");
    for (const char* type : {"f32", "f16", "bf16"})
      EXPECT_GT(layer.at("microseconds").at(type), 0) << layer.at("node");
  }
  EXPECT_GT(BuildNamed(report, report.at("chosen")).at("milliseconds"), 0);
  EXPECT_GT(Sqnr(), 20);
  const Outcome told = Compile({});
  EXPECT_NE(told.out.find("accuracy not measured"), std::string::npos) << told.out;
  EXPECT_NE(told.out.find("int8     not tried"), std::string::npos) << told.out;
}

TEST_F(PrecisionTest, WithDataTheBudgetHolds) {
  const nlohmann::json report =
      Report({"--calibration-data", kSamples, "--min-sqnr", "33", "--export-metadata"});
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report.at("samples"), 8);
  EXPECT_TRUE(report.at("int8_tried"));
  EXPECT_EQ(report.at("budget").at("min_sqnr_db"), 33);
  EXPECT_FALSE(report.at("budget").at("default"));
  EXPECT_FALSE(BuildNamed(report, "int8").at("keeps_budget")) << "else 33 dB tests nothing";
  for (const nlohmann::json& layer : report.at("layers"))
    EXPECT_GT(layer.at("microseconds").at("int8"), 0) << layer.at("node");
  const double sqnr = Sqnr();
  EXPECT_GE(sqnr, 33);
  const nlohmann::json& told = report.at("cost").at("sqnr_db");
  if (told.is_number()) EXPECT_NEAR(told.get<double>(), sqnr, 0.1);
  const nlohmann::json metadata =
      nlohmann::json::parse(*ReadFile(work_.path("out/metadata.json")), nullptr, false);
  EXPECT_TRUE(metadata.contains("kernels"));
}

TEST_F(PrecisionTest, ABudgetThatOnlyF32Keeps) {
  const nlohmann::json report = Report({"--calibration-data", kSamples, "--min-sqnr", "200"});
  ASSERT_TRUE(report.is_object());
  // A layer that changes no value may be mixed in, where it measures as faster.
  if (report.at("chosen") == "mixed") {
    const nlohmann::json& told = report.at("cost").at("sqnr_db");
    if (told.is_number()) EXPECT_GE(told.get<double>(), 200);
  } else {
    EXPECT_EQ(report.at("chosen"), "f32");
    EXPECT_EQ(report.at("others"), "f32");
    for (const nlohmann::json& layer : report.at("layers")) EXPECT_EQ(layer.at("type"), "f32");
  }
  for (const char* type : {"f16", "bf16", "int8"})
    EXPECT_FALSE(BuildNamed(report, type).at("keeps_budget")) << type;
}

TEST_F(PrecisionTest, WithoutABudgetTwentyDecibelsAreTheFloor) {
  const nlohmann::json report = Report({"--calibration-data", kSamples});
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report.at("budget").at("min_sqnr_db"), 20);
  EXPECT_TRUE(report.at("budget").at("default"));
  EXPECT_GE(Sqnr(), 20);
}

// Accuracy of floats can be measured without calibration, and on random samples.
TEST_F(PrecisionTest, OtherData) {
  const nlohmann::json floats = Report({"--evaluation-data", kSamples, "--min-sqnr", "30"});
  ASSERT_TRUE(floats.is_object());
  EXPECT_EQ(floats.at("samples"), 8);
  EXPECT_FALSE(floats.at("int8_tried"));
  const nlohmann::json random = Report({"--calibration-random", "3", "--max-drop", "99%"});
  ASSERT_TRUE(random.is_object());
  EXPECT_EQ(random.at("samples"), 3);
  EXPECT_TRUE(random.at("int8_tried"));
}

TEST_F(PrecisionTest, BadRequests) {
  Refuses({"--float16"}, 2, "--precision");
  Refuses({"--bfloat16"}, 2, "--precision");
  Refuses({"--quantize", "int8", "--calibration-random", "2"}, 2, "--precision");
  Refuses({"--stop-after", "identities"}, 2, "--precision");
  Refuses({"--min-sqnr", "30"}, 2, "--evaluation-data PATH");
  Refuses({"--calibration", "s.stats"}, 2, "--evaluation-data PATH");
  Refuses({"--calibration-data", kSamples, "--calibration-random", "2"}, 2, "at most one of");
  Refuses({"--method", "mse"}, 2, "--method is about int8");
  Refuses({"--calibration-random", "2", "--per-channel"}, 2, "decides this itself");
  Refuses({"--target", "aarch64"}, 1, "this machine cannot run code for `aarch64`");
  Refuses({"--target", "x86-64"}, 1, "`host` has it for this one");
  Refuses({"--gateway", "127.0.0.1:1"}, 2, "works without a gateway");
  const Outcome unknown = work_.Run({"compile", DigitsModel(), "--precision", "smallest"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("fastest"), std::string::npos) << unknown.err;
}

TEST_F(PrecisionTest, QuantizedModulesAreRefused) {
  ASSERT_EQ(work_.Run({"quantize", DigitsModel(), "--type", "dynamic", "-o", "q.qir"}).exit_code,
            0);
  const Outcome outcome = work_.Run({"compile", "q.qir", "--precision", "fastest"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("quantized already"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace quench::testing::precision_test
