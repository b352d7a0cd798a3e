
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ir/text.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::export_test {
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

// The graph written as ONNX and read again.
absl::StatusOr<Imported> ThereAndBack(const Graph& graph, ImportFolder& folder) {
  const auto path = folder.path() / "out.onnx";
  QUENCH_RETURN_IF_ERROR(ExportOnnx(graph, path));
  return ImportModel(path, {}, folder.store());
}

TEST(Export, ImportedGraphsComeBack) {
  OnnxModel model = LoopModel();
  ImportFolder folder;
  const auto first = folder.Import(model);
  ASSERT_TRUE(first.ok()) << MessageOf(first.status());
  const auto second = ThereAndBack(first->imported, folder);
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
  const auto second = ThereAndBack(first->canonical, folder);
  ASSERT_TRUE(second.ok()) << MessageOf(second.status());
  EXPECT_EQ(second->imported.metadata.at("opset.ai.onnx"), "21");
  EXPECT_EQ(second->imported.metadata.at("ir_version"), "10");
  CheckSame(first->canonical, second->canonical);
}

// Runtimes refuse files that are newer than they are: no newer than the operators, their attributes
// and types ask for.
TEST(Export, DeclaresTheOldestOpset) {
  struct Case {
    std::string op;
    DataType type;
    std::map<std::string, int64_t> attributes;
    int64_t opset, ir_version;
  };
  const std::vector<Case> cases = {
      {"Relu", DataType::kF32, {}, 21, 10},           {"Relu", DataType::kBF16, {}, 24, 12},
      {"Swish", DataType::kF32, {}, 24, 12},          {"Celu", DataType::kF32, {}, 21, 10},
      {"Celu", DataType::kF64, {}, 28, 14},           {"Mod", DataType::kI32, {}, 21, 10},
      {"Mod", DataType::kF32, {{"fmod", 1}}, 21, 10}, {"Identity", DataType::kI2, {}, 25, 13},
  };
  for (const Case& each : cases) {
    OnnxModel model(28);
    model.Input("x", each.type, {2}).Input("y", each.type, {2}).Output("z", each.type);
    auto& node = model.Node(each.op, {"x"}, {"z"});
    if (each.op == "Mod") node.add_input("y");
    for (const auto& [name, value] : each.attributes) testing::SetInt(node, name, value);
    ImportFolder folder;
    const auto first = folder.Import(model);
    ASSERT_TRUE(first.ok()) << MessageOf(first.status());
    const auto second = ThereAndBack(first->canonical, folder);
    ASSERT_TRUE(second.ok()) << MessageOf(second.status());
    EXPECT_EQ(second->imported.metadata.at("opset.ai.onnx"), std::to_string(each.opset)) << each.op;
    EXPECT_EQ(second->imported.metadata.at("ir_version"), std::to_string(each.ir_version))
        << each.op;
    EXPECT_EQ(Fingerprint(first->canonical), Fingerprint(second->canonical)) << each.op;
  }
}

// Attributes that came later are left out where they say nothing new; a scale of another type than
// the values' came later too.
TEST(Export, NewerAttributesAreLeftOut) {
  for (const bool mixed : {false, true}) {
    OnnxModel model(28);
    model.Input("x", mixed ? DataType::kF16 : DataType::kF32, {2}).Output("z", DataType::kI8);
    model.Initializer("scale", F32({}, {0.5F}));
    model.Initializer("zero", Tensor::Zeros(DataType::kI8, {}));
    auto& node = model.Node("QuantizeLinear", {"x", "scale", "zero"}, {"z"});
    testing::SetInt(node, "precision", 0);
    ImportFolder folder;
    const auto first = folder.Import(model);
    ASSERT_TRUE(first.ok()) << MessageOf(first.status());
    const auto second = ThereAndBack(first->canonical, folder);
    ASSERT_TRUE(second.ok()) << MessageOf(second.status());
    EXPECT_EQ(second->imported.metadata.at("opset.ai.onnx"), mixed ? "23" : "21");
    EXPECT_EQ(second->imported.nodes[0].attributes.contains("precision"), mixed);
  }
}

// Other runtimes have no operator for dims of the run: a Reshape with one of them is written with -1.
TEST(Export, ReshapesAreOrdinary) {
  OnnxModel model(21);
  model.Input("x", DataType::kF32, {"n", 2, 3}).Output("y");
  model.Node("Shape", {"x"}, {"dims"});
  model.Initializer("zero", Tensor::I64({0})).Initializer("rest", Tensor::I64({6}));
  model.Node("Gather", {"dims", "zero"}, {"n"});
  auto& shape = model.Node("Concat", {"n", "rest"}, {"shape"});
  testing::SetInt(shape, "axis", 0);
  model.Node("Reshape", {"x", "shape"}, {"y"});
  ImportFolder folder;
  const auto first = folder.Import(model);
  ASSERT_TRUE(first.ok()) << MessageOf(first.status());
  const auto passed = passes::RunPipeline(first->canonical, {}, {});
  ASSERT_TRUE(passed.ok()) << passed.status();
  ASSERT_EQ(passed->nodes[0].op, "q.dims");
  const auto second = ThereAndBack(*passed, folder);
  ASSERT_TRUE(second.ok()) << MessageOf(second.status());
  ASSERT_EQ(second->imported.nodes.size(), 1);
  const Node& reshape = second->imported.nodes[0];
  EXPECT_THAT(second->imported.value(reshape.inputs[1]).constant->tensor.ToInts(),
              ElementsAre(-1, 6));
}

TEST(Export, LargeWeightsComeBackWithTheirBytes) {
  OnnxModel model(16);
  model.Input("x", DataType::kF32, {1, 300}).Output("y");
  std::vector<float> first(300 * 100), second(100 * 200);  // 120,000 and 80,000 bytes
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i) / 1000;
  for (size_t i = 0; i < second.size(); ++i) second[i] = -static_cast<float>(i) / 500;
  model.Initializer("a", F32({300, 100}, first)).Initializer("b", F32({100, 200}, second));
  model.Initializer("c", F32({200}, std::vector<float>(200, 2)));
  model.Node("MatMul", {"x", "a"}, {"xa"});
  model.Node("MatMul", {"xa", "b"}, {"xab"});
  model.Node("Add", {"xab", "c"}, {"y"});
  ImportFolder folder;
  const auto imported = folder.Import(model);
  ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
  const auto path = folder.path() / "out.onnx";
  int64_t done = 0;
  const StepContext context(std::make_shared<CancelToken>(), [&](const Progress& progress) {
    EXPECT_EQ(progress.total, 200'800);
    EXPECT_GT(progress.done, done);
    done = progress.done;
  });
  const absl::Status status = ExportOnnx(imported->imported, path, context);
  ASSERT_TRUE(status.ok()) << MessageOf(status);
  EXPECT_EQ(done, 200'000);
  // Standard protobuf reads it as one message.
  onnx::v1::ModelProto proto;
  std::ifstream stream(path, std::ios::binary);
  ASSERT_TRUE(proto.ParseFromIstream(&stream));
  ASSERT_EQ(proto.graph().initializer_size(), 3);
  EXPECT_EQ(proto.graph().initializer(1).name(), "a");
  EXPECT_THAT(proto.graph().initializer(1).dims(), ElementsAre(300, 100));
  EXPECT_EQ(proto.graph().initializer(1).raw_data().size(), 120'000u);
  const auto again = ImportModel(path, {}, folder.store());
  ASSERT_TRUE(again.ok()) << MessageOf(again.status());
  EXPECT_EQ(Fingerprint(imported->canonical), Fingerprint(again->canonical));
}

// A constant that both branches read is in the file once, also where the main graph reads it too.
TEST(Export, ConstantsOfSeveralBodiesAreWrittenOnce) {
  for (const bool outside : {false, true}) {
    OnnxModel model(16);
    model.Input("x", DataType::kF32, {1, 1024}).Input("c", DataType::kBool, {}).Output("y");
    model.Initializer("w", F32({1, 1024}, std::vector<float>(1024, 0.5F)));
    model.Node(outside ? "Mul" : "Identity",
               outside ? std::vector<std::string>{"x", "w"} : std::vector<std::string>{"x"}, {"h"});
    auto& branch = model.Node("If", {"c"}, {"y"}, "if");
    for (const char* op : {"Add", "Mul"}) {
      auto& body = testing::SetGraph(branch, op[0] == 'A' ? "then_branch" : "else_branch");
      AddNode(body, op, {"h", "w"}, {op});
      FillInfo(*body.add_output(), op, DataType::kF32, {1, 1024});
    }
    ImportFolder folder;
    const auto imported = folder.Import(model);
    ASSERT_TRUE(imported.ok()) << MessageOf(imported.status());
    const auto folded =
        passes::RunPass(*passes::FindPass("fold_constants"), imported->canonical, {}, {});
    ASSERT_TRUE(folded.ok()) << folded.status();
    const auto back = ThereAndBack(*folded, folder);
    ASSERT_TRUE(back.ok()) << MessageOf(back.status());
    EXPECT_LT(std::filesystem::file_size(folder.path() / "out.onnx"), 2 * 4096);
    for (const uint8_t which : {0, 1}) {
      const std::vector<Tensor> inputs = {
          F32({1, 1024}, std::vector<float>(1024, 3)),
          Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{which})};
      const auto a = ops::Evaluate(imported->canonical, inputs);
      const auto b = ops::Evaluate(back->canonical, inputs);
      ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
      EXPECT_EQ((*a)[0].FloatAt(7), (*b)[0].FloatAt(7));
    }
  }
}

constexpr char kPartitioned[] = R"(quench.ir 1
module "cut" canonical {
  input %x: f32[2]
  %sum: f32[2] = q.partition(%x) {
    backend = "tensorrt",
    body = graph "part" {
      input %x: f32[2]
      %relu: f32[2] = Relu(%x) as "relu"
      %sum: f32[2] = Add(%relu, %x) as "add"
      output %sum
    }
  } as "../cut/1"
  %y: f32[2] = Neg(%sum) as "neg"
  output %y
}
)";

TEST(Export, PartsOfAPartitionedModuleAreModelsOfTheirOwn) {
  ImportFolder folder;
  const Graph graph = ParseGraph(kPartitioned).value();
  const auto whole = ThereAndBack(graph, folder);
  ASSERT_TRUE(whole.ok()) << MessageOf(whole.status());
  const std::vector<Tensor> x = {F32({2}, {1, -2})};
  EXPECT_THAT((*ops::Evaluate(whole->canonical, x))[0].as<float>(), ElementsAre(-2, 2));
  EXPECT_TRUE(passes::PartitionsOf(whole->canonical).empty());
  // No name leads out of the folder.
  const auto part = ImportModel(folder.path() / "out.parts/.._cut_1.onnx", {}, folder.store());
  ASSERT_TRUE(part.ok()) << MessageOf(part.status());
  EXPECT_THAT((*ops::Evaluate(part->canonical, x))[0].as<float>(), ElementsAre(2, -2));
}

TEST(Export, AMissingFolderIsAnError) {
  OnnxModel model = LoopModel();
  ImportFolder folder;
  const auto imported = folder.Import(model);
  EXPECT_EQ(ExportOnnx(imported->imported, folder.path() / "none/out.onnx").code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quench::importer::export_test
