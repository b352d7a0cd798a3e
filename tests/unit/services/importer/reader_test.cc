// Files to graphs: names, weights, functions, overrides, cuts.

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::reader_test {
namespace {

using testing::AddNode;
using testing::ElementsAre;
using testing::ErrorOf;
using testing::F32;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::OnnxModel;

std::vector<std::string> NodeNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}
std::vector<std::string> ValueNames(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (const ValueId id : ids) names.push_back(graph.value(id).name);
  return names;
}

TEST(Reader, NodesKeepDomainVersionAndOrigin) {
  OnnxModel model(17);
  model.Input("x", DataType::kF32, {2, 3}).Output("y");
  model.Node("Relu", {"x"}, {"a"}, "act");
  model.Node("Relu", {"a"}, {"b"});
  model.Node("Relu", {"b"}, {"y"}, "act");
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const Graph& graph = result->imported;
  EXPECT_EQ(graph.stage, Stage::kImported);
  EXPECT_THAT(NodeNames(graph), ElementsAre("act", "Relu_1", "act_1"));
  EXPECT_EQ(graph.nodes[0].version, 17);
  EXPECT_EQ(graph.nodes[1].origin, "");
  EXPECT_EQ(graph.nodes[2].origin, "act");
  EXPECT_TRUE(VerifyGraph(graph).ok());
  EXPECT_EQ(result->canonical.stage, Stage::kCanonical);
  EXPECT_TRUE(VerifyGraph(result->canonical).ok());
  // Types flow back by value.
  EXPECT_EQ(graph.value(*graph.FindValue("a")).type, Type::Tensor(DataType::kF32, {2, 3}));
}

TEST(Reader, NodesOutOfOrderAreSorted) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {1}).Output("y");
  model.Node("Relu", {"b"}, {"y"}, "third");
  model.Node("Relu", {"a"}, {"b"}, "second");
  model.Node("Relu", {"x"}, {"a"}, "first");
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_THAT(NodeNames(result->imported), ElementsAre("first", "second", "third"));
}

// x + k, where `k` is one Constant before that and another after it.
OnnxModel RepeatedConstants(const Tensor& first, const Tensor& second) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {1}).Output("y");
  testing::SetTensor(model.Node("Constant", {}, {"k"}), "value", first);
  model.Node("Add", {"x", "k"}, {"y"});
  testing::SetTensor(model.Node("Constant", {}, {"k"}), "value", second);
  return model;
}

TEST(Reader, OfConstantsOfOneNameTheLastCounts) {
  ImportFolder folder;
  OnnxModel equal = RepeatedConstants(F32({1}, {2}), F32({1}, {2}));
  const auto same = folder.Import(equal);
  ASSERT_TRUE(same.ok()) << MessageOf(same.status());
  EXPECT_EQ(WarningsOf(same->canonical).size(), 0u);
  OnnxModel model = RepeatedConstants(F32({1}, {1}), F32({1}, {2}));
  for (const bool cut : {false, true}) {
    ImportOptions options;
    if (cut) options.outputs = {"y"};
    const auto result = folder.Import(model, options);
    ASSERT_TRUE(result.ok()) << MessageOf(result.status());
    const auto outputs = ops::Evaluate(result->canonical, std::vector<Tensor>{F32({1}, {100})});
    ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
    EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(102));  // as ONNX Runtime 1.31 has it
    ASSERT_EQ(WarningsOf(result->canonical).size(), 1u);
    EXPECT_THAT(WarningsOf(result->canonical)[0], HasSubstr("`k`"));
  }
}

TEST(Reader, ConstantsOfOneNameHaveOneType) {
  OnnxModel longer = RepeatedConstants(F32({1}, {1}), F32({2}, {2, 3}));
  ImportFolder folder;
  EXPECT_THAT(ErrorOf(folder.Import(longer).status()), HasSubstr("value `k` is defined twice"));
  OnnxModel integer = RepeatedConstants(F32({1}, {1}), Tensor::I64({1}));
  EXPECT_THAT(ErrorOf(folder.Import(integer).status()), HasSubstr("value `k` is defined twice"));
  OnnxModel computed = RepeatedConstants(F32({1}, {1}), F32({1}, {1}));
  computed.Node("Neg", {"x"}, {"k"});
  EXPECT_THAT(ErrorOf(folder.Import(computed).status()), HasSubstr("value `k` is defined twice"));
}

TEST(Reader, LargeWeightsComeFromTheBlobStore) {
  std::vector<float> values(2048, 2.0f);
  OnnxModel model;
  model.Input("x", DataType::kF32, {2048}).Output("y");
  model.Initializer("w", F32({2048}, values)).Initializer("small", Tensor::ScalarF32(1));
  model.Node("Mul", {"x", "w"}, {"m"});
  model.Node("Add", {"m", "small"}, {"y"});
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  const Value& weight = result->canonical.value(*result->canonical.FindValue("w"));
  ASSERT_NE(weight.constant, nullptr);
  ASSERT_EQ(weight.constant->location.size(), 1u);
  EXPECT_EQ(weight.constant->location[0].size, 8192u);
  EXPECT_TRUE(folder.store().Contains(weight.constant->location[0].blob));
  EXPECT_EQ(weight.constant->digest, Sha256Hex(std::as_bytes(std::span(values))));
  EXPECT_EQ(weight.constant->tensor.FloatAt(2047), 2.0);
  const Value& small = result->canonical.value(*result->canonical.FindValue("small"));
  EXPECT_TRUE(small.constant->location.empty());
}

TEST(Reader, ConstantNodesKeepTheirBlob) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2048}).Output("y");
  testing::SetTensor(model.Node("Constant", {}, {"w"}), "value",
                     F32({2048}, std::vector<float>(2048, 3.0f)));
  model.Node("Mul", {"x", "w"}, {"y"});
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(result->imported.nodes.size(), 2u);
  EXPECT_EQ(result->canonical.nodes.size(), 1u);
  const Value& weight = result->canonical.value(*result->canonical.FindValue("w"));
  ASSERT_NE(weight.constant, nullptr);
  EXPECT_FALSE(weight.constant->location.empty());
}

// Resident anonymous memory of this process, in bytes.
int64_t RssAnon() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return -1;
}

TEST(Reader, WeightsAreStreamed) {
  ImportFolder folder;
  std::filesystem::path path;
  constexpr int64_t kBytes = int64_t{96} << 20;
  {
    OnnxModel model;
    model.Input("x", DataType::kF32, {kBytes / 4}).Output("y");
    model.Initializer("w", Tensor::Zeros(DataType::kF32, {kBytes / 4}));
    model.Node("Mul", {"x", "w"}, {"y"});
    path = folder.Write("big.onnx", model.proto().SerializeAsString());
  }
  const int64_t before = RssAnon();
  const auto result = ImportModel(path, {}, folder.store());
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_LT(RssAnon() - before, kBytes / 4);
}

TEST(Reader, InitializersThatAreInputsAreConstants) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2}).Input("w", DataType::kF32, {2}).Output("y");
  model.Initializer("w", F32({2}, {1, 2}));
  model.Node("Add", {"x", "w"}, {"y"});
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_THAT(ValueNames(result->canonical, result->canonical.inputs), ElementsAre("x"));
}

TEST(Reader, LocalFunctionsAreInlined) {
  OnnxModel model(17);
  model.Import("local", 1);
  model.Input("x", DataType::kF32, {4}).Output("y");
  auto* function = model.proto().add_functions();
  function->set_name("Twice");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("r");
  function->add_attribute("slope");
  auto* opset = function->add_opset_import();
  opset->set_domain("");
  opset->set_version(16);
  for (const auto& [in, out] : {std::pair("a", "t"), std::pair("t", "r")}) {
    auto* node = function->add_node();
    node->set_op_type("LeakyRelu");
    node->add_input(in);
    node->add_output(out);
    auto* alpha = node->add_attribute();
    alpha->set_name("alpha");
    alpha->set_ref_attr_name("slope");
    alpha->set_type(onnx::v1::AttributeProto::FLOAT);
  }
  auto& first = model.Node("Twice", {"x"}, {"m"}, "call");
  first.set_domain("local");
  testing::SetFloat(first, "slope", 0.5f);
  auto& second = model.Node("Twice", {"m"}, {"y"}, "again");
  second.set_domain("local");
  testing::SetFloat(second, "slope", 2.0f);
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(result->imported.nodes.size(), 4u);
  EXPECT_EQ(result->imported.nodes[0].version, 16);
  EXPECT_TRUE(result->imported.FindValue("call/t").has_value());
  EXPECT_TRUE(result->imported.FindValue("m").has_value());
  const std::vector<Tensor> inputs = {F32({4}, {-8, -4, 1, 2})};
  const auto outputs = ops::Evaluate(result->canonical, inputs);
  ASSERT_TRUE(outputs.ok()) << MessageOf(outputs.status());
  EXPECT_THAT((*outputs)[0].as<float>(), ElementsAre(-8, -4, 1, 2));  // 0.5 * 0.5 * 2 * 2
}

TEST(Reader, FunctionsThatCallThemselvesAreRefused) {
  OnnxModel model(17);
  model.Import("local", 1);
  model.Input("x", DataType::kF32, {4}).Output("y");
  auto* function = model.proto().add_functions();
  function->set_name("F");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("r");
  auto* node = function->add_node();
  node->set_op_type("F");
  node->set_domain("local");
  node->add_input("a");
  node->add_output("r");
  model.Node("F", {"x"}, {"y"}).set_domain("local");
  ImportFolder folder;
  EXPECT_THAT(ErrorOf(folder.Import(model).status()),
              HasSubstr("functions call one another more than 64 deep"));
}

TEST(Reader, OutputsCutTheModel) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2}).Input("z", DataType::kF32, {2}).Output("y");
  model.Node("Relu", {"x"}, {"a"}, "first");
  model.Node("Add", {"a", "z"}, {"y"}, "second");
  ImportFolder folder;
  ImportOptions options;
  options.outputs = {"a"};
  const auto result = folder.Import(model, options);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_THAT(NodeNames(result->canonical), ElementsAre("first"));
  EXPECT_THAT(ValueNames(result->canonical, result->canonical.inputs), ElementsAre("x"));
  EXPECT_THAT(ValueNames(result->canonical, result->canonical.outputs), ElementsAre("a"));
  options.outputs = {"nowhere"};
  EXPECT_THAT(ErrorOf(folder.Import(model, options).status()),
              HasSubstr("cut at `nowhere`, which is not a value of it"));
}

TEST(Reader, FrozenInputsBecomeConstants) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2}).Input("s", DataType::kF32, {2}).Output("y");
  model.Node("Mul", {"x", "s"}, {"y"});
  ImportFolder folder;
  ImportOptions options;
  options.freeze_params["s"] = F32({2}, {3, 4});
  const auto result = folder.Import(model, options);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_THAT(ValueNames(result->canonical, result->canonical.inputs), ElementsAre("x"));
  const std::vector<Tensor> inputs = {F32({2}, {1, 10})};
  EXPECT_THAT((*ops::Evaluate(result->canonical, inputs))[0].as<float>(), ElementsAre(3, 40));
  options.freeze_params = {{"q", F32({1}, {0})}};
  EXPECT_THAT(ErrorOf(folder.Import(model, options).status()),
              HasSubstr("a value is given for `q`"));
}

// y = (x . w) * s reshaped: a matrix, a number and a shape.
OnnxModel WithParameters() {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2, 2}).Output("y");
  model.Initializer("w", F32({2, 2}, {1, 2, 3, 4})).Initializer("s", Tensor::ScalarF32(10));
  model.Initializer("shape", Tensor::I64({4}));
  model.Node("MatMul", {"x", "w"}, {"p"});
  model.Node("Mul", {"p", "s"}, {"q"});
  model.Node("Reshape", {"q", "shape"}, {"y"});
  return model;
}

TEST(Reader, UnfrozenParametersStayInputs) {
  OnnxModel model = WithParameters();
  ImportFolder folder;
  ImportOptions options;
  options.no_freeze = {"all"};  // the number and the shape are none
  const auto all = folder.Import(model, options);
  ASSERT_TRUE(all.ok()) << MessageOf(all.status());
  EXPECT_THAT(ValueNames(all->canonical, all->canonical.inputs), ElementsAre("x", "w"));
  const std::vector<Tensor> inputs = {F32({2, 2}, {1, 0, 0, 1}), F32({2, 2}, {5, 6, 7, 8})};
  EXPECT_THAT((*ops::Evaluate(all->canonical, inputs))[0].as<float>(), ElementsAre(50, 60, 70, 80));
  options.no_freeze = {"s"};
  const auto one = folder.Import(model, options);
  ASSERT_TRUE(one.ok()) << MessageOf(one.status());
  EXPECT_THAT(ValueNames(one->canonical, one->canonical.inputs), ElementsAre("x", "s"));
  options.no_freeze = {"shap", "W2"};
  const std::string error = ErrorOf(folder.Import(model, options).status());
  EXPECT_THAT(error, HasSubstr("`shap` cannot stay unfrozen"));
  EXPECT_THAT(error, HasSubstr("similar ones are `shape`"));
  EXPECT_THAT(error, HasSubstr("`W2` cannot stay unfrozen"));
}

TEST(Reader, ConvertConfigChoosesHowProductsAreWritten) {
  OnnxModel model = WithParameters();
  ImportFolder folder;
  ImportOptions options;
  for (const bool nt : {true, false}) {
    options.convert_config = {{"use_nt_batch_matmul", nt}};
    const auto result = folder.Import(model, options);
    ASSERT_TRUE(result.ok()) << MessageOf(result.status());
    EXPECT_EQ(result->canonical.nodes[0].op, nt ? "MatMul" : "Gemm");
    const std::vector<Tensor> inputs = {F32({2, 2}, {1, 0, 0, 1})};
    EXPECT_THAT((*ops::Evaluate(result->canonical, inputs))[0].as<float>(),
                ElementsAre(10, 20, 30, 40));
  }
  options.convert_config = {{"use_dense", true}, {"use_nt", true}};
  const std::string error = ErrorOf(folder.Import(model, options).status());
  EXPECT_THAT(error, HasSubstr("`use_dense` is of TensorFlow models"));
  EXPECT_THAT(error, HasSubstr("`use_nt` is unknown"));
}

TEST(Reader, TheOpsetCanBeOverridden) {
  OnnxModel model(13);
  model.Input("x", DataType::kF32, {2, 3, 4}).Output("y");
  model.Node("Softmax", {"x"}, {"y"});
  ImportFolder folder;
  ImportOptions options;
  EXPECT_EQ(folder.Import(model)->canonical.nodes.size(), 1u);
  options.opset = 11;
  EXPECT_GT(folder.Import(model, options)->canonical.nodes.size(), 1u);
  options.opset = 99;
  EXPECT_THAT(ErrorOf(folder.Import(model, options).status()),
              HasSubstr("opset 99 is not supported (supported: 1 to 28)"));
}

TEST(Reader, UnsupportedOperatorsAreReportedTogether) {
  OnnxModel model;
  model.Import("ai.onnx.ml", 3).Import("mine", 1);
  model.Input("x", DataType::kF32, {2}).Output("y");
  model.Node("ZipMap", {"x"}, {"a"}, "zip").set_domain("ai.onnx.ml");
  model.Node("Foo", {"a"}, {"b"}, "foo1").set_domain("mine");
  model.Node("Foo", {"b"}, {"y"}, "foo2").set_domain("mine");
  ImportFolder folder;
  const auto result = folder.Import(model);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ErrorOf(result.status()),
            "2 operators of the model are not supported\n"
            "`ZipMap` of domain `ai.onnx.ml`, opset 3: 1 node (`zip`)\n"
            "`Foo` of domain `mine`, opset 1: 2 nodes (`foo1`, `foo2`)");
  const auto found = FindUnsupported(folder.path() / "model.onnx", {});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[1].op, "Foo");
  EXPECT_THAT((*found)[1].nodes, ElementsAre("foo1", "foo2"));
}

TEST(Reader, CancellingStopsTheImport) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2048}).Output("y");
  model.Initializer("w", Tensor::Zeros(DataType::kF32, {2048}));
  model.Node("Mul", {"x", "w"}, {"y"});
  ImportFolder folder;
  auto cancel = std::make_shared<CancelToken>();
  cancel->Cancel();
  const auto result = ImportModel(folder.Write("m.onnx", model.proto().SerializeAsString()), {},
                                  folder.store(), StepContext(cancel, {}));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace quench::importer::reader_test
