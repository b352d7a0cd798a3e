// Operators that sample, crop or take apart: by grids, regions and indices.
#include "tests/unit/common/ops/run_unknown.h"

namespace quench::ops::sampling_test {
namespace {

TEST(Sampling, GridSampleInterpolatesAndPads) {
  const Tensor x = F32({1, 1, 2, 2}, {0, 1, 2, 3});
  const Tensor grid = F32({1, 1, 3, 2}, {0, 0, -1, -1, 3, 0});  // centre, corner, far right
  const auto run = [&](const std::string& padding, int64_t align) {
    return RunUnknown("GridSample", {x, grid},
                      {{"padding_mode", padding}, {"align_corners", align}})[0];
  };
  ExpectTensor(run("zeros", 1), {1, 1, 1, 3}, {1.5, 0, 0});
  ExpectTensor(run("zeros", 0), {1, 1, 1, 3}, {1.5, 0, 0});
  ExpectTensor(run("border", 0), {1, 1, 1, 3}, {1.5, 0, 2});
  ExpectTensor(run("reflection", 1), {1, 1, 1, 3}, {1.5, 0, 1});
  ExpectTensor(
      RunSymbolic("GridSample", {x, grid},
                  {{"mode", std::string("nearest")}, {"padding_mode", std::string("border")}}, 1,
                  {1})[0],
      {1, 1, 1, 3}, {0, 0, 1});
  ExpectError(TryOp("GridSample", {x, grid}, {{"mode", std::string("area")}}), "mode is `area`");
}

TEST(Sampling, AffineGridOfTheIdentityIsTheGrid) {
  const Operands operands = {F32({1, 2, 3}, {1, 0, 0, 0, 1, 0}), Tensor::I64({1, 1, 2, 2})};
  ExpectTensor(RunUnknown("AffineGrid", operands)[0], {1, 2, 2, 2},
               {-0.5, -0.5, 0.5, -0.5, -0.5, 0.5, 0.5, 0.5});
  ExpectTensor(RunOp("AffineGrid", operands, {{"align_corners", int64_t{1}}})[0], {1, 2, 2, 2},
               {-1, -1, 1, -1, -1, 1, 1, 1});
}

// torch.nn.functional.affine_grid(theta, [1, 1, 1, 3], align_corners=...), of theta with shifts.
TEST(Sampling, AffineGridOfOneElementIsItsCentre) {
  const Operands operands = {F32({1, 2, 3}, {1, 0, 0.25, 0, 1, 0.5}), Tensor::I64({1, 1, 1, 3})};
  ExpectTensor(RunUnknown("AffineGrid", operands, {{"align_corners", int64_t{1}}})[0], {1, 1, 3, 2},
               {-0.75, 0.5, 0.25, 0.5, 1.25, 0.5});
  ExpectTensor(RunOp("AffineGrid", operands, {{"align_corners", int64_t{0}}})[0], {1, 1, 3, 2},
               {0.25 - 2.0 / 3, 0.5, 0.25, 0.5, 0.25 + 2.0 / 3, 0.5});
}

TEST(Sampling, RoiAlignAveragesItsSamples) {
  const Tensor x = Iota({1, 1, 4, 4});
  const Operands operands = {x, F32({1, 4}, {0, 0, 4, 4}), I64({1}, {0})};
  Attributes attributes = {
      {"output_height", int64_t{2}}, {"output_width", int64_t{2}}, {"sampling_ratio", int64_t{2}}};
  ExpectTensor(RunUnknown("RoiAlign", operands, attributes)[0], {1, 1, 2, 2},
               {2.5, 4.5, 10.5, 12.5});
  attributes["sampling_ratio"] = int64_t{0};  // as many samples as elements
  ExpectTensor(RunUnknown("RoiAlign", operands, attributes)[0], {1, 1, 2, 2},
               {2.5, 4.5, 10.5, 12.5});
  ExpectError(TryOp("RoiAlign", {x, F32({1, 4}, {0, 0, 4, 4}), I64({1}, {1})}),
              "batch index is out of range");
}

TEST(Sampling, MaxUnpoolPutsMaximaBack) {
  const Operands operands = {F32({1, 1, 1, 2}, {5, 7}), I64({1, 1, 1, 2}, {1, 6})};
  const Attributes attributes = {{"kernel_shape", std::vector<int64_t>{2, 2}},
                                 {"strides", std::vector<int64_t>{2, 2}}};
  ExpectTensor(RunUnknown("MaxUnpool", operands, attributes)[0], {1, 1, 2, 4},
               {0, 5, 0, 0, 0, 0, 7, 0});
  ExpectError(TryOp("MaxUnpool", {F32({1, 1, 1, 1}, {5}), I64({1, 1, 1, 1}, {4})}, attributes),
              "out of range");
}

TEST(Sampling, Col2ImAddsWhatOverlaps) {
  const Operands operands = {F32({1, 2, 2}, {1, 2, 3, 4}), Tensor::I64({3}), Tensor::I64({2})};
  ExpectTensor(RunOp("Col2Im", operands)[0], {1, 1, 3}, {1, 5, 4});
  ExpectTensor(RunSymbolic("Col2Im", operands, {}, 1, {1, 2})[0], {1, 1, 3}, {1, 5, 4});
  ExpectError(TryOp("Col2Im", {Iota({1, 2, 3}), Tensor::I64({3}), Tensor::I64({2})}),
              "number of blocks");
}

TEST(Sampling, CenterCropPadKeepsTheMiddle) {
  ExpectTensor(RunUnknown("CenterCropPad", {Iota({5}), Tensor::I64({2})})[0], {2}, {1, 2});
  ExpectTensor(RunUnknown("CenterCropPad", {Iota({2}, 1), Tensor::I64({5})})[0], {5},
               {0, 1, 2, 0, 0});
  ExpectTensor(RunOp("CenterCropPad", {Iota({2, 3}), Tensor::I64({1})},
                     {{"axes", std::vector<int64_t>{-1}}})[0],
               {2, 1}, {1, 4});
}

TEST(Sampling, UniqueSortsOrKeepsTheOrder) {
  const Tensor x = F32({6}, {2, 1, 1, 3, 4, 3});
  auto y = RunUnknown("Unique", {x}, {}, 4);
  ExpectTensor(y[0], {4}, {1, 2, 3, 4});
  ExpectTensor(y[1], {4}, {1, 0, 3, 4});
  ExpectTensor(y[2], {6}, {1, 0, 0, 2, 3, 2});
  ExpectTensor(y[3], {4}, {2, 1, 2, 1});
  y = RunUnknown("Unique", {x}, {{"sorted", int64_t{0}}}, 4);
  ExpectTensor(y[0], {4}, {2, 1, 3, 4});
  ExpectTensor(y[2], {6}, {0, 1, 1, 2, 3, 2});
  y = RunUnknown("Unique", {F32({3, 2}, {1, 0, 1, 0, 0, 9})}, {{"axis", int64_t{0}}}, 4);
  ExpectTensor(y[0], {2, 2}, {0, 9, 1, 0});
  ExpectTensor(y[3], {2}, {1, 2});
}

}  // namespace
}  // namespace quench::ops::sampling_test
