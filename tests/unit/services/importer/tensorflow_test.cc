// TensorFlow graphs and saved models: what they become and compute, and what is said of bad ones.

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "common/passes/pass.h"
#include "quench/tensorflow/v1/tensorflow.pb.h"
#include "services/importer/tensorflow/checkpoint.h"
#include "services/importer/tensorflow/crc32c.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::tensorflow_test {
namespace {

using testing::ErrorOf;
using testing::F32;
using testing::HasSubstr;
using testing::ImportFolder;

// A graph, node by node.
class TfModel {
 public:
  tf::NodeDef& Node(const std::string& op, const std::string& name,
                    const std::vector<std::string>& inputs = {}) {
    tf::NodeDef& node = *graph.add_node();
    node.set_name(name);
    node.set_op(op);
    for (const std::string& input : inputs) node.add_input(input);
    return node;
  }
  tf::NodeDef& Input(const std::string& name, const std::vector<int64_t>& dims,
                     tf::ElementType type = tf::DT_FLOAT) {
    tf::NodeDef& node = Node("Placeholder", name);
    (*node.mutable_attr())["dtype"].set_type(type);
    tf::TensorShapeProto* shape = (*node.mutable_attr())["shape"].mutable_shape();
    for (const int64_t dim : dims) shape->add_dim()->set_size(dim);
    return node;
  }
  void Floats(const std::string& name, const std::vector<int64_t>& dims,
              const std::vector<float>& values) {
    tf::TensorProto& tensor = Tensor(name, tf::DT_FLOAT, dims);
    for (const float value : values) tensor.add_float_val(value);
  }
  void Ints(const std::string& name, const std::vector<int64_t>& dims,
            const std::vector<int32_t>& values) {
    tf::TensorProto& tensor = Tensor(name, tf::DT_INT32, dims);
    for (const int32_t value : values) tensor.add_int_val(value);
  }
  tf::TensorProto& Tensor(const std::string& name, tf::ElementType type,
                          const std::vector<int64_t>& dims) {
    tf::NodeDef& node = Node("Const", name);
    (*node.mutable_attr())["dtype"].set_type(type);
    tf::TensorProto& tensor = *(*node.mutable_attr())["value"].mutable_tensor();
    tensor.set_dtype(type);
    for (const int64_t dim : dims) tensor.mutable_tensor_shape()->add_dim()->set_size(dim);
    return tensor;
  }

  tf::GraphDef graph;
};

tf::AttrValue& Attr(tf::NodeDef& node, const std::string& name) {
  return (*node.mutable_attr())[name];
}

void SetInts(tf::NodeDef& node, const std::string& name, const std::vector<int64_t>& values) {
  for (const int64_t value : values) Attr(node, name).mutable_list()->add_i(value);
}

std::vector<float> FloatsOf(const Tensor& tensor) {
  const auto values = tensor.as<float>();
  return {values.begin(), values.end()};
}

ImportFolder& Folder() {
  static auto* const folder = new ImportFolder();
  return *folder;
}

absl::StatusOr<Imported> ImportBytes(const std::string& bytes, const ImportOptions& options = {}) {
  return ImportModel(Folder().Write("graph.pb", bytes), options, Folder().store());
}

absl::StatusOr<Imported> Import(const TfModel& model, const ImportOptions& options = {}) {
  return ImportBytes(model.graph.SerializeAsString(), options);
}

// Outputs of the model, and of what the passes make of it: they are the same.
std::vector<Tensor> ResultsOf(const absl::StatusOr<Imported>& imported,
                              const std::vector<Tensor>& inputs) {
  EXPECT_TRUE(imported.ok()) << MessageOf(imported.status());
  if (!imported.ok()) return {};
  EXPECT_TRUE(VerifyGraph(imported->imported).ok());
  auto results = ops::Evaluate(imported->canonical, inputs);
  EXPECT_TRUE(results.ok()) << MessageOf(results.status());
  const auto passed = passes::RunPipeline(imported->canonical, {}, {});
  EXPECT_TRUE(passed.ok()) << MessageOf(passed.status());
  if (!results.ok() || !passed.ok()) return {};
  const auto again = ops::Evaluate(*passed, inputs);
  EXPECT_TRUE(again.ok()) << MessageOf(again.status());
  for (size_t i = 0; again.ok() && i < results->size(); ++i)
    EXPECT_LE(RelativeError((*again)[i], (*results)[i]), 1e-6);
  return *results;
}

std::vector<Tensor> Results(const TfModel& model, const std::vector<Tensor>& inputs,
                            const ImportOptions& options = {}) {
  return ResultsOf(Import(model, options), inputs);
}

std::string ImportError(const TfModel& model, const ImportOptions& options = {}) {
  return ErrorOf(Import(model, options).status());
}

TfModel Dense() {
  TfModel model;
  model.Input("x", {1, 2});
  model.Floats("w", {2, 2}, {1, 2, 3, 4});
  model.Floats("b", {2}, {10, -20});
  model.Node("MatMul", "product", {"x", "w"});
  model.Node("BiasAdd", "sum", {"product", "b"});
  model.Node("Relu", "y", {"sum", "^product"});
  return model;
}

TEST(Tensorflow, GraphsAreReadInBothForms) {
  const Tensor x = F32({1, 2}, {1, 1});
  const absl::StatusOr<Imported> binary = Import(Dense());
  EXPECT_EQ(FloatsOf(ResultsOf(binary, {x}).at(0)), (std::vector<float>{14, 0}));
  EXPECT_EQ(binary->canonical.value(binary->canonical.outputs[0]).name, "y");
  EXPECT_EQ(binary->imported.nodes.at(0).op, "MatMul");
  EXPECT_EQ(binary->imported.nodes.at(0).domain, "tensorflow");
  std::string text;
  ASSERT_TRUE(google::protobuf::TextFormat::PrintToString(Dense().graph, &text));
  const absl::StatusOr<Imported> read = ImportBytes("# a comment\n" + text);
  EXPECT_EQ(FloatsOf(ResultsOf(read, {x}).at(0)), (std::vector<float>{14, 0}));
}

TEST(Tensorflow, ModelsAreCutAtNamedValues) {
  ImportOptions options;
  options.inputs = {"product"};
  options.outputs = {"sum:0"};
  options.shapes["product"] = {1, 2};
  const absl::StatusOr<Imported> imported = Import(Dense(), options);
  EXPECT_EQ(FloatsOf(ResultsOf(imported, {F32({1, 2}, {1, 2})}).at(0)),
            (std::vector<float>{11, -18}));
  options.outputs = {"summ"};
  EXPECT_TRUE(HasSubstr("the model has no node `summ`; similar ones are `sum`")(
      ImportError(Dense(), options)));
}

TEST(Tensorflow, WhatSavesVariablesIsNoDefaultOutput) {
  TfModel model;
  model.Input("x", {2});
  model.Node("Neg", "negative", {"x"});
  model.Floats("save/Const", {1}, {7});
  model.Node("Identity", "save/control_dependency", {"save/Const"});
  const absl::StatusOr<Imported> imported = Import(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->canonical.outputs.size(), 1U);
  EXPECT_EQ(imported->canonical.value(imported->canonical.outputs[0]).name, "negative");
}

TEST(Tensorflow, ScalarsWithoutAShapeAreGivenOne) {
  TfModel model;
  model.Input("x", {2});
  Attr(model.Node("Placeholder", "scale"), "dtype").set_type(tf::DT_FLOAT);
  model.Node("Mul", "y", {"x", "scale"});
  EXPECT_TRUE(HasSubstr("input `scale`: has no shape")(ImportError(model)));
  ImportOptions options;
  options.shapes["scale"] = {};
  const absl::StatusOr<Imported> imported = Import(model, options);
  EXPECT_EQ(FloatsOf(ResultsOf(imported, {F32({2}, {1, 2}), F32({}, {3})}).at(0)),
            (std::vector<float>{3, 6}));
}

TEST(Tensorflow, ConstantsRepeatTheirLastElement) {
  TfModel model;
  model.Input("x", {3});
  model.Floats("c", {3}, {1, 5});
  model.Node("AddV2", "y", {"x", "c"});
  EXPECT_EQ(FloatsOf(Results(model, {F32({3}, {0, 0, 0})}).at(0)), (std::vector<float>{1, 5, 5}));
}

// Kernels are [height, width, in, out]; an image of 1x2 with two channels shows their order.
// x / keep * floor(keep + random): dropout of version 1.
TEST(Tensorflow, DropoutDropsNothing) {
  for (const auto& [type, dtype] :
       {std::pair{tf::DT_FLOAT, DataType::kF32}, {tf::DT_HALF, DataType::kF16}}) {
    for (const float keep : {1.0F, 0.5F, 0.125F}) {
      TfModel model;
      model.Input("x", {3}, type);
      model.Input("keep", {}, type);
      Attr(model.Node("Shape", "shape", {"x"}), "out_type").set_type(tf::DT_INT32);
      Attr(model.Node("RandomUniform", "random", {"shape"}), "dtype").set_type(type);
      model.Node("Add", "sum", {"keep", "random"});
      model.Node("Floor", "mask", {"sum"});
      model.Node("RealDiv", "scaled", {"x", "keep"});
      model.Node("Mul", "y", {"scaled", "mask"});
      const Tensor x = Tensor::Floats(dtype, {3}, std::vector<float>{1, -2, 4});
      const Tensor result =
          Results(model, {x, Tensor::Floats(dtype, {}, std::vector<float>{keep})}).at(0);
      for (int64_t i = 0; i < 3; ++i)
        EXPECT_EQ(result.FloatAt(i), x.FloatAt(i) / double{keep}) << keep;
    }
  }
}

TEST(Tensorflow, ConvolutionsHaveChannelsLast) {
  TfModel model;
  model.Input("x", {1, 1, 2, 2});
  model.Floats("w", {1, 1, 2, 3}, {1, 1, 10, 1, -1, 0});
  tf::NodeDef& conv = model.Node("Conv2D", "y", {"x", "w"});
  SetInts(conv, "strides", {1, 1, 1, 1});
  Attr(conv, "padding").set_s("VALID");
  EXPECT_EQ(FloatsOf(Results(model, {F32({1, 1, 2, 2}, {1, 2, 3, 5})}).at(0)),
            (std::vector<float>{3, -1, 10, 8, -2, 30}));
}

TEST(Tensorflow, DepthwiseResultsOfAChannelLieTogether) {
  TfModel model;
  model.Input("x", {1, 2, 1, 2});
  model.Floats("w", {1, 1, 2, 2}, {1, 2, 10, 20});
  tf::NodeDef& conv = model.Node("DepthwiseConv2dNative", "y", {"x", "w"});
  SetInts(conv, "strides", {1, 1, 1, 1});
  Attr(conv, "padding").set_s("SAME");
  EXPECT_EQ(FloatsOf(Results(model, {F32({1, 2, 1, 2}, {1, 2, 5, 7})}).at(0)),
            (std::vector<float>{1, 2, 20, 40, 5, 10, 70, 140}));
}

TEST(Tensorflow, ShapeArithmeticIsDoneAtOnce) {
  TfModel model;
  model.Input("x", {2, 3});
  model.Node("Shape", "shape", {"x"});
  model.Ints("first", {1}, {0});
  model.Ints("second", {1}, {1});
  model.Ints("one", {1}, {1});
  tf::NodeDef& slice = model.Node("StridedSlice", "rows", {"shape", "first", "second", "one"});
  Attr(slice, "shrink_axis_mask").set_i(1);
  model.Ints("all", {}, {-1});
  model.Node("Pack", "sizes", {"all", "rows"});
  model.Node("Reshape", "y", {"x", "sizes"});
  const std::vector<Tensor> results = Results(model, {F32({2, 3}, {1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(results.at(0).dims(), (std::vector<int64_t>{3, 2}));
}

// ---- Control flow of version 1 ----

void Enter(TfModel& model, const std::string& name, const std::string& input, bool constant) {
  tf::NodeDef& node = model.Node("Enter", name, {input});
  Attr(node, "frame_name").set_s("loop");
  Attr(node, "is_constant").set_b(constant);
}

// while (i < 4) { i += 1; x = x * 2 }
TfModel Doubling() {
  TfModel model;
  model.Input("x", {2});
  model.Ints("zero", {}, {0});
  model.Ints("four", {}, {4});
  Enter(model, "enter_i", "zero", false);
  Enter(model, "enter_x", "x", false);
  Enter(model, "limit", "four", true);
  model.Node("Merge", "merge_i", {"enter_i", "next_i"});
  model.Node("Merge", "merge_x", {"enter_x", "next_x"});
  model.Node("Less", "less", {"merge_i", "limit"});
  model.Node("LoopCond", "cond", {"less"});
  model.Node("Switch", "switch_i", {"merge_i", "cond"});
  model.Node("Switch", "switch_x", {"merge_x", "cond"});
  model.Node("Identity", "i", {"switch_i:1"});
  model.Ints("one", {}, {1});
  model.graph.mutable_node(model.graph.node_size() - 1)->add_input("^i");
  model.Node("Add", "i_plus", {"i", "one"});
  model.Node("Add", "doubled", {"switch_x:1", "switch_x:1"});
  model.Node("NextIteration", "next_i", {"i_plus"});
  model.Node("NextIteration", "next_x", {"doubled"});
  model.Node("Exit", "y", {"switch_x"});
  return model;
}

TEST(TensorflowV1, FramesBecomeLoops) {
  const absl::StatusOr<Imported> imported = Import(Doubling());
  EXPECT_EQ(FloatsOf(ResultsOf(imported, {F32({2}, {1, 3})}).at(0)), (std::vector<float>{16, 48}));
  int loops = 0;
  for (const Node& node : imported->imported.nodes) loops += node.op == "Loop";
  EXPECT_EQ(loops, 1);
}

// TensorFlow's own lowering leaves a counter in each loop that nothing asks for.
TEST(TensorflowV1, StatesThatNoOutputNeedsAreLeftOut) {
  TfModel model = Doubling();
  model.Ints("zero_z", {}, {0});
  Enter(model, "enter_z", "zero_z", false);
  model.Node("Merge", "merge_z", {"enter_z", "next_z"});
  model.Node("Switch", "switch_z", {"merge_z", "cond"});
  model.Node("Zeta", "z", {"switch_z:1", "one"});
  model.Node("NextIteration", "next_z", {"z"});
  ImportOptions options;
  options.outputs = {"y"};
  const absl::StatusOr<Imported> imported = Import(model, options);
  EXPECT_EQ(FloatsOf(ResultsOf(imported, {F32({2}, {1, 3})}).at(0)), (std::vector<float>{16, 48}));
}

TEST(TensorflowV1, LoopsWithUnknownOperatorsAreRefused) {
  TfModel model = Doubling();
  for (tf::NodeDef& node : *model.graph.mutable_node()) {
    if (node.name() == "doubled") node.set_op("Zeta");
  }
  const std::string error = ImportError(model);
  EXPECT_TRUE(HasSubstr("`doubled`")(error)) << error;
}

// An array that the loop writes once in each iteration is what the Loop collects.
TEST(TensorflowV1, ArraysAreWhatALoopCollects) {
  TfModel model = Doubling();
  tf::NodeDef& array = model.Node("TensorArrayV3", "array", {"four"});
  Attr(array, "dtype").set_type(tf::DT_FLOAT);
  Enter(model, "enter_flow", "array:1", false);
  Enter(model, "enter_handle", "array", true);
  model.Node("Merge", "merge_flow", {"enter_flow", "next_flow"});
  model.Node("Switch", "switch_flow", {"merge_flow", "cond"});
  model.Node("TensorArrayWriteV3", "write", {"enter_handle", "i", "doubled", "switch_flow:1"});
  model.Node("NextIteration", "next_flow", {"write"});
  model.Node("Exit", "exit_flow", {"switch_flow"});
  model.Ints("start", {}, {0});
  model.Ints("step", {}, {1});
  model.Node("Range", "places", {"start", "four", "step"});
  model.Node("TensorArrayGatherV3", "rows", {"array", "places", "exit_flow"});
  const std::vector<Tensor> results = Results(model, {F32({2}, {1, 3})});
  EXPECT_EQ(FloatsOf(results.at(0)), (std::vector<float>{2, 6, 4, 12, 8, 24, 16, 48}));
}

TEST(TensorflowV1, SwitchAndMergeBecomeIf) {
  TfModel model;
  model.Input("x", {2});
  model.Input("pick", {}, tf::DT_BOOL);
  model.Node("Switch", "parted", {"x", "pick"});
  model.Floats("hundred", {}, {100});
  model.graph.mutable_node(model.graph.node_size() - 1)->add_input("^parted");
  model.Node("Neg", "negative", {"parted"});
  model.Node("Mul", "larger", {"parted:1", "hundred"});
  model.Node("Merge", "y", {"negative", "larger"});
  ImportOptions options;
  options.outputs = {"y"};
  for (const bool pick : {true, false}) {
    const std::vector<Tensor> results = Results(
        model, {F32({2}, {1, -2}), Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{pick})},
        options);
    EXPECT_EQ(FloatsOf(results.at(0)),
              pick ? (std::vector<float>{100, -200}) : (std::vector<float>{-1, 2}));
  }
}

// ---- Functions and control flow of version 2 ----

constexpr char kFunctions[] = R"(
  function {
    signature { name: "twice" input_arg { name: "v" type: DT_FLOAT } output_arg { name: "r" type: DT_FLOAT } }
    node_def { name: "sum" op: "AddV2" input: "v" input: "v" }
    ret { key: "r" value: "sum:z:0" }
  }
  function {
    signature { name: "negative" input_arg { name: "v" type: DT_FLOAT } output_arg { name: "r" type: DT_FLOAT } }
    node_def { name: "neg" op: "Neg" input: "v" }
    ret { key: "r" value: "neg:y:0" }
  }
  function {
    signature {
      name: "small" input_arg { name: "i" type: DT_INT32 } input_arg { name: "v" type: DT_FLOAT }
      output_arg { name: "r" type: DT_BOOL }
    }
    node_def { name: "three" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 3 } } } }
    node_def { name: "less" op: "Less" input: "i" input: "three:output:0" }
    ret { key: "r" value: "less:z:0" }
  }
  function {
    signature {
      name: "step" input_arg { name: "i" type: DT_INT32 } input_arg { name: "v" type: DT_FLOAT }
      output_arg { name: "next" type: DT_INT32 } output_arg { name: "r" type: DT_FLOAT }
    }
    node_def { name: "one" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 1 } } } }
    node_def { name: "add" op: "AddV2" input: "i" input: "one:output:0" }
    node_def { name: "call" op: "PartitionedCall" input: "v" attr { key: "f" value { func { name: "twice" } } }
      attr { key: "Tout" value { list { type: DT_FLOAT } } } }
    ret { key: "next" value: "add:z:0" }
    ret { key: "r" value: "call:output:0" }
  }
)";

TfModel WithFunctions() {
  TfModel model;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(kFunctions, model.graph.mutable_library()));
  model.Input("x", {2});
  return model;
}

TEST(TensorflowV2, CallsAreInlined) {
  TfModel model = WithFunctions();
  model.Node("twice", "direct", {"x"});
  tf::NodeDef& call = model.Node("StatefulPartitionedCall", "y", {"direct"});
  Attr(call, "f").mutable_func()->set_name("negative");
  Attr(call, "Tout").mutable_list()->add_type(tf::DT_FLOAT);
  EXPECT_EQ(FloatsOf(Results(model, {F32({2}, {1, -3})}).at(0)), (std::vector<float>{-2, 6}));
}

TEST(TensorflowV2, IfRunsABranch) {
  TfModel model = WithFunctions();
  model.Input("pick", {}, tf::DT_BOOL);
  tf::NodeDef& node = model.Node("StatelessIf", "y", {"pick", "x"});
  Attr(node, "then_branch").mutable_func()->set_name("twice");
  Attr(node, "else_branch").mutable_func()->set_name("negative");
  Attr(node, "Tcond").set_type(tf::DT_BOOL);
  Attr(node, "Tout").mutable_list()->add_type(tf::DT_FLOAT);
  for (const bool pick : {true, false}) {
    const std::vector<Tensor> results = Results(
        model, {F32({2}, {1, -2}), Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{pick})});
    EXPECT_EQ(FloatsOf(results.at(0)),
              pick ? (std::vector<float>{2, -4}) : (std::vector<float>{-1, 2}));
  }
}

TEST(TensorflowV2, WhileBecomesALoop) {
  TfModel model = WithFunctions();
  model.Ints("zero", {}, {0});
  tf::NodeDef& node = model.Node("While", "loop", {"zero", "x"});
  Attr(node, "cond").mutable_func()->set_name("small");
  Attr(node, "body").mutable_func()->set_name("step");
  for (const tf::ElementType type : {tf::DT_INT32, tf::DT_FLOAT})
    Attr(node, "T").mutable_list()->add_type(type);
  model.Node("Identity", "y", {"loop:1"});
  EXPECT_EQ(FloatsOf(Results(model, {F32({2}, {1, 3})}).at(0)), (std::vector<float>{8, 24}));
}

// ---- Saved models ----

void PutVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// A block of a checkpoint's index: entries with whole keys, one restart, no compression.
std::string Block(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out;
  for (const auto& [key, value] : entries) {
    PutVarint(out, 0);
    PutVarint(out, key.size());
    PutVarint(out, value.size());
    out += key + value;
  }
  out += std::string("\0\0\0\0\1\0\0\0", 8);
  return out;
}

std::string Table(const std::vector<std::pair<std::string, std::string>>& entries) {
  // The trailer of a block: not compressed, and its checksum.
  const auto with_trailer = [](std::string block) {
    block.push_back('\0');
    const uint32_t crc = MaskedCrc32c(ExtendCrc32c(0, std::as_bytes(std::span(block))));
    return block.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  };
  std::string out = Block(entries);
  std::string place;
  PutVarint(place, 0);
  PutVarint(place, out.size());
  out = with_trailer(out);
  const size_t meta_at = out.size();
  const std::string meta = Block({});
  out += with_trailer(meta);
  const size_t index_at = out.size();
  const std::string index = Block({{"\xff", place}});
  out += with_trailer(index);
  std::string footer;
  for (const uint64_t number :
       {uint64_t{meta_at}, uint64_t{meta.size()}, uint64_t{index_at}, uint64_t{index.size()}})
    PutVarint(footer, number);
  footer.resize(40, '\0');
  const uint64_t magic = 0xdb4775248b80fb57;
  footer.append(reinterpret_cast<const char*>(&magic), sizeof magic);
  return out + footer;
}

constexpr float kShard[] = {0, 3, 5};  // the variable is its last two

std::string IndexOf(const std::string& key, int64_t offset, int64_t size) {
  tf::BundleHeaderProto header;
  header.set_num_shards(1);
  tf::BundleEntryProto entry;
  entry.set_dtype(tf::DT_FLOAT);
  entry.mutable_shape()->add_dim()->set_size(2);
  entry.set_offset(offset);
  entry.set_size(size);
  entry.set_crc32c(MaskedCrc32c(ExtendCrc32c(0, std::as_bytes(std::span(kShard).subspan(1)))));
  return Table({{"", header.SerializeAsString()}, {key, entry.SerializeAsString()}});
}

// y = x * v, of signature `serving_default` with the names `in` and `out`.
std::filesystem::path SavedModel(const std::string& folder, const std::string& index) {
  TfModel model;
  model.Input("serving_x", {2});
  model.Node("VarHandleOp", "v");
  Attr(*model.graph.mutable_node(1), "shared_name").set_s("scale");
  Attr(model.Node("ReadVariableOp", "read", {"v"}), "dtype").set_type(tf::DT_FLOAT);
  model.Node("Mul", "product", {"serving_x", "read"});
  tf::SavedModel saved;
  saved.set_saved_model_schema_version(1);
  tf::MetaGraphDef& meta = *saved.add_meta_graphs();
  meta.mutable_meta_info_def()->add_tags("serve");
  *meta.mutable_graph_def() = model.graph;
  tf::SignatureDef& signature = (*meta.mutable_signature_def())["serving_default"];
  (*signature.mutable_inputs())["in"].set_name("serving_x:0");
  (*signature.mutable_outputs())["out"].set_name("product:0");
  const std::filesystem::path path = Folder().path() / folder;
  std::filesystem::create_directories(path / "variables");
  const auto write = [](const std::filesystem::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  };
  write(path / "saved_model.pb", saved.SerializeAsString());
  write(path / "variables" / "variables.index", index);
  write(path / "variables" / "variables.data-00000-of-00001",
        std::string(reinterpret_cast<const char*>(kShard), sizeof kShard));
  return path;
}

TEST(TensorflowSavedModel, VariablesComeFromTheCheckpoint) {
  const std::filesystem::path path = SavedModel("saved", IndexOf("scale", 4, 8));
  const absl::StatusOr<Imported> imported = ImportModel(path, {}, Folder().store());
  EXPECT_EQ(FloatsOf(ResultsOf(imported, {F32({2}, {10, 100})}).at(0)),
            (std::vector<float>{30, 500}));
  EXPECT_EQ(imported->canonical.value(imported->canonical.inputs[0]).name, "in");
  EXPECT_EQ(imported->canonical.value(imported->canonical.outputs[0]).name, "out");
  const auto locations = ExternalLocations(path, {});
  ASSERT_TRUE(locations.ok());
  EXPECT_EQ(*locations, (std::vector<std::string>{"variables/variables.index",
                                                  "variables/variables.data-00000-of-00001"}));
}

TEST(TensorflowSavedModel, BadCheckpointsAreExplained) {
  const auto error = [](const std::string& index) {
    return ErrorOf(ImportModel(SavedModel("bad", index), {}, Folder().store()).status());
  };
  EXPECT_TRUE(HasSubstr("the mark at its end is missing")(error("not a table")));
  EXPECT_TRUE(HasSubstr("outside of a shard of 12")(error(IndexOf("scale", 8, 8))));
  EXPECT_TRUE(HasSubstr("has 4 bytes, its shape has 8")(error(IndexOf("scale", 0, 4))));
  EXPECT_TRUE(HasSubstr("has no variable `scale`; similar ones are `scales`")(
      error(IndexOf("scales", 0, 8))));
  EXPECT_TRUE(HasSubstr("8 bytes at offset -4")(error(IndexOf("scale", -4, 8))));
  const std::string good = IndexOf("scale", 4, 8);
  for (size_t i = 0; i < good.size(); ++i) {  // any one byte may lie
    for (const int change : {1, 0x80}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ change);
      const auto bytes = std::as_bytes(std::span(bad));
      (void)ReadCheckpointIndex(bytes, Checksums::kIgnore);
      EXPECT_TRUE(!ReadCheckpointIndex(bytes).ok() || i >= 40)
          << i;  // entries are checked as a block
    }
    (void)ReadCheckpointIndex(std::as_bytes(std::span(good).first(i)));
  }
}

TEST(TensorflowSavedModel, DamagedVariablesAreRefused) {
  const std::filesystem::path path = SavedModel("damaged", IndexOf("scale", 4, 8));
  const std::filesystem::path shard = path / "variables" / "variables.data-00000-of-00001";
  const float values[] = {0, 3, 6};
  std::ofstream(shard, std::ios::binary)
      << std::string_view(reinterpret_cast<const char*>(values), sizeof values);
  const std::string error = ErrorOf(ImportModel(path, {}, Folder().store()).status());
  EXPECT_TRUE(HasSubstr("is damaged: its checksum is ")(error)) << error;
  std::string index = IndexOf("scale", 4, 8);
  index[4] = static_cast<char>(index[4] ^ 1);
  const std::string damaged =
      ErrorOf(ImportModel(SavedModel("damaged", index), {}, Folder().store()).status());
  EXPECT_TRUE(HasSubstr("offset 0: the block is damaged: its checksum is ")(damaged)) << damaged;
}

// RFC 3720, B.4, and the catalogue's check value.
TEST(TensorflowSavedModel, ChecksumsAreCastagnolis) {
  const auto crc = [](std::string_view text) {
    return ExtendCrc32c(0, std::as_bytes(std::span(text)));
  };
  EXPECT_EQ(crc("123456789"), 0xe3069283U);
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43U);
  const std::string text(1000, 'q');
  EXPECT_EQ(ExtendCrc32c(crc(text.substr(0, 3)), std::as_bytes(std::span(text).subspan(3))),
            crc(text));
}

TEST(TensorflowSavedModel, VariablesAreOfItsIdentity) {
  const auto source_of = [](const std::filesystem::path& path) {
    const absl::StatusOr<Imported> imported = ImportModel(path, {}, Folder().store());
    EXPECT_TRUE(imported.ok()) << imported.status();
    return imported.ok() ? imported->canonical.metadata.at(kSourceDigest) : "";
  };
  const std::filesystem::path path = SavedModel("identity", IndexOf("scale", 4, 8));
  const std::string before = source_of(path);
  EXPECT_EQ(before, source_of(path / "saved_model.pb"));
  // Behind what the variable has: the shard is the model's, whatever is read of it.
  std::ofstream(path / "variables" / "variables.data-00000-of-00001", std::ios::app) << "more";
  EXPECT_NE(before, source_of(path));
  const auto text_of = [&](const char* name) { return *ReadFile(path / name, 1 << 20); };
  EXPECT_EQ(
      source_of(path),
      Sha256Hex(Sha256Hex(text_of("saved_model.pb")) + "  model\n" +
                Sha256Hex(text_of("variables/variables.data-00000-of-00001")) +
                "  variables/variables.data-00000-of-00001\n" +
                Sha256Hex(text_of("variables/variables.index")) + "  variables/variables.index\n"));
}

TEST(TensorflowSavedModel, OtherFoldersAreNone) {
  EXPECT_TRUE(HasSubstr("is a folder without `saved_model.pb`")(
      ErrorOf(ImportModel(Folder().path(), {}, Folder().store()).status())));
}

// ---- Bad input ----

TEST(Tensorflow, UnsupportedOperatorsAreListedTogether) {
  TfModel model;
  model.Input("x", {2});
  model.Node("Betainc", "a", {"x", "x", "x"});
  model.Node("Zeta", "b", {"a", "x"});
  model.Node("Zeta", "c", {"b", "x"});
  const std::string error = ImportError(model);
  EXPECT_TRUE(HasSubstr("`Betainc`")(error)) << error;
  EXPECT_TRUE(HasSubstr("2 nodes")(error)) << error;
}

TEST(Tensorflow, BrokenReferencesAreListedTogether) {
  TfModel model;
  model.Input("x", {2});
  model.Node("Add", "y", {"x", "z"});
  model.Node("Split", "parts", {"x:3", "x"});
  const std::string error = ImportError(model);
  EXPECT_TRUE(HasSubstr("the model has no node `z`")(error)) << error;
  EXPECT_TRUE(HasSubstr("output 3 of node `x`")(error)) << error;
}

TEST(Tensorflow, CyclesAndMissingPiecesAreErrors) {
  TfModel cycle;
  cycle.Node("Neg", "a", {"b"});
  cycle.Node("Neg", "b", {"a"});
  cycle.Node("Neg", "y", {"a"});
  EXPECT_TRUE(HasSubstr("needs its own result")(ImportError(cycle)));
  TfModel variable;
  variable.Node("VariableV2", "v");
  variable.Node("Identity", "y", {"v"});
  EXPECT_TRUE(
      HasSubstr("is a variable, whose contents are not in this file")(ImportError(variable)));
  TfModel twins;
  twins.Input("x", {1});
  twins.Input("x", {1});
  EXPECT_TRUE(HasSubstr("two nodes are called `x`")(ImportError(twins)));
  TfModel large;
  large.Tensor("c", tf::DT_FLOAT, {1 << 30, 1 << 30}).add_float_val(1);
  large.Node("Identity", "y", {"c"});
  EXPECT_FALSE(ImportError(large).empty());
  TfModel unnamed;
  unnamed.Input("x", {1});
  unnamed.Node("Neg", "y", {"x"});
  (*unnamed.graph.mutable_node(1)->mutable_attr())[""].set_i(1);
  EXPECT_TRUE(HasSubstr("an attribute has no name")(ImportError(unnamed)));
  TfModel recursive = WithFunctions();
  tf::FunctionDef* function = recursive.graph.mutable_library()->mutable_function(0);
  function->mutable_node_def(0)->set_op("twice");
  function->mutable_node_def(0)->mutable_input()->RemoveLast();
  (*function->mutable_ret())["r"] = "sum:r:0";
  recursive.Node("twice", "y", {"x"});
  EXPECT_TRUE(HasSubstr("functions call one another more than")(ImportError(recursive)));
}

TEST(Tensorflow, EveryPrefixOfAFileIsRefusedOrRead) {
  const std::string bytes = Dense().graph.SerializeAsString();
  ImportOptions options;
  options.format = "tensorflow";
  for (size_t size = 0; size < bytes.size(); size += 3) {
    const absl::StatusOr<Imported> imported = ImportBytes(bytes.substr(0, size), options);
    EXPECT_TRUE(imported.ok() || !MessageOf(imported.status()).empty());
  }
}

// ---- Audio ----

// A ramp of 8 samples, windows of 4.
TEST(TensorflowAudio, SpectraUseAPeriodicWindow) {
  TfModel model;
  model.Input("x", {8, 1});
  tf::NodeDef& node = model.Node("AudioSpectrogram", "y", {"x"});
  Attr(node, "window_size").set_i(4);
  Attr(node, "stride").set_i(2);
  Attr(node, "magnitude_squared").set_b(true);
  const std::vector<Tensor> results = Results(model, {F32({8, 1}, {0, 1, 2, 3, 4, 5, 6, 7})});
  ASSERT_EQ(results.at(0).dims(), (std::vector<int64_t>{1, 3, 3}));
  // Hann weights 0, 1/2, 1, 1/2: 0.5, 2, 1.5 sum to 4; bin 1 is -2 + i, bin 2 is 0.
  const std::vector<float> values = FloatsOf(results[0]);
  EXPECT_NEAR(values[0], 16, 1e-4);
  EXPECT_NEAR(values[1], 5, 1e-4);
  EXPECT_NEAR(values[2], 0, 1e-4);
  EXPECT_NEAR(values[3], 64, 1e-3);
}

TEST(TensorflowAudio, SamplesAreReadBehindTheHeader) {
  TfModel model;
  model.Input("wav", {}, tf::DT_STRING);
  tf::NodeDef& node = model.Node("DecodeWav", "y", {"wav"});
  Attr(node, "desired_samples").set_i(3);
  Attr(node, "desired_channels").set_i(1);
  std::vector<uint8_t> bytes(50, 0);
  bytes[24] = 0x80;  // 16,000 Hz
  bytes[25] = 0x3e;
  const int16_t samples[] = {16384, -32768, 1};
  std::memcpy(bytes.data() + 44, samples, sizeof samples);
  const std::vector<Tensor> results = Results(model, {Tensor::Of(DataType::kU8, {50}, bytes)});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(FloatsOf(results[0]), (std::vector<float>{0.5F, -1.0F, 1.0F / 32768}));
  EXPECT_EQ(results[1].ToInts(), (std::vector<int64_t>{16000}));
}

// Where 1 + x and exp(x) round x away.
TEST(Tensorflow, LogarithmsAndPowersNearZeroKeepTheirDigits) {
  const std::vector<float> x = {1e-30F, -3e-8F, 1.5e-7F, 0.4F};
  const auto of = [&](const std::string& op, const std::vector<std::string>& inputs) {
    TfModel model;
    model.Input("x", {4});
    model.Node(op, "y", inputs);
    const std::vector<Tensor> results = Results(model, {F32({4}, x)});
    return results.empty() ? std::vector<float>(4) : FloatsOf(results[0]);
  };
  const std::vector<float> logs = of("Log1p", {"x"}), powers = of("Expm1", {"x"}),
                           products = of("Xlog1py", {"x", "x"});
  for (size_t i = 0; i < x.size(); ++i) {
    const double log = std::log1p(static_cast<double>(x[i]));
    const double power = std::expm1(static_cast<double>(x[i]));
    EXPECT_NEAR(logs[i], log, std::abs(log) * 5e-7);
    EXPECT_NEAR(powers[i], power, std::abs(power) * 5e-7);
    EXPECT_NEAR(products[i], log * x[i], std::abs(log * x[i]) * 5e-7 + 1e-45);
  }
}

}  // namespace
}  // namespace quench::importer::tensorflow_test
