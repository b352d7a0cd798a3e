#include "common/ir/symbols.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "common/base/status.h"
#include "common/ir/saturating.h"
#include "common/ir/symbols_spelling.h"

namespace quench::symbols_test {
namespace {

class SymbolsTest : public ::testing::Test {
 protected:
  Dim Input(const std::string& name, Bounds bounds = {1, kUnbounded}, int64_t multiple = 1) {
    return Dim::OfSymbol(t.AddInput(name, {next_axis_++, 0}, bounds, multiple));
  }
  int64_t Eval(Dim dim, const std::vector<int64_t>& base) {
    const auto slots = t.Evaluate(base);
    EXPECT_TRUE(slots.ok()) << slots.status();
    return SymbolTable::ValueOf(dim, *slots);
  }

  SymbolTable t;
  int next_axis_ = 0;
};

TEST_F(SymbolsTest, EqualSumsAndProductsHaveEqualIds) {
  const Dim n = Input("n");
  const Dim m = Input("m");
  EXPECT_EQ(t.Mul(t.Add(n, 1), 2), t.Add(t.Mul(2, n), 2));
  EXPECT_EQ(t.Mul(t.Add(n, m), t.Sub(n, m)), t.Sub(t.Mul(n, n), t.Mul(m, m)));
  EXPECT_EQ(t.Sub(t.Add(n, m), n), m);
  EXPECT_EQ(t.Sub(t.Add(n, 7), n), Dim(7));
  EXPECT_EQ(t.Mul(n, 0), Dim(0));
  EXPECT_NE(t.Add(n, 1), t.Add(n, 2));
  EXPECT_NE(n, m);
}

TEST_F(SymbolsTest, DivisionByAConstant) {
  const Dim n = Input("n");
  const Dim m = Input("m");
  EXPECT_EQ(t.FloorDiv(t.Mul(2, n), 2), n);
  EXPECT_EQ(t.FloorDiv(n, 1), n);
  EXPECT_EQ(t.FloorDiv(7, 2), Dim(3));
  EXPECT_EQ(t.FloorDiv(-7, 2), Dim(-4));
  EXPECT_EQ(t.CeilDiv(7, 2), Dim(4));
  EXPECT_EQ(t.Mod(-7, 4), Dim(1));
  // Whole parts come out, nested divisions merge, common factors cancel.
  EXPECT_EQ(t.FloorDiv(t.Add(n, 6), 4), t.Add(t.FloorDiv(t.Add(n, 2), 4), 1));
  EXPECT_EQ(t.FloorDiv(t.Mul(3, n), 2), t.Add(n, t.FloorDiv(n, 2)));
  EXPECT_EQ(t.FloorDiv(t.FloorDiv(n, 2), 3), t.FloorDiv(n, 6));
  EXPECT_EQ(t.FloorDiv(t.Add(t.FloorDiv(n, 2), 1), 2), t.FloorDiv(t.Add(n, 2), 4));
  EXPECT_EQ(t.FloorDiv(t.Mul(6, n), 9), t.FloorDiv(t.Mul(2, n), 3));
  EXPECT_EQ(t.FloorDiv(t.Add(t.Mul(4, t.Add(n, m)), 3), 4), t.Add(n, m));
  EXPECT_EQ(t.CeilDiv(n, 4), t.FloorDiv(t.Add(n, 3), 4));
  EXPECT_EQ(t.Mod(t.Add(t.Mul(4, n), 6), 4), Dim(2));
  EXPECT_EQ(t.Mod(t.Add(n, 4), 4), t.Mod(n, 4));
}

TEST_F(SymbolsTest, DivisionByASymbol) {
  const Dim n = Input("n");
  const Dim m = Input("m");
  EXPECT_EQ(t.FloorDiv(t.Product(std::vector<Dim>{n, m, 768}), t.Mul(n, 768)), m);
  EXPECT_EQ(t.FloorDiv(n, n), Dim(1));
  EXPECT_EQ(t.FloorDiv(t.Mul(n, t.Add(m, 1)), t.Add(m, 1)), n);
  EXPECT_EQ(t.FloorDiv(t.Mul(t.Add(n, 2), t.Add(m, 1)), t.Add(m, 1)), t.Add(n, 2));
  EXPECT_EQ(t.CeilDiv(n, m), t.FloorDiv(t.Sub(t.Add(n, m), 1), m));
  EXPECT_EQ(t.Mod(t.Mul(n, m), m), Dim(0));
}

TEST_F(SymbolsTest, KnownMultiplesDivide) {
  const Dim n = Input("n", {1, 1024}, 32);
  EXPECT_EQ(t.Mod(n, 8), Dim(0));
  EXPECT_EQ(t.FloorDiv(t.Add(n, 1), 2), t.FloorDiv(n, 2));
  EXPECT_TRUE(t.IsMultipleOf(t.Mul(n, 3), 96));
  EXPECT_TRUE(t.IsMultipleOf(t.FloorDiv(n, 4), 8));
  EXPECT_FALSE(t.IsMultipleOf(t.Add(n, 2), 4));
  EXPECT_TRUE(t.IsMultipleOf(t.Add(n, 2), 2));
  EXPECT_TRUE(t.IsMultipleOf(0, 5));
}

TEST_F(SymbolsTest, StridedConvolutionsOfOneSizeAgree) {
  // Two strides of 2 and one of 4 see the same number of positions.
  const Dim n = Input("n", {4, 4096});
  const auto positions = [&](Dim size, int64_t stride) {
    return t.Add(t.FloorDiv(t.Sub(size, 1), stride), 1);
  };
  EXPECT_EQ(positions(positions(n, 2), 2), positions(n, 4));
}

TEST_F(SymbolsTest, MinAndMaxUseRanges) {
  const Dim n = Input("n", {1, 10});
  const Dim m = Input("m", {20, 30});
  const Dim u = Input("u");
  EXPECT_EQ(t.Min(n, 10), n);
  EXPECT_EQ(t.Max(n, 1), n);
  EXPECT_EQ(t.Max(n, m), m);
  EXPECT_EQ(t.Min(t.Add(u, 1), u), u);
  EXPECT_EQ(t.Max(u, n), t.Max(n, u));
  EXPECT_EQ(t.Max(t.Max(u, n), t.Add(n, 1)), t.Max(u, t.Add(n, 1)));
  EXPECT_EQ(t.Min(t.Min(u, n), u), t.Min(u, n));
  EXPECT_EQ(t.Max(3, 5), Dim(5));
}

TEST_F(SymbolsTest, Bounds) {
  const Dim n = Input("n", {2, 10});
  const Dim u = Input("u");
  const auto expect = [&](Dim dim, int64_t min, int64_t max) {
    const Bounds bounds = t.BoundsOf(dim);
    EXPECT_EQ(bounds.min, min) << t.ToString(dim);
    EXPECT_EQ(bounds.max, max) << t.ToString(dim);
  };
  expect(5, 5, 5);
  expect(t.Add(t.Mul(3, n), 1), 7, 31);
  expect(t.Mul(n, n), 4, 100);
  expect(t.Sub(0, n), -10, -2);
  expect(t.FloorDiv(n, 3), 0, 3);
  expect(t.Mod(u, 4), 0, 3);
  expect(t.Min(u, n), 1, 10);
  expect(t.Max(u, n), 2, kUnbounded);
  expect(t.Mul(u, 2), 2, kUnbounded);
  expect(t.Sub(n, u), kInt64Min, 9);
  expect(t.FloorDiv(t.Mul(n, n), Input("d", {3, 5})), 0, 33);
}

TEST_F(SymbolsTest, RestrictNarrowsWhatWasBuiltBefore) {
  const Dim n = Input("n");
  const Dim twice = t.Mul(n, 2);
  ASSERT_TRUE(t.Restrict(n.symbol(), {4, 16}, 4).ok());
  EXPECT_EQ(t.BoundsOf(twice).max, 32);
  EXPECT_TRUE(t.IsMultipleOf(twice, 8));
  EXPECT_EQ(MessageOf(t.Restrict(n.symbol(), {17, 20})),
            "symbol `n` is in 4..16 and a multiple of 4: nothing of that lies in 17..20");
  EXPECT_FALSE(t.Restrict(n.symbol(), {5, 7}).ok());
  EXPECT_FALSE(t.Restrict(twice.symbol(), {5, 7}).ok());
  EXPECT_FALSE(t.Restrict(n.symbol(), {4, 16}, 0).ok());
}

TEST_F(SymbolsTest, NamesAreFoundAgain) {
  const Dim n = Input("batch");
  EXPECT_EQ(t.AddInput("batch", {5, 5}), n.symbol());
  EXPECT_EQ(t.Find("batch"), n.symbol());
  EXPECT_EQ(t.Find("$1"), std::nullopt);
  EXPECT_EQ(t.Find("other"), std::nullopt);
}

TEST_F(SymbolsTest, Prints) {
  const Dim n = Input("n");
  const Dim m = Input("m");
  const Dim odd = Input("past + 1");
  const Dim reserved = Input("min");
  EXPECT_EQ(t.ToString(t.Add(t.Mul(2, n), 1)), "2*n + 1");
  EXPECT_EQ(t.ToString(t.Sub(t.Mul(n, m), t.Mul(3, t.Mul(n, n)))), "-3*n*n + n*m");
  EXPECT_EQ(t.ToString(t.FloorDiv(n, 2)), "floordiv(n, 2)");
  EXPECT_EQ(t.ToString(t.Min(m, t.Sub(n, 4))), "min(m, n - 4)");
  EXPECT_EQ(t.ToString(t.Add(odd, reserved)), R"("past + 1" + "min")");
  EXPECT_EQ(t.ToString(-3), "-3");
}

TEST_F(SymbolsTest, ParseErrorsNameTheCharacter) {
  Input("n");
  const auto error = [&](const std::string& text) { return MessageOf(t.Parse(text).status()); };
  EXPECT_EQ(error("n + q"), "size `n + q`, character 5: there is no symbol `q`");
  EXPECT_EQ(error("n +"), "size `n +`, character 4: a number, a name or `(` was expected");
  EXPECT_EQ(error("n n"),
            "size `n n`, character 3: `+`, `-`, `*` or the end of the expression was expected");
  EXPECT_EQ(error("floordiv(n, 0)"),
            "size `floordiv(n, 0)`, character 15: divides by 0, a divisor is positive");
  EXPECT_EQ(error("99999999999999999999"),
            "size `99999999999999999999`, character 1: the number exceeds 64 bits");
  for (const char* text : {"", "(", "n)", "min(n)", "min n", "\"n", "\"\\q\"", "$", "$9", "$-1",
                           "*", "9223372036854775808"}) {
    EXPECT_FALSE(t.Parse(text).ok()) << text;
  }
  EXPECT_FALSE(t.Parse(std::string(100000, '(')).ok());
  EXPECT_FALSE(t.Parse(std::string(60000, '(')).ok());
  EXPECT_EQ(*t.Parse("-9223372036854775808"), Dim(kInt64Min));
}

TEST_F(SymbolsTest, EvaluateWithRuntimeSizes) {
  const Dim n = Input("n");
  const Dim count = Dim::OfSymbol(t.AddRuntime("count", "nonzero_1", t.Mul(n, 4)));
  const Dim later = t.Add(count, n);
  const Dim half = t.FloorDiv(t.Sub(n, 4), 2);
  EXPECT_TRUE(t.DependsOnRuntime(later));
  EXPECT_FALSE(t.DependsOnRuntime(half));
  EXPECT_EQ(t.BoundsOf(count).min, 0);
  EXPECT_EQ(t.BoundsOf(count).max, kUnbounded);

  std::vector<int64_t> base(static_cast<size_t>(t.size()), -1);
  base[static_cast<size_t>(n.symbol())] = 2;
  EXPECT_EQ(Eval(later, base), -1);
  EXPECT_EQ(Eval(half, base), -1);  // truly minus one, not unset
  EXPECT_EQ(Eval(t.Mul(half, 3), base), -3);
  base[static_cast<size_t>(count.symbol())] = 5;
  EXPECT_EQ(Eval(later, base), 7);
  EXPECT_EQ(Eval(later, {}), -1);
}

TEST_F(SymbolsTest, EvaluateReportsOverflowAndBadDivisors) {
  const Dim n = Input("n", {0, kUnbounded});
  const Dim m = Input("m", {0, kUnbounded});
  t.Mul(n, m);
  EXPECT_EQ(
      MessageOf(t.Evaluate(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}).status()),
      "size `n*m` exceeds 2^63");
  EXPECT_TRUE(t.Evaluate(std::vector<int64_t>{int64_t{1} << 62, 0}).ok());
  t.FloorDiv(n, m);
  EXPECT_EQ(MessageOf(t.Evaluate(std::vector<int64_t>{3, 0}).status()),
            "size `floordiv(n, m)` divides by 0, a divisor is positive");
  SymbolTable other;
  EXPECT_FALSE(other.FloorDiv(4, 0).is_static());
  EXPECT_FALSE(other.Evaluate({}).ok());
}

TEST_F(SymbolsTest, ConstantsSaturate) {
  EXPECT_EQ(t.Mul(kInt64Max, 2), Dim(kInt64Max));
  EXPECT_EQ(t.Add(kInt64Max, 1), Dim(kInt64Max));
  EXPECT_EQ(t.Sub(kInt64Min, 1), Dim(kInt64Min));
  const Dim n = Input("n");
  for (int64_t extreme : {kInt64Max, kInt64Min, kInt64Min + 1}) {
    const Dim scaled = t.Mul(n, extreme);
    const Dim both = t.Add(t.Mul(scaled, extreme), extreme);
    for (Dim divisor : {Dim(kInt64Max), Dim(2), n, both}) {
      t.FloorDiv(both, divisor);
      t.Mod(scaled, divisor);
      t.Min(scaled, divisor);
      t.Max(both, divisor);
      t.Sub(divisor, scaled);
    }
    EXPECT_EQ(*t.Parse(t.ToString(scaled)), scaled);
  }
}

TEST_F(SymbolsTest, HugeExpressionsStaySmall) {
  // Repeated squaring doubles the degree; sums of products multiply terms; min and max double the
  // text.
  std::vector<Dim> atoms;
  for (int i = 0; i < 40; ++i) atoms.push_back(Input("n" + std::to_string(i)));
  Dim power = t.Add(atoms[0], 1);
  Dim product = 1;
  Dim tower = atoms[0];
  for (size_t i = 0; i < atoms.size(); ++i) {
    power = t.Mul(power, power);
    product = t.Mul(product, t.Add(atoms[i], atoms[(i + 1) % atoms.size()]));
    tower = t.FloorDiv(t.Add(t.Mul(tower, tower), 1), t.Add(t.Mul(tower, atoms[i]), 3));
  }
  for (Dim dim : {power, product, tower}) {
    EXPECT_LT(t.ToString(dim).size(), 1000u);
    EXPECT_EQ(*t.Parse(t.ToString(dim)), dim);
  }
  Dim sum = 0;
  for (int i = 0; i < 300; ++i)
    sum = t.Add(sum, t.Mul(atoms[static_cast<size_t>(i % 40)], atoms[static_cast<size_t>(i / 40)]));
  std::vector<int64_t> base(static_cast<size_t>(t.size()), -1);
  for (int i = 0; i < 40; ++i) base[static_cast<size_t>(i)] = 0;
  base[1] = 1;
  // The tower and the powers overflow for no input here: every atom is 0 or 1.
  EXPECT_EQ(Eval(sum, base), 1);
}

TEST_F(SymbolsTest, ImportRewritesAndBinds) {
  const Dim n = Input("n", {1, 64}, 2);
  const Dim m = Input("m");
  const Dim count = Dim::OfSymbol(t.AddRuntime("count", "node", t.Mul(n, m)));
  const Dim dim = t.Add(t.FloorDiv(t.Add(t.Mul(n, m), 3), 4), t.Max(count, n));

  SymbolTable copy;
  EXPECT_EQ(copy.ToString(copy.Import(t, dim, {})), t.ToString(dim));
  EXPECT_EQ(copy.at(*copy.Find("n")).max, 64);
  EXPECT_EQ(copy.at(*copy.Find("n")).multiple_of, 2);

  SymbolTable bound;
  const Dim rewritten = bound.Import(t, dim, {{n.symbol(), 8}, {m.symbol(), 2}});
  EXPECT_EQ(bound.ToString(rewritten), "max(count, 8) + 4");
  EXPECT_EQ(bound.BoundsOf(rewritten).max, 20);
  EXPECT_EQ(t.Import(t, dim, {{count.symbol(), n}}),
            t.Add(t.FloorDiv(t.Add(t.Mul(n, m), 3), 4), n));
}

// Random expressions: the table agrees with plain arithmetic, and text gives the same id back.
TEST_F(SymbolsTest, RandomExpressionsMatchDirectArithmetic) {
  std::mt19937 random(7);
  const std::vector<std::string> names = {"a", "b", "c"};
  struct Built {
    Dim dim;
    std::function<int64_t(const std::vector<int64_t>&)> value;
  };
  std::vector<Built> pool;
  for (size_t i = 0; i < names.size(); ++i) {
    pool.push_back({Input(names[i], {1, 12}), [i](const auto& v) { return v[i]; }});
  }
  for (int64_t c : {-3, 1, 2, 3, 4, 6}) pool.push_back({c, [c](const auto&) { return c; }});
  const auto magnitude = [](Bounds b) { return std::max(std::abs(b.min), std::abs(b.max)); };
  int checked = 0;
  for (int step = 0; step < 1200; ++step) {
    const Built x = pool[random() % pool.size()];
    const Built y = pool[random() % pool.size()];
    const int op = static_cast<int>(random() % 7);
    if (magnitude(t.BoundsOf(x.dim)) > 10000 || magnitude(t.BoundsOf(y.dim)) > 10000) continue;
    if (op >= 3 && op <= 4 && t.BoundsOf(y.dim).min < 1) continue;
    const auto make = [&]() -> Dim {
      switch (op) {
        case 0:
          return t.Add(x.dim, y.dim);
        case 1:
          return t.Sub(x.dim, y.dim);
        case 2:
          return t.Mul(x.dim, y.dim);
        case 3:
          return t.FloorDiv(x.dim, y.dim);
        case 4:
          return t.Mod(x.dim, y.dim);
        case 5:
          return t.Min(x.dim, y.dim);
        default:
          return t.Max(x.dim, y.dim);
      }
    };
    const auto value = [op, x, y](const std::vector<int64_t>& v) -> int64_t {
      const int64_t l = x.value(v);
      const int64_t r = y.value(v);
      switch (op) {
        case 0:
          return l + r;
        case 1:
          return l - r;
        case 2:
          return l * r;
        case 3:
          return FloorDivide(l, r);
        case 4:
          return FloorModulo(l, r);
        case 5:
          return std::min(l, r);
        default:
          return std::max(l, r);
      }
    };
    const Built built{make(), value};
    ASSERT_EQ(*t.Parse(t.ToString(built.dim)), built.dim) << t.ToString(built.dim);
    for (int sample = 0; sample < 4; ++sample) {
      std::vector<int64_t> v;
      for (int i = 0; i < 3; ++i) v.push_back(1 + static_cast<int64_t>(random() % 12));
      const int64_t expected = built.value(v);
      ASSERT_EQ(Eval(built.dim, v), expected) << t.ToString(built.dim);
      const Bounds bounds = t.BoundsOf(built.dim);
      ASSERT_LE(bounds.min, expected) << t.ToString(built.dim);
      ASSERT_GE(bounds.max, expected) << t.ToString(built.dim);
      ++checked;
    }
    if (pool.size() < 200) pool.push_back(built);
  }
  EXPECT_GT(checked, 1000);
}

TEST_F(SymbolsTest, ReadersSeeDimsOfInputsOnly) {
  const Dim n = Input("n"), odd = Input("of $1 \"each\"");
  Dim sum = t.Add(n, odd);
  for (int64_t i = 2; i < 9; ++i) sum = t.Max(t.FloorDiv(t.Add(sum, n), Dim(i)), odd);
  const Dim product = t.Mul(t.Add(sum, Dim(1)), t.Add(sum, n));
  ASSERT_NE(t.ToString(product).find('$'), std::string::npos) << t.ToString(product);
  const std::string text = SpelledOut(t, product);
  // The one `$` left is of a name, and the text means the same.
  EXPECT_EQ(text.find('$'), text.find("of $1") + 3) << text;
  EXPECT_EQ(*t.Parse(text), product) << text;
  EXPECT_EQ(SpelledOut(t, Dim(3)), "3");
  for (int i = 0; i < 200; ++i) sum = t.Max(t.Mul(sum, sum), t.Add(sum, n));
  EXPECT_LT(SpelledOut(t, sum).size(), 4200u);
}

}  // namespace
}  // namespace quench::symbols_test
