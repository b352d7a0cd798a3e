// Reductions, softmax and the normalisations.
#include <limits>

#include "tests/unit/common/ops/run_unknown.h"

namespace quench::ops::reduction_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(Reduction, EveryKindOverOneAxis) {
  const Tensor x = F32({2, 3}, {1, -2, 3, 4, 5, -6});
  const auto run = [&](const std::string& op) {
    return RunSymbolic(op, {x, Tensor::I64({-1})}, {{"keepdims", int64_t{0}}}, 1, {1})[0];
  };
  ExpectTensor(run("ReduceSum"), {2}, {2, 3});
  ExpectTensor(run("ReduceMean"), {2}, {2.0 / 3, 1});
  ExpectTensor(run("ReduceMax"), {2}, {3, 5});
  ExpectTensor(run("ReduceMin"), {2}, {-2, -6});
  ExpectTensor(run("ReduceProd"), {2}, {-6, -120});
  ExpectTensor(run("ReduceL1"), {2}, {6, 15});
  ExpectTensor(run("ReduceL2"), {2}, {std::sqrt(14), std::sqrt(77)});
  ExpectTensor(run("ReduceSumSquare"), {2}, {14, 77});
  ExpectTensor(run("ReduceLogSum"), {2}, {std::log(2), std::log(3)});
  ExpectTensor(run("ReduceLogSumExp"), {2},
               {std::log(std::exp(1) + std::exp(-2) + std::exp(3)),
                std::log(std::exp(4) + std::exp(5) + std::exp(-6))});
}

TEST(Reduction, AxesOmittedMeanAllOrNone) {
  ExpectTensor(RunOp("ReduceSum", {Iota({2, 2})})[0], {1, 1}, {6});
  ExpectTensor(RunOp("ReduceSum", {Iota({2, 2}), Tensor::I64({})})[0], {1, 1}, {6});
  ExpectTensor(RunOp("ReduceSumSquare", {Iota({2, 2})}, {{"noop_with_empty_axes", int64_t{1}}})[0],
               {2, 2}, {0, 1, 4, 9});
  ExpectTensor(RunOp("ReduceSum", {Iota({2, 2, 2}), Tensor::I64({0, 2})})[0], {1, 2, 1}, {10, 18});
}

TEST(Reduction, OverNothingGivesTheNeutralElement) {
  const auto run = [](const std::string& op) {
    return RunOp(op, {Iota({2, 0}), Tensor::I64({1})}, {{"keepdims", int64_t{0}}})[0];
  };
  ExpectTensor(run("ReduceSum"), {2}, {0, 0});
  ExpectTensor(run("ReduceProd"), {2}, {1, 1});
  ExpectTensor(run("ReduceMax"), {2}, {-kInf, -kInf});
  ExpectTensor(run("ReduceMin"), {2}, {kInf, kInf});
  ExpectTensor(run("ReduceLogSumExp"), {2}, {-kInf, -kInf});
}

TEST(Reduction, IntegersAndBools) {
  ExpectTensor(RunOp("ReduceSum", {I32({3}, {1, 2, 4})})[0], {1}, {7});
  ExpectTensor(RunOp("ReduceMax", {I8({3}, {-5, -2, -9})})[0], {1}, {-2});
  ExpectTensor(RunOp("ReduceMax", {Bool({2}, {0, 1})})[0], {1}, {1});
  ExpectTensor(RunOp("ReduceMin", {Bool({2}, {0, 1})})[0], {1}, {0});
  ExpectTensor(RunOp("ReduceL1", {U8({2}, {3, 4})})[0], {1}, {7});
}

TEST(Reduction, LargeExponentialsDoNotOverflow) {
  ExpectTensor(RunOp("ReduceLogSumExp", {F32({2}, {1000, 1000})})[0], {1}, {1000 + std::log(2)});
  ExpectTensor(RunOp("Softmax", {F32({2}, {1000, 1000})})[0], {2}, {0.5, 0.5});
}

TEST(Reduction, ArgMaxFindsTheFirstOrLast) {
  const Tensor x = F32({2, 3}, {2, 2, 1, 0, 5, 5});
  ExpectTensor(RunSymbolic("ArgMax", {x}, {{"axis", int64_t{1}}})[0], {2, 1}, {0, 1});
  ExpectTensor(
      RunOp("ArgMax", {x},
            {{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}, {"keepdims", int64_t{0}}})[0],
      {2}, {1, 2});
  ExpectTensor(RunOp("ArgMin", {x})[0], {1, 3}, {1, 0, 0});
  ExpectTensor(RunOp("ArgMax", {F32({3}, {1, kNaN, 2})})[0], {1}, {1});
}

TEST(Reduction, SoftmaxFamily) {
  const Tensor x = F32({2, 2}, {0, std::log(3.0F), 1, 1});
  ExpectTensor(RunSymbolic("Softmax", {x})[0], {2, 2}, {0.25, 0.75, 0.5, 0.5});
  ExpectTensor(RunOp("LogSoftmax", {x})[0], {2, 2},
               {std::log(0.25), std::log(0.75), std::log(0.5), std::log(0.5)});
  ExpectTensor(RunOp("Hardmax", {x})[0], {2, 2}, {0, 1, 1, 0});
  const double e = 1 / (1 + std::exp(1.0));
  ExpectTensor(RunSymbolic("Softmax", {F32({2, 1}, {0, 1})}, {{"axis", int64_t{0}}})[0], {2, 1},
               {e, 1 - e});
}

TEST(Normalization, LayerNormScalesShiftsAndGivesStatistics) {
  const Operands operands = {F32({2, 2}, {1, 3, -2, 2}), F32({2}, {2, 1}), F32({2}, {0, 10})};
  for (const auto& y : {RunOp("LayerNormalization", operands, {{"epsilon", 0.0}}, 3),
                        RunSymbolic("LayerNormalization", operands, {{"epsilon", 0.0}}, 3)}) {
    ExpectTensor(y[0], {2, 2}, {-2, 11, -2, 11});
    ExpectTensor(y[1], {2, 1}, {2, 0});
    ExpectTensor(y[2], {2, 1}, {1, 0.5});
  }
  ExpectError(TryOp("LayerNormalization", {Iota({2, 2}), Iota({3})}), "broadcast");
}

TEST(Normalization, RmsLpAndMeanVariance) {
  ExpectTensor(
      RunOp("RMSNormalization", {F32({1, 2}, {3, 4}), F32({2}, {1, 2})}, {{"epsilon", 0.0}})[0],
      {1, 2}, {3 / std::sqrt(12.5), 8 / std::sqrt(12.5)});
  ExpectTensor(RunOp("LpNormalization", {F32({2, 2}, {3, 4, 0, 0})})[0], {2, 2}, {0.6, 0.8, 0, 0});
  ExpectTensor(RunOp("LpNormalization", {F32({2}, {1, -3})}, {{"p", int64_t{1}}})[0], {2},
               {0.25, -0.75});
  ExpectTensor(RunSymbolic("MeanVarianceNormalization", {F32({1, 1, 1, 2}, {1, 5})})[0],
               {1, 1, 1, 2}, {-1, 1});
}

TEST(Normalization, InstanceAndGroupNorm) {
  const Tensor x = F32({1, 2, 2}, {1, 3, 10, 30});
  ExpectTensor(RunSymbolic("InstanceNormalization", {x, F32({2}, {1, 2}), F32({2}, {0, 5})},
                           {{"epsilon", 0.0}}, 1, {1, 2})[0],
               {1, 2, 2}, {-1, 1, 3, 7});
  const double deviation = std::sqrt((100.0 + 64 + 1 + 19 * 19) / 4);  // mean 11
  ExpectTensor(RunOp("GroupNormalization", {x, F32({2}, {1, 1}), F32({2}, {0, 0})},
                     {{"epsilon", 0.0}, {"num_groups", int64_t{1}}})[0],
               {1, 2, 2}, {-10 / deviation, -8 / deviation, -1 / deviation, 19 / deviation}, 1e-5);
  ExpectError(TryOp("GroupNormalization", {x, F32({2}, {1, 1}), F32({2}, {0, 0})},
                    {{"num_groups", int64_t{3}}}),
              "must divide");
}

TEST(Normalization, LongPlanesFarFromZeroKeepTheirDigits) {
  // 1000 and 1002 in turn: mean 1001, deviation 1. A running f32 sum of so many is off by more.
  std::vector<float> values(200'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 1000 : 1002;
  const Tensor x = F32({1, 1, static_cast<int64_t>(values.size())}, values);
  for (const std::string op : {"InstanceNormalization", "GroupNormalization"}) {
    Attributes attributes = {{"epsilon", 0.0}};
    if (op == "GroupNormalization") attributes["num_groups"] = int64_t{1};
    const Tensor y = RunOp(op, {x, F32({1}, {1}), F32({1}, {0})}, attributes)[0];
    EXPECT_NEAR(y.FloatAt(0), -1, 1e-6) << op;
    EXPECT_NEAR(y.FloatAt(1), 1, 1e-6) << op;
  }
}

TEST(Normalization, LrnDividesByNeighbours) {
  const Attributes attributes = {
      {"size", int64_t{3}}, {"alpha", 3.0}, {"beta", 1.0}, {"bias", 1.0}};
  ExpectTensor(RunSymbolic("LRN", {F32({1, 3, 1}, {1, 2, 3})}, attributes)[0], {1, 3, 1},
               {1.0 / 6, 2.0 / 15, 3.0 / 14});
}

TEST(Normalization, DropoutIsTheIdentityWithAFullMask) {
  const auto y = RunUnknown("Dropout", {Iota({2})}, {}, 2);
  ExpectTensor(y[0], {2}, {0, 1});
  ExpectTensor(y[1], {2}, {1, 1});
  ExpectError(TryOp("Dropout", {Iota({2}), F32({}, {0.5F}), Bool({}, {1})}), "training_mode");
}

}  // namespace
}  // namespace quench::ops::reduction_test
