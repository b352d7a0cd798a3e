// If, Loop and Scan: outer values become inputs of the bodies.

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::control_flow_test {
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

// The form that exporters write for `x.squeeze(1)` where they do not know the size of the axis:
// with `c`, the branch that drops the axis, else `x` as it is.
OnnxModel SqueezeModel(const testing::DimSpecs& dims) {
  OnnxModel model(16);
  model.Input("x", DataType::kF32, dims).Output("y");
  model.Initializer("axis", Tensor::I64({1}));
  model.Initializer("one", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{1}));
  model.Node("Shape", {"x"}, {"shape"});
  model.Node("Gather", {"shape", "one"}, {"size"});
  model.Node("Equal", {"size", "one"}, {"c"});
  auto& branch = model.Node("If", {"c"}, {"s"}, "if");
  GraphProto& squeezed = testing::SetGraph(branch, "then_branch");
  AddNode(squeezed, "Squeeze", {"x", "axis"}, {"t"}, "squeeze");
  FillInfo(*squeezed.add_output(), "t", DataType::kF32, {"a", "b"});
  GraphProto& same = testing::SetGraph(branch, "else_branch");
  AddNode(same, "Identity", {"x"}, {"e"}, "same");
  FillInfo(*same.add_output(), "e", DataType::kF32, {"a", "b", "c"});
  model.Node("Relu", {"s"}, {"y"});
  return model;
}

TEST(ControlFlow, AnAxisOfUnknownSizeIsSqueezedAndCheckedByTheRun) {
  OnnxModel model = SqueezeModel({2, "n", 2});
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(result->canonical.value(result->canonical.outputs[0]).type.rank(), 2);
  const std::vector<Tensor> fits = {F32({2, 1, 2}, {1, -2, 3, -4})};
  const auto outputs = ops::Evaluate(result->canonical, fits);
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].dims(), ElementsAre(2, 2));
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(1, 0, 3, 0));
  const std::vector<Tensor> other = {F32({2, 2, 2}, {1, -2, 3, -4, 5, -6, 7, -8})};
  const std::string error = testing::ErrorOf(ops::Evaluate(result->canonical, other).status());
  EXPECT_THAT(error, HasSubstr("`if`"));
  EXPECT_THAT(error, HasSubstr("else_branch"));
  EXPECT_THAT(error, HasSubstr("rank 3"));
}

TEST(ControlFlow, AnAxisThatIsNeverOneStays) {
  OnnxModel model = SqueezeModel({2, "n", 2});
  ImportFolder folder;
  ImportOptions options;
  options.dims["n"] = {2, 8};
  const auto result = folder.Import(model, options);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(result->canonical.value(result->canonical.outputs[0]).type.rank(), 3);
}

// `x` is reshaped to 3 columns in one branch, which 4 elements do not fit.
OnnxModel ImpossibleBranch() {
  OnnxModel model(16);
  model.Input("c", DataType::kBool, {}).Input("x", DataType::kF32, {2, 2}).Output("y");
  model.Initializer("three", Tensor::I64({-1, 3}));
  auto& branch = model.Node("If", {"c"}, {"y"}, "if");
  GraphProto& then_graph = testing::SetGraph(branch, "then_branch");
  AddNode(then_graph, "Reshape", {"x", "three"}, {"t"}, "reshape");
  FillInfo(*then_graph.add_output(), "t", DataType::kF32, {"a", "b"});
  GraphProto& else_graph = testing::SetGraph(branch, "else_branch");
  AddNode(else_graph, "Neg", {"x"}, {"e"});
  FillInfo(*else_graph.add_output(), "e", DataType::kF32, {2, 2});
  return model;
}

TEST(ControlFlow, ABranchThatCannotRunFailsOnlyTheRunThatTakesIt) {
  OnnxModel model = ImpossibleBranch();
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_TRUE(VerifyGraph(result->canonical).ok()) << MessageOf(VerifyGraph(result->canonical));
  const Tensor x = F32({2, 2}, {1, 2, 3, 4});
  const auto outputs = ops::Evaluate(result->canonical, std::vector<Tensor>{Bool(false), x});
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(-1, -2, -3, -4));
  const std::string error = testing::ErrorOf(
      ops::Evaluate(result->canonical, std::vector<Tensor>{Bool(true), x}).status());
  EXPECT_THAT(error, HasSubstr("node `reshape` (Reshape): 4 elements do not divide by 3"));
  const auto warning = result->canonical.metadata.find("warning.if");
  ASSERT_NE(warning, result->canonical.metadata.end());
  EXPECT_THAT(warning->second, HasSubstr("then_branch cannot run"));
}

TEST(ControlFlow, BranchesThatBothCannotRunAreAnError) {
  OnnxModel model = ImpossibleBranch();
  auto& branch = *model.graph().mutable_node(0);
  *branch.mutable_attribute(1)->mutable_g() = branch.attribute(0).g();
  ImportFolder folder;
  const auto result = folder.Import(model);
  const std::string error = testing::ErrorOf(result.status());
  EXPECT_THAT(error, HasSubstr("then_branch: node `reshape_1` (Reshape): 4 elements"));
  EXPECT_THAT(error, HasSubstr("else_branch: node `reshape` (Reshape): 4 elements"));
}

TEST(ControlFlow, ABranchInALoopIsJudgedByTheTypesOfAllIterations) {
  // The carried value grows from 2 x 2 to 2 x 4, ...: by the first iteration alone the branch with
  // 3 columns could not run.
  OnnxModel model(16);
  model.Input("x", DataType::kF32, {2, 2}).Input("c", DataType::kBool, {}).Output("y");
  model.Initializer("trips", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{2}));
  model.Initializer("three", Tensor::I64({-1, 3}));
  auto& loop = model.Node("Loop", {"trips", "", "x"}, {"y"}, "loop");
  GraphProto& body = testing::SetGraph(loop, "body");
  FillInfo(*body.add_input(), "i", DataType::kI64, {});
  FillInfo(*body.add_input(), "go", DataType::kBool, {});
  FillInfo(*body.add_input(), "v", DataType::kF32, {"a", "b"});
  AddNode(body, "Identity", {"go"}, {"go_on"});
  auto& branch = AddNode(body, "If", {"c"}, {"part"}, "if");
  GraphProto& then_graph = testing::SetGraph(branch, "then_branch");
  AddNode(then_graph, "Reshape", {"v", "three"}, {"t"}, "reshape");
  FillInfo(*then_graph.add_output(), "t", DataType::kF32, {"d", "e"});
  GraphProto& else_graph = testing::SetGraph(branch, "else_branch");
  AddNode(else_graph, "Neg", {"v"}, {"e"});
  FillInfo(*else_graph.add_output(), "e", DataType::kF32, {"d", "e"});
  testing::SetInt(AddNode(body, "Concat", {"v", "part"}, {"next"}), "axis", 1);
  FillInfo(*body.add_output(), "go_on", DataType::kBool, {});
  FillInfo(*body.add_output(), "next", DataType::kF32, {"d", "e"});
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_FALSE(result->canonical.metadata.contains("warning.if"));
}

// `depth` Ifs within one another, whose innermost branch is a Relu.
OnnxModel NestedIfs(int depth) {
  OnnxModel model(16);
  model.Input("c", DataType::kBool, {}).Input("x", DataType::kF32, {2}).Output("y");
  GraphProto* graph = &model.graph();
  std::string name = "y";
  for (int i = 0; i < depth; ++i) {
    auto& node = AddNode(*graph, "If", {"c"}, {name});
    GraphProto& other = testing::SetGraph(node, "else_branch");
    AddNode(other, "Neg", {"x"}, {name + "e"});
    AddOutput(other, name + "e");
    graph = &testing::SetGraph(node, "then_branch");
    name += "t";
    AddOutput(*graph, name);
  }
  AddNode(*graph, "Relu", {"x"}, {name});
  return model;
}

// Three messages a body: the file's own limit is that of the reader, which functions reach too.
TEST(ControlFlow, NestingHasALimit) {
  ImportFolder folder;
  OnnxModel deepest = NestedIfs(kMaxModelNesting), deeper = NestedIfs(kMaxModelNesting + 1);
  const auto result = folder.Import(deepest);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const auto passed = passes::RunPipeline(result->canonical, {}, {});
  ASSERT_TRUE(passed.ok()) << MessageOf(passed.status());
  for (const bool taken : {true, false}) {
    const std::vector<Tensor> inputs = {Bool(taken), F32({2}, {-1, 2})};
    const auto y = ops::Evaluate(*passed, inputs);
    ASSERT_TRUE(y.ok()) << MessageOf(y.status());
    EXPECT_EQ((*y)[0].as<float>()[0], taken ? 0 : 1);
  }
  EXPECT_THAT(testing::ErrorOf(folder.Import(deeper).status()),
              HasSubstr("messages are nested more than 96 deep"));
}

// `name` = Loop of a state that grows, by what such loops within it give.
void AddGrowingLoop(GraphProto& graph, const std::string& name, int depth) {
  if (depth == 0) {
    AddNode(graph, "Relu", {"x"}, {name});
    return;
  }
  GraphProto& body = testing::SetGraph(AddNode(graph, "Loop", {"once", "c", "x"}, {name}), "body");
  const std::string at = "d" + std::to_string(depth);
  FillInfo(*body.add_input(), at + "_i", DataType::kI64, {});
  FillInfo(*body.add_input(), at + "_c", DataType::kBool, {});
  FillInfo(*body.add_input(), at + "_s", DataType::kF32, {"n"});
  AddGrowingLoop(body, at + "_v", depth - 1);
  AddNode(body, "Identity", {at + "_c"}, {at + "_go"});
  testing::SetInt(AddNode(body, "Concat", {at + "_s", at + "_v"}, {at + "_next"}), "axis", 0);
  FillInfo(*body.add_output(), at + "_go", DataType::kBool, {});
  FillInfo(*body.add_output(), at + "_next", DataType::kF32, {"m"});
}

// Types of an inner loop are found again for each that the loop around it tries: by itself 2^30 times.
TEST(ControlFlow, NestedLoopsWithStatesThatGrow) {
  OnnxModel model(16);
  model.Input("c", DataType::kBool, {}).Input("x", DataType::kF32, {2}).Output("y");
  model.Initializer("once", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{1}));
  AddGrowingLoop(model.graph(), "y", kMaxModelNesting - 2);
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
}

}  // namespace
}  // namespace quench::importer::control_flow_test
