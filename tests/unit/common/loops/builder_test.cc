#include "common/loops/builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/common/loops/harness.h"

namespace quench::loops::builder_test {
namespace {

constexpr DataType kF32 = DataType::kF32;
constexpr DataType kI64 = DataType::kI64;

// The text of an expression, by way of a function that stores it.
class Fold : public testing::Test {
 protected:
  Builder b{"fold"};
  E n = b.Slot(0);
  E m = b.Slot(1);

  std::string Text(E value) {
    const B y = b.Output("y", value.type(), {});
    b.Store(y, std::initializer_list<E>{}, value);
    const std::string text = Print(b.Finish());
    const size_t start = text.rfind("y[] = ") + 6;
    return text.substr(start, text.size() - start - 1);
  }
};

TEST_F(Fold, ConstantsAreComputed) {
  EXPECT_EQ(Text((b.I(6) + 1) * 3 - FloorDiv(b.I(-7), b.I(2))), "25");
}
TEST_F(Fold, NeutralOperandsDisappear) { EXPECT_EQ(Text((n + 0) * 1 / 1 - 0), "s0"); }
TEST_F(Fold, ZeroTimesIsZero) { EXPECT_EQ(Text(n * 0 + n % 1), "0"); }
TEST_F(Fold, ConstantsMoveRightAndMerge) { EXPECT_EQ(Text(b.I(3) + n + 4 - 9), "s0 - 2"); }
TEST_F(Fold, FactorsMerge) { EXPECT_EQ(Text(b.I(2) * n * 3), "s0 * 6"); }
TEST_F(Fold, EqualOperands) { EXPECT_EQ(Text(n - n + Min(m, m)), "s1"); }
TEST_F(Fold, CastsOfConstants) {
  EXPECT_EQ(Text(Cast(b.I(300), DataType::kU8) + Cast(b.I(-1), DataType::kU8)), "43:u8");
}
TEST_F(Fold, IntegerConstantBecomesFloat) { EXPECT_EQ(Text(Cast(b.I(3), kF32)), "3"); }
TEST_F(Fold, FloatsKeepTheirOperations) {
  EXPECT_EQ(Text(b.F(1, kF32) + b.F(0, kF32) * b.F(2, kF32)), "1 + 0 * 2");
}
TEST_F(Fold, SelectOfConstant) { EXPECT_EQ(Text(Select(b.I(1) < b.I(2), n, m)), "s0"); }
TEST_F(Fold, LogicWithConstants) {
  EXPECT_EQ(Text((n < m && b.Bool(true)) || b.Bool(false)), "s0 < s1");
}
TEST_F(Fold, DoubleNegation) { EXPECT_EQ(Text(-(-n)), "s0"); }
TEST_F(Fold, SmallestIntegerSurvives) {
  EXPECT_EQ(Text(n + INT64_MIN), "s0 + -9223372036854775808");
}
TEST_F(Fold, NarrowSumsWrap) {
  EXPECT_EQ(Text(b.Int(100, DataType::kI8) + b.Int(100, DataType::kI8)), "-56:i8");
}
TEST_F(Fold, CeilDiv) { EXPECT_EQ(Text(CeilDiv(b.I(7), b.I(2)) + CeilDiv(b.I(-7), b.I(2))), "1"); }

TEST(Builder, EqualExpressionsShareAnId) {
  Builder b("share");
  EXPECT_EQ((b.Slot(0) * 2 + 1).id(), (b.Slot(0) * 2 + 1).id());
  EXPECT_NE(b.F(0.0, kF32).id(), b.F(-0.0, kF32).id());
  EXPECT_NE(b.Int(1, DataType::kI32).id(), b.I(1).id());
}

TEST(Builder, ConstantsSaturateAndWrap) {
  Builder b("constants");
  EXPECT_EQ(b.expr(b.F(1e30, DataType::kI32).id()).i, INT32_MAX);
  EXPECT_EQ(b.expr(b.F(-3.7, DataType::kI8).id()).i, -3);
  EXPECT_EQ(b.expr(b.F(300, DataType::kU8).id()).i, 255);
  EXPECT_EQ(b.expr(b.Int(300, DataType::kU8).id()).i, 44);
  EXPECT_EQ(b.expr(b.Int(5, DataType::kBool).id()).i, 1);
  EXPECT_EQ(b.F(0.1, DataType::kF16).type(), kF32);
  EXPECT_EQ(b.expr(b.F(0.1, kF32).id()).f, static_cast<double>(0.1f));
}

TEST(Builder, StorageFloatsAreWidened) {
  Builder b("widen");
  for (const DataType type : {DataType::kF16, DataType::kBF16, DataType::kF8E5M2}) {
    const B x = b.Input("x", type, {b.I(4)});
    EXPECT_EQ(x.At({b.I(0)}).type(), kF32);
    EXPECT_EQ(x.dtype(), type);
    EXPECT_EQ((Cast(x.At({b.I(0)}), type) + 1).type(), kF32);
    EXPECT_EQ(b.Local(Cast(b.F(1, kF32), type)).Get().type(), kF32);
  }
  EXPECT_EQ(b.Input("d", DataType::kF64, {}).At(std::initializer_list<E>{}).type(), DataType::kF64);
}

TEST(Builder, DimsAndNegativeAxes) {
  Builder b("dims");
  const B x = b.Input("x", kF32, {b.I(2), b.Slot(3)});
  EXPECT_EQ(x.rank(), 2);
  EXPECT_EQ(x.dim(-1).id(), b.Slot(3).id());
  EXPECT_EQ(x.dim(0).id(), b.I(2).id());
}

TEST(Builder, ConstantConditionsLeaveOneBranch) {
  Builder b("branch");
  const B y = b.Output("y", kI64, {b.I(1)});
  b.If(b.Bool(true), [&] { b.Store(y, {b.I(0)}, b.I(1)); }, [&] { b.Store(y, {b.I(0)}, b.I(2)); });
  b.If(b.Bool(false), [&] { b.Store(y, {b.I(0)}, b.I(3)); });
  b.Check(b.Bool(true), "never");
  EXPECT_EQ(Print(b.Finish()), "function branch\n  output y: i64[1]\n  y[0] = 1\n");
}

TEST(Builder, MixedTypesAreADefect) {
  Builder b("mixed");
  EXPECT_DEATH(b.I(1) + b.Int(1, DataType::kI32), "type");
  EXPECT_DEATH(b.I(1) && b.Bool(true), "kBool");
  EXPECT_DEATH(Select(b.I(1), b.I(1), b.I(2)), "kBool");
  Builder other("other");
  EXPECT_DEATH(b.I(1) + other.I(1), "builder");
}

TEST(Builder, FinishScalarInlinesLets) {
  Builder b("gelu");
  const E x = b.Param(0, kF32);
  const E half = b.Let(x * b.F(0.5, kF32));
  const E unused = b.Let(x * b.F(9, kF32));
  (void)unused;
  const ScalarFunction f = b.FinishScalar(half * half + half, {kF32});
  EXPECT_EQ(Print(f), "scalar (p0: f32)\n  p0 * 0.5 * (p0 * 0.5) + p0 * 0.5\n");
  EXPECT_EQ(f.exprs.size(), 5u);
}

TEST(Builder, FinishScalarOfAParameter) {
  Builder b("identity");
  EXPECT_EQ(Print(b.FinishScalar(b.Param(1, kI64), {kF32, kI64})),
            "scalar (p0: f32, p1: i64)\n  p1\n");
}

TEST(Builder, ApplyInlinesAScalarFunction) {
  Builder s("clip");
  const ScalarFunction clip =
      s.FinishScalar(Min(Max(s.Param(0, kF32), s.Param(1, kF32)), s.F(6, kF32)), {kF32, kF32});
  Builder b("use");
  const B x = b.Input("x", DataType::kF16, {b.I(2)});
  const E operands[] = {x.At({b.I(1)}), b.F(-1, kF32)};
  b.Store(b.Output("y", kF32, {}), std::initializer_list<E>{}, Apply(b, clip, operands));
  EXPECT_NE(Print(b.Finish()).find("y[] = min(max(f32(x[1]), -1), 6)"), std::string::npos);
}

TEST(Builder, ReduceOfReductions) {
  Builder b("nested");
  const B y = b.Output("y", kI64, {});
  const E total = b.Reduce(BinaryOp::kAdd, b.I(0), b.I(4), [&](E i) {
    return b.Reduce(BinaryOp::kMul, b.I(1), b.I(3), [&](E k) { return i + k; });
  });
  b.Store(y, std::initializer_list<E>{}, total);
  Array<int64_t> ys({});
  ASSERT_TRUE(RunFunction(b.Finish(), {ys.view()}).ok());
  EXPECT_EQ(ys.data[0], 0 * 1 * 2 + 1 * 2 * 3 + 2 * 3 * 4 + 3 * 4 * 5);
}

TEST(Builder, ReductionsOfConstantsStayReductions) {
  Builder b("constant");
  const B y = b.Output("y", kI64, {b.I(3)});
  b.Store(y, {b.I(0)}, b.Reduce(BinaryOp::kAdd, b.I(5), b.I(4), [&](E) { return b.I(0); }));
  b.Store(y, {b.I(1)}, b.Reduce(BinaryOp::kMul, b.I(5), b.I(4), [&](E) { return b.I(0); }));
  b.Store(y, {b.I(2)}, b.Reduce(BinaryOp::kAdd, b.I(5), b.I(4), [&](E) { return b.I(2); }));
  Array<int64_t> ys({3});
  ASSERT_TRUE(RunFunction(b.Finish(), {ys.view()}).ok());
  EXPECT_EQ(ys.data, (std::vector<int64_t>{5, 0, 13}));
}

TEST(Builder, NoLoopsForRankZero) {
  Builder b("scalar");
  const B y = b.Output("y", kI64, {});
  b.ParallelForAll({}, [&](std::span<const E> i) { b.Store(y, i, b.I(3)); });
  EXPECT_EQ(Print(b.Finish()), "function scalar\n  output y: i64[]\n  y[] = 3\n");
}

}  // namespace
}  // namespace quench::loops::builder_test
