// Operators that move elements: what comes out, with contents known beforehand, unknown, and dims
// symbolic.
#include "tests/unit/common/ops/run_unknown.h"

namespace quench::ops::movement_test {
namespace {

TEST(Movement, TransposeReversesByDefault) {
  ExpectTensor(RunOp("Transpose", {Iota({2, 3})})[0], {3, 2}, {0, 3, 1, 4, 2, 5});
  ExpectTensor(
      RunSymbolic("Transpose", {Iota({2, 1, 3})}, {{"perm", std::vector<int64_t>{2, 0, 1}}})[0],
      {3, 2, 1}, {0, 3, 1, 4, 2, 5});
  ExpectError(TryOp("Transpose", {Iota({2, 3})}, {{"perm", std::vector<int64_t>{0, 0}}}),
              "axis 0 is given twice");
}

TEST(Movement, ConcatJoinsInOrder) {
  const Operands operands = {Iota({2, 1}), Iota({2, 2}, 10)};
  const std::vector<double> expected = {0, 10, 11, 1, 12, 13};
  ExpectTensor(RunOp("Concat", operands, {{"axis", int64_t{-1}}})[0], {2, 3}, expected);
  ExpectTensor(RunSymbolic("Concat", operands, {{"axis", int64_t{1}}})[0], {2, 3}, expected);
  ExpectError(TryOp("Concat", {Iota({2, 1}), Iota({3, 1})}, {{"axis", int64_t{1}}}),
              "axis 0 of inputs 0 and 1");
}

TEST(Movement, ConcatOfSymbolicSizesThatDifferFails) {
  const auto graph = SymbolicNode("Concat", {Iota({2, 1}), Iota({3, 1})}, {{"axis", int64_t{1}}});
  ExpectError(TryLowered(graph, {Iota({2, 1}), Iota({3, 1})}), "sizes of axis 0");
}

TEST(Movement, SplitBySizesAndEvenly) {
  auto parts = RunOp("Split", {Iota({5}), Tensor::I64({2, 3})}, {}, 2);
  ExpectTensor(parts[0], {2}, {0, 1});
  ExpectTensor(parts[1], {3}, {2, 3, 4});
  parts = RunOp("Split", {Iota({5})}, {{"num_outputs", int64_t{2}}},
                2);  // the last part is the smaller one
  ExpectTensor(parts[0], {3}, {0, 1, 2});
  ExpectTensor(parts[1], {2}, {3, 4});
  ExpectError(TryOp("Split", {Iota({5}), Tensor::I64({2, 2})}, {}, 2), "must be");
}

TEST(Movement, SliceClampsAndSteps) {
  const Tensor x = Iota({2, 5});
  ExpectTensor(RunOp("Slice", {x, Tensor::I64({1, -3}), Tensor::I64({9, 99})})[0], {1, 3},
               {7, 8, 9});
  const Operands backwards = {x, Tensor::I64({-1}), Tensor::I64({-99}), Tensor::I64({1}),
                              Tensor::I64({-2})};
  const std::vector<double> expected = {4, 2, 0, 9, 7, 5};
  ExpectTensor(RunOp("Slice", backwards)[0], {2, 3}, expected);
  ExpectTensor(RunUnknown("Slice", backwards, {}, 1, {3, 4})[0], {2, 3}, expected);
  ExpectTensor(
      RunUnknown("Slice", {x, Tensor::I64({3}), Tensor::I64({1}), Tensor::I64({1})}, {}, 1, {3})[0],
      {2, 0}, {});
  ExpectTensor(RunSymbolic("Slice", {x, Tensor::I64({1}), Tensor::I64({-1}), Tensor::I64({1})}, {},
                           1, {1, 2, 3})[0],
               {2, 3}, {1, 2, 3, 6, 7, 8});
  ExpectError(
      TryOp("Slice", {x, Tensor::I64({0}), Tensor::I64({1}), Tensor::I64({0}), Tensor::I64({0})}),
      "a step is 0");
}

TEST(Movement, PadInEveryMode) {
  const Tensor x = Iota({3}, 1);
  const Tensor pads = Tensor::I64({2, 4});
  const auto run = [&](const std::string& mode) {
    return RunOp("Pad", {x, pads}, {{"mode", mode}})[0];
  };
  ExpectTensor(run("constant"), {9}, {0, 0, 1, 2, 3, 0, 0, 0, 0});
  ExpectTensor(run("edge"), {9}, {1, 1, 1, 2, 3, 3, 3, 3, 3});
  ExpectTensor(run("reflect"), {9}, {3, 2, 1, 2, 3, 2, 1, 2, 3});
  ExpectTensor(run("wrap"), {9}, {2, 3, 1, 2, 3, 1, 2, 3, 1});
  ExpectTensor(RunUnknown("Pad", {x, pads, F32({}, {-7})})[0], {9},
               {-7, -7, 1, 2, 3, -7, -7, -7, -7});
  ExpectTensor(RunUnknown("Pad", {x, pads}, {{"mode", "wrap"}})[0], {9},
               {2, 3, 1, 2, 3, 1, 2, 3, 1});
}

TEST(Movement, NegativePadsCrop) {
  ExpectTensor(RunOp("Pad", {Iota({4}), Tensor::I64({-1, 2})})[0], {5}, {1, 2, 3, 0, 0});
  ExpectTensor(RunOp("Pad", {Iota({4}), Tensor::I64({2, -3})})[0], {3}, {0, 0, 0});
  ExpectTensor(
      RunOp("Pad", {Iota({2, 2}), Tensor::I64({1, -1}), std::nullopt, Tensor::I64({1})})[0], {2, 2},
      {0, 0, 0, 2});
  ExpectError(TryOp("Pad", {Iota({2}), Tensor::I64({-2, -1})}), "axis 0 would have size -1");
}

TEST(Movement, ExpandBroadcastsBothWays) {
  const Operands operands = {Iota({3, 1}), Tensor::I64({2, 1, 2})};
  const std::vector<double> expected = {0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2};
  ExpectTensor(RunOp("Expand", operands)[0], {2, 3, 2}, expected);
  ExpectTensor(RunUnknown("Expand", operands)[0], {2, 3, 2}, expected);
  ExpectError(
      TryLowered(OneNode("Expand", {Iota({3}), Tensor::I64({2})}), {Iota({3}), Tensor::I64({2})}),
      "broadcast");
}

TEST(Movement, FixedOperandMeetsSymbolicAxis) {
  const Operands operands = {U8({1, 3}, {10, 20, 30}), F32({3}, {1, 2, 4}), U8({3}, {10, 10, 10})};
  ExpectTensor(RunSymbolic("DequantizeLinear", operands, {}, 1, {1, 2})[0], {1, 3}, {0, 20, 80});
}

TEST(Movement, TileRepeats) {
  const Operands operands = {Iota({1, 2}), Tensor::I64({2, 2})};
  const std::vector<double> expected = {0, 1, 0, 1, 0, 1, 0, 1};
  ExpectTensor(RunOp("Tile", operands)[0], {2, 4}, expected);
  ExpectTensor(RunUnknown("Tile", operands)[0], {2, 4}, expected);
}

TEST(Movement, DepthToSpaceAndBack) {
  const Tensor x = Iota({1, 8, 1, 2});
  for (const char* mode : {"DCR", "CRD"}) {
    const Attributes attributes = {{"blocksize", int64_t{2}}, {"mode", std::string(mode)}};
    const Tensor y = RunOp("DepthToSpace", {x}, attributes)[0];
    EXPECT_EQ(y.dims(), (Dims{1, 2, 2, 4}));
    ExpectTensor(RunSymbolic("SpaceToDepth", {y}, attributes)[0], {1, 8, 1, 2}, Doubles(x));
  }
  ExpectTensor(RunOp("DepthToSpace", {x}, {{"blocksize", int64_t{2}}})[0], {1, 2, 2, 4},
               {0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15});
}

TEST(Movement, TriluKeepsATriangle) {
  ExpectTensor(RunOp("Trilu", {Iota({2, 3}, 1)})[0], {2, 3}, {1, 2, 3, 0, 5, 6});
  ExpectTensor(RunUnknown("Trilu", {Iota({2, 3}, 1), I64({}, {-1})}, {{"upper", int64_t{0}}})[0],
               {2, 3}, {0, 0, 0, 4, 0, 0});
}

TEST(Movement, EmptyTensorsPass) {
  ExpectTensor(RunOp("Concat", {Iota({0, 2}), Iota({1, 2})}, {{"axis", int64_t{0}}})[0], {1, 2},
               {0, 1});
  ExpectTensor(RunOp("Transpose", {Iota({0, 2})})[0], {2, 0}, {});
  ExpectTensor(RunOp("Pad", {Iota({0}), Tensor::I64({1, 1})})[0], {2}, {0, 0});
  ExpectError(TryOp("Pad", {Iota({0}), Tensor::I64({1, 1})}, {{"mode", "edge"}}),
              "nothing to repeat");
}

TEST(Movement, ReverseSequenceReversesTheFirstPart) {
  const Attributes attributes = {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}};
  ExpectTensor(RunUnknown("ReverseSequence", {Iota({2, 3}), Tensor::I64({2, 3})}, attributes)[0],
               {2, 3}, {1, 0, 2, 5, 4, 3});
  ExpectError(TryOp("ReverseSequence", {Iota({2, 3}), Tensor::I64({4, 3})}, attributes),
              "sequence length is out of range");
}

TEST(Movement, RangeCountsUpAndDown) {
  ExpectTensor(RunUnknown("Range", {I64({}, {10}), I64({}, {4}), I64({}, {-2})})[0], {3},
               {10, 8, 6});
  ExpectTensor(RunUnknown("Range", {F32({}, {1}), F32({}, {2}), F32({}, {0.3F})})[0], {4},
               {1, 1.3, 1.6, 1.9});
  ExpectTensor(RunUnknown("Range", {I64({}, {3}), I64({}, {1}), I64({}, {1})})[0], {0}, {});
  ExpectError(TryOp("Range", {I64({}, {3}), I64({}, {1}), I64({}, {0})}), "delta is 0");
}

TEST(Movement, ConstantsAreWhatTheySay) {
  ExpectTensor(RunOp("Constant", {}, {{"value_floats", std::vector<double>{1.5, -2}}})[0], {2},
               {1.5, -2});
  ExpectTensor(RunOp("Constant", {}, {{"value", I64({1, 2}, {3, 4})}})[0], {1, 2}, {3, 4});
  ExpectTensor(RunUnknown("ConstantOfShape", {Tensor::I64({2, 1})}, {{"value", I32({1}, {9})}})[0],
               {2, 1}, {9, 9});
  ExpectTensor(RunOp("EyeLike", {Iota({2, 3})}, {{"k", int64_t{1}}})[0], {2, 3},
               {0, 1, 0, 0, 0, 1});
}

}  // namespace
}  // namespace quench::ops::movement_test
