#include "common/ops/evaluate.h"
#include "common/passes/passes.h"
#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::pointwise_tables_test {
namespace {

// A graph from one tensor of all bytes.
struct OfBytes {
  Graph graph;
  ValueId x = kNone;

  explicit OfBytes(DataType dtype = DataType::kI8, std::vector<Dim> dims = {2, 128}) {
    x = graph.AddInput("x", Type::Tensor(dtype, std::move(dims)));
  }

  ValueId Number(float value, const std::vector<int64_t>& dims = {}) {
    return graph.AddConstant("n", Tensor::Of(DataType::kF32, dims, std::vector<float>{value}));
  }
  ValueId Zero(DataType dtype, int value) {
    Tensor zero = Tensor::Zeros(dtype, {});
    *zero.mutable_bytes() = static_cast<std::byte>(value);
    return graph.AddConstant("zero", zero);
  }
  ValueId Q(ValueId value, float scale, int zero, DataType dtype = DataType::kI8) {
    return Add(graph, "QuantizeLinear", {value, Number(scale), Zero(dtype, zero)});
  }
  ValueId DQ(ValueId value, float scale, int zero) {
    const DataType dtype = graph.value(value).type.dtype;
    return Add(graph, "DequantizeLinear", {value, Number(scale), Zero(dtype, zero)});
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs) {
    return Add(graph, op, std::move(inputs));
  }
};

// Every byte once, then from the start again.
Tensor AllBytes(DataType dtype, const std::vector<int64_t>& dims) {
  Tensor bytes = Tensor::Zeros(dtype, dims);
  for (int64_t i = 0; i < bytes.size(); ++i) bytes.mutable_bytes()[i] = static_cast<std::byte>(i);
  return bytes;
}

// After the pass, which must not change a bit.
Graph Tables(const Graph& before) {
  const absl::StatusOr<Graph> after = RunPass(*FindPass("pointwise_tables"), before, {}, {});
  EXPECT_TRUE(after.ok()) << after.status();
  if (!after.ok()) return before;
  std::vector<Tensor> inputs;
  for (const ValueId id : before.inputs) {
    std::vector<int64_t> dims;
    for (const Dim dim : before.value(id).type.dims)
      dims.push_back(dim.is_static() ? dim.value() : 3);
    inputs.push_back(AllBytes(before.value(id).type.dtype, dims));
  }
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(before, inputs);
  const absl::StatusOr<std::vector<Tensor>> actual = ops::Evaluate(*after, inputs);
  EXPECT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
  if (!expected.ok() || !actual.ok()) return *after;
  for (size_t i = 0; i < expected->size(); ++i) {
    EXPECT_EQ((*actual)[i].dims(), (*expected)[i].dims());
    EXPECT_TRUE(std::ranges::equal((*actual)[i].bytes(), (*expected)[i].bytes())) << "output " << i;
  }
  return *after;
}

TEST(PointwiseTablesTest, FunctionsOfOneByte) {
  for (const char* op : {"Sigmoid", "HardSwish", "Tanh", "Relu", "Exp", "Log", "Gelu", "Mish"}) {
    for (const DataType dtype : {DataType::kI8, DataType::kU8}) {
      OfBytes g(dtype);
      g.graph.outputs = {g.Q(g.Op(op, {g.DQ(g.x, 0.05F, 3)}), 0.02F, 7, DataType::kU8)};
      const Graph after = Tables(g.graph);
      EXPECT_EQ(CountOps(after, "q.table"), 1) << op;
      EXPECT_EQ(after.nodes.size(), 1u) << op;
    }
  }
}

TEST(PointwiseTablesTest, TheSourceMayBeReadMoreThanOnce) {
  OfBytes g;
  const ValueId real = g.DQ(g.x, 0.05F, 3);
  const ValueId again = g.DQ(g.x, 0.05F, 3);
  const ValueId y = g.Op("Mul", {again, g.Op("Sigmoid", {real})});
  g.graph.outputs = {g.Q(y, 0.02F, -7)};
  EXPECT_EQ(Tables(g.graph).nodes.size(), 1u);
}

TEST(PointwiseTablesTest, OtherOperandsAreSingleNumbersOfAnyRank) {
  OfBytes g;
  const ValueId scaled = g.Op("Mul", {g.DQ(g.x, 0.05F, 3), g.Number(1.7F, {1, 1})});
  const ValueId moved = g.Op("Add", {g.Number(0.3F, {1}), scaled});
  const ValueId limited = g.Op("Clip", {moved, g.Number(-1), g.Number(1)});
  g.graph.outputs = {g.Q(g.Op("Tanh", {limited}), 0.008F, 0)};
  EXPECT_EQ(Tables(g.graph).nodes.size(), 1u);
}

TEST(PointwiseTablesTest, PairsInBetweenArePartOfIt) {
  OfBytes g(DataType::kU8);
  const ValueId real = g.DQ(g.x, 0.05F, 128);
  const ValueId gate = g.Q(g.Op("Sigmoid", {real}), 1 / 256.0F, 0, DataType::kU8);
  const ValueId y = g.Op("Mul", {real, g.DQ(gate, 1 / 256.0F, 0)});
  g.graph.outputs = {g.Q(y, 0.04F, 20, DataType::kU8)};
  EXPECT_EQ(Tables(g.graph).nodes.size(), 1u);
  g.graph.outputs.push_back(gate);  // a table of its own
  const Graph after = Tables(g.graph);
  EXPECT_EQ(CountOps(after, "q.table"), 2);
  EXPECT_EQ(after.nodes.size(), 2u);
}

TEST(PointwiseTablesTest, OtherSteps) {
  OfBytes g;
  g.graph.outputs = {g.Q(g.DQ(g.x, 0.05F, 3), 0.11F, 100, DataType::kU8)};
  EXPECT_EQ(CountOps(Tables(g.graph), "q.table"), 1);
}

TEST(PointwiseTablesTest, WhatIsReadInFloatStays) {
  OfBytes g;
  const ValueId gate = g.Op("Sigmoid", {g.DQ(g.x, 0.05F, 3)});
  g.graph.outputs = {gate};
  EXPECT_EQ(CountOps(Tables(g.graph), "q.table"), 0);
  g.graph.outputs.push_back(g.Q(gate, 0.004F, 0));
  const Graph after = Tables(g.graph);
  EXPECT_EQ(CountOps(after, "q.table"), 1);
  EXPECT_EQ(CountOps(after, "Sigmoid"), 1);
}

TEST(PointwiseTablesTest, TwoSourcesOrSeveralNumbersAreNoTable) {
  OfBytes g;
  const ValueId other = g.graph.AddInput("z", Type::Tensor(DataType::kI8, {2, 128}));
  const ValueId real = g.DQ(g.x, 0.05F, 3);
  const ValueId sum = g.Op("Add", {real, g.DQ(other, 0.1F, 0)});
  const ValueId row = g.graph.AddConstant("row", RandomTensor({128}, 4));
  const ValueId column = g.graph.AddConstant("column", RandomTensor({3, 1, 1}, 4));
  const ValueId wide = g.Number(2, {1, 1, 1});
  g.graph.outputs = {g.Q(sum, 0.1F, 0), g.Q(g.Op("Mul", {real, row}), 0.1F, 0),
                     g.Q(g.Op("Mul", {real, column}), 0.1F, 0),
                     g.Q(g.Op("Mul", {real, wide}), 0.1F, 0)};
  EXPECT_EQ(CountOps(Tables(g.graph), "q.table"), 0);
}

TEST(PointwiseTablesTest, SizesOfTheRun) {
  OfBytes g(DataType::kI8, {});
  const Dim n = Dim::OfSymbol(g.graph.symbols->AddInput("n", {0, 0}, {1, 8}));
  g.graph.value(g.x).type = Type::Tensor(DataType::kI8, {n, 100});
  g.graph.outputs = {g.Q(g.Op("Sigmoid", {g.DQ(g.x, 0.05F, 3)}), 0.02F, 7)};
  EXPECT_EQ(CountOps(Tables(g.graph), "q.table"), 1);
}

TEST(PointwiseTablesTest, NamesStayTheRootsOnes) {
  OfBytes g;
  const ValueId y = g.Q(g.Op("Sigmoid", {g.DQ(g.x, 0.05F, 3)}), 0.02F, 7);
  const std::string value = g.graph.value(y).name;
  const std::string node = g.graph.node(g.graph.value(y).producer).name;
  for (Node& each : g.graph.nodes) each.origin = each.op;
  g.graph.outputs = {y};
  const Graph after = Tables(g.graph);
  ASSERT_EQ(after.nodes.size(), 1u);
  EXPECT_EQ(after.nodes[0].name, node);
  EXPECT_EQ(after.nodes[0].origin, "DequantizeLinear+Sigmoid+QuantizeLinear");
  EXPECT_EQ(after.value(after.outputs[0]).name, value);
}

// Longer than any activation: no table of all.
TEST(PointwiseTablesTest, LongChainsEnd) {
  OfBytes g;
  ValueId y = g.DQ(g.x, 0.05F, 3);
  for (int i = 0; i < 300; ++i) y = g.DQ(g.Q(g.Op("Abs", {y}), 0.05F, 3), 0.05F, 3);
  g.graph.outputs = {g.Q(y, 0.02F, 7)};
  EXPECT_GE(CountOps(Tables(g.graph), "q.table"), 1);
}

}  // namespace
}  // namespace quench::passes::pointwise_tables_test
