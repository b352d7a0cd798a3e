// If, Loop and Scan: outer values become inputs of the bodies.

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer {
namespace {

using onnx::v1::GraphProto;
using testing::AddNode;
using testing::ElementsAre;
using testing::F32;
using testing::FillInfo;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::OnnxModel;

void AddOutput(GraphProto& graph, const std::string& name, DataType dtype = DataType::kF32) {
  FillInfo(*graph.add_output(), name, dtype, {2});
}

Tensor Bool(bool value) { return Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{value}); }

OnnxModel IfModel() {
  OnnxModel model(16);
  model.Input("c", DataType::kBool, {})
      .Input("x", DataType::kF32, {2})
      .Input("z", DataType::kF32, {2})
      .Output("y");
  model.Initializer("k", F32({2}, {10, 10}));
  model.Node("Relu", {"x"}, {"r"});
  auto& branch = model.Node("If", {"c"}, {"y"}, "if");
  GraphProto& then_graph = testing::SetGraph(branch, "then_branch");
  AddNode(then_graph, "Add", {"r", "k"}, {"t"});
  AddOutput(then_graph, "t");
  GraphProto& else_graph = testing::SetGraph(branch, "else_branch");
  AddNode(else_graph, "Mul", {"z", "k"}, {"e"});
  AddOutput(else_graph, "e");
  return model;
}

TEST(ControlFlow, BothBranchesTakeAllCaptures) {
  OnnxModel model = IfModel();
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_TRUE(VerifyGraph(result->imported).ok()) << MessageOf(VerifyGraph(result->imported));
  const Node& node = result->canonical.nodes.back();
  ASSERT_EQ(node.op, "If");
  EXPECT_EQ(node.inputs.size(), 3u);  // cond, r, z; k is a constant in the bodies
  EXPECT_EQ(node.Body("then_branch")->inputs.size(), 2u);
  EXPECT_EQ(node.Body("else_branch")->inputs.size(), 2u);
  for (const bool condition : {true, false}) {
    const std::vector<Tensor> inputs = {Bool(condition), F32({2}, {-1, 2}), F32({2}, {3, 4})};
    const auto outputs = ops::Evaluate(result->canonical, inputs);
    ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
    if (condition) {
      EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(10, 12));
    }
    if (!condition) {
      EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(30, 40));
    }
  }
}

TEST(ControlFlow, CapturesReachThroughTwoLevels) {
  OnnxModel model(16);
  model.Input("c", DataType::kBool, {}).Input("x", DataType::kF32, {2}).Output("y");
  auto& outer = model.Node("If", {"c"}, {"y"}, "outer");
  for (const char* branch : {"then_branch", "else_branch"}) {
    GraphProto& graph = testing::SetGraph(outer, branch);
    const std::string out = std::string("o_") + branch;
    auto& inner = AddNode(graph, "If", {"c"}, {out}, "inner");
    for (const char* inner_branch : {"then_branch", "else_branch"}) {
      GraphProto& body = testing::SetGraph(inner, inner_branch);
      const std::string name = out + inner_branch;
      AddNode(body, inner_branch[0] == 't' ? "Neg" : "Relu", {"x"}, {name});
      AddOutput(body, name);
    }
    AddOutput(graph, out);
  }
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const std::vector<Tensor> inputs = {Bool(true), F32({2}, {1, -2})};
  const auto outputs = ops::Evaluate(result->canonical, inputs);
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(-1, 2));
}

TEST(ControlFlow, LoopCountsItsCaptures) {
  OnnxModel model(16);
  model.Input("x", DataType::kF32, {2}).Output("y").Output("all");
  model.Node("Relu", {"x"}, {"step"});
  model.Initializer("n", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{3}));
  auto& loop = model.Node("Loop", {"n", "", "x"}, {"y", "all"}, "loop");
  GraphProto& body = testing::SetGraph(loop, "body");
  FillInfo(*body.add_input(), "i", DataType::kI64, {});
  FillInfo(*body.add_input(), "go", DataType::kBool, {});
  FillInfo(*body.add_input(), "v", DataType::kF32, {2});
  AddNode(body, "Identity", {"go"}, {"go_on"});
  AddNode(body, "Add", {"v", "step"}, {"next"});
  AddNode(body, "Identity", {"next"}, {"scan"});
  FillInfo(*body.add_output(), "go_on", DataType::kBool, {});
  AddOutput(body, "next");
  AddOutput(body, "scan");
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(result->canonical.nodes.back().Int("q.captures", 0), 1);
  const std::vector<Tensor> inputs = {F32({2}, {1, -1})};
  const auto outputs = ops::Evaluate(result->canonical, inputs);
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(4, -1));
  EXPECT_THAT((*outputs)[1].as<float>(), ElementsAre(2, -1, 3, -1, 4, -1));
}

TEST(ControlFlow, ScanTakesSlices) {
  OnnxModel model(16);
  model.Input("x", DataType::kF32, {3, 2})
      .Input("k", DataType::kF32, {2})
      .Output("s")
      .Output("all");
  model.Initializer("zero", F32({2}, {0, 0}));
  auto& scan = model.Node("Scan", {"zero", "x"}, {"s", "all"}, "scan");
  testing::SetInt(scan, "num_scan_inputs", 1);
  GraphProto& body = testing::SetGraph(scan, "body");
  FillInfo(*body.add_input(), "sum", DataType::kF32, {2});
  FillInfo(*body.add_input(), "row", DataType::kF32, {2});
  AddNode(body, "Add", {"sum", "row"}, {"next"});
  AddNode(body, "Mul", {"next", "k"}, {"out"});
  AddOutput(body, "next");
  AddOutput(body, "out");
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const std::vector<Tensor> inputs = {F32({3, 2}, {1, 2, 3, 4, 5, 6}), F32({2}, {1, 10})};
  const auto outputs = ops::Evaluate(result->canonical, inputs);
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(9, 12));
  EXPECT_THAT((*outputs)[1].as<float>(), ElementsAre(1, 20, 4, 60, 9, 120));
}

// Exporters ask at run time for shapes that are known; the branch not taken need not fit them.
TEST(ControlFlow, AConditionThatFollowsFromShapesLeavesOneBranch) {
  OnnxModel model(16);
  model.Input("x", DataType::kF32, {2}).Output("y");
  model.Initializer("one", Tensor::Of(DataType::kI64, {1}, std::vector<int64_t>{1}));
  model.Initializer("first", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{0}));
  model.Node("Shape", {"x"}, {"shape"});
  model.Node("Gather", {"shape", "first"}, {"rows"});
  model.Node("Equal", {"rows", "one"}, {"is_one"});
  auto& branch = model.Node("If", {"is_one"}, {"y"}, "if");
  GraphProto& then_graph = testing::SetGraph(branch, "then_branch");
  AddNode(then_graph, "Squeeze", {"x", "one"}, {"t"});  // no axis 1 in a vector
  AddOutput(then_graph, "t");
  GraphProto& else_graph = testing::SetGraph(branch, "else_branch");
  AddNode(else_graph, "Neg", {"x"}, {"e"});
  AddOutput(else_graph, "e");
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  for (const Node& node : result->canonical.nodes) EXPECT_NE(node.op, "If");
  const auto outputs = ops::Evaluate(result->canonical, std::vector<Tensor>{F32({2}, {1, -2})});
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(-1, 2));
}

TEST(ControlFlow, AConstantConditionLeavesOneBranchWithItsCaptures) {
  for (const bool condition : {true, false}) {
    OnnxModel model = IfModel();
    model.graph().mutable_input()->DeleteSubrange(0, 1);
    model.Initializer("c", Bool(condition));
    ImportFolder folder;
    const auto result = folder.Import(model);
    ASSERT_TRUE(result.ok()) << MessageOf(result.status());
    EXPECT_EQ(result->canonical.nodes.back().op, condition ? "Add" : "Mul");
    const std::vector<Tensor> inputs = {F32({2}, {-1, 2}), F32({2}, {3, 4})};
    const auto outputs = ops::Evaluate(result->canonical, inputs);
    ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
    EXPECT_EQ((*outputs)[0].as<float>()[1], condition ? 12 : 40);
  }
}

TEST(ControlFlow, DeepNestingIsRefused) {
  OnnxModel model(16);
  model.Input("c", DataType::kBool, {}).Input("x", DataType::kF32, {2}).Output("y");
  GraphProto* graph = &model.graph();
  std::string name = "y";
  for (int depth = 0; depth < 12; ++depth) {
    auto& node = AddNode(*graph, "If", {"c"}, {name});
    GraphProto& other = testing::SetGraph(node, "else_branch");
    AddNode(other, "Relu", {"x"}, {name + "e"});
    AddOutput(other, name + "e");
    graph = &testing::SetGraph(node, "then_branch");
    name += "t";
    AddOutput(*graph, name);
  }
  AddNode(*graph, "Relu", {"x"}, {name});
  ImportFolder folder;
  EXPECT_THAT(testing::ErrorOf(folder.Import(model).status()),
              HasSubstr("bodies are nested more than 8 deep"));
}

}  // namespace
}  // namespace quench::importer
