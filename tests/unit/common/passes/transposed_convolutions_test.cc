#include "tests/unit/common/passes/pass_test_util.h"

namespace quench::passes::transposed_convolutions_test {
namespace {

using Attributes = std::map<std::string, Attribute>;
using Ints = std::vector<int64_t>;

struct Transposed {
  std::string name;
  Ints kernel;  // [C, M / groups, kh, kw]
  Attributes attributes;
  bool rewritten = true;
};

std::vector<Transposed> Cases() {
  return {
      {"blocks", {4, 3, 2, 2}, {{"strides", Ints{2, 2}}}},
      {"overlapping", {4, 3, 4, 4}, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}},
      {"rest_of_a_block",
       {4, 3, 3, 3},
       {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}}},
      {"uneven", {4, 2, 5, 3}, {{"strides", Ints{3, 3}}, {"pads", Ints{0, 2, 4, 1}}}},
      {"gaps", {4, 3, 2, 2}, {{"strides", Ints{3, 3}}, {"output_padding", Ints{1, 1}}}},
      {"more_gaps_than_kernel", {4, 3, 2, 1}, {{"strides", Ints{3, 3}}}, false},
      {"groups", {4, 3, 3, 3}, {{"strides", Ints{2, 2}}, {"group", int64_t{2}}}},
      {"depthwise", {4, 1, 4, 4}, {{"strides", Ints{2, 2}}, {"group", int64_t{4}}}, false},
      {"stride_1", {4, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {"whole_blocks_cut", {4, 3, 6, 6}, {{"strides", Ints{2, 2}}, {"pads", Ints{4, 3, 5, 4}}}},
      {"all_cut", {4, 3, 2, 2}, {{"strides", Ints{2, 2}}, {"pads", Ints{5, 0, 0, 5}}}},
      {"valid", {4, 3, 3, 3}, {{"strides", Ints{2, 2}}, {"auto_pad", std::string("VALID")}}},
      // More rows than the kernel reaches.
      {"padded_beyond", {4, 3, 1, 1}, {{"strides", Ints{2, 2}}, {"output_padding", Ints{1, 1}}}},
      {"same_upper",
       {4, 3, 5, 3},
       {{"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_UPPER")}}},
      {"same_lower",
       {4, 3, 4, 3},
       {{"strides", Ints{2, 2}}, {"auto_pad", std::string("SAME_LOWER")}}},
      {"larger_than_the_whole",
       {4, 3, 3, 3},
       {{"strides", Ints{2, 2}},
        {"auto_pad", std::string("VALID")},
        {"output_shape", Ints{12, 14}}}},
      {"smaller_than_the_whole",
       {4, 3, 3, 3},
       {{"strides", Ints{2, 2}}, {"output_shape", Ints{8, 10}}}},
      {"dilated", {4, 3, 2, 2}, {{"strides", Ints{2, 2}}, {"dilations", Ints{2, 2}}}, false},
      {"two_strides", {4, 3, 2, 2}, {{"strides", Ints{2, 1}}}, false},
  };
}

class TransposedConvolutionsTest : public ::testing::TestWithParam<Transposed> {};

TEST_P(TransposedConvolutionsTest, ComputesTheSame) {
  const Transposed& form = GetParam();
  for (const bool bias : {false, true}) {
    ValueId x;
    Graph graph = ImageGraph(&x, {2, 4, 5, 6});
    std::vector<ValueId> inputs = {x, graph.AddConstant("w", RandomTensor(form.kernel, 5))};
    const auto group = form.attributes.find("group");
    const int64_t groups = group == form.attributes.end() ? 1 : std::get<int64_t>(group->second);
    if (bias) inputs.push_back(graph.AddConstant("b", RandomTensor({form.kernel[1] * groups}, 6)));
    graph.outputs = {Add(graph, "Relu", {Add(graph, "ConvTranspose", inputs, form.attributes)})};
    const Graph after = After("transposed_convolutions", graph);
    EXPECT_EQ(CountOps(after, "ConvTranspose"), form.rewritten ? 0 : 1);
    if (!form.rewritten) continue;
    // Relu can be part of the convolution.
    EXPECT_EQ(after.nodes[0].op, "Conv");
    EXPECT_EQ(after.nodes[1].op, "Relu");
    EXPECT_EQ(after.value(after.outputs[0]).name, graph.value(graph.outputs[0]).name);
  }
}

// A constant of integers, dequantized along `axis` with `several` scales and zero points or one.
ValueId Dequantized(Graph& graph, const Ints& dims, DataType dtype, int64_t axis, bool several) {
  Tensor integers = Tensor::Zeros(dtype, dims);
  const auto bytes = static_cast<int64_t>(integers.bytes().size());
  const int width = DataTypeBits(dtype) / 8;
  for (int64_t i = 0; i < bytes; ++i)
    integers.mutable_bytes()[i] = static_cast<std::byte>(i % width < 2 ? i * 37 % 251 : 0);
  const int64_t count = several ? dims[static_cast<size_t>(axis)] : 1;
  const Ints shape = several ? Ints{count} : Ints{};
  Tensor scale = Tensor::Zeros(DataType::kF32, shape), zero = Tensor::Zeros(dtype, shape);
  for (int64_t i = 0; i < count; ++i) {
    reinterpret_cast<float*>(scale.mutable_bytes())[i] = 0.01F * static_cast<float>(1 + i);
    zero.mutable_bytes()[i * width] = static_cast<std::byte>(width == 1 ? 3 + i : 0);
  }
  return Add(graph, "DequantizeLinear",
             {graph.AddConstant("q", integers), graph.AddConstant("s", scale),
              graph.AddConstant("z", zero)},
             {{"axis", axis}});
}

TEST_P(TransposedConvolutionsTest, KeepsIntegers) {
  const Transposed& form = GetParam();
  const auto group = form.attributes.find("group");
  const int64_t groups = group == form.attributes.end() ? 1 : std::get<int64_t>(group->second);
  for (const bool several : {false, true}) {
    ValueId x;
    Graph graph = ImageGraph(&x, {2, 4, 5, 6});
    const ValueId w =
        Dequantized(graph, form.kernel, several ? DataType::kI8 : DataType::kU8, 1, several);
    const ValueId b = Dequantized(graph, {form.kernel[1] * groups}, DataType::kI32, 0, several);
    const ValueId y = Add(graph, "ConvTranspose", {x, w, b}, form.attributes);
    const ValueId scale = graph.AddConstant("sy", Tensor::ScalarF32(0.5F));
    graph.outputs = {Add(graph, "QuantizeLinear", {Add(graph, "Relu", {y}), scale})};
    const Graph after = After("transposed_convolutions", graph);
    EXPECT_EQ(CountOps(after, "ConvTranspose"), form.rewritten ? 0 : 1);
    EXPECT_EQ(CountOps(after, "DequantizeLinear"), 2);
    if (!form.rewritten) continue;
    for (const Node& node : after.nodes) {  // pixels that move are integers
      if (node.op != "DepthToSpace" && node.op != "Slice") continue;
      EXPECT_EQ(after.value(node.inputs[0]).type.dtype, DataType::kU8);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TransposedConvolutionsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

TEST(TransposedConvolutionsTest, SizesOfTheRun) {
  Graph graph;
  const SymbolId size = graph.symbols->AddInput("size", {0, 2}, {1, 64});
  const ValueId x =
      graph.AddInput("image", Type::Tensor(DataType::kF32, {1, 4, Dim::OfSymbol(size), 6}));
  const ValueId w = graph.AddConstant("w", RandomTensor({4, 3, 4, 4}, 5));
  graph.outputs = {
      Add(graph, "ConvTranspose", {x, w}, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}})};
  EXPECT_EQ(CountOps(After("transposed_convolutions", graph), "ConvTranspose"), 0);
}

// A value with several readers stays behind the pixels.
TEST(TransposedConvolutionsTest, OnlyLoneElementsMove) {
  ValueId x;
  Graph graph = ImageGraph(&x, {1, 4, 5, 6});
  const ValueId w = graph.AddConstant("w", RandomTensor({4, 3, 2, 2}, 5));
  const ValueId y = Add(graph, "ConvTranspose", {x, w}, {{"strides", Ints{2, 2}}});
  const ValueId relu = Add(graph, "Relu", {y});
  graph.outputs = {Add(graph, "Add", {relu, y})};
  const Graph after = After("transposed_convolutions", graph);
  EXPECT_EQ(after.nodes[1].op, "DepthToSpace");
}

// A kernel of one weight would become one of 2^62.
TEST(TransposedConvolutionsTest, LargeStridesStay) {
  ValueId x;
  Graph graph = ImageGraph(&x, {1, 1, 1, 1});
  const ValueId w = graph.AddConstant("w", RandomTensor({1, 1, 1, 1}, 5));
  const int64_t stride = (int64_t{1} << 31) - 1;
  graph.outputs = {Add(graph, "ConvTranspose", {x, w}, {{"strides", Ints{stride, stride}}})};
  const auto after = RunPass(*FindPass("transposed_convolutions"), graph, {}, {});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountOps(*after, "ConvTranspose"), 1);
}

// A scale for each input channel is none of the convolution's.
TEST(TransposedConvolutionsTest, OtherIntegersBecomeFloats) {
  ValueId x;
  Graph graph = ImageGraph(&x, {1, 4, 5, 6});
  const ValueId w = Dequantized(graph, {4, 3, 2, 2}, DataType::kI8, 0, true);
  graph.outputs = {Add(graph, "ConvTranspose", {x, w}, {{"strides", Ints{2, 2}}})};
  const Graph after = After("transposed_convolutions", graph);
  EXPECT_EQ(CountOps(after, "ConvTranspose"), 0);
  EXPECT_EQ(CountOps(after, "DequantizeLinear"), 0);
}

TEST(TransposedConvolutionsTest, KernelsOfTheRunStay) {
  ValueId x;
  Graph graph = ImageGraph(&x, {1, 4, 5, 6});
  const ValueId w = graph.AddInput("w", Type::Tensor(DataType::kF32, {4, 3, 2, 2}));
  graph.outputs = {Add(graph, "ConvTranspose", {x, w}, {{"strides", Ints{2, 2}}})};
  EXPECT_EQ(CountOps(After("transposed_convolutions", graph), "ConvTranspose"), 1);
}

}  // namespace
}  // namespace quench::passes::transposed_convolutions_test
