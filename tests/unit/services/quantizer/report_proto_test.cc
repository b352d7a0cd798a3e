#include "services/quantizer/report_proto.h"

#include <gtest/gtest.h>

namespace quench::quantizer::report_proto_test {
namespace {

TEST(ReportProtoTest, NothingIsLostOnTheWay) {
  QuantizeReport report;
  report.layers = {{"first", "Conv", true, ""}, {"last", "Gemm", false, "excluded"}};
  report.static_values = 1;
  report.dynamic_values = 2;
  report.weights = 3;
  report.corrected_biases = 4;
  report.adapted_kernels = 5;
  report.warnings = {"six", "seven"};
  v1::QuantizeResult result;
  FillReport(report, result);
  const QuantizeReport back = ReportOf(result);
  ASSERT_EQ(back.layers.size(), 2U);
  EXPECT_EQ(back.layers[0].node, "first");
  EXPECT_TRUE(back.layers[0].quantized);
  EXPECT_EQ(back.layers[1].op, "Gemm");
  EXPECT_EQ(back.layers[1].reason, "excluded");
  EXPECT_EQ(back.static_values, 1);
  EXPECT_EQ(back.dynamic_values, 2);
  EXPECT_EQ(back.weights, 3);
  EXPECT_EQ(back.corrected_biases, 4);
  EXPECT_EQ(back.adapted_kernels, 5);
  EXPECT_EQ(back.warnings, report.warnings);
}

}  // namespace
}  // namespace quench::quantizer::report_proto_test
