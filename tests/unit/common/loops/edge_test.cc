// Every operation on every type at its edges: in lanes, one at a time, and folded by the builder.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "common/base/float8.h"
#include "common/base/half.h"
#include "common/loops/fold.h"
#include "tests/unit/common/loops/harness.h"

namespace quench::loops::edge_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename T>
struct TypeOf;
template <>
struct TypeOf<int8_t> : std::integral_constant<DataType, DataType::kI8> {};
template <>
struct TypeOf<int16_t> : std::integral_constant<DataType, DataType::kI16> {};
template <>
struct TypeOf<int32_t> : std::integral_constant<DataType, DataType::kI32> {};
template <>
struct TypeOf<int64_t> : std::integral_constant<DataType, DataType::kI64> {};
template <>
struct TypeOf<uint8_t> : std::integral_constant<DataType, DataType::kU8> {};
template <>
struct TypeOf<uint16_t> : std::integral_constant<DataType, DataType::kU16> {};
template <>
struct TypeOf<uint32_t> : std::integral_constant<DataType, DataType::kU32> {};
template <>
struct TypeOf<uint64_t> : std::integral_constant<DataType, DataType::kU64> {};
template <>
struct TypeOf<float> : std::integral_constant<DataType, DataType::kF32> {};
template <>
struct TypeOf<double> : std::integral_constant<DataType, DataType::kF64> {};

// Equal, where every NaN equals every NaN and zeros differ by sign.
template <typename T>
bool Same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  } else {
    return a == b;
  }
}

// Runs `make(x[i], y[i])` over 200 copies of the operands in both modes; the results agree in every
// lane.
template <typename R, typename T>
R Eval(DataType in, DataType out, T a, T b, const std::function<E(E, E)>& make) {
  Builder builder("edge");
  const E n = builder.I(200);
  const B x = builder.Input("x", in, {n}), y = builder.Input("y", in, {n}),
          z = builder.Output("z", out, {n});
  builder.ParallelFor(n, [&](E i) { builder.Store(z, {i}, make(x.At({i}), y.At({i}))); });
  const Function f = builder.Finish();
  Array<T> xs({200}, a), ys({200}, b);
  Array<R> lanes({200}), scalar({200});
  EXPECT_TRUE(RunFunction(f, {xs.view(), ys.view(), lanes.view()}, {}, true).ok());
  EXPECT_TRUE(RunFunction(f, {xs.view(), ys.view(), scalar.view()}, {}, false).ok());
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_TRUE(Same(lanes.data[i], scalar.data[0]))
        << Print(f) << "lane " << i << ": " << +lanes.data[i] << " and " << +scalar.data[0];
  }
  return scalar.data[0];
}

template <typename T>
struct BinaryCase {
  BinaryOp op;
  T a, b, expected;
};

template <typename T>
void ExpectBinary(const std::vector<BinaryCase<T>>& cases) {
  constexpr DataType kType = TypeOf<T>::value;
  for (const BinaryCase<T>& c : cases) {
    const T got = Eval<T, T>(kType, kType, c.a, c.b, [&](E a, E b) { return Binary(c.op, a, b); });
    EXPECT_TRUE(Same(got, c.expected)) << DataTypeName(kType) << ": " << +c.a << " " << Name(c.op)
                                       << " " << +c.b << " = " << +got << ", not " << +c.expected;
    if constexpr (std::is_integral_v<T>) {
      EXPECT_EQ(FoldInteger(c.op, kType, static_cast<int64_t>(c.a), static_cast<int64_t>(c.b)),
                static_cast<int64_t>(c.expected))
          << DataTypeName(kType) << ": folding " << +c.a << " " << Name(c.op) << " " << +c.b;
    }
  }
}

template <typename T>
class SignedEdges : public testing::Test {};
using SignedTypes = testing::Types<int8_t, int16_t, int32_t, int64_t>;
TYPED_TEST_SUITE(SignedEdges, SignedTypes);

TYPED_TEST(SignedEdges, BinaryOperations) {
  using T = TypeParam;
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  constexpr T kBits = static_cast<T>(sizeof(T) * 8);
  ExpectBinary<T>({
      {BinaryOp::kAdd, kMax, 1, kMin},
      {BinaryOp::kSub, kMin, 1, kMax},
      {BinaryOp::kMul, kMin, -1, kMin},
      {BinaryOp::kMul, kMax, kMax, 1},
      {BinaryOp::kDiv, -7, 2, -3},
      {BinaryOp::kDiv, 7, 0, 0},
      {BinaryOp::kDiv, kMin, -1, kMin},
      {BinaryOp::kRem, -7, 2, -1},
      {BinaryOp::kRem, 7, 0, 0},
      {BinaryOp::kRem, kMin, -1, 0},
      {BinaryOp::kFloorDiv, -7, 2, -4},
      {BinaryOp::kFloorDiv, 7, -2, -4},
      {BinaryOp::kFloorDiv, -8, 2, -4},
      {BinaryOp::kFloorDiv, 7, 0, 0},
      {BinaryOp::kFloorDiv, kMin, -1, kMin},
      {BinaryOp::kFloorMod, -7, 2, 1},
      {BinaryOp::kFloorMod, 7, -2, -1},
      {BinaryOp::kFloorMod, 7, 0, 0},
      {BinaryOp::kFloorMod, kMin, -1, 0},
      {BinaryOp::kMin, kMin, kMax, kMin},
      {BinaryOp::kMax, kMin, kMax, kMax},
      {BinaryOp::kPow, -3, 3, -27},
      {BinaryOp::kPow, 2, static_cast<T>(kBits - 1), kMin},
      {BinaryOp::kPow, 2, kBits, 0},
      {BinaryOp::kPow, 5, 0, 1},
      {BinaryOp::kPow, 2, -1, 0},
      {BinaryOp::kPow, -1, -3, -1},
      {BinaryOp::kPow, 1, -3, 1},
      {BinaryOp::kPow, 0, -1, 0},
      {BinaryOp::kAnd, -1, 6, 6},
      {BinaryOp::kOr, kMin, 6, static_cast<T>(kMin + 6)},
      {BinaryOp::kXor, -1, 6, -7},
      {BinaryOp::kShl, 1, static_cast<T>(kBits - 1), kMin},
      {BinaryOp::kShl, -1, 1, -2},
      {BinaryOp::kShl, 1, kBits, 0},
      {BinaryOp::kShl, 1, -1, 0},
      {BinaryOp::kShr, -8, 1, -4},
      {BinaryOp::kShr, -8, kBits, -1},
      {BinaryOp::kShr, 8, kBits, 0},
      {BinaryOp::kShr, -8, -1, -1},
  });
}

TYPED_TEST(SignedEdges, UnaryOperations) {
  using T = TypeParam;
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr DataType kType = TypeOf<T>::value;
  const auto unary = [&](UnaryOp op, T a) {
    return Eval<T, T>(kType, kType, a, a, [&](E x, E) { return Unary(op, x); });
  };
  EXPECT_EQ(unary(UnaryOp::kNeg, 5), -5);
  EXPECT_EQ(unary(UnaryOp::kNeg, kMin), kMin);
  EXPECT_EQ(unary(UnaryOp::kAbs, -5), 5);
  EXPECT_EQ(unary(UnaryOp::kAbs, kMin), kMin);
  EXPECT_EQ(unary(UnaryOp::kNot, 5), -6);
}

template <typename T>
class UnsignedEdges : public testing::Test {};
using UnsignedTypes = testing::Types<uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(UnsignedEdges, UnsignedTypes);

TYPED_TEST(UnsignedEdges, BinaryOperations) {
  using T = TypeParam;
  constexpr T kMax = std::numeric_limits<T>::max();
  constexpr T kBits = static_cast<T>(sizeof(T) * 8);
  constexpr T kHalf = static_cast<T>(kMax / 2 + 1);
  ExpectBinary<T>({
      {BinaryOp::kAdd, kMax, 1, 0},
      {BinaryOp::kSub, 0, 1, kMax},
      {BinaryOp::kMul, kMax, kMax, 1},
      {BinaryOp::kDiv, kMax, 2, static_cast<T>(kMax / 2)},
      {BinaryOp::kDiv, 7, 0, 0},
      {BinaryOp::kRem, kMax, kHalf, static_cast<T>(kHalf - 1)},
      {BinaryOp::kRem, 7, 0, 0},
      {BinaryOp::kFloorDiv, kMax, kHalf, 1},
      {BinaryOp::kFloorMod, kMax, 10, static_cast<T>(kMax % 10)},
      {BinaryOp::kFloorMod, 7, 0, 0},
      {BinaryOp::kMin, kMax, 1, 1},
      {BinaryOp::kMax, kMax, 1, kMax},
      {BinaryOp::kPow, 3, 4, 81},
      {BinaryOp::kPow, 2, kBits, 0},
      {BinaryOp::kShl, 1, static_cast<T>(kBits - 1), kHalf},
      {BinaryOp::kShl, 1, kBits, 0},
      {BinaryOp::kShr, kMax, static_cast<T>(kBits - 1), 1},
      {BinaryOp::kShr, kMax, kBits, 0},
      {BinaryOp::kAnd, kMax, 6, 6},
      {BinaryOp::kOr, kHalf, 1, static_cast<T>(kHalf + 1)},
      {BinaryOp::kXor, kMax, 6, static_cast<T>(kMax - 6)},
  });
  constexpr DataType kType = TypeOf<T>::value;
  EXPECT_EQ((Eval<T, T>(kType, kType, 5, 5, [](E x, E) { return -x; })), static_cast<T>(0 - T{5}));
  EXPECT_EQ((Eval<T, T>(kType, kType, 5, 5, [](E x, E) { return Unary(UnaryOp::kNot, x); })),
            static_cast<T>(~T{5}));
  EXPECT_EQ((Eval<uint8_t, T>(kType, DataType::kBool, kMax, 1, [](E x, E y) { return x > y; })), 1);
}

template <typename T>
class FloatEdges : public testing::Test {};
using FloatTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(FloatEdges, FloatTypes);

TYPED_TEST(FloatEdges, BinaryOperations) {
  using T = TypeParam;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  constexpr T inf = std::numeric_limits<T>::infinity();
  ExpectBinary<T>({
      {BinaryOp::kAdd, inf, -inf, nan}, {BinaryOp::kSub, 1, 0.75, 0.25},
      {BinaryOp::kMul, 0, inf, nan},    {BinaryOp::kDiv, 1, 0, inf},
      {BinaryOp::kDiv, -1, 0, -inf},    {BinaryOp::kDiv, 0, 0, nan},
      {BinaryOp::kRem, -7, 2, -1},      {BinaryOp::kRem, 7, 0, nan},
      {BinaryOp::kFloorDiv, -7, 2, -4}, {BinaryOp::kFloorMod, -7, 2, 1},
      {BinaryOp::kFloorMod, 7, -2, -1}, {BinaryOp::kMin, nan, 1, nan},
      {BinaryOp::kMin, 1, nan, nan},    {BinaryOp::kMin, -inf, 1, -inf},
      {BinaryOp::kMax, nan, 1, nan},    {BinaryOp::kMax, 1, nan, nan},
      {BinaryOp::kMax, 2, 1, 2},        {BinaryOp::kPow, 2, -1, 0.5},
      {BinaryOp::kPow, -1, 0.5, nan},   {BinaryOp::kPow, 0, 0, 1},
  });
}

TYPED_TEST(FloatEdges, UnaryOperations) {
  using T = TypeParam;
  constexpr DataType kType = TypeOf<T>::value;
  const auto unary = [&](UnaryOp op, double a) {
    return static_cast<double>(
        Eval<T, T>(kType, kType, static_cast<T>(a), T{}, [&](E x, E) { return Unary(op, x); }));
  };
  const auto test = [&](UnaryOp op, double a) {
    return Eval<uint8_t, T>(kType, DataType::kBool, static_cast<T>(a), T{},
                            [&](E x, E) { return Unary(op, x); }) != 0;
  };
  EXPECT_EQ(unary(UnaryOp::kRoundEven, 2.5), 2);
  EXPECT_EQ(unary(UnaryOp::kRoundEven, 3.5), 4);
  EXPECT_EQ(unary(UnaryOp::kRoundEven, -0.5), 0);
  EXPECT_TRUE(std::signbit(unary(UnaryOp::kRoundEven, -0.5)));
  EXPECT_EQ(unary(UnaryOp::kFloor, -1.5), -2);
  EXPECT_EQ(unary(UnaryOp::kCeil, -1.5), -1);
  EXPECT_EQ(unary(UnaryOp::kTrunc, -1.5), -1);
  EXPECT_EQ(unary(UnaryOp::kAbs, -0.0), 0);
  EXPECT_FALSE(std::signbit(unary(UnaryOp::kAbs, -0.0)));
  EXPECT_TRUE(std::signbit(unary(UnaryOp::kNeg, 0.0)));
  EXPECT_EQ(unary(UnaryOp::kSqrt, 9), 3);
  EXPECT_TRUE(std::isnan(unary(UnaryOp::kSqrt, -1)));
  EXPECT_EQ(unary(UnaryOp::kLog, 0), -HUGE_VAL);
  EXPECT_EQ(unary(UnaryOp::kExp, 1e9), HUGE_VAL);
  EXPECT_TRUE(test(UnaryOp::kIsNan, NAN));
  EXPECT_FALSE(test(UnaryOp::kIsNan, HUGE_VAL));
  EXPECT_TRUE(test(UnaryOp::kIsInf, -HUGE_VAL));
  EXPECT_FALSE(test(UnaryOp::kIsInf, NAN));
  const std::pair<UnaryOp, double (*)(double)> functions[] = {
      {UnaryOp::kExp, std::exp},   {UnaryOp::kLog, std::log},     {UnaryOp::kSin, std::sin},
      {UnaryOp::kCos, std::cos},   {UnaryOp::kTan, std::tan},     {UnaryOp::kAsin, std::asin},
      {UnaryOp::kAcos, std::acos}, {UnaryOp::kAtan, std::atan},   {UnaryOp::kSinh, std::sinh},
      {UnaryOp::kCosh, std::cosh}, {UnaryOp::kTanh, std::tanh},   {UnaryOp::kAsinh, std::asinh},
      {UnaryOp::kErf, std::erf},   {UnaryOp::kAtanh, std::atanh}, {UnaryOp::kSqrt, std::sqrt}};
  for (const auto& [op, function] : functions) {
    EXPECT_NEAR(unary(op, 0.625), function(0.625), 1e-6) << Name(op);
  }
  EXPECT_NEAR(unary(UnaryOp::kAcosh, 1.625), std::acosh(1.625), 1e-6);
  EXPECT_NEAR(unary(UnaryOp::kLogistic, 0.625), 0.6513548646660542, 1e-6);
}

TEST(Edges, ComparisonsWithNanAreFalseExceptNe) {
  for (const auto& [a, b] :
       std::vector<std::pair<float, float>>{{kNan, 1.0f}, {1.0f, kNan}, {kNan, kNan}}) {
    for (const BinaryOp op : {BinaryOp::kEq, BinaryOp::kNe, BinaryOp::kLt, BinaryOp::kLe,
                              BinaryOp::kGt, BinaryOp::kGe}) {
      const uint8_t got = Eval<uint8_t, float>(DataType::kF32, DataType::kBool, a, b,
                                               [&](E x, E y) { return Binary(op, x, y); });
      EXPECT_EQ(got, op == BinaryOp::kNe ? 1 : 0) << Name(op);
    }
  }
}

TEST(Edges, ComparisonsOfIntegers) {
  const auto compare = [](BinaryOp op, int64_t a, int64_t b) {
    return Eval<uint8_t, int64_t>(DataType::kI64, DataType::kBool, a, b,
                                  [&](E x, E y) { return Binary(op, x, y); }) != 0;
  };
  for (const int64_t a : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) {
    for (const int64_t b : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) {
      EXPECT_EQ(compare(BinaryOp::kEq, a, b), a == b);
      EXPECT_EQ(compare(BinaryOp::kNe, a, b), a != b);
      EXPECT_EQ(compare(BinaryOp::kLt, a, b), a < b);
      EXPECT_EQ(compare(BinaryOp::kLe, a, b), a <= b);
      EXPECT_EQ(compare(BinaryOp::kGt, a, b), a > b);
      EXPECT_EQ(compare(BinaryOp::kGe, a, b), a >= b);
    }
  }
}

// Comparisons of loop indices take a path of their own in lanes.
TEST(Edges, ComparisonsOfIndices) {
  for (const BinaryOp op :
       {BinaryOp::kEq, BinaryOp::kNe, BinaryOp::kLt, BinaryOp::kLe, BinaryOp::kGt, BinaryOp::kGe}) {
    for (const int64_t at : {-5, 0, 1, 64, 127, 128, 199, 200, 500}) {
      for (const int64_t step : {1, -1, 3}) {
        Builder b("compare");
        const B y = b.Output("y", DataType::kBool, {b.I(200)});
        b.ParallelFor(b.I(200), [&](E i) { b.Store(y, {i}, Binary(op, i * step, b.I(at))); });
        const Function f = b.Finish();
        Array<uint8_t> lanes({200}), scalar({200});
        ASSERT_TRUE(RunFunction(f, {lanes.view()}, {}, true).ok());
        ASSERT_TRUE(RunFunction(f, {scalar.view()}, {}, false).ok());
        ASSERT_EQ(lanes.data, scalar.data) << Print(f);
        for (int64_t i = 0; i < 200; ++i) {
          ASSERT_EQ(scalar.data[static_cast<size_t>(i)],
                    FoldInteger(op, DataType::kI64, i * step, at))
              << Print(f);
        }
      }
    }
  }
}

template <typename To, typename From>
void ExpectCast(const std::vector<std::pair<From, To>>& cases) {
  for (const auto& [from, to] : cases) {
    const To got = Eval<To, From>(TypeOf<From>::value, TypeOf<To>::value, from, From{},
                                  [](E x, E) { return Cast(x, TypeOf<To>::value); });
    EXPECT_TRUE(Same(got, to)) << +from << " to " << DataTypeName(TypeOf<To>::value) << " gave "
                               << +got;
  }
}

TEST(Edges, FloatToIntegerSaturates) {
  ExpectCast<int8_t, float>({{127.9f, 127},
                             {128, 127},
                             {-128.9f, -128},
                             {-129, -128},
                             {kNan, 0},
                             {kInf, 127},
                             {-1.9f, -1}});
  ExpectCast<uint8_t, float>(
      {{255.9f, 255}, {256, 255}, {-0.9f, 0}, {-1, 0}, {kNan, 0}, {-kInf, 0}});
  ExpectCast<int16_t, double>({{32767.5, 32767}, {1e9, 32767}, {-1e9, -32768}, {NAN, 0}});
  ExpectCast<uint16_t, float>({{65536, 65535}, {-5, 0}, {65535, 65535}});
  ExpectCast<int32_t, float>(
      {{2147483648.0f, INT32_MAX}, {-2147483648.0f, INT32_MIN}, {kNan, 0}, {-kInf, INT32_MIN}});
  ExpectCast<int32_t, double>({{2147483647.5, INT32_MAX}, {-2147483648.5, INT32_MIN}});
  ExpectCast<uint32_t, double>({{4294967295.5, UINT32_MAX}, {-0.5, 0}, {1e300, UINT32_MAX}});
  ExpectCast<int64_t, float>({{9.3e18f, INT64_MAX}, {-9.3e18f, INT64_MIN}, {kNan, 0}, {-2.5f, -2}});
  ExpectCast<int64_t, double>(
      {{9223372036854775808.0, INT64_MAX}, {-9223372036854775808.0, INT64_MIN}});
  ExpectCast<uint64_t, double>(
      {{18446744073709551616.0, UINT64_MAX}, {-1, 0}, {1e19, 10000000000000000000u}});
}

TEST(Edges, IntegerCastsWrap) {
  ExpectCast<int8_t, int32_t>({{128, -128}, {-129, 127}, {300, 44}});
  ExpectCast<uint8_t, int64_t>({{-1, 255}, {256, 0}});
  ExpectCast<uint64_t, int8_t>({{-1, UINT64_MAX}});
  ExpectCast<int64_t, uint32_t>({{UINT32_MAX, 4294967295}});
  ExpectCast<int32_t, uint64_t>({{UINT64_MAX, -1}});
  ExpectCast<float, int64_t>({{16777217, 16777216.0f}, {INT64_MIN, -9223372036854775808.0f}});
  ExpectCast<float, uint64_t>({{UINT64_MAX, 18446744073709551616.0f}});
  ExpectCast<float, double>({{1e300, kInf}, {-1e300, -kInf}, {NAN, kNan}});
}

TEST(Edges, ToBoolIsNonZero) {
  const auto to_bool = [](auto value) {
    using T = decltype(value);
    return Eval<uint8_t, T>(TypeOf<T>::value, DataType::kBool, value, T{},
                            [](E x, E) { return Cast(x, DataType::kBool); });
  };
  EXPECT_EQ(to_bool(int32_t{256}), 1);
  EXPECT_EQ(to_bool(int32_t{0}), 0);
  EXPECT_EQ(to_bool(0.25f), 1);
  EXPECT_EQ(to_bool(-0.0f), 0);
  EXPECT_EQ(to_bool(kNan), 1);
  // A bool buffer may hold any non-zero byte.
  EXPECT_EQ((Eval<int32_t, uint8_t>(
                DataType::kBool, DataType::kI32, 7, 0,
                [](E x, E y) { return Cast(x, DataType::kI32) + Cast(y, DataType::kI32); })),
            1);
}

TEST(Edges, BoolOperations) {
  for (const uint8_t a : {0, 1}) {
    for (const uint8_t b : {0, 1}) {
      const auto logic = [&](const std::function<E(E, E)>& make) {
        return Eval<uint8_t, uint8_t>(DataType::kBool, DataType::kBool, a, b, make);
      };
      EXPECT_EQ(logic([](E x, E y) { return x && y; }), a & b);
      EXPECT_EQ(logic([](E x, E y) { return x || y; }), a | b);
      EXPECT_EQ(logic([](E x, E y) { return Binary(BinaryOp::kXor, x, y); }), a ^ b);
      EXPECT_EQ(logic([](E x, E y) { return x == y; }), a == b ? 1 : 0);
      EXPECT_EQ(logic([](E x, E y) { return x < y; }), a < b ? 1 : 0);
      EXPECT_EQ(logic([](E x, E) { return !x; }), 1 - a);
      EXPECT_EQ(logic([](E x, E y) { return Select(x, y, !y); }), a != 0 ? b : 1 - b);
    }
  }
}

TEST(Edges, HalvesRoundToEvenAndOverflow) {
  const auto half = [](float value) {
    return Eval<uint16_t, float>(DataType::kF32, DataType::kF16, value, 0,
                                 [](E x, E) { return x; });
  };
  EXPECT_EQ(half(1.0f), 0x3c00);
  EXPECT_EQ(half(2049.0f), FloatToHalf(2048.0f));
  EXPECT_EQ(half(2051.0f), FloatToHalf(2052.0f));
  EXPECT_EQ(half(65519.0f), 0x7bff);
  EXPECT_EQ(half(65520.0f), 0x7c00);
  EXPECT_EQ(half(5.9604645e-8f), 0x0001);
  // A cast in the middle rounds: 2049 + 1 in halves is 2048 + 1, rounded again.
  const float through = Eval<float, float>(DataType::kF32, DataType::kF32, 2049, 1, [](E x, E y) {
    return Cast(x, DataType::kF16) + Cast(y, DataType::kF16);
  });
  EXPECT_EQ(through, 2049);
  const float bf = Eval<float, float>(DataType::kF32, DataType::kF32, 257, 0, [](E x, E) {
    return Cast(Cast(x, DataType::kBF16), DataType::kF32);
  });
  EXPECT_EQ(bf, 256);
  // From wider types by way of f32.
  EXPECT_EQ(
      (Eval<uint16_t, int32_t>(DataType::kI32, DataType::kF16, 2049, 0, [](E x, E) { return x; })),
      FloatToHalf(2048.0f));
  EXPECT_EQ((Eval<int32_t, uint16_t>(DataType::kF16, DataType::kI32, FloatToHalf(-2.75f), 0,
                                     [](E x, E) { return x; })),
            -2);
}

TEST(Edges, EveryHalfSurvivesTheRoundTrip) {
  Builder b("copy");
  const B x = b.Input("x", DataType::kF16, {b.I(65536)}),
          y = b.Output("y", DataType::kF16, {b.I(65536)});
  b.ParallelFor(b.I(65536), [&](E i) { b.Store(y, {i}, x.At({i})); });
  Array<uint16_t> xs({65536}), ys({65536});
  for (size_t i = 0; i < 65536; ++i) xs.data[i] = static_cast<uint16_t>(i);
  ASSERT_TRUE(RunFunction(b.Finish(), {xs.view(), ys.view()}).ok());
  for (size_t i = 0; i < 65536; ++i) {
    const bool nan = std::isnan(HalfToFloat(xs.data[i]));
    ASSERT_TRUE(nan ? std::isnan(HalfToFloat(ys.data[i])) : xs.data[i] == ys.data[i]) << i;
  }
}

class Float8 : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Float8,
                         testing::Values(DataType::kF8E4M3FN, DataType::kF8E4M3FNUZ,
                                         DataType::kF8E5M2, DataType::kF8E5M2FNUZ),
                         [](const auto& kind) { return std::string(DataTypeName(kind.param)); });

// The nearest of all 256 codes, ties to the even code.
uint8_t Nearest(DataType type, float value) {
  int best = -1;
  double distance = 0;
  for (int code = 0; code < 256; ++code) {
    const float candidate = Float8ToFloat(type, static_cast<uint8_t>(code));
    if (!std::isfinite(candidate)) continue;
    if (candidate != 0 && std::signbit(candidate) != std::signbit(value)) continue;
    const double d = std::fabs(static_cast<double>(candidate) - static_cast<double>(value));
    if (best < 0 || d < distance || (d == distance && code % 2 == 0)) {
      best = code;
      distance = d;
    }
  }
  return static_cast<uint8_t>(best);
}

TEST_P(Float8, RoundTripsAndRoundsToNearest) {
  const DataType type = GetParam();
  for (int code = 0; code < 256; ++code) {
    const float value = Float8ToFloat(type, static_cast<uint8_t>(code));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Float8ToFloat(type, FloatToFloat8(type, value))));
    } else {
      EXPECT_EQ(FloatToFloat8(type, value), code) << value;
    }
  }
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-20, std::log2(Float8Max(type)));
  for (int i = 0; i < 20000; ++i) {
    const float value = std::exp2(exponent(random)) * (i % 2 == 0 ? 1.0f : -1.0f);
    const uint8_t code = FloatToFloat8(type, value);
    if (std::fabs(value) > Float8Max(type)) continue;
    const float got = Float8ToFloat(type, code);
    const float nearest = Float8ToFloat(type, Nearest(type, value));
    ASSERT_EQ(got, nearest) << value;
  }
}

TEST_P(Float8, OverflowAndSpecials) {
  const DataType type = GetParam();
  const float max = Float8Max(type);
  EXPECT_EQ(Float8ToFloat(type, FloatToFloat8(type, max)), max);
  for (const float big : {max * 1.5f, 1e30f, kInf}) {
    const float got = Float8ToFloat(type, FloatToFloat8(type, big));
    if (type == DataType::kF8E5M2)
      EXPECT_EQ(got, kInf);
    else
      EXPECT_TRUE(std::isnan(got));
  }
  EXPECT_TRUE(std::isnan(Float8ToFloat(type, FloatToFloat8(type, kNan))));
  EXPECT_EQ(Float8ToFloat(type, FloatToFloat8(type, -1e-30f)), 0);
}

TEST(Float8Values, KnownCodes) {
  EXPECT_EQ(Float8Max(DataType::kF8E4M3FN), 448);
  EXPECT_EQ(Float8Max(DataType::kF8E4M3FNUZ), 240);
  EXPECT_EQ(Float8Max(DataType::kF8E5M2), 57344);
  EXPECT_EQ(Float8Max(DataType::kF8E5M2FNUZ), 57344);
  EXPECT_EQ(FloatToFloat8(DataType::kF8E4M3FN, 1), 0x38);
  EXPECT_EQ(FloatToFloat8(DataType::kF8E4M3FNUZ, 1), 0x40);
  EXPECT_EQ(FloatToFloat8(DataType::kF8E5M2, 1), 0x3c);
  EXPECT_EQ(FloatToFloat8(DataType::kF8E5M2FNUZ, 1), 0x40);
  EXPECT_EQ(FloatToFloat8(DataType::kF8E4M3FN, 464), 0x7e);  // half way to the next code: even
  EXPECT_EQ(FloatToFloat8(DataType::kF8E4M3FN, 465), 0x7f);
  EXPECT_EQ(FloatToFloat8(DataType::kF8E5M2, -kInf), 0xfc);
  EXPECT_EQ(FloatToFloat8(DataType::kF8E4M3FNUZ, -0.0f), 0);
}

TEST_P(Float8, StoresAndLoads) {
  const DataType type = GetParam();
  Builder b("f8");
  const B x = b.Input("x", type, {b.I(256)}), y = b.Output("y", type, {b.I(256)});
  b.ParallelFor(b.I(256), [&](E i) { b.Store(y, {i}, x.At({i}) * 2); });
  const Function f = b.Finish();
  Array<uint8_t> xs({256}), lanes({256}), scalar({256});
  for (size_t i = 0; i < 256; ++i) xs.data[i] = static_cast<uint8_t>(i);
  ASSERT_TRUE(RunFunction(f, {xs.view(), lanes.view()}, {}, true).ok());
  ASSERT_TRUE(RunFunction(f, {xs.view(), scalar.view()}, {}, false).ok());
  for (size_t i = 0; i < 256; ++i) {
    const uint8_t expected = FloatToFloat8(type, Float8ToFloat(type, xs.data[i]) * 2);
    ASSERT_EQ(lanes.data[i], expected) << i;
    ASSERT_EQ(scalar.data[i], expected) << i;
  }
}

}  // namespace
}  // namespace quench::loops::edge_test
