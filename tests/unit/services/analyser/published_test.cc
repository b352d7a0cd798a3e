// Figures that others have published of well-known networks, by torchinfo, ptflops and a report
// that lists a model's bandwidth. docs/analysing.md says by what rules they count.
#include <gtest/gtest.h>

#include "services/analyser/analyser.h"
#include "services/analyser/listings.h"
#include "tests/unit/services/analyser/published_networks.h"

namespace quench::analyser::published_test {
namespace {

ModelReport ReportOf(const Graph& graph) {
  auto report = Analyse(graph, graph);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : ModelReport{};
}

Work OperatorOf(const ModelReport& report, const std::string& op) {
  for (const OperatorReport& each : report.by_operator) {
    if (each.op == op) return each.work;
  }
  ADD_FAILURE() << "no " << op;
  return {};
}

TEST(PublishedTest, GoogLeNetOfTorchvision) {
  const ModelReport report = ReportOf(testing::TorchvisionGoogLeNet());
  EXPECT_EQ(report.work.parameters, 6'624'904);
  EXPECT_EQ(report.trainable_parameters, 6'624'904);
  EXPECT_EQ(report.work.weight_bytes, 26'499'616);
  // ptflops, by kind.
  const Work conv = OperatorOf(report, "Conv"), linear = OperatorOf(report, "Gemm");
  EXPECT_EQ(conv.macs, 1'497'352'192);
  EXPECT_EQ(conv.macs_with_bias, conv.macs);  // there is none
  EXPECT_EQ(linear.macs_with_bias, 1'025'000);
  const int64_t norms = OperatorOf(report, "BatchNormalization").operations;
  const int64_t maxima = OperatorOf(report, "MaxPool").operations;
  const int64_t means = OperatorOf(report, "GlobalAveragePool").operations;
  const int64_t relus = OperatorOf(report, "Relu").operations;
  EXPECT_EQ(norms, 6'452'320);
  EXPECT_EQ(maxima, 2'875'712);
  EXPECT_EQ(means, 50'176);
  EXPECT_EQ(relus, 3'226'160);
  // ptflops counts a pool as a module, and once more as the function that the module calls.
  EXPECT_EQ(report.work.macs_with_bias + report.work.operations + maxima + means, 1'513'907'448);
  const std::string table = ToTable(report);
  EXPECT_NE(table.find("Total params: 6,624,904\nTrainable params: 6,624,904\n"
                       "Non-trainable params: 0\nTotal mult-adds (G): 1.50\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("Input size (MB): 0.60\nForward/backward pass size (MB): 51.63\n"
                       "Params size (MB): 26.50\nEstimated Total Size (MB): 78.73\n"),
            std::string::npos)
      << table;
}

TEST(PublishedTest, GoogLeNetOfTheZoo) {
  const ModelReport report = ReportOf(testing::ZooGoogLeNet());
  EXPECT_EQ(report.work.weight_bytes, 27'994'208);
  EXPECT_EQ(OperatorOf(report, "Conv").macs_with_bias, 1'584'874'032);
  EXPECT_EQ(OperatorOf(report, "Gemm").macs_with_bias, 1'025'000);
  EXPECT_EQ(report.work.activation_bytes, 39'653'056);
  EXPECT_EQ(report.nested_activation_bytes, 50'087'872);
  EXPECT_EQ(OperatorOf(report, "AveragePool").operations, 50'176);
  EXPECT_EQ(OperatorOf(report, "MaxPool").operations_with_padding, 3'054'016);
  EXPECT_EQ(OperatorOf(report, "Relu").operations, 3'226'160);
}

TEST(PublishedTest, MobileNetV2OfTheZoo) {
  const Graph graph = testing::ZooMobileNetV2();
  EXPECT_EQ(graph.nodes.size(), 104u);  // and Constant_99
  const ModelReport report = ReportOf(graph);
  ASSERT_EQ(report.layers.size(), 104u);
  EXPECT_EQ(report.layers.back().node, "Gemm_104");
  const Bandwidth sums = BandwidthOf(report);
  EXPECT_EQ(sums.peak, 9'633'792);
  // The published table has no size for these two, which it could not infer.
  const int64_t gathered = report.layers[99].first_output_bytes;
  const int64_t reshaped = report.layers[102].first_output_bytes;
  EXPECT_EQ(report.layers[99].node, "Gather_100");
  EXPECT_EQ(report.layers[102].node, "Reshape_103");
  EXPECT_EQ(gathered, 8);
  EXPECT_EQ(reshaped, 5'120);
  EXPECT_EQ(sums.outputs - gathered - reshaped, 52'010'328);
  EXPECT_EQ(sums.outputs_and_input - gathered - reshaped, 52'612'440);
  EXPECT_EQ(sums.inputs - gathered - reshaped, 52'859'304);
}

}  // namespace
}  // namespace quench::analyser::published_test
