// Operators of ATen that several nodes make, in scripts that are written here: what each computes.
#include <cmath>

#include "tests/unit/services/importer/torch_fixture.h"

namespace quench::importer::torch_formulas_test {
namespace {

constexpr float kInf = INFINITY;
const float kNan = std::nanf("");

class TorchFormulas : public TorchTest {
 protected:
  std::vector<Floats> Of(const std::string& body, const Tensor& x) {
    return Run(Script(Forward("x: Tensor", body)), {x}, Shape("x", x.dims()));
  }
  // NaN is equal to itself.
  void Expect(const std::string& expression, const Tensor& x, const Floats& right) {
    const std::vector<Floats> all = Of("return " + expression, x);
    ASSERT_EQ(all.size(), 1u) << expression;
    ASSERT_EQ(all[0].size(), right.size()) << expression;
    for (size_t i = 0; i < right.size(); ++i) {
      const float y = all[0][i];
      const bool same = y == right[i] || (std::isnan(y) && std::isnan(right[i])) ||
                        std::abs(y - right[i]) <= 1e-6F * std::max(1.0F, std::abs(right[i]));
      EXPECT_TRUE(same) << expression << " at " << i << ": " << y << " rather than " << right[i];
    }
  }
  void Expect(const std::string& expression, const Floats& x, const Floats& right) {
    Expect(expression, Values({static_cast<int64_t>(x.size())}, x), right);
  }
};

Tensor Square() { return Values({2, 3}, {1, 2, 3, 4, 5, 6}); }

TEST_F(TorchFormulas, OfNumbers) {
  Expect("torch.exp2(x)", {-1, 0, 3}, {0.5F, 1, 8});
  Expect("torch.frac(x)", {-1.25F, 2.5F, 3}, {-0.25F, 0.5F, 0});
  Expect("torch.deg2rad(x)", {180}, {3.14159265F});
  Expect("torch.rad2deg(x)", {1}, {57.2957795F});
  Expect("torch.hypot(x, 4)", {3, 0}, {5, 4});
  Expect("torch.lerp(x, torch.mul(x, 3), 0.25)", {2, 4}, {3, 6});
  Expect("torch.lerp(x, torch.mul(x, 3), torch.div(x, 4))", {2, 4}, {4, 12});
  Expect("torch.rrelu(x, 0.25, 0.75, False, None)", {-2, 2}, {-1, 2});
}

TEST_F(TorchFormulas, AtTheEnds) {
  Expect("torch.logaddexp(x, x)", {0, kInf, -kInf, 1e4F}, {0.6931472F, kInf, -kInf, 10000.693F});
  Expect("torch.logaddexp(x, 0)", {kInf, -kInf, -20}, {kInf, 0, 2.0611537e-9F});
  Expect("torch.xlogy(torch.mul(x, 0), x)", {0, 2, kNan}, {0, 0, kNan});
  Expect("torch.xlogy(x, x)", {1, 2}, {0, 1.3862944F});
  Expect("torch.special_xlog1py(x, torch.mul(x, 1e-8))", {1}, {1e-8F});
  Expect("torch.nan_to_num(x)", {kNan, kInf, -kInf, 1}, {0, 3.4028235e38F, -3.4028235e38F, 1});
  Expect("torch.nan_to_num(x, 1, 2, 3)", {kNan, kInf, -kInf}, {1, 2, 3});
  Expect("torch.isclose(x, torch.add(x, 1e-6))", {1, 0, kInf, kNan}, {1, 0, 1, 0});
  Expect("torch.isclose(x, x, equal_nan=True)", {kNan}, {1});
}

TEST_F(TorchFormulas, Distances) {
  const Tensor x = Values({2, 2}, {0, 0, 3, 4});
  Expect("torch.cdist(x, x)", x, {0, 5, 5, 0});
  Expect("torch.cdist(x, torch.slice(x, 0, 0, 1), 1)", x, {0, 7});
  Expect("torch.pairwise_distance(x, torch.neg(x), 1, 0)", x, {0, 14});
  Expect("torch.cosine_similarity(x, torch.flip(x, [1]))", x, {0, 0.96F});
}

TEST_F(TorchFormulas, Reductions) {
  Expect("torch.count_nonzero(torch.sub(x, 1))", Square(), {5});
  Expect("torch.count_nonzero(torch.sub(x, 1), 1)", Square(), {2, 3});
  const Tensor x = Values({2, 2}, {1, kNan, 3, 4});
  Expect("torch.nansum(x)", x, {8});
  Expect("torch.nanmean(x, [1])", x, {1, 3.5F});
  Expect("torch.median(torch.select(x, 0, 1))", x, {3});
  Expect("torch.median(x)", x, {kNan});
  EXPECT_EQ(Of("y, at, = torch.kthvalue(x, 2, 1)\nz, there, = torch.median(x, 0, True)\n"
               "low, high, = torch.aminmax(x, dim=1)\nreturn (y, at, z, there, low, high)",
               Square()),
            (std::vector<Floats>{{2, 5}, {1, 1}, {1, 2, 3}, {0, 0, 0}, {1, 4}, {3, 6}}));
  EXPECT_EQ(
      Of("v, m, = torch.var_mean(x, [1], False)\ns, k, = torch.std_mean(x, [1], correction=0)\n"
         "return (m, torch.mul(v, 3), k)",
         Square()),
      (std::vector<Floats>{{2, 5}, {2, 2}, {2, 5}}));
}

TEST_F(TorchFormulas, MadeAndJoined) {
  Expect("torch.add(torch.eye(2), x)", {0, 1}, {1, 1, 0, 2});
  Expect("torch.add(torch.eye(2, 3), x)", {0, 0, 1}, {1, 0, 1, 0, 1, 1});
  Expect("torch.add(torch.linspace(0, 1, 5), x)", {0}, {0, 0.25F, 0.5F, 0.75F, 1});
  Expect("torch.vstack([x, x])", {1, 2}, {1, 2, 1, 2});
  Expect("torch.size(torch.vstack([x, x]), 0)", {1, 2, 3}, {2});
  Expect("torch.ravel(x)", Square(), {1, 2, 3, 4, 5, 6});
  Expect("torch.take(x, torch.arange(-1, 2))", Square(), {6, 1, 2});
  EXPECT_EQ(Of("a, b, = torch.meshgrid([x, torch.arange(3)])\n"
               "c, d, = torch.meshgrid([x, torch.arange(3)], indexing=\"xy\")\nreturn (a, b, c, d)",
               Values({2}, {7, 8})),
            (std::vector<Floats>{
                {7, 7, 7, 8, 8, 8}, {0, 1, 2, 0, 1, 2}, {7, 8, 7, 8, 7, 8}, {0, 0, 1, 1, 2, 2}}));
}

TEST_F(TorchFormulas, Images) {
  const Tensor channels = Values({1, 4, 1, 1}, {1, 2, 3, 4});
  Expect("torch.channel_shuffle(x, 2)", channels, {1, 3, 2, 4});
  const Tensor row = Values({1, 1, 1, 5}, {1, 2, 3, 4, 5});
  Expect("torch._upsample_nearest_exact2d(x, [1, 3], None)", row, {1, 3, 5});
  Expect("torch.upsample_nearest2d(x, [1, 3], None)", row, {1, 2, 4});
  const Tensor identity = Values({1, 2, 3}, {1, 0, 0, 0, 1, 0});
  Expect("torch.affine_grid_generator(x, [1, 1, 2, 2], True)", identity,
         {-1, -1, 1, -1, -1, 1, 1, 1});
}

}  // namespace
}  // namespace quench::importer::torch_formulas_test
