
#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ops/evaluate.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer {
namespace {

using testing::AddNode;
using testing::ElementsAre;
using testing::F32;
using testing::FillInfo;
using testing::ImportFolder;
using testing::OnnxModel;

OnnxModel LoopModel() {
  OnnxModel model(16);
  model.Input("x", DataType::kF32, {"n", 2}).Output("y");
  model.Initializer("w", F32({2}, {1, 2}));
  model.Initializer("count", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{2}));
  model.Node("Relu", {"x"}, {"step"}, "");
  auto& loop = model.Node("Loop", {"count", "", "x"}, {"l"}, "loop");
  auto& body = testing::SetGraph(loop, "body");
  FillInfo(*body.add_input(), "i", DataType::kI64, {});
  FillInfo(*body.add_input(), "go", DataType::kBool, {});
  FillInfo(*body.add_input(), "v", DataType::kF32, {"", 2});
  AddNode(body, "Identity", {"go"}, {"go_on"});
  AddNode(body, "Add", {"v", "step"}, {"next"});
  FillInfo(*body.add_output(), "go_on", DataType::kBool, {});
  FillInfo(*body.add_output(), "next", DataType::kF32, {"", 2});
  model.Node("Mul", {"l", "w"}, {"y"});
  return model;
}

void CheckSame(const Graph& first, const Graph& second) {
  const std::vector<Tensor> inputs = {F32({1, 2}, {1, -1})};
  const auto a = ops::Evaluate(first, inputs), b = ops::Evaluate(second, inputs);
  ASSERT_TRUE(a.ok()) << MessageOf(a.status());
  ASSERT_TRUE(b.ok()) << MessageOf(b.status());
  EXPECT_THAT((*a)[0].as<float>(), ElementsAre(3, -2));
  EXPECT_THAT((*b)[0].as<float>(), ElementsAre(3, -2));
}

TEST(Export, ImportedGraphsComeBack) {
  OnnxModel model = LoopModel();
  ImportFolder folder;
  const auto first = folder.Import(model);
  ASSERT_TRUE(first.ok()) << MessageOf(first.status());
  const auto path = folder.path() / "out.onnx";
  const absl::Status status = ExportOnnx(first->imported, path);
  ASSERT_TRUE(status.ok()) << MessageOf(status);
  const auto second = ImportModel(path, {}, folder.store());
  ASSERT_TRUE(second.ok()) << MessageOf(second.status());
  EXPECT_EQ(second->imported.nodes[0].name, "Relu_0");  // the name it was given is in the file
  EXPECT_EQ(second->imported.nodes[0].version, 16);
  EXPECT_EQ(Fingerprint(first->canonical), Fingerprint(second->canonical));
  CheckSame(first->canonical, second->canonical);
}

TEST(Export, CanonicalGraphsComeBack) {
  OnnxModel model = LoopModel();
  ImportFolder folder;
  const auto first = folder.Import(model);
  ASSERT_TRUE(first.ok()) << MessageOf(first.status());
  const auto path = folder.path() / "out.onnx";
  const absl::Status status = ExportOnnx(first->canonical, path);
  ASSERT_TRUE(status.ok()) << MessageOf(status);
  const auto second = ImportModel(path, {}, folder.store());
  ASSERT_TRUE(second.ok()) << MessageOf(second.status());
  EXPECT_EQ(second->imported.metadata.at("opset.ai.onnx"), "28");
  CheckSame(first->canonical, second->canonical);
}

TEST(Export, OtherStagesAreRefused) {
  OnnxModel model = LoopModel();
  ImportFolder folder;
  Graph graph = folder.Import(model)->canonical;
  graph.stage = Stage::kCodegenReady;
  EXPECT_FALSE(ExportOnnx(graph, folder.path() / "out.onnx").ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out.onnx"));
}

TEST(Export, AMissingFolderIsAnError) {
  OnnxModel model = LoopModel();
  ImportFolder folder;
  const auto imported = folder.Import(model);
  EXPECT_EQ(ExportOnnx(imported->imported, folder.path() / "none/out.onnx").code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quench::importer
