// Sizes, axes and steps that only a run knows: the loops for them against the same node with
// everything known beforehand.
#include <limits>

#include "tests/unit/common/ops/run_unknown.h"

namespace quench::ops::runtime_axes_test {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

// Runs the node with everything known, with nothing but shapes known, and with symbolic shapes
// where `fixed` operands keep theirs.
void ExpectSameAsKnown(const std::string& op, const Operands& operands,
                       const Attributes& attributes = {}, int outputs = 1) {
  const auto known = TryOp(op, operands, attributes, outputs);
  ASSERT_TRUE(known.ok()) << known.status();
  const std::vector<Tensor> unknown = RunUnknown(op, operands, attributes, outputs);
  for (size_t i = 0; i < unknown.size(); ++i)
    ExpectTensor(unknown[i], (*known)[i].dims(), Doubles((*known)[i]));
}

void ExpectRunError(const std::string& op, const Operands& operands, const std::string& part,
                    const Attributes& attributes = {}, int outputs = 1) {
  std::vector<Tensor> inputs;
  for (const auto& operand : operands) {
    if (operand) inputs.push_back(*operand);
  }
  ExpectError(TryLowered(OneNode(op, operands, attributes, outputs), inputs), part);
}

// The error of inferring a node with these operands as inputs of known shapes.
std::string InferError(const std::string& op, const Graph& graph) {
  Graph copy = graph;
  const absl::Status status = InferGraph(copy);
  EXPECT_FALSE(status.ok()) << op;
  return std::string(status.message());
}

const std::vector<std::vector<int64_t>> kAxes = {{0},     {1},    {2},       {-1},      {0, 2},
                                                 {-2, 0}, {2, 1}, {0, 1, 2}, {2, 0, 1}, {-3, -1}};

TEST(RuntimeAxes, ReductionsOfAnyAxes) {
  const Tensor x = Iota({2, 3, 4}, -5);
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd",
                         "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"}) {
    for (const std::vector<int64_t>& axes : kAxes) {
      for (const int64_t keep : {0, 1})
        ExpectSameAsKnown(op, {x, Tensor::I64(axes)}, {{"keepdims", keep}});
    }
  }
}

TEST(RuntimeAxes, AReductionWithoutAxesTakesAllOrNone) {
  const Tensor x = Iota({2, 3});
  for (const int64_t keep : {0, 1}) {
    for (const int64_t noop : {0, 1}) {
      const Attributes attributes = {{"keepdims", keep}, {"noop_with_empty_axes", noop}};
      ExpectSameAsKnown("ReduceSum", {x, Tensor::I64({})}, attributes);
      if (keep == 0) continue;
      // Not even the number of axes is known.
      Graph graph = SymbolicNode("ReduceSum", {x, Tensor::I64({})}, attributes);
      const auto result = TryLowered(graph, {x, Tensor::I64({})});
      ASSERT_TRUE(result.ok()) << result.status();
      const auto known = RunOp("ReduceSum", {x, Tensor::I64({})}, attributes);
      ExpectTensor((*result)[0], known[0].dims(), Doubles(known[0]));
    }
  }
}

TEST(RuntimeAxes, ReductionsOfSymbolicAndEmptySizes) {
  for (const Dims& dims : {Dims{2, 3, 4}, Dims{2, 0, 4}, Dims{1, 3, 1}}) {
    const Tensor x = Iota(dims);
    for (const std::vector<int64_t>& axes : kAxes) {
      const auto known = RunOp("ReduceSum", {x, Tensor::I64(axes)});
      const auto symbolic = RunSymbolic("ReduceSum", {x, Tensor::I64(axes)});
      ExpectTensor(symbolic[0], known[0].dims(), Doubles(known[0]));
    }
  }
}

TEST(RuntimeAxes, AxesAreCheckedByTheRun) {
  const Tensor x = Iota({2, 3});
  for (const int64_t keep : {0, 1}) {
    const Attributes attributes = {{"keepdims", keep}};
    ExpectRunError("ReduceSum", {x, Tensor::I64({2})}, "out of range", attributes);
    ExpectRunError("ReduceSum", {x, Tensor::I64({-3})}, "out of range", attributes);
    ExpectRunError("ReduceSum", {x, Tensor::I64({kLowest})}, "out of range", attributes);
    ExpectRunError("ReduceSum", {x, Tensor::I64({1, -1})}, "given twice", attributes);
  }
  EXPECT_NE(InferError("ReduceSum",
                       SymbolicNode("ReduceSum", {x, Tensor::I64({0})}, {{"keepdims", int64_t{0}}}))
                .find("the rank of the output is not known"),
            std::string::npos);
  EXPECT_NE(InferError("ReduceSum", OneNode("ReduceSum", {x, Tensor::I64({0, 1, 0})},
                                            {{"keepdims", int64_t{0}}}))
                .find("has 3 axes, the rank is 2"),
            std::string::npos);
}

TEST(RuntimeAxes, SqueezeAndUnsqueeze) {
  const Tensor x = Iota({1, 3, 1, 2});
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0}, {2}, {-2}, {0, 2}, {2, 0}}) {
    ExpectSameAsKnown("Squeeze", {x, Tensor::I64(axes)});
    ExpectSameAsKnown("Unsqueeze", {x, Tensor::I64(axes)});
  }
  ExpectSameAsKnown("Unsqueeze", {x, Tensor::I64({})});
  ExpectSameAsKnown("Unsqueeze", {Iota({}), Tensor::I64({1, 0})});
  ExpectRunError("Squeeze", {x, Tensor::I64({1})}, "axis 1 is dropped, its size is not 1");
  ExpectRunError("Squeeze", {x, Tensor::I64({0, -4})}, "given twice");
  ExpectRunError("Unsqueeze", {x, Tensor::I64({6})}, "out of range");
  for (const char* op : {"Squeeze", "Unsqueeze"}) {
    EXPECT_NE(InferError(op, SymbolicNode(op, {x, Tensor::I64({0})}))
                  .find("the rank of the output is not known"),
              std::string::npos);
  }
}

TEST(RuntimeAxes, SplitBySizes) {
  const Tensor x = Iota({2, 5});
  const Attributes last = {{"axis", int64_t{-1}}};
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 3, 0}, {0, 0, 5}, {1, 1, 3}, {5, 0, 0}}) {
    ExpectSameAsKnown("Split", {x, Tensor::I64(sizes)}, last, 3);
    const auto known = RunOp("Split", {x, Tensor::I64(sizes)}, last, 3);
    const auto symbolic = RunSymbolic("Split", {x, Tensor::I64(sizes)}, last, 3);
    for (size_t i = 0; i < 3; ++i) ExpectTensor(symbolic[i], known[i].dims(), Doubles(known[i]));
  }
  ExpectRunError("Split", {x, Tensor::I64({2, 2})}, "do not add up", last, 2);
  ExpectRunError("Split", {x, Tensor::I64({2, 4})}, "part 1 does not fit", last, 2);
  ExpectRunError("Split", {x, Tensor::I64({-1, 6})}, "part 0 does not fit", last, 2);
  ExpectRunError("Split", {x, Tensor::I64({kHighest, kHighest})}, "part 0 does not fit", last, 2);
  EXPECT_NE(InferError("Split", OneNode("Split", {x, Tensor::I64({2, 3})}, last, 3))
                .find("entries of `split` and outputs are 2 and 3"),
            std::string::npos);
}

TEST(RuntimeAxes, SlicesInAnyDirection) {
  const Tensor x = Iota({3, 4, 5});
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{1}, {-1, 0}, {2, 0, 1}}) {
    const size_t count = axes.size();
    for (const int64_t start :
         {int64_t{0}, int64_t{1}, int64_t{-2}, int64_t{9}, kLowest, kHighest}) {
      for (const int64_t end :
           {int64_t{0}, int64_t{3}, int64_t{-1}, int64_t{-9}, kHighest, kLowest}) {
        for (const int64_t step : {int64_t{1}, int64_t{2}, int64_t{-1}, int64_t{-3}, kLowest}) {
          const auto all = [&](int64_t value) {
            return Tensor::I64(std::vector<int64_t>(count, value));
          };
          ExpectSameAsKnown("Slice", {x, all(start), all(end), Tensor::I64(axes), all(step)});
        }
      }
    }
  }
}

TEST(RuntimeAxes, SlicesWithoutAxesOrOfUnknownNumber) {
  for (const Dims& dims : {Dims{3, 4}, Dims{0, 4}}) {
    const Tensor x = Iota(dims);
    for (const int64_t step : {1, -1, 2}) {
      const Operands operands = {x, Tensor::I64({-1}), Tensor::I64({step < 0 ? kLowest : kHighest}),
                                 std::nullopt, Tensor::I64({step})};
      ExpectSameAsKnown("Slice", operands);
      const auto known = RunOp("Slice", operands);
      ExpectTensor(RunSymbolic("Slice", operands)[0], known[0].dims(), Doubles(known[0]));
    }
    const Operands none = {x, Tensor::I64({}), Tensor::I64({}), Tensor::I64({})};
    ExpectTensor(RunSymbolic("Slice", none)[0], dims, Doubles(x));
  }
}

TEST(RuntimeAxes, OneListTellsTheNumberOfSlices) {
  const Tensor x = Iota({3, 4});
  const Operands operands = {x, Tensor::I64({1, 0}), Tensor::I64({3, 2}), Tensor::I64({1, 0})};
  const auto known = RunOp("Slice", operands);
  for (const size_t constant : {1U, 2U, 3U}) {
    const auto result = RunSymbolic("Slice", operands, {}, 1, {constant});
    ExpectTensor(result[0], known[0].dims(), Doubles(known[0]));
  }
}

TEST(RuntimeAxes, SlicesAreCheckedByTheRun) {
  const Tensor x = Iota({3, 4});
  const Tensor one = Tensor::I64({1});
  ExpectRunError("Slice", {x, one, one, one, Tensor::I64({0})}, "a step is 0");
  ExpectRunError("Slice", {x, one, one, Tensor::I64({2})}, "out of range");
  const Tensor two = Tensor::I64({0, 1});
  ExpectRunError("Slice", {x, two, two, Tensor::I64({1, -1})}, "given twice");
  Graph graph = SymbolicNode("Slice", {x, two, one});
  ExpectError(TryLowered(graph, {x, two, one}), "numbers of entries of starts, ends");
}

TEST(RuntimeAxes, PadsOnAnyAxes) {
  const Tensor x = Iota({2, 3, 4});
  for (const char* mode : {"constant", "edge", "reflect", "wrap"}) {
    for (const std::vector<int64_t>& axes : kAxes) {
      std::vector<int64_t> pads;
      for (size_t i = 0; i < 2 * axes.size(); ++i)
        pads.push_back(i % 3 == 2 ? -1 : static_cast<int64_t>(i % 2));
      ExpectSameAsKnown("Pad", {x, Tensor::I64(pads), std::nullopt, Tensor::I64(axes)},
                        {{"mode", std::string(mode)}});
    }
  }
  const Operands fill = {x, Tensor::I64({1, 2}), F32({}, {7}), Tensor::I64({1})};
  ExpectSameAsKnown("Pad", fill);
  const auto known = RunOp("Pad", fill);
  ExpectTensor(RunSymbolic("Pad", fill)[0], known[0].dims(), Doubles(known[0]));
  ExpectRunError("Pad", {x, Tensor::I64({1, 2, 3}), std::nullopt, Tensor::I64({1})},
                 "pads has not two entries for each axis");
  ExpectRunError("Pad", {x, Tensor::I64({1, 2}), std::nullopt, Tensor::I64({3})}, "out of range");
  ExpectRunError("Pad", {x, Tensor::I64({-3, 0}), std::nullopt, Tensor::I64({0})}, "negative");
}

TEST(RuntimeAxes, ResizeKeepsTheAspectRatio) {
  const Tensor x = Iota({1, 1, 3, 5});
  for (const char* policy : {"not_larger", "not_smaller", "stretch"}) {
    for (const auto& [height, width] : {std::pair{7, 8}, {2, 9}, {6, 10}, {3, 5}}) {
      for (const char* mode : {"nearest", "linear"}) {
        const Operands operands = {x, std::nullopt, std::nullopt, Tensor::I64({height, width})};
        const Attributes attributes = {{"axes", std::vector<int64_t>{2, 3}},
                                       {"keep_aspect_ratio_policy", std::string(policy)},
                                       {"mode", std::string(mode)}};
        ExpectSameAsKnown("Resize", operands, attributes);
      }
    }
  }
  ExpectRunError("Resize", {Iota({0, 2}), std::nullopt, std::nullopt, Tensor::I64({2, 2})},
                 "Resize of an empty axis",
                 {{"keep_aspect_ratio_policy", std::string("not_larger")}});
}

}  // namespace
}  // namespace quench::ops::runtime_axes_test
