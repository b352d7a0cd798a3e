// Convolutions against plain references: Conv gathers from an explicitly padded input,
// ConvTranspose scatters.
#include <gtest/gtest.h>

#include "run_op.h"

namespace quench::ops::conv_test {
namespace {

// A 2-D convolution problem.
struct Problem {
  int64_t channels = 1, outputs = 1, group = 1;
  int64_t in[2] = {5, 6};
  int64_t kernel[2] = {3, 3};
  int64_t stride[2] = {1, 1};
  int64_t dilation[2] = {1, 1};
  int64_t pads[4] = {0, 0, 0, 0};  // top, left, bottom, right
  int64_t extra[2] = {0, 0};       // output_padding
};

std::vector<float> Noise(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(static_cast<int>(seed >> 24) - 128) / 64.0f);
  }
  return values;
}

Attributes AttributesOf(const Problem& p) {
  return {{"group", p.group},
          {"strides", std::vector<int64_t>(p.stride, p.stride + 2)},
          {"dilations", std::vector<int64_t>(p.dilation, p.dilation + 2)},
          {"pads", std::vector<int64_t>(p.pads, p.pads + 4)}};
}

int64_t Span(const Problem& p, int d) { return (p.kernel[d] - 1) * p.dilation[d] + 1; }

// Reference: pads the input with zeros, then slides.
std::vector<double> Convolve(const Problem& p, const std::vector<float>& x,
                             const std::vector<float>& w, const std::vector<float>& bias,
                             Dims& dims) {
  const int64_t height = p.in[0] + p.pads[0] + p.pads[2], width = p.in[1] + p.pads[1] + p.pads[3];
  const int64_t rows = (height - Span(p, 0)) / p.stride[0] + 1;
  const int64_t columns = (width - Span(p, 1)) / p.stride[1] + 1;
  std::vector<double> padded(static_cast<size_t>(p.channels * height * width), 0.0);
  auto at = [&](int64_t c, int64_t i, int64_t j) -> double& {
    return padded[static_cast<size_t>((c * height + i) * width + j)];
  };
  for (int64_t c = 0; c < p.channels; ++c)
    for (int64_t i = 0; i < p.in[0]; ++i)
      for (int64_t j = 0; j < p.in[1]; ++j)
        at(c, i + p.pads[0], j + p.pads[1]) =
            x[static_cast<size_t>((c * p.in[0] + i) * p.in[1] + j)];
  dims = {1, p.outputs, rows, columns};
  std::vector<double> y;
  const int64_t per_group = p.channels / p.group;
  for (int64_t o = 0; o < p.outputs; ++o)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        double sum = bias[static_cast<size_t>(o)];
        const int64_t first = o / (p.outputs / p.group) * per_group;
        for (int64_t c = 0; c < per_group; ++c)
          for (int64_t r = 0; r < p.kernel[0]; ++r)
            for (int64_t s = 0; s < p.kernel[1]; ++s)
              sum +=
                  at(first + c, i * p.stride[0] + r * p.dilation[0],
                     j * p.stride[1] + s * p.dilation[1]) *
                  w[static_cast<size_t>(((o * per_group + c) * p.kernel[0] + r) * p.kernel[1] + s)];
        y.push_back(sum);
      }
  return y;
}

// Reference: every input element adds its kernel to the full result, which is then cut.
std::vector<double> Scatter(const Problem& p, const std::vector<float>& x,
                            const std::vector<float>& w, const std::vector<float>& bias,
                            Dims& dims) {
  int64_t full[2];
  for (int d = 0; d < 2; ++d) full[d] = (p.in[d] - 1) * p.stride[d] + Span(p, d) + p.extra[d];
  const int64_t per_group = p.outputs / p.group;
  std::vector<double> all(static_cast<size_t>(p.outputs * full[0] * full[1]), 0.0);
  for (int64_t c = 0; c < p.channels; ++c)
    for (int64_t i = 0; i < p.in[0]; ++i)
      for (int64_t j = 0; j < p.in[1]; ++j)
        for (int64_t o = 0; o < per_group; ++o)
          for (int64_t r = 0; r < p.kernel[0]; ++r)
            for (int64_t s = 0; s < p.kernel[1]; ++s) {
              const int64_t channel = c / (p.channels / p.group) * per_group + o;
              const int64_t row = i * p.stride[0] + r * p.dilation[0];
              const int64_t column = j * p.stride[1] + s * p.dilation[1];
              all[static_cast<size_t>((channel * full[0] + row) * full[1] + column)] +=
                  x[static_cast<size_t>((c * p.in[0] + i) * p.in[1] + j)] *
                  w[static_cast<size_t>(((c * per_group + o) * p.kernel[0] + r) * p.kernel[1] + s)];
            }
  dims = {1, p.outputs, full[0] - p.pads[0] - p.pads[2], full[1] - p.pads[1] - p.pads[3]};
  std::vector<double> y;
  for (int64_t o = 0; o < p.outputs; ++o)
    for (int64_t i = p.pads[0]; i < full[0] - p.pads[2]; ++i)
      for (int64_t j = p.pads[1]; j < full[1] - p.pads[3]; ++j)
        y.push_back(all[static_cast<size_t>((o * full[0] + i) * full[1] + j)] +
                    bias[static_cast<size_t>(o)]);
  return y;
}

const std::vector<Problem>& Problems() {
  static const std::vector<Problem> problems = {
      {},
      {.channels = 3, .outputs = 4},
      {.channels = 2, .outputs = 2, .pads = {1, 1, 1, 1}},
      {.channels = 2, .outputs = 3, .stride = {2, 3}, .pads = {1, 0, 2, 1}},
      {.channels = 4, .outputs = 6, .group = 2, .kernel = {1, 1}},
      {.channels = 4,
       .outputs = 6,
       .group = 2,
       .kernel = {1, 1},
       .stride = {2, 2},
       .pads = {1, 1, 1, 1}},
      {.channels = 4, .outputs = 4, .group = 4, .pads = {1, 1, 1, 1}},
      {.channels = 3, .outputs = 6, .group = 3, .kernel = {2, 3}, .stride = {2, 1}},
      {.channels = 1, .outputs = 2, .in = {9, 9}, .dilation = {2, 3}, .pads = {2, 3, 2, 3}},
      {.channels = 2,
       .outputs = 2,
       .in = {9, 9},
       .stride = {2, 2},
       .dilation = {2, 2},
       .pads = {2, 1, 0, 3}},
      {.channels = 1, .outputs = 1, .in = {3, 3}, .kernel = {3, 3}, .pads = {2, 2, 2, 2}},
  };
  return problems;
}

TEST(Conv, MatchesThePaddedReference) {
  for (size_t i = 0; i < Problems().size(); ++i) {
    SCOPED_TRACE(i);
    const Problem& p = Problems()[i];
    const std::vector<float> x = Noise(p.channels * p.in[0] * p.in[1], 1);
    const std::vector<float> w =
        Noise(p.outputs * p.channels / p.group * p.kernel[0] * p.kernel[1], 2);
    const std::vector<float> bias = Noise(p.outputs, 3);
    Dims dims;
    const std::vector<double> expected = Convolve(p, x, w, bias, dims);
    const Operands operands = {F32({1, p.channels, p.in[0], p.in[1]}, x),
                               F32({p.outputs, p.channels / p.group, p.kernel[0], p.kernel[1]}, w),
                               F32({p.outputs}, bias)};
    ExpectTensor(RunOp("Conv", operands, AttributesOf(p))[0], dims, expected, 1e-5);
  }
}

TEST(ConvTranspose, MatchesTheScatteredReference) {
  for (size_t i = 0; i < Problems().size(); ++i) {
    SCOPED_TRACE(i);
    Problem p = Problems()[i];
    if (p.stride[0] > 1) p.extra[0] = 1;
    const std::vector<float> x = Noise(p.channels * p.in[0] * p.in[1], 1);
    const std::vector<float> w =
        Noise(p.channels * p.outputs / p.group * p.kernel[0] * p.kernel[1], 2);
    const std::vector<float> bias = Noise(p.outputs, 3);
    Dims dims;
    const std::vector<double> expected = Scatter(p, x, w, bias, dims);
    Attributes attributes = AttributesOf(p);
    attributes["output_padding"] = std::vector<int64_t>(p.extra, p.extra + 2);
    const Operands operands = {F32({1, p.channels, p.in[0], p.in[1]}, x),
                               F32({p.channels, p.outputs / p.group, p.kernel[0], p.kernel[1]}, w),
                               F32({p.outputs}, bias)};
    ExpectTensor(RunOp("ConvTranspose", operands, attributes)[0], dims, expected, 1e-5);
  }
}

TEST(Conv, OneAndThreeSpatialDims) {
  ExpectTensor(RunOp("Conv", {F32({1, 1, 4}, {1, 2, 3, 4}), F32({1, 1, 2}, {1, -1})})[0], {1, 1, 3},
               {-1, -1, -1});
  // A kernel of ones over ones counts the positions in range.
  const Tensor ones = F32({1, 1, 2, 2, 2}, std::vector<float>(8, 1));
  ExpectTensor(RunOp("Conv", {ones, F32({1, 1, 2, 2, 2}, std::vector<float>(8, 1))},
                     {{"pads", std::vector<int64_t>{1, 0, 0, 0, 0, 0}}})[0],
               {1, 1, 2, 1, 1}, {4, 8});
}

TEST(Conv, AutoPadFollowsOnnx) {
  const Tensor x = F32({1, 1, 4}, {1, 2, 3, 4});
  const Tensor w = F32({1, 1, 2}, {1, 10});
  const auto run = [&](const char* mode, int64_t stride) {
    return RunOp("Conv", {x, w},
                 {{"auto_pad", std::string(mode)}, {"strides", std::vector<int64_t>{stride}}})[0];
  };
  ExpectTensor(run("VALID", 1), {1, 1, 3}, {21, 32, 43});
  ExpectTensor(run("SAME_UPPER", 1), {1, 1, 4}, {21, 32, 43, 4});
  ExpectTensor(run("SAME_LOWER", 1), {1, 1, 4}, {10, 21, 32, 43});
  ExpectTensor(run("SAME_UPPER", 3), {1, 1, 2}, {21, 4});
}

TEST(ConvTranspose, OutputShapeDecidesThePadding) {
  const Tensor x = F32({1, 1, 2}, {1, 2});
  const Tensor w = F32({1, 1, 3}, {1, 10, 100});
  const Attributes wanted = {{"output_shape", std::vector<int64_t>{4}},
                             {"strides", std::vector<int64_t>{2}}};
  // The full result is 1 10 102 20 200; one element too many, cut at the begin unless SAME_UPPER.
  ExpectTensor(RunOp("ConvTranspose", {x, w}, wanted)[0], {1, 1, 4}, {10, 102, 20, 200});
  Attributes upper = wanted;
  upper["auto_pad"] = std::string("SAME_UPPER");
  ExpectTensor(RunOp("ConvTranspose", {x, w}, upper)[0], {1, 1, 4}, {1, 10, 102, 20});
}

TEST(Conv, ShapesAndMacsAreSymbolic) {
  Graph graph;
  const Dim batch = Dim::OfSymbol(graph.symbols->AddInput("batch", {0, 0}));
  const Dim height = Dim::OfSymbol(graph.symbols->AddInput("h", {0, 2}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {batch, 8, height, 16}));
  const ValueId w = graph.AddInput("w", Type::Tensor(DataType::kF32, {4, 8, 3, 3}));
  const NodeId node = graph.AddNode(
      "Conv", "conv", {x, w}, 1,
      {{"strides", std::vector<int64_t>{2, 2}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  ASSERT_TRUE(InferGraph(graph).ok());
  const Type& type = graph.value(graph.node(node).outputs[0]).type;
  ASSERT_EQ(type.rank(), 4);
  EXPECT_EQ(type.dims[0], batch);
  EXPECT_EQ(type.dims[3], Dim(8));
  std::vector<int64_t> slots(static_cast<size_t>(graph.symbols->size()), -1);
  slots[static_cast<size_t>(batch.symbol())] = 2;
  slots[static_cast<size_t>(height.symbol())] = 7;
  const OpContext context = ContextOf(graph, graph.node(node));
  const Dim macs = FindOp("Conv")->macs(context);
  slots.resize(static_cast<size_t>(graph.symbols->size()), -1);
  const auto values = graph.symbols->Evaluate(slots);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(SymbolTable::ValueOf(type.dims[2], *values), 4);
  EXPECT_EQ(SymbolTable::ValueOf(macs, *values), 2 * 4 * 4 * 8 * 8 * 9);
}

TEST(Conv, BadAttributesAndShapesAreNamed) {
  const Tensor x = F32({1, 2, 4, 4}, std::vector<float>(32));
  const Tensor w = F32({2, 2, 3, 3}, std::vector<float>(36));
  using Ints = std::vector<int64_t>;
  ExpectError(TryOp("Conv", {x, w}, {{"strides", Ints{1}}}), "strides has 1 values");
  ExpectError(TryOp("Conv", {x, w}, {{"strides", Ints{0, 1}}}), "strides has 0");
  ExpectError(TryOp("Conv", {x, w}, {{"dilations", Ints{1, int64_t{1} << 62}}}), "dilations has");
  ExpectError(TryOp("Conv", {x, w}, {{"pads", Ints{-1, 0, 0, 0}}}), "pads has -1");
  ExpectError(TryOp("Conv", {x, w}, {{"group", int64_t{3}}}), "must be equal");
  ExpectError(TryOp("Conv", {x, w}, {{"auto_pad", std::string("SAME")}}), "auto_pad is `SAME`");
  ExpectError(TryOp("Conv", {x, w}, {{"dilations", Ints{9, 9}}}), "does not fit an input");
  ExpectError(TryOp("Conv", {x, w}, {{"kernel_shape", Ints{2, 2}}}), "the weight has");
  ExpectError(TryOp("Conv", {x, F32({2, 2, 3}, std::vector<float>(12))}), "rank 3, Conv takes 4");
}

TEST(ConvInteger, SubtractsZeroPointsInsideTheInputOnly) {
  const Tensor x = U8({1, 1, 3}, {2, 3, 4});
  const Tensor w = U8({1, 1, 2}, {1, 1});
  ExpectTensor(RunOp("ConvInteger", {x, w, U8({}, {1})}, {{"pads", std::vector<int64_t>{1, 0}}})[0],
               {1, 1, 3}, {1, 3, 5});
  ExpectTensor(RunOp("ConvInteger", {x, w, std::nullopt, U8({1}, {3})})[0], {1, 1, 2}, {-10, -14});
}

TEST(QLinearConv, RequantisesPerChannel) {
  // Channel 0: (sum + bias) * 0.5 * 0.25 / 0.1; channel 1 has twice the weight scale.
  const Tensor x = U8({1, 1, 2}, {10, 20});
  const Tensor w = I8({2, 1, 1}, {4, -4});
  const std::vector<Tensor> y =
      RunOp("QLinearConv", {x, F32({}, {0.5f}), U8({}, {2}), w, F32({2}, {0.25f, 0.5f}),
                            I8({2}, {0, 0}), F32({}, {0.1f}), U8({}, {100}), I32({2}, {1, 2})});
  EXPECT_EQ(y[0].dtype(), DataType::kU8);
  // 33 * 1.25 = 41.25, 73 * 1.25 = 91.25; -30 * 2.5 = -75, -70 * 2.5 = -175 -> clamped at 0.
  ExpectTensor(y[0], {1, 2, 2}, {141, 191, 25, 0});
}

}  // namespace
}  // namespace quench::ops::conv_test
