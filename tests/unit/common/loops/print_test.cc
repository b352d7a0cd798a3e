// Goldens: this text appears in bug reports and dumps and stays as it is.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/unit/common/loops/harness.h"

namespace quench::loops::print_test {
namespace {

constexpr DataType kF32 = DataType::kF32;

TEST(Print, EveryStatement) {
  Builder b("everything");
  const E n = b.Slot(2);
  const B x = b.Input("x", DataType::kF16, {b.I(4), n});
  const B y = b.Output("y", kF32, {b.I(4)});
  const B t = b.Scratch("t", kF32, {n}, ScratchScope::kIteration);
  const B u = b.Scratch("u", DataType::kI32, {}, ScratchScope::kFunction);
  b.Check(n > 0, "n is empty");
  b.ParallelFor(b.I(4), [&](E i) {
    b.For(n, [&](E j) { b.Store(t, {j}, x.At({i, j}) * b.F(0.5, kF32)); }, "j");
    const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, kF32), n, [&](E k) { return t.At({k}); });
    b.Store(y, {i}, sum);
  });
  const auto count = b.Local(b.Int(0, DataType::kI32), "count");
  b.While([&] { return count.Get() < 10; },
          [&] {
            b.If(
                count.Get() % 2 == 0, [&] { count.Set(count.Get() + 1); },
                [&] { count.Set(count.Get() * 2); });
          });
  const E twice = b.Let(Cast(count.Get(), DataType::kI64) * 2, "twice");
  b.Store(u, std::initializer_list<E>{}, count.Get());
  b.SetSlot(3, twice + 1);
  EXPECT_EQ(Print(b.Finish()),
            R"(function everything
  input x: f16[4, s2]
  output y: f32[4]
  scratch t: f32[s2] per iteration
  scratch u: i32[]
  check s2 > 0 else "n is empty"
  parallel i in 0 .. 4
    for j in 0 .. s2
      t[j] = f32(x[i, j]) * 0.5
    acc := 0
    reduce(acc +) k in 0 .. s2
      acc := acc + t[k]
    y[i] = acc
  count := 0:i32
  while count < 10:i32
    if count % 2:i32 == 0:i32
      count := count + 1:i32
    else
      count := count * 2:i32
  let twice = i64(count) * 2
  u[] = count
  s3 := twice + 1
)");
}

TEST(Print, ParenthesesOnlyWhereNeeded) {
  Builder b("parentheses");
  const E a = b.Slot(0), c = b.Slot(1), d = b.Slot(2);
  b.SetSlot(3, (a + c) * d - (a - (c - d)));
  b.SetSlot(4, a + c * d - Binary(BinaryOp::kShl, a, c + 1));
  b.SetSlot(5, Select((a < c || a == d) && !(c != d), FloorMod(a, c), Max(-a, Pow(c, d))));
  EXPECT_EQ(Print(b.Finish()), R"(function parentheses
  s3 := (s0 + s1) * s2 - (s0 - (s1 - s2))
  s4 := s0 + s1 * s2 - (s0 << s1 + 1)
  s5 := select((s0 < s1 | s0 == s2) & not(s1 != s2), floormod(s0, s1), max(neg(s0), pow(s1, s2)))
)");
}

TEST(Print, Constants) {
  Builder b("constants");
  const B y = b.Output("y", DataType::kF64, {b.I(9)});
  int64_t i = 0;
  for (const double value : std::vector<double>{0.1, 1e300, -0.0, INFINITY, NAN})
    b.Store(y, {b.I(i++)}, b.F(value, DataType::kF64));
  b.Store(y, {b.I(5)}, Cast(b.F(0.1, kF32), DataType::kF64));
  b.Store(y, {b.I(6)}, Cast(b.Int(-1, DataType::kU64), DataType::kF64));
  b.Store(y, {b.I(7)}, Cast(b.Slot(0) < 1, DataType::kF64));
  b.Store(y, {b.I(8)}, Cast(Select(b.Slot(0) < 1, b.Bool(true), b.Slot(1) < 2), DataType::kF64));
  EXPECT_EQ(Print(b.Finish()), R"(function constants
  output y: f64[9]
  y[0] = 0.1:f64
  y[1] = 1e+300:f64
  y[2] = -0:f64
  y[3] = inf:f64
  y[4] = nan:f64
  y[5] = f64(0.1)
  y[6] = f64(18446744073709551615:u64)
  y[7] = f64(s0 < 1)
  y[8] = f64(select(s0 < 1, true, s1 < 2))
)");
}

// Sharing would make the text of this expression exponential.
TEST(Print, SharedSubexpressionsGetNames) {
  Builder b("shared");
  E x = b.Param(0, kF32);
  for (int i = 0; i < 40; ++i) x = x * x + b.F(1, kF32);
  const std::string text = Print(b.FinishScalar(x, {kF32}));
  EXPECT_LT(text.size(), 4000u);
  EXPECT_NE(text.find("\n  %9 = %7 * %7 + 1\n"), std::string::npos) << text;
}

TEST(Print, NamesAreUnique) {
  Builder b("names");
  const B y = b.Output("y", DataType::kI64, {b.I(2), b.I(2)});
  b.For(b.I(2), [&](E i) { b.For(b.I(2), [&](E j) { b.Store(y, {i, j}, i); }); });
  EXPECT_EQ(Print(b.Finish()), R"(function names
  output y: i64[2, 2]
  for i in 0 .. 2
    for i_1 in 0 .. 2
      y[i, i_1] = i
)");
}

TEST(Names, EveryOperationHasItsOwn) {
  std::set<std::string_view> names;
  for (int op = 0; op <= static_cast<int>(UnaryOp::kIsInf); ++op)
    names.insert(Name(static_cast<UnaryOp>(op)));
  EXPECT_EQ(names.size(), 26u);
  for (int op = 0; op <= static_cast<int>(BinaryOp::kGe); ++op)
    names.insert(Name(static_cast<BinaryOp>(op)));
  EXPECT_EQ(names.size(), 47u);
  EXPECT_FALSE(names.contains("?"));
}

TEST(Names, ComputeTypes) {
  EXPECT_EQ(ComputeType(DataType::kF16), kF32);
  EXPECT_EQ(ComputeType(DataType::kF8E4M3FN), kF32);
  EXPECT_EQ(ComputeType(DataType::kF64), DataType::kF64);
  EXPECT_EQ(ComputeType(DataType::kI8), DataType::kI8);
  EXPECT_EQ(ComputeType(DataType::kBool), DataType::kBool);
}

}  // namespace
}  // namespace quench::loops::print_test
