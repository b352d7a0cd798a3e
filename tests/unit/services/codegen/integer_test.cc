// Quantized layers as kernels compute them: bit for bit what the integers mean, by every form of
// multiplication that this CPU has.
#include <gtest/gtest.h>

#include "common/ops/evaluate.h"
#include "common/runtime/quench_rt.h"
#include "services/codegen/targets/target.h"
#include "tests/unit/services/codegen/byte_layers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen {
namespace {

// Targets that this CPU runs.
std::vector<std::string> Runnable() {
  std::vector<std::string> names;
  const uint32_t machine = ResolveTarget("host").value()[0].machine;
  for (const TargetName& each : TargetNames()) {
    const std::vector<Target> variants = ResolveTarget(each.name).value();
    const bool runs = variants[0].machine == machine &&
                      (variants.back().required_features & ~quench_rt_cpu_features()) == 0;
    if (runs) names.push_back(each.name);
  }
  return names;
}

void ExpectBits(const Tensor& actual, const Tensor& expected, const std::string& where) {
  ASSERT_EQ(actual.dims(), expected.dims()) << where;
  ASSERT_EQ(actual.dtype(), expected.dtype()) << where;
  for (int64_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual.FloatAt(i), expected.FloatAt(i)) << where << ", element " << i;
  }
}

class ByteLayerTest : public ::testing::TestWithParam<ByteLayer> {};

TEST_P(ByteLayerTest, HasTheIntegersBits) {
  const Graph graph = ByteGraph(GetParam());
  const std::vector<Tensor> inputs = ByteInputs(graph);
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(InIntegers(graph), inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const std::string& target : Runnable()) {
    for (const int level : {0, 2, 3}) {
      if (level < 3 && target != "host") continue;
      CompileOptions options;
      options.opt_level = level;
      options.target = target;
      const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      for (const int threads : {1, 3}) {
        const auto artifact = Artifact::Open(compiled->library(), threads);
        ASSERT_TRUE(artifact.ok()) << artifact.status();
        for (int run = 0; run < 2; ++run) {  // the second sees a dirty arena
          const absl::StatusOr<std::vector<Tensor>> actual = (*artifact)->Run(inputs);
          ASSERT_TRUE(actual.ok()) << actual.status();
          ExpectBits(
              (*actual)[0], (*expected)[0],
              target + ", level " + std::to_string(level) + ", threads " + std::to_string(threads));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, ByteLayerTest, ::testing::ValuesIn(ByteLayers()),
                         [](const auto& test) { return test.param.name; });

// Kernels of bytes take these layers, and name the form they multiply by.
TEST(ByteLayers, AreNotLeftToNests) {
  for (const ByteLayer& layer : ByteLayers()) {
    if (layer.name == "product_odd") continue;  // k is not a multiple of 4
    const absl::StatusOr<Compiled> compiled = CompileGraph(ByteGraph(layer));
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_EQ(compiled->report.kernels.size(), 1u) << layer.name;
    const std::string& kernel = compiled->report.kernels[0].kernel;
    EXPECT_TRUE(kernel == "conv" || kernel == "depthwise" || kernel == "matmul")
        << layer.name << ": " << kernel;
  }
}

}  // namespace
}  // namespace quench::codegen
