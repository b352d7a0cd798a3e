// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
#include <gtest/gtest.h>

#include "common/ops/pointwise.h"
#include "run_op.h"

namespace quench::ops::quantize_test {
namespace {

TEST(QuantizeLinear, RoundsHalvesToEvenAndSaturates) {
  const Tensor x = F32({6}, {0, 1, 3, -1, 1000, -1000});
  const std::vector<Tensor> y = RunOp("QuantizeLinear", {x, F32({}, {2}), U8({}, {10})});
  EXPECT_EQ(y[0].dtype(), DataType::kU8);
  ExpectTensor(y[0], {6}, {10, 10, 12, 10, 255, 0});
  ExpectTensor(RunOp("QuantizeLinear", {x, F32({}, {2}), I8({}, {0})})[0], {6},
               {0, 0, 2, 0, 127, -128});
  EXPECT_EQ(RunOp("QuantizeLinear", {x, F32({}, {2})},
                  {{"output_dtype", static_cast<int64_t>(DataType::kI16)}})[0]
                .dtype(),
            DataType::kI16);
}

TEST(QuantizeLinear, PerAxisAndBlocked) {
  const Tensor x = F32({2, 4}, {1, 2, 3, 4, 10, 20, 30, 40});
  ExpectTensor(
      RunOp("QuantizeLinear", {x, F32({2}, {1, 10}), U8({2}, {0, 1})}, {{"axis", int64_t{0}}})[0],
      {2, 4}, {1, 2, 3, 4, 2, 3, 4, 5});
  const Tensor scale = F32({2, 2}, {1, 0.5f, 10, 5});
  ExpectTensor(
      RunOp("QuantizeLinear", {x, scale}, {{"axis", int64_t{1}}, {"block_size", int64_t{2}}})[0],
      {2, 4}, {1, 2, 6, 8, 1, 2, 6, 8});
}

TEST(DequantizeLinear, PerTensorPerAxisAndBlocked) {
  const Tensor x = U8({2, 3}, {0, 128, 255, 10, 20, 30});
  ExpectTensor(RunOp("DequantizeLinear", {x, F32({}, {0.5f}), U8({}, {128})})[0], {2, 3},
               {-64, 0, 63.5, -59, -54, -49});
  ExpectTensor(RunOp("DequantizeLinear", {x, F32({3}, {1, 2, 3})})[0], {2, 3},
               {0, 256, 765, 10, 40, 90});
  ExpectTensor(RunOp("DequantizeLinear", {x, F32({1, 3}, {1, 2, 3}), U8({1, 3}, {0, 1, 0})},
                     {{"axis", int64_t{0}}, {"block_size", int64_t{2}}})[0],
               {2, 3}, {0, 254, 765, 10, 38, 90});
  ExpectTensor(RunOp("DequantizeLinear", {I32({1}, {-7}), F32({}, {0.5f})})[0], {1}, {-3.5});
  // A scale of one element fits a vector although the default axis 1 does not exist.
  ExpectTensor(RunOp("DequantizeLinear", {U8({2}, {1, 2}), F32({1}, {3})})[0], {2}, {3, 6});
}

TEST(DequantizeLinear, ScalesThatDoNotFitAreNamed) {
  const Tensor x = U8({2, 3}, {0, 0, 0, 0, 0, 0});
  ExpectError(TryOp("DequantizeLinear", {x, F32({2}, {1, 2})}), "size of input 1 and dim 1 of x");
  ExpectError(TryOp("DequantizeLinear", {x, F32({2}, {1, 2})}, {{"axis", int64_t{5}}}), "axis 5");
  ExpectError(TryOp("DequantizeLinear", {x, F32({2, 2}, {1, 1, 1, 1})},
                    {{"axis", int64_t{0}}, {"block_size", int64_t{2}}}),
              "the blocks of x");
  ExpectError(TryOp("DequantizeLinear", {x, F32({}, {1}), I8({}, {1})}), "takes one type");
}

TEST(QTable, TakesEntriesByTheBitsOfBytes) {
  std::vector<uint8_t> entries(256);
  for (size_t i = 0; i < entries.size(); ++i) entries[i] = static_cast<uint8_t>(255 - i);
  const Tensor table = U8({256}, entries);
  ExpectTensor(RunOp("q.table", {U8({2, 2}, {0, 1, 128, 255}), table})[0], {2, 2},
               {255, 254, 127, 0});
  const std::vector<Tensor> y = RunOp("q.table", {I8({4}, {0, 127, -128, -1}), table});
  EXPECT_EQ(y[0].dtype(), DataType::kU8);
  ExpectTensor(y[0], {4}, {255, 128, 127, 0});
  ExpectTensor(RunOp("q.table", {U8({}, {2}), table})[0], {}, {253});
}

TEST(QTable, NamesWhatDoesNotFit) {
  const Tensor table = U8({256}, std::vector<uint8_t>(256));
  ExpectError(TryOp("q.table", {U8({1}, {0}), U8({2}, {0, 0})}), "a byte needs 256 entries");
  ExpectError(TryOp("q.table", {U8({1}, {0}), U8({1, 256}, std::vector<uint8_t>(256))}), "rank");
  ExpectError(TryOp("q.table", {I32({1}, {0}), table}), "input 0");
}

Attributes Average(Attributes more, DataType to = DataType::kU8) {
  more.merge(Attributes{{"scale", 0.5}, {"to", static_cast<int64_t>(to)}});
  return more;
}

TEST(QAveragePool, AveragesWindowsInIntegers) {
  const Tensor x = U8({1, 1, 2, 3}, {10, 20, 30, 250, 255, 255});
  const Attributes pairs = {{"kernel_shape", Dims{2, 2}}};
  // (535 / 4, 560 / 4) / 2, half to even
  ExpectTensor(RunOp("q.average_pool", {x}, Average(pairs))[0], {1, 1, 1, 2}, {67, 70});
  Attributes moved = pairs;
  moved["x_zero_point"] = int64_t{100}, moved["y_zero_point"] = int64_t{-10};
  const Tensor y = RunOp("q.average_pool", {x}, Average(moved, DataType::kI8))[0];
  EXPECT_EQ(y.dtype(), DataType::kI8);
  ExpectTensor(y, {1, 1, 1, 2}, {7, 10});
}

TEST(QAveragePool, PaddingIsZeroAndCountsIfAsked) {
  const Tensor x = U8({1, 1, 1, 2}, {110, 104});
  Attributes padded = {
      {"kernel_shape", Dims{1, 2}}, {"pads", Dims{0, 1, 0, 0}}, {"x_zero_point", int64_t{100}}};
  ExpectTensor(RunOp("q.average_pool", {x}, Average(padded))[0], {1, 1, 1, 2}, {5, 4});
  padded["count_include_pad"] = int64_t{1};
  ExpectTensor(RunOp("q.average_pool", {x}, Average(padded))[0], {1, 1, 1, 2}, {2, 4});
}

TEST(QAveragePool, WithoutAKernelItIsGlobal) {
  const Tensor x = I8({1, 2, 2, 2}, {-128, -128, -128, -128, 1, 2, 3, 8});
  ExpectTensor(RunOp("q.average_pool", {x}, Average({}, DataType::kI8))[0], {1, 2, 1, 1}, {-64, 2});
  ExpectTensor(RunOp("q.average_pool", {x}, Average({}))[0], {1, 2, 1, 1}, {0, 2});
}

TEST(QAveragePool, NamesWhatDoesNotFit) {
  const Tensor x = U8({1, 1, 2}, {0, 0});
  ExpectError(TryOp("q.average_pool", {x}, Average({}, DataType::kI32)), "to is");
  ExpectError(TryOp("q.average_pool", {x}, Average({{"x_zero_point", int64_t{-1}}})),
              "x_zero_point is -1, which u8 does not hold");
  ExpectError(TryOp("q.average_pool", {x}, Average({{"y_zero_point", int64_t{256}}})),
              "y_zero_point is 256");
  ExpectError(TryOp("q.average_pool", {F32({1, 1, 2}, {0, 0})}, Average({})), "input 0");
}

TEST(Quantization, BlockedNodesAreNotPointwise) {
  const Graph plain = OneNode("DequantizeLinear", {U8({2}, {1, 2}), F32({}, {1})});
  const Graph blocked = OneNode("DequantizeLinear", {U8({2}, {1, 2}), F32({1}, {1})},
                                {{"axis", int64_t{0}}, {"block_size", int64_t{2}}});
  EXPECT_TRUE(IsPointwise(plain.nodes[0]));
  EXPECT_FALSE(IsPointwise(blocked.nodes[0]));
}

TEST(DynamicQuantizeLinear, CoversTheRangeAndZero) {
  const std::vector<Tensor> y = RunOp("DynamicQuantizeLinear", {F32({4}, {-1, 0, 1.5f, 4})}, {}, 3);
  // Scale 5 / 255, zero point rne(1 / scale) = 51.
  ExpectTensor(y[1], {}, {5.0 / 255}, 1e-6);
  ExpectTensor(y[2], {}, {51});
  ExpectTensor(y[0], {4}, {0, 51, 127, 255}, 0.51);
  // Only positive values: 0 is part of the range.
  ExpectTensor(RunOp("DynamicQuantizeLinear", {F32({2}, {51, 255})}, {}, 3)[0], {2}, {51, 255});
  // Nothing but zeros: scale 1.
  const std::vector<Tensor> zeros = RunOp("DynamicQuantizeLinear", {F32({2}, {0, 0})}, {}, 3);
  ExpectTensor(zeros[1], {}, {1});
  ExpectTensor(zeros[0], {2}, {0, 0});
}

}  // namespace
}  // namespace quench::ops::quantize_test
