// Shapes that PyTorch's exporter computes with ordinary nodes fold to dim expressions.
#include "tests/unit/common/ops/run_op.h"

namespace quench::ops::shape_arithmetic_test {
namespace {

class ShapeArithmetic : public testing::Test {
 protected:
  ShapeArithmetic() {
    batch_ = Dim::OfSymbol(graph_.symbols->AddInput("batch", {0, 0}));
    seq_ = Dim::OfSymbol(graph_.symbols->AddInput("seq", {0, 1}));
    x_ = graph_.AddInput("x", Type::Tensor(DataType::kF32, {batch_, seq_, 12}));
  }
  ValueId Add(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return graph_
        .node(graph_.AddNode(op, op + std::to_string(next_++), std::move(inputs), 1,
                             std::move(attributes)))
        .outputs[0];
  }
  ValueId Ints(const std::vector<int64_t>& values) {
    return graph_.AddConstant("c" + std::to_string(next_++), Tensor::I64(values));
  }
  ValueId Int(int64_t value) {
    return graph_.AddConstant("c" + std::to_string(next_++), I64({}, {value}));
  }
  // Dim `axis` of x as a one-element tensor, the way exporters write it.
  ValueId SizeOf(int64_t axis) {
    return Add("Unsqueeze",
               {Add("Gather", {Add("Shape", {x_}), Int(axis)}, {{"axis", int64_t{0}}}), Ints({0})});
  }
  std::string DimsOf(ValueId id) {
    const absl::Status status = InferGraph(graph_);
    EXPECT_TRUE(status.ok()) << status;
    std::string text;
    for (const Dim dim : graph_.value(id).type.dims)
      text += (text.empty() ? "" : ", ") + graph_.symbols->ToString(dim);
    return text;
  }
  std::string ElementsOf(ValueId id) {
    const absl::Status status = InferGraph(graph_);
    EXPECT_TRUE(status.ok()) << status;
    if (!graph_.value(id).elements) return "unknown";
    std::string text;
    for (const Dim dim : *graph_.value(id).elements)
      text += (text.empty() ? "" : ", ") + graph_.symbols->ToString(dim);
    return text;
  }

  Graph graph_;
  Dim batch_, seq_;
  ValueId x_ = kNone;
  int next_ = 0;
};

TEST_F(ShapeArithmetic, ViewSplitsHeads) {
  const ValueId shape =
      Add("Concat", {SizeOf(0), SizeOf(1), Ints({3}), Ints({-1})}, {{"axis", int64_t{0}}});
  const ValueId y = Add("Reshape", {x_, shape});
  const ValueId z = Add("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  EXPECT_EQ(DimsOf(z), "batch, 3, seq, 4");
}

TEST_F(ShapeArithmetic, ShapeHasStartAndEnd) {
  EXPECT_EQ(ElementsOf(Add("Shape", {x_}, {{"start", int64_t{1}}})), "seq, 12");
  EXPECT_EQ(ElementsOf(Add("Shape", {x_}, {{"end", int64_t{-1}}})), "batch, seq");
  EXPECT_EQ(ElementsOf(Add("Shape", {x_}, {{"start", int64_t{-5}}, {"end", int64_t{9}}})),
            "batch, seq, 12");
}

TEST_F(ShapeArithmetic, SliceOfAShape) {
  const ValueId shape = Add("Shape", {x_});
  EXPECT_EQ(
      ElementsOf(Add("Slice", {shape, Ints({1}), Ints({std::numeric_limits<int64_t>::max()})})),
      "seq, 12");
  EXPECT_EQ(ElementsOf(Add("Slice", {shape, Ints({-1}), Ints({-4}), Ints({0}), Ints({-1})})),
            "12, seq, batch");
}

TEST_F(ShapeArithmetic, SizeAndProductAgree) {
  EXPECT_EQ(ElementsOf(Add("Size", {x_})),
            ElementsOf(Add("ReduceProd", {Add("Shape", {x_})}, {{"keepdims", int64_t{0}}})));
}

TEST_F(ShapeArithmetic, SliceOfDataHasSymbolicSize) {
  // x[:, 1:] and x[:, :-1]
  EXPECT_EQ(DimsOf(Add("Slice", {x_, Ints({1}), Ints({INT32_MAX}), Ints({1})})),
            "batch, seq - 1, 12");
  EXPECT_EQ(DimsOf(Add("Slice", {x_, Ints({0}), Ints({-1}), Ints({1})})), "batch, seq - 1, 12");
}

TEST_F(ShapeArithmetic, SliceUpToAnotherSize) {
  const ValueId table = graph_.AddConstant("table", Iota({1, 512}));
  EXPECT_EQ(DimsOf(Add("Slice", {table, Ints({0}), SizeOf(1), Ints({1})})), "1, min(seq, 512)");
}

TEST_F(ShapeArithmetic, RangeConstantOfShapeAndExpand) {
  const ValueId seq = Add("Squeeze", {SizeOf(1)});
  EXPECT_EQ(DimsOf(Add("Range", {Int(0), seq, Int(1)})), "seq");
  EXPECT_EQ(DimsOf(Add("Range", {Int(0), seq, Int(2)})), "floordiv(seq + 1, 2)");
  const ValueId shape = Add("Concat", {SizeOf(0), SizeOf(1)}, {{"axis", int64_t{0}}});
  const ValueId filled = Add("ConstantOfShape", {shape}, {{"value", Tensor::I64({7})}});
  EXPECT_EQ(DimsOf(filled), "batch, seq");
  EXPECT_EQ(DimsOf(Add("Expand", {graph_.AddConstant("row", Iota({1, 1})), shape})), "batch, seq");
}

TEST_F(ShapeArithmetic, SplitConcatTileAndReduce) {
  const ValueId joined = Add("Concat", {x_, x_}, {{"axis", int64_t{1}}});
  EXPECT_EQ(DimsOf(joined), "batch, 2*seq, 12");
  EXPECT_EQ(DimsOf(Add("Tile", {x_, Ints({1, 3, 1})})), "batch, 3*seq, 12");
  EXPECT_EQ(DimsOf(Add("ReduceMean", {x_, Ints({-1})}, {{"keepdims", int64_t{0}}})), "batch, seq");
  EXPECT_EQ(DimsOf(Add("Flatten", {x_}, {{"axis", int64_t{2}}})), "batch*seq, 12");
  const NodeId split = graph_.AddNode("Split", "split", {joined}, 2, {{"axis", int64_t{1}}});
  EXPECT_EQ(DimsOf(graph_.node(split).outputs[1]), "batch, seq, 12");
}

TEST_F(ShapeArithmetic, PadAndResizeScale) {
  EXPECT_EQ(DimsOf(Add("Pad", {x_, Ints({0, 1, 0, 0, 2, 0})})), "batch, seq + 3, 12");
  const ValueId scales = graph_.AddConstant("scales", F32({3}, {1, 2, 0.5F}));
  EXPECT_EQ(DimsOf(Add("Resize", {x_, kNone, scales})), "batch, 2*seq, 6");
  const ValueId half = graph_.AddConstant("half", F32({3}, {1, 0.5F, 1}));
  EXPECT_EQ(DimsOf(Add("Resize", {x_, kNone, half})), "batch, floordiv(seq, 2), 12");
}

TEST_F(ShapeArithmetic, QDimsGivesWhatItNames) {
  const ValueId dims =
      Add("q.dims", {}, {{"dims", std::vector<std::string>{"batch", "2*seq + 1", "5"}}});
  EXPECT_EQ(ElementsOf(dims), "batch, 2*seq + 1, 5");
}

TEST_F(ShapeArithmetic, AnAxisThatMayBeOneIsDroppedWhereItIsNamed) {
  const ValueId dropped = Add("Squeeze", {x_, Ints({0})});
  ASSERT_TRUE(InferGraph(graph_).ok()) << InferGraph(graph_);
  EXPECT_EQ(graph_.value(dropped).type.rank(), graph_.value(x_).type.rank() - 1);
  Add("Squeeze", {x_});
  EXPECT_NE(std::string(InferGraph(graph_).message()).find("dim `batch` may be 1"),
            std::string::npos);
}

TEST_F(ShapeArithmetic, AnAxisThatIsNeverOneIsNotDropped) {
  ASSERT_TRUE(graph_.symbols->Restrict(*graph_.symbols->Find("batch"), {2, 8}).ok());
  Add("Squeeze", {x_, Ints({0})});
  EXPECT_NE(std::string(InferGraph(graph_).message()).find("axis 0 has size batch"),
            std::string::npos);
}

}  // namespace
}  // namespace quench::ops::shape_arithmetic_test
