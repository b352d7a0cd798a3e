// The model's inputs and what the caller may say about them.

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::interface_test {
namespace {

using testing::ErrorOf;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::OnnxModel;

OnnxModel TwoInputs() {
  OnnxModel model;
  model.Input("x", DataType::kF32, {"batch", 3})
      .Input("z", DataType::kF32, {"batch", 3})
      .Output("y");
  model.Node("Add", {"x", "z"}, {"y"});
  return model;
}

std::string TypeOf(const Graph& graph, const std::string& name) {
  const Type& type = graph.value(*graph.FindValue(name)).type;
  std::string text(DataTypeName(type.dtype));
  for (const Dim dim : type.dims) text += " " + graph.symbols->ToString(dim);
  return text;
}

TEST(Interface, NamedDimsAreOneSymbol) {
  OnnxModel model = TwoInputs();
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(TypeOf(result->canonical, "x"), "f32 batch 3");
  EXPECT_EQ(result->canonical.value(result->canonical.inputs[0]).type,
            result->canonical.value(result->canonical.inputs[1]).type);
  EXPECT_EQ(TypeOf(result->canonical, "y"), "f32 batch 3");
}

TEST(Interface, UnknownDimsGetGeneratedSymbols) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {"", -1, "?", 2}).Output("y");
  model.Node("Relu", {"x"}, {"y"});
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(TypeOf(result->canonical, "y"), "f32 x_d0 x_d1 x_d2 2");
}

TEST(Interface, SymbolNamesAreIdentifiers) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {"a b", "a-b", "2n", "min"}).Output("y");
  model.Node("Relu", {"x"}, {"y"});
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(TypeOf(result->canonical, "y"), "f32 a_b a_b_1 d2n min_");
}

TEST(Interface, AShapeOverrideHoldsForTheNamedDimEverywhere) {
  OnnxModel model = TwoInputs();
  ImportFolder folder;
  ImportOptions options;
  options.shapes["x"] = {8, -1};
  const auto result = folder.Import(model, options);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(TypeOf(result->canonical, "z"), "f32 8 3");
  options.shapes["z"] = {9, 3};
  EXPECT_THAT(ErrorOf(folder.Import(model, options).status()),
              HasSubstr("make dim `batch` both 8 and 9"));
  options.shapes = {{"x", {1, 2, 3}}};
  EXPECT_EQ(ErrorOf(folder.Import(model, options).status()),
            "input `x` has rank 2, the shape [1, 2, 3] given for it has rank 3");
  options.shapes = {{"w", {1}}};
  EXPECT_EQ(ErrorOf(folder.Import(model, options).status()),
            "a shape is given for `w`, the model's inputs are `x`, `z`");
}

TEST(Interface, DimRangesBoundTheSymbol) {
  OnnxModel model = TwoInputs();
  ImportFolder folder;
  ImportOptions options;
  options.dims["batch"] = {0, 64};
  auto result = folder.Import(model, options);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const Dim dim = result->canonical.value(result->canonical.inputs[0]).type.dims[0];
  EXPECT_EQ(result->canonical.symbols->BoundsOf(dim).min, 0);
  EXPECT_EQ(result->canonical.symbols->BoundsOf(dim).max, 64);
  options.dims["batch"] = {4, 4};
  EXPECT_EQ(TypeOf(folder.Import(model, options)->canonical, "y"), "f32 4 3");
  options.dims = {{"batch", {5, 4}}};
  EXPECT_THAT(ErrorOf(folder.Import(model, options).status()),
              HasSubstr("the range 5..4, which is empty"));
  options.dims = {{"seq", {1, 4}}};
  EXPECT_EQ(ErrorOf(folder.Import(model, options).status()),
            "the model has no symbolic dim `seq`, it has `batch`");
}

TEST(Interface, DataTypesCanBeOverridden) {
  OnnxModel model = TwoInputs();
  ImportFolder folder;
  ImportOptions options;
  options.dtypes = {{"x", DataType::kF64}, {"z", DataType::kF64}};
  const auto result = folder.Import(model, options);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(TypeOf(result->canonical, "y"), "f64 batch 3");
}

TEST(Interface, UnrankedInputsNeedAShape) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {}).Output("y");
  model.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->clear_shape();
  model.Node("Relu", {"x"}, {"y"});
  ImportFolder folder;
  EXPECT_EQ(ErrorOf(folder.Import(model).status()),
            "input `x`: has no shape; give one, such as --shape x=1,3,224,224 (of a single number: "
            "x=scalar)");
  ImportOptions options;
  options.shapes["x"] = {-1, 4};
  const auto result = folder.Import(model, options);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(TypeOf(result->canonical, "y"), "f32 x_d0 4");
}

TEST(Interface, AnOutputOfAnotherTypeThanDeclaredIsRefused) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2}).Output("y", DataType::kI64);
  model.Node("Relu", {"x"}, {"y"});
  ImportFolder folder;
  EXPECT_EQ(ErrorOf(folder.Import(model).status()),
            "output `y` is declared i64, the graph computes f32");
}

}  // namespace
}  // namespace quench::importer::interface_test
