// Operators that a user brings, as functions in IR text.

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"
#include "tests/support/tflite_models.h"

namespace quench::importer::functions_test {
namespace {

using testing::ErrorOf;
using testing::F32;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::OnnxModel;
using testing::TfliteModel;

constexpr char kFunctions[] = R"(quench.ir 1
module "my.ops::Shift" canonical {
  input %x: f32[2, 3]
  const %attr.by: f32[] = [1.0]
  %y = Add(%x, %attr.by)
  output %y
}

quench.ir 1
module "my.ops::Spread" canonical {
  input %x: f32[2, 3]
  const %attr.weights: f32[3] = [1.0, 1.0, 1.0]
  %even = Softmax(%x) {axis = "$along"}
  %y = Mul(%even, %attr.weights)
  output %y
}
)";

std::vector<float> Floats(const Tensor& tensor) {
  const auto values = tensor.as<float>();
  return {values.begin(), values.end()};
}

OnnxModel Model(const std::string& op) {
  OnnxModel model;
  model.Import("my.ops", 1);
  model.Input("x", DataType::kF32, {2, 3}).Output("y");
  model.Node(op, {"x"}, {"y"}, "own").set_domain("my.ops");
  return model;
}

absl::StatusOr<Imported> Import(OnnxModel model, const std::string& functions = kFunctions) {
  static auto* const folder = new ImportFolder();
  ImportOptions options;
  options.conversions = {functions};
  return folder->Import(model, options);
}

TEST(FunctionsTest, ANodeBecomesItsFunction) {
  const absl::StatusOr<Imported> imported = Import(Model("Shift"));
  ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
  EXPECT_EQ(imported->imported.nodes[0].op, "Shift");
  EXPECT_EQ(imported->canonical.nodes[0].op, "Add");
  EXPECT_EQ(imported->canonical.nodes[0].origin, "own");
  const std::vector<Tensor> inputs = {F32({2, 3}, {0, 1, 2, 3, 4, 5})};
  EXPECT_EQ(Floats((*ops::Evaluate(imported->canonical, inputs))[0]),
            (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(FunctionsTest, AttributesAreParameters) {
  OnnxModel shift = Model("Shift");
  testing::SetFloat(*shift.graph().mutable_node(0), "by", 10);
  const std::vector<Tensor> inputs = {F32({2, 3}, {0, 0, 0, 0, 0, 0})};
  EXPECT_EQ(Floats((*ops::Evaluate(Import(shift)->canonical, inputs))[0]),
            (std::vector<float>(6, 10)));

  OnnxModel spread = Model("Spread");
  testing::SetInt(*spread.graph().mutable_node(0), "along", 0);
  testing::SetFloats(*spread.graph().mutable_node(0), "weights", {2, 4, 6});
  EXPECT_EQ(Floats((*ops::Evaluate(Import(spread)->canonical, inputs))[0]),
            (std::vector<float>{1, 2, 3, 1, 2, 3}));
}

TEST(FunctionsTest, OperatorsOfEveryFormat) {
  TfliteModel model;
  const int x = model.Input("x", tflite::TensorType_FLOAT32, {2, 3});
  const int y = model.Tensor("y", tflite::TensorType_FLOAT32, {2, 3});
  model.Op(tflite::BuiltinOperator_CUSTOM, {x}, {y});
  model.model().operator_codes[0]->custom_code = "Mine";
  model.Outputs({y});
  std::string function = kFunctions;
  function.replace(function.find("my.ops::Shift"), 13, "tflite.custom::Mine");
  ImportFolder folder;
  ImportOptions options;
  const auto path = folder.Write("model.tflite", model.Bytes());
  EXPECT_THAT(ErrorOf(ImportModel(path, options, folder.store()).status()),
              HasSubstr("`Mine` of domain `tflite.custom`"));
  options.conversions = {function};
  const absl::StatusOr<Imported> imported = ImportModel(path, options, folder.store());
  ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
  EXPECT_EQ(imported->canonical.nodes[0].op, "Add");
}

TEST(FunctionsTest, WhatDoesNotFitIsNamed) {
  OnnxModel list = Model("Shift");
  testing::SetFloats(*list.graph().mutable_node(0), "by", {1, 2});
  EXPECT_THAT(ErrorOf(Import(list).status()),
              HasSubstr("node `own` (Shift): attribute `by` has 2 numbers, the function wants a "
                        "tensor of rank 0"));
  OnnxModel text = Model("Shift");
  testing::SetString(*text.graph().mutable_node(0), "by", "one");
  EXPECT_THAT(ErrorOf(Import(text).status()),
              HasSubstr("attribute `by` is neither a number nor a list of numbers"));
  OnnxModel two = Model("Shift");
  two.graph().mutable_node(0)->add_input("x");
  EXPECT_THAT(ErrorOf(Import(two).status()),
              HasSubstr("has 2 inputs and 1 outputs, its function has 1 and 1"));
}

TEST(FunctionsTest, AllProblemsOfATextAtOnce) {
  const std::string broken = R"(quench.ir 1
module "nameless" canonical {
  input %x: f32[2]
  output %x
}
quench.ir 1
module "my.ops::Odd" canonical {
  input %x: f32[2]
  %y = Sotfmax(%x)
  output %y
}
quench.ir 1
module "my.ops::Cut" canonical {
  input %x:
)";
  const std::string error = ErrorOf(Import(Model("Shift"), broken).status());
  EXPECT_THAT(error, HasSubstr("module `nameless` should be named \"domain::Operator\""));
  EXPECT_THAT(error, HasSubstr("conversion `my.ops::Odd`: there is no operator `Sotfmax`; similar "
                               "ones are `Softmax`"));
  EXPECT_THAT(error, HasSubstr("conversions: "));
  EXPECT_THAT(ErrorOf(Import(Model("Shift"), std::string(kFunctions) + kFunctions).status()),
              HasSubstr("conversion `my.ops::Shift` is given twice"));
}

}  // namespace
}  // namespace quench::importer::functions_test
