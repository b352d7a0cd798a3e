// Resize. The expected numbers come from ONNX Runtime 1.30.
#include "tests/unit/common/ops/run_unknown.h"

namespace quench::ops::resize_test {
namespace {

const Operands::value_type kNothing = std::nullopt;
Tensor Scales(float height, float width) { return F32({4}, {1, 1, height, width}); }

TEST(Resize, LinearHalfPixel) {
  const std::vector<double> expected = {1,    1.25, 1.75, 2.25, 2.75, 3,    1.75, 2,    2.5,
                                        3,    3.5,  3.75, 3.25, 3.5,  4,    4.5,  5,    5.25,
                                        4.75, 5,    5.5,  6,    6.5,  6.75, 6.25, 6.5,  7,
                                        7.5,  8,    8.25, 7,    7.25, 7.75, 8.25, 8.75, 9};
  const Operands operands = {Iota({1, 1, 3, 3}, 1), kNothing, Scales(2, 2)};
  const Attributes linear = {{"mode", std::string("linear")}};
  ExpectTensor(RunOp("Resize", operands, linear)[0], {1, 1, 6, 6}, expected);
  ExpectTensor(RunUnknown("Resize", operands, linear)[0], {1, 1, 6, 6}, expected);
  ExpectTensor(RunSymbolic("Resize", operands, linear, 1, {2})[0], {1, 1, 6, 6}, expected);
}

TEST(Resize, AlignCornersBySizes) {
  const Operands operands = {Iota({1, 1, 3, 3}, 1), kNothing, kNothing, Tensor::I64({1, 1, 2, 5})};
  const Attributes attributes = {{"mode", std::string("linear")},
                                 {"coordinate_transformation_mode", std::string("align_corners")}};
  ExpectTensor(RunUnknown("Resize", operands, attributes)[0], {1, 1, 2, 5},
               {1, 1.5, 2, 2.5, 3, 7, 7.5, 8, 8.5, 9});
}

TEST(Resize, Cubic) {
  const Operands operands = {Iota({1, 1, 3, 3}, 1), kNothing, Scales(1.5F, 1.5F)};
  ExpectTensor(RunOp("Resize", operands,
                     {{"mode", std::string("cubic")},
                      {"coordinate_transformation_mode", std::string("asymmetric")}})[0],
               {1, 1, 4, 4},
               {1, 1.574074, 2.425925, 3, 2.722222, 3.296298, 4.148148, 4.722223, 5.277776,
                5.851852, 6.7037, 7.277776, 7, 7.574077, 8.425924, 9},
               1e-5);
  ExpectTensor(RunOp("Resize", operands,
                     {{"mode", std::string("cubic")}, {"exclude_outside", int64_t{1}}})[0],
               {1, 1, 4, 4},
               {0.5945944, 1.067374, 1.939404, 2.579865, 2.012934, 2.485714, 3.357744, 3.998205,
                4.629024, 5.101804, 5.973833, 6.614294, 6.550406, 7.023187, 7.895216, 8.535676},
               1e-5);
}

TEST(Resize, NearestFloorAsymmetric) {
  const Operands operands = {Iota({1, 1, 4, 4}, 1), kNothing, Scales(0.6F, 1.5F)};
  const Attributes attributes = {{"nearest_mode", std::string("floor")},
                                 {"coordinate_transformation_mode", std::string("asymmetric")}};
  ExpectTensor(RunUnknown("Resize", operands, attributes)[0], {1, 1, 2, 6},
               {1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8});
}

TEST(Resize, NearestOfTensorFlowsHalfPixels) {
  const Operands operands = {Iota({1, 1, 4, 4}, 1), kNothing, kNothing, Tensor::I64({1, 1, 3, 2})};
  ExpectTensor(
      RunUnknown("Resize", operands,
                 {{"coordinate_transformation_mode", std::string("tf_half_pixel_for_nn")}})[0],
      {1, 1, 3, 2}, {6, 8, 10, 12, 14, 16});
}

TEST(Resize, NearestTakesAnyType) {
  ExpectTensor(
      RunOp("Resize", {I64({2}, {int64_t{1} << 60, 5}), kNothing, F32({1}, {2})})[0], {4},
      {static_cast<double>(int64_t{1} << 60), static_cast<double>(int64_t{1} << 60), 5, 5});
}

TEST(Resize, CropAndResizeExtrapolates) {
  const Operands operands = {Iota({1, 1, 4, 4}, 1), F32({8}, {0, 0, 0.4F, 0.6F, 1, 1, 1.2F, 1.7F}),
                             kNothing, Tensor::I64({1, 1, 3, 3})};
  const Attributes attributes = {
      {"mode", std::string("linear")},
      {"coordinate_transformation_mode", std::string("tf_crop_and_resize")},
      {"extrapolation_value", 10.0}};
  ExpectTensor(RunUnknown("Resize", operands, attributes)[0], {1, 1, 3, 3},
               {7.6, 10, 10, 12.4, 10, 10, 10, 10, 10});
}

TEST(Resize, AxesAndAspectRatio) {
  const Attributes larger = {{"axes", std::vector<int64_t>{2, 3}},
                             {"keep_aspect_ratio_policy", std::string("not_larger")}};
  const Operands operands = {Iota({1, 1, 2, 4}), kNothing, kNothing, Tensor::I64({7, 8})};
  EXPECT_EQ(RunOp("Resize", operands, larger)[0].dims(), (Dims{1, 1, 4, 8}));
  const Attributes smaller = {{"axes", std::vector<int64_t>{2, 3}},
                              {"keep_aspect_ratio_policy", std::string("not_smaller")}};
  EXPECT_EQ(RunOp("Resize", operands, smaller)[0].dims(), (Dims{1, 1, 7, 14}));
}

TEST(Resize, AntialiasAveragesWhatItSkips) {
  // Halving with the triangle of width 4: weights 1/8, 3/8, 3/8, 1/8, the edge repeated.
  ExpectTensor(RunOp("Resize", {F32({4}, {0, 8, 16, 24}), kNothing, F32({1}, {0.5F})},
                     {{"mode", std::string("linear")}, {"antialias", int64_t{1}}})[0],
               {2}, {5, 19});
}

TEST(Resize, AntialiasRoundsIntegers) {
  ExpectTensor(RunOp("Resize", {I32({2}, {-7, -20}), kNothing, F32({1}, {3})},
                     {{"mode", std::string("linear")}, {"antialias", int64_t{1}}})[0],
               {6}, {-7, -7, -11, -16, -20, -20});
}

TEST(Resize, ErrorsNameWhatIsWrong) {
  ExpectError(
      TryOp("Resize", {Iota({2}), kNothing, F32({1}, {2})}, {{"mode", std::string("quadratic")}}),
      "unknown mode `quadratic`");
  ExpectError(TryOp("Resize", {Iota({2})}), "either scales or sizes");
  ExpectError(TryOp("Resize", {Iota({2}), kNothing, F32({1}, {-1})}), "must be > 0");
}

}  // namespace
}  // namespace quench::ops::resize_test
