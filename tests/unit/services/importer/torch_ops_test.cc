// Operators of ATen, in scripts that are written here: what each computes.
#include <cmath>

#include "tests/unit/services/importer/torch_fixture.h"

namespace quench::importer::torch_ops_test {
namespace {

using namespace testing::pickle;  // NOLINT: a vocabulary
using testing::BytesOf;
using testing::HasSubstr;

constexpr float kInf = INFINITY;

class TorchOps : public TorchTest {
 protected:
  // `expression` of the tensor x.
  Floats Of(const std::string& expression, const Tensor& x) {
    const std::string code = Script(Forward("x: Tensor", "return " + expression));
    const std::vector<Floats> all = Run(code, {x}, Shape("x", x.dims()));
    return all.empty() ? Floats{} : all[0];
  }
  Floats Of(const std::string& expression, const Floats& x) {
    return Of(expression, Values({static_cast<int64_t>(x.size())}, x));
  }
  std::vector<Floats> Both(const std::string& body, const Tensor& x) {
    return Run(Script(Forward("x: Tensor", body)), {x}, Shape("x", x.dims()));
  }
};

Tensor Square() { return Values({2, 3}, {1, 2, 3, 4, 5, 6}); }

// ---- Element by element ----

// Relative to the result, digits are kept where 1 + x and exp(x) round x away.
TEST_F(TorchOps, LogarithmsAndPowersNearZeroKeepTheirDigits) {
  const Floats x = {1e-30F, -3e-8F, 1.5e-7F, 2e-4F, -0.3F, 0.49F, 0.7F, -0.999F, 50, 3e38F};
  const Floats log = Of("torch.log1p(x)", x);
  ASSERT_EQ(log.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double right = std::log1p(static_cast<double>(x[i]));
    EXPECT_NEAR(log[i], right, std::abs(right) * 5e-7) << x[i];
  }
  const Floats small(x.begin(), x.end() - 1);
  const Floats power = Of("torch.expm1(x)", small);
  ASSERT_EQ(power.size(), small.size());
  for (size_t i = 0; i < small.size(); ++i) {
    const double right = std::expm1(static_cast<double>(small[i]));
    EXPECT_NEAR(power[i], right, std::abs(right) * 5e-7) << small[i];
  }
}

TEST_F(TorchOps, LogarithmsAndPowersAtTheEnds) {
  const Floats log = Of("torch.log1p(x)", {kInf, -1, 0, -2, std::nanf("")});
  ASSERT_EQ(log.size(), 5u);
  EXPECT_EQ(Floats(log.begin(), log.begin() + 3), (Floats{kInf, -kInf, 0}));
  EXPECT_TRUE(std::isnan(log[3]) && std::isnan(log[4]));
  const Floats power = Of("torch.expm1(x)", {kInf, -kInf, 0, std::nanf("")});
  ASSERT_EQ(power.size(), 4u);
  EXPECT_EQ(Floats(power.begin(), power.begin() + 3), (Floats{kInf, -1, 0}));
  EXPECT_TRUE(std::isnan(power[3]));
}

TEST_F(TorchOps, FiniteAndInfinite) {
  const Floats x = {1, kInf, -kInf, std::nanf("")};
  EXPECT_EQ(Of("torch.isfinite(x)", x), (Floats{1, 0, 0, 0}));
  EXPECT_EQ(Of("torch.isposinf(x)", x), (Floats{0, 1, 0, 0}));
  EXPECT_EQ(Of("torch.isneginf(x)", x), (Floats{0, 0, 1, 0}));
}

TEST_F(TorchOps, RoundsToDecimals) {
  EXPECT_EQ(Of("torch.round(x, decimals=1)", {0.25F, -1.34F, 2}), (Floats{0.2F, -1.3F, 2}));
  EXPECT_EQ(Of("torch.round(x, decimals=-1)", {25, -14, 136}), (Floats{20, -10, 140}));
  EXPECT_EQ(Of("torch.round(x, decimals=0)", {0.5F, 1.5F}), (Floats{0, 2}));
}

TEST_F(TorchOps, Logits) {
  const Floats y = Of("torch.logit(x, 0.25)", {0, 0.5F, 1});
  ASSERT_EQ(y.size(), 3u);
  EXPECT_NEAR(y[0], -std::log(3.0F), 1e-6F);
  EXPECT_EQ(y[1], 0);
  EXPECT_NEAR(y[2], std::log(3.0F), 1e-6F);
  EXPECT_TRUE(std::isnan(Of("torch.logit(x)", {2})[0]));
}

TEST_F(TorchOps, ShrinksAndThresholds) {
  const Floats x = {-2, -0.5F, 0.25F, 0.5F, 1.5F};
  EXPECT_EQ(Of("torch.hardshrink(x)", x), (Floats{-2, 0, 0, 0, 1.5F}));
  EXPECT_EQ(Of("torch.softshrink(x, 0.25)", x), (Floats{-1.75F, -0.25F, 0, 0.25F, 1.25F}));
  EXPECT_EQ(Of("torch.threshold(x, 0.25, 7)", x), (Floats{7, 7, 7, 0.5F, 1.5F}));
  for (const char* call :
       {"torch.hardshrink(x)", "torch.softshrink(x)", "torch.threshold(x, 0, 7)"})
    EXPECT_TRUE(std::isnan(Of(call, {std::nanf("")})[0])) << call;
}

TEST_F(TorchOps, OtherNamesOfTheSame) {
  EXPECT_EQ(Of("torch.not_equal(x, 2)", {1, 2}), (Floats{1, 0}));
  EXPECT_EQ(Of("torch.greater_equal(torch.negative(x), -1)", {1, 2}), (Floats{1, 0}));
  EXPECT_EQ(Of("torch.special_log1p(x)", {0}), (Floats{0}));
}

// ---- Axes ----

TEST_F(TorchOps, TransposesUnderAllTheirNames) {
  for (const char* name : {"numpy_T", "T", "mT", "mH", "matrix_H", "adjoint"})
    EXPECT_EQ(Of(std::string("torch.") + name + "(x)", Square()), (Floats{1, 4, 2, 5, 3, 6}))
        << name;
  const Tensor x = Values({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Of("torch.select(torch.numpy_T(x), 0, 1)", x), (Floats{2, 5}));
}

TEST_F(TorchOps, MovesAxes) {
  const Tensor x = Values({2, 3, 1}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Of("torch.movedim(x, 0, -1)", x), (Floats{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Of("torch.moveaxis(x, [1, 2], [0, 1])", x), (Floats{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Of("torch.size(torch.movedim(x, [0, 1], [2, 0]), 1)", x), (Floats{1}));
}

TEST_F(TorchOps, WhatIsWrittenToMovedAxes) {
  const std::string body =
      "y = torch.clone(x)\n"
      "_0 = torch.mul_(torch.select(torch.movedim(y, 0, 1), 0, 1), 10)\n"
      "_1 = torch.add_(torch.select(torch.numpy_T(y), 0, 0), 100)\n"
      "return y";
  EXPECT_EQ(Both(body, Square()), (std::vector<Floats>{{101, 20, 3, 104, 50, 6}}));
}

TEST_F(TorchOps, Windows) {
  EXPECT_EQ(Of("torch.unfold(x, 0, 3, 2)", {1, 2, 3, 4, 5, 6}), (Floats{1, 2, 3, 3, 4, 5}));
  EXPECT_EQ(Of("torch.unfold(x, 0, 2, 1)", Square()), (Floats{1, 4, 2, 5, 3, 6}));
  // With a size that only a run knows.
  const std::string code = Script(Forward("x: Tensor", "return torch.unfold(x, 0, 2, 2)"));
  EXPECT_EQ(Run(code, {Values({5}, {1, 2, 3, 4, 5})}, Shape("x", {-1})),
            (std::vector<Floats>{{1, 2, 3, 4}}));
}

// ---- Products and orders ----

TEST_F(TorchOps, Products) {
  EXPECT_EQ(Of("torch.outer(x, torch.mul(x, 10))", {1, 2}), (Floats{10, 20, 20, 40}));
  EXPECT_EQ(Of("torch.ger(x, x)", {1, 2}), (Floats{1, 2, 2, 4}));
  EXPECT_EQ(Of("torch.dot(x, x)", {1, 2}), (Floats{5}));
  EXPECT_EQ(
      Of("torch.addmv(torch.select(x, 1, 0), x, torch.select(x, 0, 0), beta=2, alpha=1)", Square()),
      (Floats{16, 40}));
  EXPECT_EQ(Of("torch.cumprod(x, 1)", Square()), (Floats{1, 2, 6, 4, 20, 120}));
}

TEST_F(TorchOps, PlacesAmongSortedNumbers) {
  const std::string sorted = "torch.arange(1, 4)";  // 1, 2, 3
  const Floats x = {0, 1, 1.5F, 3, 9, std::nanf("")};
  EXPECT_EQ(Of("torch.bucketize(x, " + sorted + ")", x), (Floats{0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(Of("torch.bucketize(x, " + sorted + ", right=True)", x), (Floats{0, 1, 1, 3, 3, 3}));
  EXPECT_EQ(Of("torch.searchsorted(" + sorted + ", x, side=\"right\")", x),
            (Floats{0, 1, 1, 3, 3, 3}));
  // A row of its own for each row.
  EXPECT_EQ(Of("torch.searchsorted(x, torch.mul(torch.ones_like(x), 4))", Square()),
            (Floats{3, 3, 3, 0, 0, 0}));
}

// ---- Indices ----

TEST_F(TorchOps, IndicesByAxis) {
  const std::string body =
      "a, b, = torch.where(torch.gt(x, 3))\n"
      "c, d, = torch.nonzero_numpy(torch.sub(x, 2))\n"
      "return (a, b, torch.masked_select(x, torch.lt(x, 3)), d)";
  EXPECT_EQ(Both(body, Square()),
            (std::vector<Floats>{{1, 1, 1}, {0, 1, 2}, {1, 2}, {0, 2, 0, 1, 2}}));
}

TEST_F(TorchOps, MasksAreIndicesOfTheirAxes) {
  const std::string masks =
      "first = torch.select(x, 0, 0)\n"
      "columns = torch.gt(first, 1)\n"
      "rows = torch.gt(torch.select(x, 1, 0), 1)\n"
      "nine = torch.mul(torch.select(first, 0, 0), 9)\n"
      "two = torch.slice(first, 0, 0, 2)\n";
  EXPECT_EQ(
      Both(masks +
               "a = torch.index(x, annotate(List[Optional[Tensor]], [None, columns]))\n"
               "b = torch.index(x, annotate(List[Optional[Tensor]], [rows, torch.arange(1)]))\n"
               "c = torch.index_put(x, annotate(List[Optional[Tensor]], [None, columns]), nine)\n"
               "d = torch.index_put(x, annotate(List[Optional[Tensor]], [torch.gt(x, 4)]), two)\n"
               "return (a, b, c, d)",
           Square()),
      (std::vector<Floats>{{2, 3, 5, 6}, {4}, {1, 9, 9, 4, 9, 9}, {1, 2, 3, 4, 1, 2}}));
}

TEST_F(TorchOps, WhatIsJoinedHasTheWidestType) {
  EXPECT_EQ(Of("torch.stack([torch.arange(2), x])", {0.5F, 1.5F}), (Floats{0, 1, 0.5F, 1.5F}));
}

TEST_F(TorchOps, PartsAreAddedCopiedAndFilled) {
  const std::string index = "torch.arange(1, -1, -1)";  // 1, 0
  const std::string columns = "torch.mul(torch.slice(x, 1, 0, 2), 10)";
  EXPECT_EQ(Of("torch.index_add(x, 1, " + index + ", " + columns + ", alpha=2)", Square()),
            (Floats{41, 22, 3, 104, 85, 6}));
  EXPECT_EQ(Of("torch.index_copy(x, 1, " + index + ", " + columns + ")", Square()),
            (Floats{20, 10, 3, 50, 40, 6}));
  EXPECT_EQ(Of("torch.index_fill(x, 1, " + index + ", -1)", Square()),
            (Floats{-1, -1, 3, -1, -1, 6}));
  EXPECT_EQ(
      Of("torch.index_reduce(x, 1, " + index + ", " + columns + ", \"amin\", include_self=False)",
         Square()),
      (Floats{20, 10, 3, 50, 40, 6}));
}

TEST_F(TorchOps, ScattersReduce) {
  const std::string index = "torch.zeros([2, 2], dtype=4)";  // into the first column; src is wider
  const auto reduced = [&](const std::string& how) {
    return Of("torch.scatter_reduce(x, 1, " + index + ", torch.mul(x, 10), " + how + ")", Square());
  };
  EXPECT_EQ(reduced("\"sum\""), (Floats{31, 2, 3, 94, 5, 6}));
  EXPECT_EQ(reduced("\"prod\""), (Floats{200, 2, 3, 8000, 5, 6}));
  EXPECT_EQ(reduced("\"amax\""), (Floats{20, 2, 3, 50, 5, 6}));
  EXPECT_EQ(reduced("\"amin\""), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(reduced("\"amin\", include_self=False"), (Floats{10, 2, 3, 40, 5, 6}));
  EXPECT_EQ(reduced("\"mean\", include_self=False"), (Floats{15, 2, 3, 45, 5, 6}));
  EXPECT_EQ(reduced("\"mean\"")[0], 31.0F / 3);
}

// ---- Windows of images ----

TEST_F(TorchOps, AveragesWithADivisor) {
  const Tensor x = Values({1, 1, 1, 5}, {1, 2, 3, 4, 5});
  EXPECT_EQ(Of("torch.avg_pool2d(x, [1, 2], [1, 2], [0, 0], False, True, 4)", x),
            (Floats{0.75F, 1.75F}));
  EXPECT_EQ(Of("torch.avg_pool2d(x, [1, 2], [1, 2], [0, 1], True, False, 1)", x),
            (Floats{1, 5, 9}));
  EXPECT_EQ(Of("torch.avg_pool2d(x, [1, 2], [1, 2], [0, 0], True, False, 1)", x),
            (Floats{3, 7, 5}));
}

TEST_F(TorchOps, WindowsAsColumnsAndBack) {
  const Tensor x = Values({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const std::string columns = "torch.im2col(x, [2, 2], [1, 1], [0, 0], [1, 1])";
  EXPECT_EQ(Of(columns, x), (Floats{1, 2, 4, 5, 2, 3, 5, 6, 4, 5, 7, 8, 5, 6, 8, 9}));
  EXPECT_EQ(Of("torch.col2im(" + columns + ", [3, 3], [2, 2], [1, 1], [0, 0], [1, 1])", x),
            (Floats{1, 4, 3, 8, 20, 12, 7, 16, 9}));
  EXPECT_EQ(Of("torch.im2col(x, [1, 2], [1, 1], [0, 1], [3, 2])", x), (Floats{0, 2, 1, 3}));
}

TEST_F(TorchOps, MaximaGoBackToTheirPlaces) {
  const std::string body =
      "y, at, = torch.max_pool2d_with_indices(x, [1, 2], [1, 2])\n"
      "return torch.max_unpool2d(y, at, [2, 4])";
  const Tensor x = Values({1, 2, 2, 4}, {1, 2, 4, 3, 5, 6, 8, 7, 9, 8, 7, 6, 5, 4, 3, 2});
  EXPECT_EQ(Both(body, x), (std::vector<Floats>{{0, 2, 4, 0, 0, 6, 8, 0, 9, 0, 7, 0, 5, 0, 3, 0}}));
}

TEST_F(TorchOps, ShufflesPixelsOfOneImage) {
  EXPECT_EQ(Of("torch.pixel_shuffle(x, 2)", Values({4, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8})),
            (Floats{1, 3, 2, 4, 5, 7, 6, 8}));
  EXPECT_EQ(Of("torch.pixel_unshuffle(x, 2)", Values({1, 2, 2}, {1, 2, 3, 4})),
            (Floats{1, 2, 3, 4}));
}

TEST_F(TorchOps, ShrinksImagesWithoutAliases) {
  // Triangles of two pixels to each side: of 1, 2, 3, 4 the weights 3, 3, 1 and 1, 3, 3.
  const Tensor x = Values({1, 1, 1, 4}, {1, 2, 3, 4});
  const Floats y = Of("torch._upsample_bilinear2d_aa(x, [1, 2], False, None)", x);
  ASSERT_EQ(y.size(), 2u);
  EXPECT_NEAR(y[0], 12.0F / 7, 1e-6F);
  EXPECT_NEAR(y[1], 23.0F / 7, 1e-6F);
}

// ---- Recurrent ----

TEST_F(TorchOps, CellsAreOneStep) {
  const Fields weights = {{"w", F32("0", {4, 1})}, {"r", F32("1", {4, 1})}, {"b", F32("2", {4})}};
  const std::vector<testing::ZipEntry> data = {{"m/data/0", BytesOf({1, 0, -1, 2})},
                                               {"m/data/1", BytesOf({0, 1, 0, 0})},
                                               {"m/data/2", BytesOf({0, 0, 0.5F, 0})}};
  const std::string code = Forward("x: Tensor",
                                   "b = self.b\n"
                                   "h, c, = torch.lstm_cell(x, [torch.mul(x, 2), torch.add(x, 1)], "
                                   "self.w, self.r, b, torch.neg(b))\n"
                                   "return (h, c)");
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double x = 0.5, h = 1, before = 1.5;
  const double state = sigmoid(h) * before + sigmoid(x) * std::tanh(-x);
  const auto y = Run(Script(code, weights, data), {Values({1, 1}, {0.5F})}, Shape("x", {1, 1}));
  ASSERT_EQ(y.size(), 2u);
  EXPECT_NEAR(y[0][0], sigmoid(2 * x) * std::tanh(state), 1e-6);
  EXPECT_NEAR(y[1][0], state, 1e-6);
}

TEST_F(TorchOps, CellsOfGruAndRnn) {
  const Fields weights = {
      {"w", F32("0", {3, 1})}, {"r", F32("1", {3, 1})}, {"one", F32("2", {1, 1})}};
  const std::vector<testing::ZipEntry> data = {{"m/data/0", BytesOf({1, -1, 2})},
                                               {"m/data/1", BytesOf({0, 1, 1})},
                                               {"m/data/2", BytesOf({3})}};
  const std::string code = Forward("x: Tensor",
                                   "y = torch.gru_cell(x, torch.mul(x, 2), self.w, self.r)\n"
                                   "z = torch.rnn_relu_cell(x, x, self.one, self.one)\n"
                                   "return (y, z, torch.rnn_tanh_cell(x, x, self.one, self.one))");
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double x = 0.5, h = 1;
  const double reset = sigmoid(x), update = sigmoid(-x + h), next = std::tanh(2 * x + reset * h);
  const auto y = Run(Script(code, weights, data), {Values({1, 1}, {0.5F})}, Shape("x", {1, 1}));
  ASSERT_EQ(y.size(), 3u);
  EXPECT_NEAR(y[0][0], (1 - update) * next + update * h, 1e-6);
  EXPECT_NEAR(y[1][0], 3, 1e-6);
  EXPECT_NEAR(y[2][0], std::tanh(3), 1e-6);
}

// ---- Attention that PyTorch fuses ----

// One head of width 1 whose queries, keys and values are x: softmax(x_i x_j) x_j over what the mask leaves.
TEST_F(TorchOps, FusedAttentionTakesMasks) {
  const Fields weights = {{"w", F32("0", {3, 1})},
                          {"b", F32("1", {3})},
                          {"one", F32("2", {1, 1})},
                          {"zero", F32("3", {1})}};
  const std::vector<testing::ZipEntry> data = {{"m/data/0", BytesOf({1, 1, 1})},
                                               {"m/data/1", BytesOf({0, 0, 0})},
                                               {"m/data/2", BytesOf({1})},
                                               {"m/data/3", BytesOf({0})}};
  const Tensor x = Values({1, 2, 1}, {1, 2});
  const auto attended = [&](const std::string& mask) {
    const std::string code = Forward("x: Tensor",
                                     "y, p, = torch._native_multi_head_attention(x, x, x, 1, 1, "
                                     "self.w, self.b, self.one, self.zero, " +
                                         mask + ")\nreturn (y, p)");
    return Run(Script(code, weights, data), {x}, Shape("x", {1, 2, 1}));
  };
  const float e = std::exp(1.0F), e2 = e * e;  // differences of scores are 1 and 2
  const auto plain = attended("None");
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_NEAR(plain[0][0], (1 + 2 * e) / (1 + e), 1e-6F);
  EXPECT_NEAR(plain[0][1], (1 + 2 * e2) / (1 + e2), 1e-6F);
  EXPECT_NEAR(plain[1][1], e / (1 + e), 1e-6F);
  // The second key is padding: a mask of keys [batch, keys], of floats or booleans.
  const std::string keys = "torch.mul(torch.gt(torch.view(x, [1, 2]), 1), 1.)";
  EXPECT_EQ(attended(keys + ", True, True, 1")[0], (Floats{1, 1}));
  // A mask of queries by keys: the first query does not see the second key.
  const std::string future = "torch.triu(torch.ones([2, 2], dtype=6), 1)";
  const auto causal = attended(future + ", True, True, 0");
  ASSERT_EQ(causal.size(), 2u);
  EXPECT_EQ(causal[0][0], 1);
  EXPECT_NEAR(causal[0][1], plain[0][1], 1e-6F);
}

TEST_F(TorchOps, FusedAttentionSaysWhatHelps) {
  const std::string code = Forward(
      "x: Tensor",
      "y, p, = torch._native_multi_head_attention(x, x, x, 2, 1, x, x, x, x, x, True, True, 5)\n"
      "return y");
  ImportOptions options;
  options.shapes["x"] = {1, 2, 2};
  EXPECT_THAT(testing::ErrorOf(ImportFile(Script(code), options).status()),
              HasSubstr("torch.backends.mha.set_fastpath_enabled(False)"));
}

}  // namespace
}  // namespace quench::importer::torch_ops_test
