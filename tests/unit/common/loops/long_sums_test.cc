// Sums of many floats lose no more than a block of them would.
#include "common/loops/long_sums.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/common/loops/harness.h"

namespace quench::loops::long_sums_test {
namespace {

constexpr DataType kF32 = DataType::kF32;

// y[j] = 1 + sum of x[k, j] for k from `begin` on.
Function Columns(int64_t begin, int64_t columns) {
  Builder b("columns");
  const B x = b.Input("x", kF32, {b.Slot(0), b.I(columns)}),
          y = b.Output("y", kF32, {b.I(columns)});
  b.ParallelFor(b.I(columns), [&](E j) {
    b.Store(y, {j}, b.Reduce(BinaryOp::kAdd, b.F(1, kF32), b.I(begin), b.Slot(0), [&](E k) {
      return x.At({k, j});
    }));
  });
  return b.Finish();
}

void ExpectSums(int64_t rows, int64_t begin, int64_t columns, bool lanes) {
  Array<float> x({rows, columns}), y({columns});
  FillRandom(x, 1, 0, 1);
  ASSERT_TRUE(RunFunction(Columns(begin, columns), {x.view(), y.view()}, {rows}, lanes).ok());
  for (int64_t j = 0; j < columns; ++j) {
    double sum = 1;
    for (int64_t k = begin; k < rows; ++k) sum += x.data[static_cast<size_t>(k * columns + j)];
    EXPECT_NEAR(y.data[static_cast<size_t>(j)] / sum, 1, 3e-6) << rows << " from " << begin;
  }
}

TEST(LongSums, OneAfterAnotherAndInLanes) {
  for (const bool lanes : {false, true}) {
    for (const int64_t rows : {0, 1, 511, 512, 513, 514, 1025, 5000, 300000}) {
      for (const int64_t begin : {0, 1, 300}) {
        ExpectSums(rows, begin, 1, lanes);
        ExpectSums(rows, begin, 7, lanes);
      }
    }
    ExpectSums(3000, 0, 200, lanes);
  }
}

// One after another they stop at 2^24.
TEST(LongSums, ManyEqualNumbers) {
  Array<float> x({30'000'000, 1}, 1.25F), y({1});
  ASSERT_TRUE(RunFunction(Columns(0, 1), {x.view(), y.view()}, {30'000'000}).ok());
  EXPECT_EQ(y.data[0], 37'500'000);  // and 1, which is less than half a step
}

// Neither loop alone is long.
TEST(LongSums, LoopsWithinOneAnother) {
  Builder b("image");
  const std::vector<E> dims = {b.I(300), b.I(500), b.I(200)};
  const B x = b.Input("x", kF32, {b.I(1)}), y = b.Output("y", kF32, {});
  b.Store(y, std::initializer_list<E>{},
          b.ReduceAll(BinaryOp::kAdd, b.F(0, kF32), dims,
                      [&](std::span<const E>) { return x.At({b.I(0)}); }));
  const Function f = b.Finish();
  for (const bool lanes : {false, true}) {
    Array<float> xs({1}, 1.0F / 3), ys({});
    ASSERT_TRUE(RunFunction(f, {xs.view(), ys.view()}, {}, lanes).ok());
    EXPECT_NEAR(ys.data[0] / 1e7, 1, 1e-5);
  }
}

TEST(LongSums, WhatIsAddedIsTheSameNumber) {
  Builder b("zeros");
  const B x = b.Input("x", kF32, {b.Slot(0)}), y = b.Output("y", kF32, {b.I(1)});
  b.Store(y, {b.I(0)}, b.Reduce(BinaryOp::kAdd, b.F(-0.0, kF32), b.I(0), b.Slot(0), [&](E k) {
    return x.At({k});
  }));
  const Function f = b.Finish();
  Array<float> x5({5000}, -0.0F), ys({1}, 1);
  ASSERT_TRUE(RunFunction(f, {x5.view(), ys.view()}, {5000}).ok());
  EXPECT_TRUE(ys.data[0] == 0 && std::signbit(ys.data[0]));
  x5.data[4000] = INFINITY;
  ASSERT_TRUE(RunFunction(f, {x5.view(), ys.view()}, {5000}).ok());
  EXPECT_EQ(ys.data[0], INFINITY);
  x5.data[100] = -INFINITY;
  ASSERT_TRUE(RunFunction(f, {x5.view(), ys.view()}, {5000}).ok());
  EXPECT_TRUE(std::isnan(ys.data[0]));
}

TEST(LongSums, ShortOnesStayAsTheyAre) {
  const Function f = Columns(0, 3);
  const StmtId loop = f.stmts[static_cast<size_t>(f.body.back())].body[1];
  for (const int64_t rows : {1, 512}) {
    const int64_t slots[] = {rows};
    Ranges ranges(f, slots);
    EXPECT_EQ(IterationsOfBlock(f, loop, ranges), 0) << rows;
  }
  const int64_t slots[] = {513};
  Ranges ranges(f, slots);
  EXPECT_EQ(IterationsOfBlock(f, loop, ranges), kTermsOfBlock);
  EXPECT_EQ(IterationsOfBlock(f, loop, ranges, 2), 0);
  Ranges unknown(f, {});
  EXPECT_EQ(IterationsOfBlock(f, loop, unknown), kTermsOfBlock);
}

}  // namespace
}  // namespace quench::loops::long_sums_test
