// libonnx as a second opinion.

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::check_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::IsEmpty;
using testing::OnnxModel;

OnnxModel Relu(int64_t opset, int64_t ir_version) {
  OnnxModel model(opset, ir_version);
  model.Input("x", DataType::kF32, {2, 3});
  testing::FillInfo(*model.graph().add_output(), "y", DataType::kF32, {2, 3});
  model.Node("Relu", {"x"}, {"a"});
  model.Node("Relu", {"a"}, {"y"});
  return model;
}

std::vector<std::string> Check(OnnxModel model, void (*change)(Graph&) = nullptr) {
  ImportFolder folder;
  auto result = folder.Import(model);
  EXPECT_TRUE(result.ok()) << MessageOf(result.status());
  if (change != nullptr) change(result->imported);
  const auto lines = CheckWithLibonnx(folder.path() / "model.onnx", result->imported);
  EXPECT_TRUE(lines.ok()) << MessageOf(lines.status());
  return *lines;
}

TEST(Check, AgreementIsSilent) { EXPECT_THAT(Check(Relu(17, 8)), IsEmpty()); }

TEST(Check, OtherShapesAreReported) {
  const auto lines = Check(Relu(17, 8), [](Graph& graph) {
    graph.value(*graph.FindValue("a")).type = Type::Tensor(DataType::kF32, {2, 4});
  });
  EXPECT_THAT(lines, ElementsAre("value `a`: libonnx infers f32[2, 3], quench infers f32[2, 4]"));
}

TEST(Check, NewerModelsAreSaidToBeUnchecked) {
  EXPECT_THAT(Check(Relu(21, 10)),
              ElementsAre(HasSubstr("knows opsets up to 17, the model has 21")));
  EXPECT_THAT(Check(Relu(17, 10)),
              ElementsAre(HasSubstr("knows IR versions up to 8, the model has 10")));
}

TEST(Check, ExceptionsOfTheCheckerBecomeLines) {
  OnnxModel model = Relu(17, 8);
  model.graph().mutable_node(0)->add_output("extra");  // Relu has one output
  ImportFolder folder;
  const auto path = folder.Write("model.onnx", model.proto().SerializeAsString());
  Graph imported;
  imported.metadata["ir_version"] = "8";  // an ONNX model
  const auto lines = CheckWithLibonnx(path, imported);
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_FALSE(lines->empty());
  EXPECT_THAT((*lines)[0], HasSubstr("libonnx's checker: "));
}

}  // namespace
}  // namespace quench::importer::check_test
