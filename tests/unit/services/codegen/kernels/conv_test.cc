#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "services/codegen/kernels/catalogue.h"
#include "tests/support/kernel_runner.h"
#include "tests/support/sample.h"
#include "tests/unit/services/codegen/kernels/reference.h"

namespace quench::codegen::conv_test {
namespace {

struct Model {
  Graph graph;
  ValueId x = 0, w = 0, bias = quench::kNone, y = 0;
};

Model ConvModel(const ConvCase& c) {
  Model m;
  m.x = m.graph.AddInput("x", Type::Tensor(DataType::kF32, {c.n, c.ic, c.ih, c.iw}));
  m.w = m.graph.AddConstant("w", RandomTensor({c.oc, c.ic / c.group, c.kh, c.kw}, 2));
  std::vector<ValueId> inputs = {m.x, m.w};
  if (c.bias) inputs.push_back(m.bias = m.graph.AddConstant("bias", RandomTensor({c.oc}, 3)));
  const NodeId node = m.graph.AddNode("Conv", "conv", inputs, 1,
                                      {{"strides", c.strides},
                                       {"pads", c.pads},
                                       {"dilations", c.dilations},
                                       {"group", c.group},
                                       {"kernel_shape", std::vector<int64_t>{c.kh, c.kw}}});
  m.y = m.graph.node(node).outputs[0];
  m.graph.value(m.y).type = Type::Tensor(DataType::kF32, {c.n, c.oc, c.out(0), c.out(1)});
  m.graph.outputs = {m.y};
  return m;
}

Tensor Reference(const ConvCase& c, const Model& m, const Tensor& x) {
  const Tensor none;
  return NaiveConv(c, x, m.graph.value(m.w).constant->tensor,
                   c.bias ? m.graph.value(m.bias).constant->tensor : none);
}

// Every candidate on a sample of the targets that run here, in one range of tasks and in three.
void CheckAll(const Graph& graph, const std::map<ValueId, Tensor>& inputs,
              std::vector<int64_t> slots, const Tensor& reference, size_t min_candidates = 1) {
  for (const Target& target : testing::Sample(RunnableTargets())) {
    // Level 4: every variation that a measured choice may take, too.
    const KernelRequest request{
        graph, graph.nodes.back(), target, {.opt_level = 4}, *graph.symbols};
    std::vector<Candidate> candidates;
    Propose(ConvKernel(), request, candidates);
    Propose(DepthwiseKernel(), request, candidates);
    Propose(WinogradKernel(), request, candidates);
    ASSERT_GE(candidates.size(), min_candidates) << target.name;
    for (const Candidate& candidate : candidates) {
      SCOPED_TRACE(target.name + ": " + candidate.reason);
      auto runner = KernelRunner::Create(request, candidate);
      ASSERT_TRUE(runner.ok()) << runner.status();
      for (const int ranges : {1, 3}) {
        const absl::Status prepared = (*runner)->Prepare(inputs, slots);
        ASSERT_TRUE(prepared.ok()) << prepared;
        ASSERT_TRUE((*runner)->Run(ranges).ok());
        const double most = candidate.kernel == &WinogradKernel() ? 1e-4 : 1e-5;
        EXPECT_LT(RelativeError((*runner)->Output(), reference), most) << "ranges " << ranges;
      }
    }
  }
}

class ConvTest : public ::testing::TestWithParam<ConvCase> {};

TEST_P(ConvTest, EqualsTheNaiveSum) {
  const ConvCase& c = GetParam();
  const Model m = ConvModel(c);
  const Tensor x = RandomTensor({c.n, c.ic, c.ih, c.iw}, 1);
  CheckAll(m.graph, {{m.x, x}}, {}, Reference(c, m, x));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvTest,
    ::testing::Values(
        ConvCase{.name = "pointwise", .ic = 16, .ih = 9, .iw = 7, .oc = 32},
        ConvCase{.name = "pointwise_wide", .ic = 32, .ih = 4, .iw = 5, .oc = 104},
        ConvCase{.name = "pointwise_large_image", .ic = 8, .ih = 40, .iw = 41, .oc = 16},
        ConvCase{.name = "one_pixel", .ic = 40, .ih = 1, .iw = 1, .oc = 72},
        ConvCase{.name = "odd_channels",
                 .ic = 3,
                 .ih = 11,
                 .iw = 13,
                 .oc = 17,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "odd_input",
                 .ic = 17,
                 .ih = 6,
                 .iw = 5,
                 .oc = 24,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "one_channel",
                 .ic = 1,
                 .ih = 9,
                 .iw = 9,
                 .oc = 1,
                 .kh = 3,
                 .kw = 3,
                 .bias = false},
        ConvCase{.name = "first_layer",
                 .ic = 3,
                 .ih = 30,
                 .iw = 31,
                 .oc = 64,
                 .kh = 7,
                 .kw = 7,
                 .strides = {2, 2},
                 .pads = {3, 3, 3, 3}},
        ConvCase{.name = "three_by_three",
                 .ic = 24,
                 .ih = 14,
                 .iw = 14,
                 .oc = 48,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "small_map",
                 .ic = 16,
                 .ih = 7,
                 .iw = 7,
                 .oc = 64,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "many_tiles",
                 .n = 2,
                 .ic = 40,
                 .ih = 37,
                 .iw = 43,
                 .oc = 56,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "many_channels",
                 .n = 2,
                 .ic = 136,
                 .ih = 9,
                 .iw = 8,
                 .oc = 152,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 0, 1, 2}},
        ConvCase{.name = "five_by_five",
                 .n = 2,
                 .ic = 24,
                 .ih = 19,
                 .iw = 22,
                 .oc = 40,
                 .kh = 5,
                 .kw = 5,
                 .pads = {2, 2, 2, 2}},
        ConvCase{.name = "patches_beyond_the_image",
                 .ic = 16,
                 .ih = 2,
                 .iw = 1,
                 .oc = 19,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 3, 4, 2}},
        ConvCase{.name = "valid_three_by_three",
                 .ic = 24,
                 .ih = 20,
                 .iw = 21,
                 .oc = 32,
                 .kh = 3,
                 .kw = 3},
        ConvCase{.name = "valid", .ic = 8, .ih = 10, .iw = 9, .oc = 16, .kh = 3, .kw = 2},
        ConvCase{
            .name = "strided_pointwise", .ic = 16, .ih = 8, .iw = 9, .oc = 16, .strides = {2, 2}},
        ConvCase{.name = "strided",
                 .ic = 16,
                 .ih = 9,
                 .iw = 12,
                 .oc = 16,
                 .kh = 3,
                 .kw = 3,
                 .strides = {2, 3},
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "dilated",
                 .ic = 8,
                 .ih = 12,
                 .iw = 11,
                 .oc = 16,
                 .kh = 3,
                 .kw = 3,
                 .pads = {2, 3, 2, 3},
                 .dilations = {2, 3}},
        ConvCase{.name = "asymmetric",
                 .ic = 8,
                 .ih = 7,
                 .iw = 6,
                 .oc = 8,
                 .kh = 4,
                 .kw = 2,
                 .pads = {0, 1, 3, 0}},
        ConvCase{.name = "stride_beyond_kernel",
                 .ic = 8,
                 .ih = 13,
                 .iw = 13,
                 .oc = 8,
                 .kh = 2,
                 .kw = 2,
                 .strides = {5, 4},
                 .pads = {1, 1, 0, 0}},
        ConvCase{.name = "padding_beyond_kernel",
                 .ic = 8,
                 .ih = 3,
                 .iw = 3,
                 .oc = 8,
                 .kh = 2,
                 .kw = 2,
                 .pads = {4, 3, 2, 5}},
        ConvCase{.name = "batch",
                 .n = 3,
                 .ic = 8,
                 .ih = 6,
                 .iw = 6,
                 .oc = 24,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "batch_pointwise", .n = 2, .ic = 16, .ih = 3, .iw = 3, .oc = 40},
        ConvCase{.name = "groups",
                 .ic = 32,
                 .ih = 7,
                 .iw = 8,
                 .oc = 48,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1},
                 .group = 2},
        ConvCase{.name = "merged_groups",
                 .ic = 32,
                 .ih = 7,
                 .iw = 8,
                 .oc = 32,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1},
                 .group = 8},
        ConvCase{.name = "depthwise",
                 .ic = 16,
                 .ih = 14,
                 .iw = 13,
                 .oc = 16,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1},
                 .group = 16},
        ConvCase{.name = "depthwise_odd",
                 .n = 2,
                 .ic = 19,
                 .ih = 7,
                 .iw = 7,
                 .oc = 19,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1},
                 .group = 19},
        ConvCase{.name = "depthwise_strided",
                 .ic = 16,
                 .ih = 15,
                 .iw = 40,
                 .oc = 16,
                 .kh = 3,
                 .kw = 3,
                 .strides = {2, 2},
                 .pads = {0, 0, 1, 1},
                 .group = 16},
        ConvCase{.name = "depthwise_five",
                 .ic = 8,
                 .ih = 60,
                 .iw = 61,
                 .oc = 8,
                 .kh = 5,
                 .kw = 5,
                 .pads = {2, 2, 2, 2},
                 .group = 8},
        ConvCase{.name = "depthwise_in_parts",
                 .n = 2,
                 .ic = 72,
                 .ih = 45,
                 .iw = 40,
                 .oc = 72,
                 .kh = 3,
                 .kw = 3,
                 .strides = {2, 1},
                 .pads = {2, 1, 1, 2},
                 .dilations = {2, 1},
                 .group = 72},
        ConvCase{.name = "depthwise_dilated",
                 .ic = 8,
                 .ih = 12,
                 .iw = 13,
                 .oc = 8,
                 .kh = 3,
                 .kw = 3,
                 .strides = {1, 2},
                 .pads = {2, 3, 2, 3},
                 .dilations = {2, 3},
                 .group = 8,
                 .bias = false},
        ConvCase{.name = "depthwise_valid",
                 .ic = 24,
                 .ih = 9,
                 .iw = 9,
                 .oc = 24,
                 .kh = 2,
                 .kw = 4,
                 .group = 24},
        ConvCase{.name = "depthwise_one_pixel",
                 .n = 3,
                 .ic = 8,
                 .ih = 1,
                 .iw = 1,
                 .oc = 8,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1},
                 .group = 8},
        ConvCase{.name = "depthwise_far_pads",
                 .ic = 12,
                 .ih = 5,
                 .iw = 6,
                 .oc = 12,
                 .kh = 3,
                 .kw = 3,
                 .pads = {3, 5, 4, 7},
                 .group = 12},
        ConvCase{.name = "depthwise_far_dilation",
                 .ic = 8,
                 .ih = 9,
                 .iw = 40,
                 .oc = 8,
                 .kh = 3,
                 .kw = 5,
                 .pads = {7, 19, 7, 19},
                 .dilations = {7, 9},
                 .group = 8},
        ConvCase{.name = "depthwise_leaps",
                 .ic = 8,
                 .ih = 10,
                 .iw = 23,
                 .oc = 8,
                 .kh = 3,
                 .kw = 3,
                 .strides = {4, 5},
                 .pads = {1, 2, 2, 1},
                 .group = 8},
        ConvCase{.name = "many_input_channels",
                 .ic = 200,
                 .ih = 7,
                 .iw = 8,
                 .oc = 24,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "two_channels",
                 .ic = 2,
                 .ih = 6,
                 .iw = 37,
                 .oc = 16,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}},
        ConvCase{.name = "four_channels",
                 .ic = 4,
                 .ih = 6,
                 .iw = 33,
                 .oc = 16,
                 .kh = 3,
                 .kw = 3,
                 .strides = {2, 2},
                 .pads = {1, 2, 1, 2}},
        ConvCase{.name = "many_rows",
                 .ic = 8,
                 .ih = 61,
                 .iw = 60,
                 .oc = 8,
                 .kh = 3,
                 .kw = 3,
                 .pads = {1, 1, 1, 1}}),
    [](const auto& shape) { return shape.param.name; });

std::vector<Candidate> Proposed(const Kernel& kernel, const Model& m, const Target& target,
                                bool winograd = true) {
  std::vector<Candidate> candidates;
  Propose(kernel,
          {m.graph,
           m.graph.nodes.back(),
           target,
           {.opt_level = 3, .winograd = winograd},
           *m.graph.symbols},
          candidates);
  return candidates;
}

TEST(Winograd, TakesWhatItIsFor) {
  const ConvCase plain{.name = "plain", .ic = 32, .ih = 20, .iw = 20, .oc = 32, .kh = 3, .kw = 3};
  ConvCase strided = plain, dilated = plain, grouped = plain, wide = plain, narrow = plain;
  strided.strides = {2, 2};
  dilated.dilations = {2, 2};
  grouped.group = 2;
  wide.kw = 5;
  ConvCase five = wide;
  five.kh = 5;
  narrow.ic = 3;
  for (const Target& target : RunnableTargets()) {
    // Each size with weights transformed while compiling, and while running.
    EXPECT_EQ(Proposed(WinogradKernel(), ConvModel(plain), target).size(), 6U);
    EXPECT_EQ(Proposed(WinogradKernel(), ConvModel(five), target).size(), 4U);
    EXPECT_EQ(Proposed(WinogradKernel(), ConvModel(plain), target, false).size(), 0U);
    for (const ConvCase& other : {strided, dilated, grouped, wide, narrow})
      EXPECT_EQ(Proposed(WinogradKernel(), ConvModel(other), target).size(), 0U);
  }
}

// Few channels and many pixels, and the reverse: both divisions of the work are among the cases above.
TEST(Winograd, DividesByWhatIsReadAgain) {
  const ConvCase image{.name = "image", .ic = 16, .ih = 120, .iw = 120, .oc = 16, .kh = 3, .kw = 3};
  const ConvCase weights{
      .name = "weights", .ic = 136, .ih = 9, .iw = 8, .oc = 152, .kh = 3, .kw = 3};
  for (const Target& target : RunnableTargets()) {
    for (const Candidate& candidate : Proposed(WinogradKernel(), ConvModel(image), target)) {
      // Weights are transformed at run time once a panel.
      const bool at_run_time = candidate.reason.find("run time") != std::string::npos;
      EXPECT_NE(candidate.reason.find(at_run_time ? "panels" : "groups"), std::string::npos)
          << candidate.reason;
      EXPECT_EQ(candidate.extra_bytes > 0, !at_run_time) << candidate.reason;
    }
    for (const Candidate& candidate : Proposed(WinogradKernel(), ConvModel(weights), target))
      EXPECT_NE(candidate.reason.find("panels"), std::string::npos) << candidate.reason;
  }
}

// A row of any length is planned at once.
TEST(Depthwise, RowsOfAnyLength) {
  ConvCase c{.name = "",
             .ic = 8,
             .ih = 4,
             .iw = 40,
             .oc = 8,
             .kh = 3,
             .kw = 3,
             .pads = {1, 1, 1, 1},
             .group = 8};
  const Target target = RunnableTargets().back();
  const auto reason = [&] {
    return Proposed(DepthwiseKernel(), ConvModel(c), target).at(0).reason;
  };
  EXPECT_EQ(reason().find("padded copy"), std::string::npos);
  c.iw = int64_t{1} << 40;
  EXPECT_NE(reason().find("padded copy"), std::string::npos);
}

// The transformed weights of a panel stay in L2 until they are multiplied.
TEST(Winograd, TransformsAsManyInputChannelsAsFitL2) {
  ConvCase c{.name = "many", .ic = 200, .ih = 7, .iw = 8, .oc = 24, .kh = 3, .kw = 3};
  Target target = RunnableTargets().back();
  target.l2_bytes = 256 << 10;
  const auto chunked = [&] {
    const std::vector<Candidate> all = Proposed(WinogradKernel(), ConvModel(c), target);
    return std::count_if(all.begin(), all.end(), [](const Candidate& candidate) {
      return candidate.reason.find("input channels at once") != std::string::npos;
    });
  };
  EXPECT_GE(chunked(), 2);  // all tiles but the smallest, at least
  c.ic = 16;
  EXPECT_EQ(chunked(), 0);
}

TEST(ConvFused, ResidualAndRelu) {
  const ConvCase c{.name = "",
                   .n = 2,
                   .ic = 16,
                   .ih = 8,
                   .iw = 8,
                   .oc = 24,
                   .kh = 3,
                   .kw = 3,
                   .pads = {1, 1, 1, 1}};
  Model m = ConvModel(c);
  const ValueId residual = m.graph.AddInput("residual", m.graph.value(m.y).type);
  Fuse(m.graph, [&](Graph& body, ValueId root, const auto& capture) {
    const ValueId sum = Pointwise(body, "Add", {root, capture(residual)}, root);
    return Pointwise(body, "Relu", {sum}, root);
  });
  const Tensor x = RandomTensor({c.n, c.ic, c.ih, c.iw}, 1);
  const Tensor r = RandomTensor({c.n, c.oc, c.ih, c.iw}, 5);
  Tensor reference = Reference(c, m, x);
  float* values = reinterpret_cast<float*>(reference.mutable_bytes());
  for (int64_t i = 0; i < reference.size(); ++i) {
    values[i] = std::max(0.0F, values[i] + r.as<float>()[static_cast<size_t>(i)]);
  }
  CheckAll(m.graph, {{m.x, x}, {residual, r}}, {}, reference);
}

// Channels that fill no whole vector: the padding lanes stay 0 although sigmoid(0) is not.
TEST(ConvFused, SiluWithScaleKeepsPaddingLanesZero) {
  const ConvCase c{.name = "", .ic = 8, .ih = 5, .iw = 5, .oc = 19};
  Model m = ConvModel(c);
  const ValueId scale = m.graph.AddConstant("scale", RandomTensor({c.oc, 1, 1}, 7));
  Fuse(m.graph, [&](Graph& body, ValueId root, const auto& capture) {
    const ValueId one = body.AddConstant("half", Tensor::ScalarF32(0.5F));
    const ValueId scaled = Pointwise(body, "Mul", {root, capture(scale)}, root);
    const ValueId gate = Pointwise(body, "Sigmoid", {scaled}, root);
    const ValueId silu = Pointwise(body, "Mul", {gate, scaled}, root);
    return Pointwise(body, "Add", {silu, one}, root);
  });
  const Tensor x = RandomTensor({c.n, c.ic, c.ih, c.iw}, 1);
  Tensor reference = Reference(c, m, x);
  float* values = reinterpret_cast<float*>(reference.mutable_bytes());
  const std::span<const float> factors = m.graph.value(scale).constant->tensor.as<float>();
  for (int64_t i = 0; i < reference.size(); ++i) {
    const float v = values[i] * factors[static_cast<size_t>(i / (c.ih * c.iw))];
    values[i] = v / (1 + std::exp(-v)) + 0.5F;
  }
  CheckAll(m.graph, {{m.x, x}}, {}, reference);
}

TEST(ConvFused, DepthwiseHardSwishWithResidual) {
  const ConvCase c{.name = "",
                   .ic = 21,
                   .ih = 6,
                   .iw = 9,
                   .oc = 21,
                   .kh = 3,
                   .kw = 3,
                   .pads = {1, 1, 1, 1},
                   .group = 21};
  Model m = ConvModel(c);
  const ValueId residual = m.graph.AddInput("residual", m.graph.value(m.y).type);
  Fuse(m.graph, [&](Graph& body, ValueId root, const auto& capture) {
    const ValueId one = body.AddConstant("one", Tensor::ScalarF32(1.0F));
    const ValueId swish = Pointwise(body, "HardSwish", {root}, root);
    const ValueId sum = Pointwise(body, "Add", {swish, capture(residual)}, root);
    return Pointwise(body, "Add", {sum, one}, root);
  });
  const Tensor x = RandomTensor({c.n, c.ic, c.ih, c.iw}, 1);
  const Tensor r = RandomTensor({c.n, c.oc, c.ih, c.iw}, 5);
  Tensor reference = Reference(c, m, x);
  float* values = reinterpret_cast<float*>(reference.mutable_bytes());
  for (int64_t i = 0; i < reference.size(); ++i) {
    const float gate = std::clamp(values[i] / 6 + 0.5F, 0.0F, 1.0F);
    values[i] = values[i] * gate + r.as<float>()[static_cast<size_t>(i)] + 1;
  }
  CheckAll(m.graph, {{m.x, x}, {residual, r}}, {}, reference);
}

TEST(ConvFused, DeclinesWhatItCannotDo) {
  const ConvCase c{.name = "", .ic = 8, .ih = 5, .iw = 5, .oc = 16};
  const Target target = RunnableTargets().back();
  const auto candidates = [&](const Model& m) {
    std::vector<Candidate> found;
    Propose(ConvKernel(),
            {m.graph, m.graph.nodes.back(), target, {.opt_level = 3}, *m.graph.symbols}, found);
    return found.size();
  };
  Model broadcast = ConvModel(c);
  const ValueId row = broadcast.graph.AddInput("row", Type::Tensor(DataType::kF32, {c.iw}));
  Fuse(broadcast.graph, [&](Graph& body, ValueId root, const auto& capture) {
    return Pointwise(body, "Add", {root, capture(row)}, root);
  });
  EXPECT_EQ(candidates(broadcast), 0U);  // a tensor that is not of the output's shape
  Model not_last = ConvModel(c);
  Fuse(not_last.graph, [&](Graph& body, ValueId root, const auto&) {
    Pointwise(body, "Relu", {root}, root);
    return root;
  });
  EXPECT_EQ(candidates(not_last), 0U);  // the output is not the last step
  Model depthwise = ConvModel({.name = "", .ic = 16, .ih = 5, .iw = 5, .oc = 16, .group = 16});
  EXPECT_EQ(candidates(depthwise), 0U);
}

// One library, any batch and any size of image.
TEST(ConvSymbolic, BatchAndSpatialSizes) {
  for (const bool padded : {false, true}) {
    const int64_t k = padded ? 3 : 1;
    const int64_t pad = padded ? 1 : 0;
    Graph graph;
    SymbolTable& symbols = *graph.symbols;
    const Dim n = Dim::OfSymbol(symbols.AddInput("n", {0, 0}));
    const Dim h = Dim::OfSymbol(symbols.AddInput("h", {0, 2}));
    const Dim w = Dim::OfSymbol(symbols.AddInput("w", {0, 3}));
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {n, 16, h, w}));
    const ValueId weight = graph.AddConstant("w", RandomTensor({24, 16, k, k}, 2));
    const NodeId node = graph.AddNode("Conv", "conv", {x, weight}, 1,
                                      {{"pads", std::vector<int64_t>{pad, pad, pad, pad}}});
    graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kF32, {n, 24, h, w});
    for (const auto& [batch, height, width] :
         {std::tuple{1, 1, 1}, {2, 5, 3}, {1, 13, 17}, {3, 8, 30}}) {
      const ConvCase c{.name = "",
                       .n = batch,
                       .ic = 16,
                       .ih = height,
                       .iw = width,
                       .oc = 24,
                       .kh = k,
                       .kw = k,
                       .pads = {pad, pad, pad, pad},
                       .bias = false};
      const Tensor input = RandomTensor({batch, 16, height, width}, 4);
      const Tensor reference = NaiveConv(c, input, graph.value(weight).constant->tensor, Tensor());
      // Slots are evaluated after proposing: kernels may define expressions of their own.
      for (const Target& target : testing::Sample(RunnableTargets())) {
        const KernelRequest request{
            graph, graph.nodes.back(), target, {.opt_level = 3}, *graph.symbols};
        std::vector<Candidate> candidates;
        Propose(ConvKernel(), request, candidates);
        ASSERT_FALSE(candidates.empty());
        auto runner = KernelRunner::Create(request, candidates[0]);
        ASSERT_TRUE(runner.ok()) << runner.status();
        const std::vector<int64_t> inputs = {batch, height, width};
        const auto slots = symbols.Evaluate(inputs);
        ASSERT_TRUE(slots.ok()) << slots.status();
        for (const int ranges : {1, 2}) {
          ASSERT_TRUE((*runner)->Prepare({{x, input}}, *slots).ok());
          ASSERT_TRUE((*runner)->Run(ranges).ok());
          EXPECT_LT(RelativeError((*runner)->Output(), reference), 1e-5)
              << target.name << " padded " << padded;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quench::codegen::conv_test
