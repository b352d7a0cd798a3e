#include "services/analyser/infer.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/passes/pass.h"
#include "common/runner/inputs.h"
#include "services/codegen/codegen.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"

namespace quench::analyser::infer_test {
namespace {

using ::quench::testing::Add;
using ::quench::testing::HasSubstr;

using Names = std::vector<std::string>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Row(const std::vector<float>& values) {
  return Tensor::Of<float>(DataType::kF32, {1, static_cast<int64_t>(values.size())}, values);
}

// x -> exp -> relu -> neg.
Graph Chain() {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 4}));
  const ValueId e = Add(graph, "Exp", {x}, {}, "exp");
  const ValueId r = Add(graph, "Relu", {e}, {}, "relu");
  graph.outputs = {Add(graph, "Neg", {r}, {}, "neg")};
  return graph;
}

std::vector<std::string> NamesOf(const InferReport& report) {
  std::vector<std::string> names;
  for (const InferredValue& value : report.values) names.push_back(value.name);
  return names;
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(InferTest, ShowsOutputsAndTheValuesThatAreAskedFor) {
  const Graph graph = Chain();
  const std::vector<Tensor> inputs = {Row({0, 1, 2, -1})};
  const auto names = [&](const InferOptions& options) {
    const auto report = Infer(graph, inputs, options, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return NamesOf(*report);
  };
  const std::string e = graph.value(graph.node(0).outputs[0]).name,
                    r = graph.value(graph.node(1).outputs[0]).name,
                    n = graph.value(graph.outputs[0]).name;
  EXPECT_EQ(names({}), (Names{n}));
  EXPECT_EQ(names({.ops = {"Relu"}}), (Names{r, n}));
  EXPECT_EQ(names({.names = {"e*"}}), (Names{e, n}));
  EXPECT_EQ(names({.all = true}), (Names{e, r, n}));
  std::map<std::string, Tensor> seen;
  const auto report =
      Infer(graph, inputs, {.all = true}, [&](const InferredValue& value, const Tensor& tensor) {
        seen[value.name] = tensor;
        return absl::OkStatus();
      });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FLOAT_EQ(seen.at(e).as<float>()[1], std::exp(1.0f));
  EXPECT_TRUE(report->values[2].output);
  EXPECT_EQ(report->values[1].op, "Relu");
  EXPECT_EQ(report->values[1].node, "relu");
  const nlohmann::json json = nlohmann::json::parse(ToJson(*report));
  EXPECT_EQ(json.at("values").size(), 3u);
  EXPECT_EQ(json.at("source"), "interpreter");
}

TEST(InferTest, PatternsWithoutNodesAreNamed) {
  const auto report = Infer(Chain(), std::vector<Tensor>{Row({0, 0, 0, 0})}, {.ops = {"Conv"}}, {});
  EXPECT_THAT(MessageOf(report.status()), HasSubstr("no node has an operator `Conv`"));
}

TEST(InferTest, AnErrorOfTheSinkEndsIt) {
  const auto report =
      Infer(Chain(), std::vector<Tensor>{Row({0, 0, 0, 0})}, {.all = true},
            [](const InferredValue&, const Tensor&) { return absl::DataLossError("full"); });
  EXPECT_EQ(MessageOf(report.status()), "full");
}

TEST(InferTest, CodeShowsWhatItHasByItself) {
  const Graph graph = Chain();
  const TempDir folder = *TempDir::Create();
  codegen::CompileOptions options;
  options.taps = codegen::Taps::kRunningCode;
  const auto prepared = passes::RunPipeline(graph, options.passes, {});
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  ASSERT_TRUE(
      codegen::Compile(*prepared, options, folder.path() / "m.so", folder.path() / "m.h").ok());
  const auto library = Artifact::Open(folder.path() / "m.so");
  ASSERT_TRUE(library.ok()) << library.status();
  const std::vector<Tensor> inputs = {Row({0, 1, 2, -1})};
  const auto report = InferLibrary(graph, **library, inputs, {.ops = {"*"}}, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->source, "library");
  // Seen or said to be absent: nothing is lost.
  EXPECT_EQ(report->values.size() + report->absent.size(), 3u);
  EXPECT_FLOAT_EQ(static_cast<float>(report->values.back().statistics.max), -std::exp(-1.0f));
  for (const std::string& name : report->absent) EXPECT_THAT(ToTable(*report), HasSubstr(name));
}

TEST(StatisticsTest, CountWhatIsNoNumberApart) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const TensorStatistics found = StatisticsOf(Row({0, 4, kNan, -kInfinity, 2, 2}));
  EXPECT_EQ(found.elements, 6);
  EXPECT_EQ(found.zeros, 1);
  EXPECT_EQ(found.nan, 1);
  EXPECT_EQ(found.infinite, 1);
  EXPECT_EQ(found.min, 0);
  EXPECT_EQ(found.max, 4);
  EXPECT_EQ(found.mean, 2);
  EXPECT_DOUBLE_EQ(found.std, std::sqrt(2.0));
  ASSERT_EQ(found.histogram.size(), 20u);
  EXPECT_EQ(found.histogram[0], 1);
  EXPECT_EQ(found.histogram[10], 2);
  EXPECT_EQ(found.histogram[19], 1);
  EXPECT_TRUE(StatisticsOf(Row({kNan})).histogram.empty());
}

struct Picture {
  uint32_t width = 0, height = 0;
  std::vector<uint8_t> rgb;
  int Grey(uint32_t x, uint32_t y) const {
    const uint8_t* pixel = &rgb[3 * (y * width + x)];
    return pixel[0] == pixel[1] && pixel[1] == pixel[2] ? pixel[0] : -1;
  }
};

Picture Decoded(const Tensor& tensor) {
  const auto png = FeatureMaps(tensor);
  EXPECT_TRUE(png.ok()) << png.status();
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, png->data(), png->size()), 0);
  image.format = PNG_FORMAT_RGB;
  Picture picture{image.width, image.height, std::vector<uint8_t>(PNG_IMAGE_SIZE(image))};
  EXPECT_NE(png_image_finish_read(&image, nullptr, picture.rgb.data(), 0, nullptr), 0);
  return picture;
}

TEST(FeatureMapsTest, LieBesideOneAnotherFromBlackToWhite) {
  // Three maps of two rows and two columns, enlarged 32 times.
  const Tensor maps =
      Tensor::Of<float>(DataType::kF32, {1, 3, 2, 2}, {0, 1, 2, 4, -1, kNan, -1, -3, 5, 5, 5, 5});
  const Picture picture = Decoded(maps);
  EXPECT_EQ(picture.width, 2 * 64 + 1u);
  EXPECT_EQ(picture.height, 2 * 64 + 1u);
  EXPECT_EQ(picture.Grey(0, 0), 0);
  EXPECT_EQ(picture.Grey(63, 63), 255);
  EXPECT_NEAR(picture.Grey(0, 63), 127, 1);
  EXPECT_EQ(picture.Grey(64, 0), -1);  // between two maps
  EXPECT_EQ(picture.Grey(65, 0), 255);
  EXPECT_EQ(picture.Grey(128, 0), 0);     // NaN
  EXPECT_EQ(picture.Grey(0, 65), 0);      // all alike
  EXPECT_EQ(picture.Grey(128, 128), -1);  // there is no fourth
}

TEST(FeatureMapsTest, AnySizeHasAPicture) {
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {}, {7}, {100'000}, {3, 5}, {2, 300, 8, 9}, {9'000, 9'000}}) {
    const Picture picture = Decoded(Tensor::Zeros(DataType::kI8, dims));
    EXPECT_LE(picture.width, 30'000u);
    EXPECT_LE(static_cast<int64_t>(picture.width) * picture.height, 64'000'000);
  }
  EXPECT_FALSE(FeatureMaps(Tensor::Zeros(DataType::kF32, {2, 0})).ok());
  EXPECT_FALSE(FeatureMaps(Tensor::Strings({1}, {"a"})).ok());
}

}  // namespace
}  // namespace quench::analyser::infer_test
