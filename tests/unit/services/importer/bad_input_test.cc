// Models that are broken or hostile: a clear error, no crash, no memory taken for claims.

#include <gtest/gtest.h>

#include <random>

#include "common/base/status.h"
#include "services/importer/onnx/convert.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::bad_input_test {
namespace {

using testing::AddNode;
using testing::ErrorOf;
using testing::F32;
using testing::HasSubstr;
using testing::ImportFolder;
using testing::OnnxModel;

std::string BytesError(const std::string& bytes) {
  ImportFolder folder;
  return ErrorOf(folder.ImportBytes(bytes).status());
}
std::string ModelError(OnnxModel& model) {
  ImportFolder folder;
  return ErrorOf(folder.Import(model).status());
}

OnnxModel Valid() {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2}).Output("y");
  model.Node("Relu", {"x"}, {"y"}, "relu");
  return model;
}

// Inputs that are left out where an operator wants them, of every operator and of every form that one
// of them had: an error or a model, in one piece.
TEST(BadInput, InputsLeftOut) {
  const std::vector<std::vector<std::string>> forms = {
      {""}, {"x", ""}, {"", "x"}, {"x", "", "x"}, {"x", "x", ""}, {"", "", "x", "x"}};
  ImportFolder folder;
  int imported = 0;
  for (const int64_t opset : {1, 6, 8, 9, 10, 12, 18}) {
    for (const OnnxOp& op : AllOnnxOps()) {
      if (!op.domain.empty()) continue;
      for (const std::vector<std::string>& form : forms) {
        OnnxModel model(opset);
        model.Input("x", DataType::kF32, {2, 3}).Output("y");
        model.Node(std::string(op.name), form, {"y"});
        const auto result = folder.Import(model);
        imported += result.ok();
        EXPECT_TRUE(result.ok() || !result.status().message().empty());
      }
    }
  }
  EXPECT_GT(imported, 0);
}

TEST(BadInput, AnAttributeWithoutAName) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2}).Output("y");
  testing::SetInt(model.Node("Dropout", {"x"}, {"y"}, "drop"), "", 1);
  EXPECT_THAT(ModelError(model), HasSubstr("node `drop`: an attribute has no name"));
}

// The length of an input says the rank of a result, or how many slices there are.
TEST(BadInput, RanksBeyondMeasure) {
  for (const char* op : {"Reshape", "Expand", "ConstantOfShape", "Slice"}) {
    OnnxModel model(17);
    model.Input("x", DataType::kF32, {2, 3}).Output("y");
    model.Input("s", DataType::kI64, {int64_t{1000000000}});
    const std::string name = op;
    if (name == "ConstantOfShape") {
      model.Node(name, {"s"}, {"y"}, "node");
    } else if (name == "Slice") {
      model.Node(name, {"x", "s", "s"}, {"y"}, "node");
    } else {
      model.Node(name, {"x", "s"}, {"y"}, "node");
    }
    const std::string error = ModelError(model);
    EXPECT_THAT(error, HasSubstr("node `node` (" + name + ")"));
    EXPECT_THAT(error, HasSubstr("1000000000"));
  }
}

TEST(BadInput, EmptyFile) { EXPECT_EQ(BytesError(""), "`model.onnx` is empty"); }

TEST(BadInput, MissingFile) {
  ImportFolder folder;
  const auto result = ImportModel(folder.path() / "none.onnx", {}, folder.store());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
}

TEST(BadInput, AFolderIsNoModel) {
  ImportFolder folder;
  std::filesystem::create_directory(folder.path() / "dir.onnx");
  EXPECT_THAT(ErrorOf(ImportModel(folder.path() / "dir.onnx", {}, folder.store()).status()),
              HasSubstr("is a folder without `saved_model.pb`"));
}

TEST(BadInput, TruncatedAtEveryByte) {
  OnnxModel model = Valid();
  model.Initializer("w", F32({4}, {1, 2, 3, 4}));
  const std::string bytes = model.proto().SerializeAsString();
  ImportFolder folder;
  for (size_t size = 1; size < bytes.size(); ++size) {
    const auto result = folder.ImportBytes(bytes.substr(0, size));
    if (!result.ok()) {
      EXPECT_NE(MessageOf(result.status()), "") << size;
    }
  }
}

TEST(BadInput, RandomBytes) {
  std::mt19937 random(7);
  ImportFolder folder;
  for (int i = 0; i < 300; ++i) {
    std::string bytes(1 + random() % 400, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_FALSE(folder.ImportBytes(bytes).ok()) << i;
  }
}

TEST(BadInput, FlippedBytes) {
  OnnxModel model = Valid();
  model.Initializer("w", F32({4}, {1, 2, 3, 4}));
  const std::string bytes = model.proto().SerializeAsString();
  std::mt19937 random(11);
  ImportFolder folder;
  for (int i = 0; i < 500; ++i) {
    std::string changed = bytes;
    changed[random() % changed.size()] = static_cast<char>(random());
    const auto result = folder.ImportBytes(changed);
    if (!result.ok()) {
      EXPECT_NE(MessageOf(result.status()), "");
    }
  }
}

TEST(BadInput, AFileThatClaimsThreeGigabytes) {
  EXPECT_THAT(BytesError(std::string("\x08\x08\x3a\x80\x80\x80\x80\x0c", 8) + "abc"),
              HasSubstr("claims 3221225472 bytes, 3 are left"));
}

TEST(BadInput, UnknownFormats) {
  ImportFolder folder;
  EXPECT_THAT(
      ErrorOf(ImportModel(folder.Write("model.bin", "garbage"), {}, folder.store()).status()),
      HasSubstr("is not a model that Quench can read (formats: `keras`"));
  ImportOptions options;
  options.format = "caffe";
  EXPECT_EQ(ErrorOf(ImportModel(folder.Write("model.bin", "x"), options, folder.store()).status()),
            "unknown format `caffe` (known: `keras`, `onnx`, `tensorflow`, `tflite`, `torch`)");
  OnnxModel model = Valid();
  const auto path = folder.Write("model.bin", model.proto().SerializeAsString());
  EXPECT_TRUE(ImportModel(path, {}, folder.store()).ok());
}

TEST(BadInput, Cycles) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2}).Output("y");
  model.Node("Add", {"x", "c"}, {"a"}, "first");
  model.Node("Relu", {"a"}, {"c"}, "second");
  model.Node("Relu", {"x"}, {"y"}, "free");
  EXPECT_EQ(ModelError(model),
            "the graph has a cycle through or before the nodes `first`, `second`");
}

TEST(BadInput, UndefinedValuesAreReportedTogether) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {2}).Output("y").Output("nowhere");
  model.Node("Add", {"x", "missing"}, {"a"}, "first");
  model.Node("Add", {"a", "gone"}, {"y"}, "second");
  EXPECT_EQ(
      ModelError(model),
      "node `first`: `missing` is neither an input, an initializer nor the output of a node\n"
      "node `second`: `gone` is neither an input, an initializer nor the output of a node\n"
      "output `nowhere`: `nowhere` is neither an input, an initializer nor the output of a node");
}

TEST(BadInput, DuplicateNames) {
  OnnxModel model = Valid();
  model.Input("x", DataType::kF32, {3});
  EXPECT_THAT(ModelError(model), HasSubstr("value `x` is defined twice"));
  OnnxModel twice = Valid();
  twice.Node("Relu", {"x"}, {"y"}, "again");
  EXPECT_THAT(ModelError(twice), HasSubstr("value `y` is defined twice"));
  OnnxModel weights = Valid();
  weights.Initializer("w", F32({1}, {1})).Initializer("w", F32({1}, {2}));
  weights.Node("Add", {"y", "w"}, {"z"});
  EXPECT_THAT(ModelError(weights), HasSubstr("value `w` is defined twice"));
}

TEST(BadInput, AttributesGivenTwice) {
  OnnxModel model = Valid();
  testing::SetInt(*model.graph().mutable_node(0), "a", 1);
  testing::SetInt(*model.graph().mutable_node(0), "a", 2);
  EXPECT_THAT(ModelError(model), HasSubstr("node `relu`: attribute `a` is given twice"));
}

TEST(BadInput, UnknownAttributes) {
  OnnxModel model = Valid();
  testing::SetInt(*model.graph().mutable_node(0), "colour", 1);
  EXPECT_THAT(ModelError(model), HasSubstr("colour"));
}

TEST(BadInput, TensorsOfTheWrongSize) {
  OnnxModel model = Valid();
  model.Initializer("w", F32({2}, {1, 2})).Initializer("v", F32({2}, {1, 2}));
  model.graph().mutable_initializer(0)->set_raw_data("abc");
  model.graph().mutable_initializer(1)->set_dims(0, int64_t{1} << 61);
  model.Node("Add", {"y", "w"}, {"z"});
  model.Node("Add", {"z", "v"}, {"q"});
  const std::string error = ModelError(model);
  EXPECT_THAT(error, HasSubstr("tensor `w`: has 3 bytes of data, f32 of 2 elements takes 8"));
  EXPECT_THAT(error,
              HasSubstr("tensor `v`: has dims [2305843009213693952], which no memory holds"));
}

TEST(BadInput, Versions) {
  OnnxModel model = Valid();
  model.proto().set_ir_version(99);
  model.proto().mutable_opset_import(0)->set_version(77);
  EXPECT_EQ(ModelError(model),
            "ONNX IR version 99 is not supported (supported: 3 to 14)\n"
            "opset 77 is not supported (supported: 1 to 28)");
  OnnxModel none = Valid();
  none.proto().clear_opset_import();
  EXPECT_THAT(ModelError(none), HasSubstr("the model imports no opset"));
}

TEST(BadInput, NoGraphAndNoOutputs) {
  onnx::v1::ModelProto empty;
  empty.set_ir_version(8);
  EXPECT_EQ(BytesError(empty.SerializeAsString()),
            "`model.onnx` is not an ONNX model: it has no graph");
  OnnxModel model = Valid();
  model.graph().clear_output();
  EXPECT_EQ(ModelError(model), "the graph has no outputs");
}

TEST(BadInput, ExponentialFunctionsStop) {
  OnnxModel model(17);
  model.Import("local", 1);
  model.Input("x", DataType::kF32, {4}).Output("y");
  for (int i = 0; i < 40; ++i) {
    auto* function = model.proto().add_functions();
    function->set_name("F" + std::to_string(i));
    function->set_domain("local");
    function->add_input("a");
    function->add_output("r");
    const bool last = i == 39;
    for (const auto& [in, out] : {std::pair("a", "t"), std::pair("t", "r")}) {
      auto* node = function->add_node();
      node->set_op_type(last ? "Relu" : "F" + std::to_string(i + 1));
      if (!last) node->set_domain("local");
      node->add_input(in);
      node->add_output(out);
    }
  }
  model.Node("F0", {"x"}, {"y"}).set_domain("local");
  EXPECT_THAT(ModelError(model), HasSubstr("the model has more than"));
}

TEST(BadInput, NamesThatAreNoText) {
  OnnxModel model;
  model.Input("x\n\x01", DataType::kF32, {2}).Output("y\xff");
  model.Node("Relu", {"x\n\x01"}, {"y\xff"}, "r\t");
  ImportFolder folder;
  const auto result = folder.Import(model);
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ(result->canonical.value(result->canonical.inputs[0]).name, "x__");
  EXPECT_EQ(result->canonical.value(result->canonical.outputs[0]).name, "y_");
}

}  // namespace
}  // namespace quench::importer::bad_input_test
