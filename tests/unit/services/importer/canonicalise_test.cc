// Older forms of operators: each is imported and run, and must compute what its own opset says.

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "services/importer/onnx/convert.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::canonicalise_test {
namespace {

using testing::ElementsAre;
using testing::F32;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::OnnxModel;

// Imports, checks that the canonical nodes are `ops`, runs, and gives output 0.
Tensor ImportAndRun(OnnxModel& model, const std::vector<Tensor>& inputs,
                    const std::vector<std::string>& ops) {
  ImportFolder folder;
  const auto result = folder.Import(model);
  EXPECT_TRUE(result.ok()) << MessageOf(result.status());
  if (!result.ok()) return {};
  std::vector<std::string> found;
  for (const Node& node : result->canonical.nodes) found.push_back(node.op);
  EXPECT_EQ(found, ops);
  const auto outputs = ops::Evaluate(result->canonical, inputs);
  EXPECT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  return outputs.ok() ? (*outputs)[0] : Tensor();
}

std::string ImportError(OnnxModel& model) {
  ImportFolder folder;
  return testing::ErrorOf(folder.Import(model).status());
}

TEST(Canonicalise, AxesBecomeInputs) {
  OnnxModel model(11);
  model.Input("x", DataType::kF32, {1, 2, 1}).Output("y");
  testing::SetInts(model.Node("Squeeze", {"x"}, {"a"}), "axes", {0});
  testing::SetInts(model.Node("Unsqueeze", {"a"}, {"b"}), "axes", {0, 3});
  auto& sum = model.Node("ReduceMean", {"b"}, {"y"});
  testing::SetInts(sum, "axes", {1});
  testing::SetInt(sum, "keepdims", 0);
  const Tensor y =
      ImportAndRun(model, {F32({1, 2, 1}, {2, 4})}, {"Squeeze", "Unsqueeze", "ReduceMean"});
  EXPECT_THAT(y.dims(), ElementsAre(1, 1, 1));
  EXPECT_THAT(y.as<float>(), ElementsAre(3));
}

TEST(Canonicalise, SliceClipPadTakeInputs) {
  OnnxModel model(9);
  model.Input("x", DataType::kF32, {4}).Output("y");
  auto& slice = model.Node("Slice", {"x"}, {"a"});
  testing::SetInts(slice, "starts", {1});
  testing::SetInts(slice, "ends", {1000});
  testing::SetInts(slice, "axes", {0});
  auto& clip = model.Node("Clip", {"a"}, {"b"});
  testing::SetFloat(clip, "max", 2.5f);
  auto& pad = model.Node("Pad", {"b"}, {"y"});
  testing::SetInts(pad, "pads", {1, 0});
  testing::SetFloat(pad, "value", 9);
  EXPECT_THAT(ImportAndRun(model, {F32({4}, {1, 2, 3, -4})}, {"Slice", "Clip", "Pad"}).as<float>(),
              ElementsAre(9, 2, 2.5, -4));
}

TEST(Canonicalise, SoftmaxFlattensBeforeOpset13) {
  OnnxModel model(11);
  model.Input("x", DataType::kF32, {1, 2, 2}).Output("y");
  model.Node("Softmax", {"x"}, {"y"});  // axis 1: over all four
  const Tensor y = ImportAndRun(model, {F32({1, 2, 2}, {0, 0, 0, 0})},
                                {"Flatten", "Softmax", "Shape", "Reshape"});
  EXPECT_THAT(y.dims(), ElementsAre(1, 2, 2));
  EXPECT_THAT(y.as<float>(), ElementsAre(0.25f, 0.25f, 0.25f, 0.25f));
  OnnxModel last(11);
  last.Input("x", DataType::kF32, {1, 2, 2}).Output("y");
  testing::SetInt(last.Node("Softmax", {"x"}, {"y"}), "axis", 2);
  EXPECT_THAT(ImportAndRun(last, {F32({1, 2, 2}, {0, 0, 0, 0})}, {"Softmax"}).as<float>(),
              ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
}

TEST(Canonicalise, GemmSaidUpToOpset6ThatItBroadcasts) {
  OnnxModel model(6);
  model.Input("x", DataType::kF32, {2, 1}).Output("y");
  model.Initializer("w", F32({1, 2}, {10, 100}));
  model.Initializer("b", F32({2}, {1, 2}));
  testing::SetInt(model.Node("Gemm", {"x", "w", "b"}, {"y"}), "broadcast", 1);
  EXPECT_THAT(ImportAndRun(model, {F32({2, 1}, {3, 4})}, {"Gemm"}).as<float>(),
              ElementsAre(31, 302, 41, 402));
}

TEST(Canonicalise, SplitAndTopKTakeInputs) {
  OnnxModel model(9);
  model.Input("x", DataType::kF32, {5}).Output("y");
  auto& split = model.Node("Split", {"x"}, {"a", "b"});
  testing::SetInts(split, "split", {2, 3});
  testing::SetInt(split, "axis", 0);
  testing::SetInt(model.Node("TopK", {"b"}, {"y", "indices"}), "k", 2);
  EXPECT_THAT(ImportAndRun(model, {F32({5}, {9, 8, 1, 3, 2})}, {"Split", "TopK"}).as<float>(),
              ElementsAre(3, 2));
}

TEST(Canonicalise, EqualSplitsSayHowMany) {
  OnnxModel model(13);
  model.Input("x", DataType::kF32, {4}).Output("b");
  model.Node("Split", {"x"}, {"a", "b"});
  EXPECT_THAT(ImportAndRun(model, {F32({4}, {1, 2, 3, 4})}, {"Split"}).as<float>(),
              ElementsAre(3, 4));
}

TEST(Canonicalise, DropoutIsTheIdentity) {
  OnnxModel model(10);
  model.Input("x", DataType::kF32, {2}).Output("y").Output("mask", DataType::kBool);
  testing::SetFloat(model.Node("Dropout", {"x"}, {"y", "mask"}), "ratio", 0.5f);
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const std::vector<Tensor> inputs = {F32({2}, {1, 2})};
  const auto outputs = ops::Evaluate(result->canonical, inputs);
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(1, 2));
  EXPECT_THAT((*outputs)[1].ToInts(), ElementsAre(1, 1));
}

// A model with Dropout at opset 13; what is not given as `ratio` or `training` is an input.
OnnxModel TrainingDropout(std::optional<float> ratio, std::optional<bool> training) {
  OnnxModel model(13);
  model.Input("x", DataType::kF32, {2}).Output("y").Output("mask", DataType::kBool);
  if (ratio) {
    model.Initializer("ratio", Tensor::ScalarF32(*ratio));
  } else {
    model.Input("ratio", DataType::kF32, {});
  }
  if (training) {
    model.Initializer("t", Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{*training}));
  } else {
    model.Input("t", DataType::kBool, {});
  }
  model.Node("Dropout", {"x", "ratio", "t"}, {"y", "mask"}, "drop");
  return model;
}

TEST(Canonicalise, DropoutLeftInTrainingModeIsTheIdentityWithAWarning) {
  ImportFolder folder;
  for (const float ratio : {0.0F, 0.5F}) {
    OnnxModel model = TrainingDropout(ratio, true);
    const auto result = folder.Import(model);
    ASSERT_TRUE(result.ok()) << MessageOf(result.status());
    const auto outputs = ops::Evaluate(result->canonical, std::vector<Tensor>{F32({2}, {1, 2})});
    ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
    EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(1, 2));
    EXPECT_THAT((*outputs)[1].ToInts(), ElementsAre(1, 1));
    const std::vector<std::string> warnings = WarningsOf(result->canonical);
    ASSERT_EQ(warnings.size(), ratio == 0 ? 0U : 1U);  // dropping nothing needs no warning
    if (ratio == 0) continue;
    EXPECT_THAT(warnings[0], HasSubstr("node `drop` (Dropout): `training_mode` is true"));
  }
}

TEST(Canonicalise, ARunMayNotTrain) {
  ImportFolder folder;
  OnnxModel model = TrainingDropout(std::nullopt, std::nullopt);
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const auto run = [&](float ratio, bool training) {
    const std::vector<Tensor> inputs = {
        F32({2}, {1, 2}), Tensor::ScalarF32(ratio),
        Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{training})};
    return ops::Evaluate(result->canonical, inputs);
  };
  for (const auto& [ratio, training] : {std::pair{0.5F, false}, {0.0F, true}}) {
    const auto outputs = run(ratio, training);
    ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
    EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(1, 2));
  }
  EXPECT_THAT(testing::ErrorOf(run(0.5F, true).status()),
              HasSubstr("node `drop` (Dropout): training_mode is true"));
}

TEST(Canonicalise, UpsampleIsResizeFromTheCorner) {
  for (const int64_t opset : {7, 9}) {
    OnnxModel model(opset);
    model.Input("x", DataType::kF32, {1, 1, 1, 2}).Output("y");
    const std::vector<float> scales = {1, 1, 1, 2};
    if (opset == 9) model.Initializer("s", F32({4}, scales));
    auto& node = model.Node(
        "Upsample", opset == 9 ? std::vector<std::string>{"x", "s"} : std::vector<std::string>{"x"},
        {"y"});
    if (opset == 7) testing::SetFloats(node, "scales", scales);
    EXPECT_THAT(ImportAndRun(model, {F32({1, 1, 1, 2}, {1, 2})}, {"Resize"}).as<float>(),
                ElementsAre(1, 1, 2, 2))
        << opset;
  }
}

// The expected numbers come from ONNX Runtime 1.31.
TEST(Canonicalise, ResizeOfOpset10TakesTheNextElementWhereItShrinks) {
  OnnxModel model(10);
  model.Input("x", DataType::kF32, {1, 1, 2, 5}).Output("y");
  model.Initializer("s", F32({4}, {1, 1, 1.5F, 0.6F}));
  model.Node("Resize", {"x", "s"}, {"y"});
  EXPECT_THAT(
      ImportAndRun(model, {F32({1, 1, 2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})}, {"Resize", "Resize"})
          .as<float>(),
      ElementsAre(0, 2, 4, 0, 2, 4, 5, 7, 9));
}

TEST(Canonicalise, ArithmeticBroadcastsFromAnAxisBeforeOpset7) {
  OnnxModel model(6);
  model.Input("x", DataType::kF32, {1, 2, 2}).Input("b", DataType::kF32, {2}).Output("y");
  auto& add = model.Node("Add", {"x", "b"}, {"y"});
  testing::SetInt(add, "broadcast", 1);
  testing::SetInt(add, "axis", 1);
  EXPECT_THAT(
      ImportAndRun(model, {F32({1, 2, 2}, {0, 0, 0, 0}), F32({2}, {1, 2})}, {"Unsqueeze", "Add"})
          .as<float>(),
      ElementsAre(1, 1, 2, 2));
}

TEST(Canonicalise, CastTakesNamesBeforeOpset6) {
  OnnxModel model(5);
  model.Input("x", DataType::kF32, {1}).Output("y", DataType::kI32);
  testing::SetString(model.Node("Cast", {"x"}, {"y"}), "to", "INT32");
  EXPECT_THAT(ImportAndRun(model, {F32({1}, {2.7f})}, {"Cast"}).ToInts(), ElementsAre(2));
}

TEST(Canonicalise, CastLikeIsACast) {
  OnnxModel model(15);
  model.Input("x", DataType::kF32, {1})
      .Input("like", DataType::kI64, {3})
      .Output("y", DataType::kI64);
  model.Node("CastLike", {"x", "like"}, {"y"});
  EXPECT_THAT(ImportAndRun(model, {F32({1}, {2.7f}), Tensor::I64({0, 0, 0})}, {"Cast"}).ToInts(),
              ElementsAre(2));
}

void AddNormalization(OnnxModel& model, const std::vector<std::string>& outputs) {
  model.Initializer("s", F32({2}, {1, 2})).Initializer("b", F32({2}, {0, 1}));
  model.Initializer("m", F32({2}, {1, 0})).Initializer("v", F32({2}, {4, 1}));
  testing::SetFloat(model.Node("BatchNormalization", {"x", "s", "b", "m", "v"}, outputs, "bn"),
                    "epsilon", 0);
}

TEST(Canonicalise, BatchNormalizationKeepsItsInferenceForm) {
  OnnxModel model(7);
  model.Input("x", DataType::kF32, {1, 2, 1}).Output("y");
  AddNormalization(model, {"y", "", "", "", ""});
  EXPECT_THAT(ImportAndRun(model, {F32({1, 2, 1}, {3, 3})}, {"BatchNormalization"}).as<float>(),
              ElementsAre(1, 7));
  OnnxModel used(7);
  used.Input("x", DataType::kF32, {1, 2, 1}).Output("y").Output("mean");
  AddNormalization(used, {"y", "mean"});
  EXPECT_EQ(ImportError(used), "node `bn` (BatchNormalization): output 1 exists in training only");
}

TEST(Canonicalise, BatchNormalizationPerActivation) {
  OnnxModel model(7);
  model.Input("x", DataType::kF32, {1, 2}).Output("y");
  AddNormalization(model, {"y"});
  testing::SetInt(*model.graph().mutable_node(0), "spatial", 0);
  EXPECT_THAT(
      ImportAndRun(model, {F32({1, 2}, {3, 3})}, {"Sub", "Add", "Sqrt", "Div", "Mul", "Add"})
          .as<float>(),
      ElementsAre(1, 7));
}

TEST(Canonicalise, GroupNormalizationRepeatsPerChannel) {
  OnnxModel model(18);
  model.Input("x", DataType::kF32, {1, 4, 2}).Output("y");
  model.Initializer("s", F32({2}, {1, 2})).Initializer("b", F32({2}, {0, 10}));
  testing::SetInt(model.Node("GroupNormalization", {"x", "s", "b"}, {"y"}), "num_groups", 2);
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const std::vector<Tensor> inputs = {F32({1, 4, 2}, {-1, 1, -1, 1, -1, 1, -1, 1})};
  const auto outputs = ops::Evaluate(result->canonical, inputs);
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  const std::vector<float> expected = {-1, 1, -1, 1, 8, 12, 8, 12};
  EXPECT_THAT((*outputs)[0].as<float>(), testing::Near(expected, 1e-3f));
}

TEST(Canonicalise, ConstantsOfEveryForm) {
  OnnxModel model(13);
  model.Output("y");
  testing::SetFloat(model.Node("Constant", {}, {"f"}), "value_float", 2);
  testing::SetFloats(model.Node("Constant", {}, {"fs"}), "value_floats", {1, 2});
  testing::SetTensor(model.Node("Constant", {}, {"t"}), "value", F32({2}, {10, 20}));
  model.Node("Mul", {"f", "fs"}, {"a"});
  model.Node("Add", {"a", "t"}, {"y"});
  EXPECT_THAT(ImportAndRun(model, {}, {"Mul", "Add"}).as<float>(), ElementsAre(12, 24));
}

TEST(Canonicalise, OperatorsOfOnnxRuntime) {
  OnnxModel model(13);
  model.Import("com.microsoft", 1);
  model.Input("x", DataType::kF32, {2, 2}).Output("y");
  model.Initializer("w", F32({2, 2}, {1, 2, 3, 4}));
  auto& product = model.Node("FusedMatMul", {"x", "w"}, {"m"});
  product.set_domain("com.microsoft");
  testing::SetInt(product, "transB", 1);
  testing::SetFloat(product, "alpha", 0.5f);
  auto& act = model.Node("QuickGelu", {"m"}, {"y"});
  act.set_domain("com.microsoft");
  testing::SetFloat(act, "alpha", 0);  // x * sigmoid(0)
  const Tensor y = ImportAndRun(model, {F32({2, 2}, {1, 0, 0, 1})},
                                {"Transpose", "MatMul", "Mul", "Mul", "Sigmoid", "Mul"});
  EXPECT_THAT(y.as<float>(), ElementsAre(0.25f, 0.75f, 0.5f, 1.0f));
}

TEST(Canonicalise, SkipLayerNormalizationGivesTheSumToo) {
  OnnxModel model(13);
  model.Import("com.microsoft", 1);
  model.Input("x", DataType::kF32, {1, 2})
      .Input("s", DataType::kF32, {1, 2})
      .Output("y")
      .Output("sum");
  model.Initializer("g", F32({2}, {1, 1}));
  model.Node("SkipLayerNormalization", {"x", "s", "g"}, {"y", "", "", "sum"})
      .set_domain("com.microsoft");
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const std::vector<Tensor> inputs = {F32({1, 2}, {1, 2}), F32({1, 2}, {1, 4})};
  const auto outputs = ops::Evaluate(result->canonical, inputs);
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(-1, 1));
  EXPECT_THAT((*outputs)[1].as<float>(), ElementsAre(2, 6));
}

TEST(Canonicalise, FailingNodesAreReportedTogetherAndOnce) {
  OnnxModel model(13);
  model.Input("x", DataType::kF32, {2, 3}).Output("y");
  model.Node("MatMul", {"x", "x"}, {"a"}, "first");
  model.Node("Relu", {"a"}, {"b"}, "after");
  testing::SetInt(model.Node("Concat", {"x", "x"}, {"c"}, "second"), "axis", 7);
  model.Node("Add", {"b", "c"}, {"y"}, "last");
  const std::string error = ImportError(model);
  EXPECT_THAT(error, HasSubstr("first"));
  EXPECT_THAT(error, HasSubstr("second"));
  EXPECT_THAT(error, testing::Not(HasSubstr("after")));
  EXPECT_THAT(error, testing::Not(HasSubstr("last")));
}

TEST(Canonicalise, RowsAreSortedAndUnique) {
  const OnnxOp* previous = nullptr;
  for (const OnnxOp& row : AllOnnxOps()) {
    if (previous != nullptr) {
      EXPECT_LT(std::pair(previous->domain, previous->name), std::pair(row.domain, row.name));
    }
    previous = &row;
  }
}

}  // namespace
}  // namespace quench::importer::canonicalise_test
