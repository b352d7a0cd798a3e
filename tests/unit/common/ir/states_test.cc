#include "common/ir/states.h"

#include <gtest/gtest.h>

#include "common/ir/metadata.h"

namespace quench::states_test {
namespace {

Type Floats(std::vector<Dim> dims) { return Type::Tensor(DataType::kF32, std::move(dims)); }

// x and as many states as there are types, each with an output of the type in `next`.
Graph WithStates(const std::vector<Type>& states, const std::vector<Type>& next) {
  Graph graph;
  graph.outputs = {graph.AddInput("x", Floats({1}))};
  for (size_t i = 0; i < states.size(); ++i) {
    const std::string name = "s" + std::to_string(i);
    const ValueId input = graph.AddInput(name, states[i]);
    const NodeId node = graph.AddNode("Identity", name + "_next", {input});
    const ValueId output = graph.node(node).outputs[0];
    graph.value(output).type = next[i];
    graph.outputs.push_back(output);
    graph.metadata[kStateKey + name] = graph.value(output).name;
  }
  return graph;
}

TEST(StatesTest, ArePairedByName) {
  const Type type = Type::Tensor(DataType::kI8, {2, 3});
  Graph graph = WithStates({type, type}, {type, type});
  std::swap(graph.outputs[1], graph.outputs[2]);
  graph.metadata["state_initial.s1"] = "-7";
  const std::vector<StatePair> states = StatesOf(graph);
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].input, 1u);
  EXPECT_EQ(states[0].output, 2u);
  EXPECT_EQ(states[1].input, 2u);
  EXPECT_EQ(states[1].output, 1u);
  EXPECT_EQ(InitialState(type, states[0].initial).ToInts(), std::vector<int64_t>(6, 0));
  EXPECT_EQ(InitialState(type, states[1].initial).ToInts(), std::vector<int64_t>(6, -7));
}

TEST(StatesTest, HaveOneFixedTypeOfWholeBytes) {
  Graph graph = WithStates({Floats({2}), Type::Tensor(DataType::kI4, {2}), Floats({3})},
                           {Floats({4}), Type::Tensor(DataType::kI4, {2}), Floats({3})});
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {3, 0}, {1, 64}));
  for (const ValueId id : {graph.inputs[3], graph.outputs[3]}) graph.value(id).type.dims = {n};
  EXPECT_TRUE(StatesOf(graph).empty());
  for (const ValueId id : {graph.inputs[3], graph.outputs[3]}) graph.value(id).type.dims = {5};
  EXPECT_EQ(StatesOf(graph).size(), 1u);
}

TEST(StatesTest, NeedBothEnds) {
  Graph graph = WithStates({Floats({2})}, {Floats({2})});
  graph.outputs.pop_back();
  EXPECT_TRUE(StatesOf(graph).empty());
}

TEST(StatesTest, BeginWithNumbersOfTheirType) {
  Graph graph = WithStates({Floats({2})}, {Floats({2})});
  graph.metadata["state_initial.s0"] = "0.5";
  EXPECT_EQ(StatesOf(graph)[0].initial.FloatAt(0), 0.5);
  graph.metadata["state_initial.s0"] = "half";
  EXPECT_TRUE(StatesOf(graph)[0].initial.bytes().empty());
}

}  // namespace
}  // namespace quench::states_test
