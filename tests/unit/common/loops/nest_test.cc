// Whole nests, each run in lanes and one iteration at a time, against plain C++.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "common/base/half.h"
#include "tests/unit/common/loops/harness.h"

namespace quench::loops::nest_test {
namespace {

constexpr DataType kF32 = DataType::kF32;
constexpr DataType kI64 = DataType::kI64;

class Nest : public testing::TestWithParam<bool> {
 protected:
  absl::Status Run(const Function& function, std::vector<BufferView> views,
                   std::vector<int64_t> slots = {}) {
    return RunFunction(function, std::move(views), std::move(slots), GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, Nest, testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Lanes" : "Scalar"; });

Function Matmul() {
  Builder b("matmul");
  const E m = b.Slot(0), k = b.Slot(1), n = b.Slot(2);
  const B x = b.Input("x", kF32, {m, k}), w = b.Input("w", kF32, {k, n}),
          y = b.Output("y", kF32, {m, n});
  b.ParallelForAll(std::vector<E>{m, n}, [&](std::span<const E> i) {
    const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, kF32), k,
                           [&](E j) { return x.At({i[0], j}) * w.At({j, i[1]}); });
    b.Store(y, {i[0], i[1]}, sum);
  });
  return b.Finish();
}

TEST_P(Nest, MatmulMatchesForManySizes) {
  const Function f = Matmul();
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                   {3, 5, 7},
                                                                   {2, 300, 1},
                                                                   {1, 17, 1000},
                                                                   {130, 3, 2},
                                                                   {5, 0, 4},
                                                                   {0, 3, 4},
                                                                   {64, 64, 129}}) {
    Array<float> x({m, k}), w({k, n}), y({m, n}, -1);
    FillRandom(x, 1, -1, 1);
    FillRandom(w, 2, -1, 1);
    ASSERT_TRUE(Run(f, {x.view(), w.view(), y.view()}, {m, k, n}).ok());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < k; ++l) sum += x.data[i * k + l] * w.data[l * n + j];
        ASSERT_EQ(y.data[i * n + j], sum) << m << "x" << k << "x" << n << " at " << i << "," << j;
      }
    }
  }
}

// Padded convolution, with the padding skipped by an if (a masked arm in lanes).
TEST_P(Nest, PaddedConvolution) {
  constexpr int64_t kC = 3, kM = 4, kH = 9, kW = 17, kK = 3;
  Builder b("conv");
  const B x = b.Input("x", kF32, {b.I(kC), b.I(kH), b.I(kW)});
  const B w = b.Input("w", kF32, {b.I(kM), b.I(kC), b.I(kK), b.I(kK)});
  const B y = b.Output("y", kF32, {b.I(kM), b.I(kH), b.I(kW)});
  b.ParallelForAll(std::vector<E>{b.I(kM), b.I(kH), b.I(kW)}, [&](std::span<const E> i) {
    const Builder::LocalRef sum = b.Local(b.F(0, kF32));
    b.For(b.I(kC), [&](E c) {
      b.For(b.I(kK), [&](E kh) {
        b.For(b.I(kK), [&](E kw) {
          const E row = i[1] + kh - 1;
          const E column = b.Let(i[2] + kw - 1);
          b.If(row >= 0 && row < kH && column >= 0 && column < kW,
               [&] { sum.Set(sum.Get() + x.At({c, row, column}) * w.At({i[0], c, kh, kw})); });
        });
      });
    });
    b.Store(y, {i[0], i[1], i[2]}, sum.Get());
  });
  const Function f = b.Finish();
  Array<float> xs({kC, kH, kW}), ws({kM, kC, kK, kK}), ys({kM, kH, kW});
  FillRandom(xs, 1, -1, 1);
  FillRandom(ws, 2, -1, 1);
  ASSERT_TRUE(Run(f, {xs.view(), ws.view(), ys.view()}).ok());
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t h = 0; h < kH; ++h) {
      for (int64_t v = 0; v < kW; ++v) {
        float sum = 0;
        for (int64_t c = 0; c < kC; ++c) {
          for (int64_t i = 0; i < kK; ++i) {
            for (int64_t j = 0; j < kK; ++j) {
              const int64_t r = h + i - 1, s = v + j - 1;
              if (r < 0 || r >= kH || s < 0 || s >= kW) continue;
              sum += xs.data[(c * kH + r) * kW + s] * ws.data[((m * kC + c) * kK + i) * kK + j];
            }
          }
        }
        ASSERT_EQ(ys.data[(m * kH + h) * kW + v], sum) << m << "," << h << "," << v;
      }
    }
  }
}

// Padding through clamped indices and a select instead.
TEST_P(Nest, PaddingBySelect) {
  Builder b("pad");
  const B x = b.Input("x", kF32, {b.I(200)}), y = b.Output("y", kF32, {b.I(210)});
  b.ParallelFor(b.I(210), [&](E i) {
    const E at = i - 5;
    const E inside = at >= 0 && at < 200;
    b.Store(y, {i}, Select(inside, x.At({Max(Min(at, b.I(199)), b.I(0))}), b.F(7, kF32)));
  });
  const Function f = b.Finish();
  Array<float> xs({200}), ys({210});
  FillRandom(xs, 1, -1, 1);
  ASSERT_TRUE(Run(f, {xs.view(), ys.view()}).ok());
  for (int64_t i = 0; i < 210; ++i) EXPECT_EQ(ys.data[i], i < 5 || i >= 205 ? 7 : xs.data[i - 5]);
}

Function Softmax(int64_t rows, int64_t columns) {
  Builder b("softmax");
  const E n = b.I(columns);
  const B x = b.Input("x", kF32, {b.I(rows), n}), y = b.Output("y", kF32, {b.I(rows), n});
  const B t = b.Scratch("t", kF32, {n}, ScratchScope::kIteration);
  b.ParallelFor(b.I(rows), [&](E row) {
    const E top =
        b.Reduce(BinaryOp::kMax, b.F(-INFINITY, kF32), n, [&](E k) { return x.At({row, k}); });
    b.ParallelFor(n, [&](E k) { b.Store(t, {k}, Unary(UnaryOp::kExp, x.At({row, k}) - top)); });
    const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, kF32), n, [&](E k) { return t.At({k}); });
    b.ParallelFor(n, [&](E k) { b.Store(y, {row, k}, t.At({k}) / sum); });
  });
  return b.Finish();
}

TEST_P(Nest, SoftmaxWithIterationScratch) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 500}, {300, 5}, {1, 1}, {4, 129}}) {
    Array<float> x({rows, columns}), y({rows, columns});
    FillRandom(x, 3, -5, 5);
    ASSERT_TRUE(Run(Softmax(rows, columns), {x.view(), y.view()}).ok());
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = &x.data[r * columns];
      float top = -INFINITY, sum = 0;
      for (int64_t c = 0; c < columns; ++c) top = std::max(top, row[c]);
      for (int64_t c = 0; c < columns; ++c) sum += std::exp(row[c] - top);
      for (int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(y.data[r * columns + c], std::exp(row[c] - top) / sum);
    }
  }
}

TEST_P(Nest, TransposeOfHalves) {
  Builder b("transpose");
  const B x = b.Input("x", DataType::kF16, {b.I(70), b.I(150)}),
          y = b.Output("y", DataType::kF16, {b.I(150), b.I(70)});
  b.ParallelForAll(std::vector<E>{b.I(150), b.I(70)},
                   [&](std::span<const E> i) { b.Store(y, {i[0], i[1]}, x.At({i[1], i[0]})); });
  Array<uint16_t> xs({70, 150}), ys({150, 70});
  for (size_t i = 0; i < xs.data.size(); ++i)
    xs.data[i] = FloatToHalf(static_cast<float>(i) * 0.25f - 1000);
  ASSERT_TRUE(Run(b.Finish(), {xs.view(), ys.view()}).ok());
  for (int64_t i = 0; i < 150; ++i) {
    for (int64_t j = 0; j < 70; ++j) ASSERT_EQ(ys.data[i * 70 + j], xs.data[j * 150 + i]);
  }
}

// A sum that is one block (long_sums.h).
TEST_P(Nest, FullReductionKeepsItsOrder) {
  Builder b("sum");
  const B x = b.Input("x", kF32, {b.I(37), b.I(13)}), y = b.Output("y", kF32, {});
  const E total = b.ReduceAll(BinaryOp::kAdd, b.F(0, kF32), std::vector<E>{b.I(37), b.I(13)},
                              [&](std::span<const E> k) { return x.At({k[0], k[1]}); });
  b.Store(y, std::initializer_list<E>{}, total);
  Array<float> xs({37, 13}), ys({});
  FillRandom(xs, 4, -1000, 1000);
  ASSERT_TRUE(Run(b.Finish(), {xs.view(), ys.view()}).ok());
  EXPECT_EQ(ys.data[0], std::accumulate(xs.data.begin(), xs.data.end(), 0.0f));
}

TEST_P(Nest, ReductionsOfEveryKind) {
  Builder b("reduce");
  const B x = b.Input("x", DataType::kI32, {b.I(300)}), y = b.Output("y", DataType::kI32, {b.I(6)});
  const BinaryOp ops[] = {BinaryOp::kAdd, BinaryOp::kMul, BinaryOp::kMin,
                          BinaryOp::kMax, BinaryOp::kAnd, BinaryOp::kOr};
  for (int i = 0; i < 6; ++i) {
    const E result =
        b.Reduce(ops[i], x.At({b.I(0)}), b.I(1), b.I(300), [&](E k) { return x.At({k}); });
    b.Store(y, {b.I(i)}, result);
  }
  Array<int32_t> xs({300}), ys({6});
  FillRandom(xs, 5, -1e9, 1e9);
  ASSERT_TRUE(Run(b.Finish(), {xs.view(), ys.view()}).ok());
  uint32_t sum = 0, product = 1;
  int32_t all = -1, any = 0;
  for (const int32_t v : xs.data) {
    sum += static_cast<uint32_t>(v);
    product *= static_cast<uint32_t>(v);
    all &= v;
    any |= v;
  }
  EXPECT_EQ(ys.data[0], static_cast<int32_t>(sum));
  EXPECT_EQ(ys.data[1], static_cast<int32_t>(product));
  EXPECT_EQ(ys.data[2], *std::min_element(xs.data.begin(), xs.data.end()));
  EXPECT_EQ(ys.data[3], *std::max_element(xs.data.begin(), xs.data.end()));
  EXPECT_EQ(ys.data[4], all);
  EXPECT_EQ(ys.data[5], any);
}

// Locals that differ from lane to lane, set under conditions, within an inner serial loop: argmax
// over an axis.
TEST_P(Nest, ArgmaxOverTheOuterAxis) {
  constexpr int64_t kN = 9, kWidth = 333;
  Builder b("argmax");
  const B x = b.Input("x", kF32, {b.I(kN), b.I(kWidth)}), y = b.Output("y", kI64, {b.I(kWidth)});
  b.ParallelFor(b.I(kWidth), [&](E j) {
    const auto best = b.Local(x.At({b.I(0), j}), "best");
    const auto where = b.Local(b.I(0), "where");
    b.For(b.I(1), b.I(kN), [&](E i) {
      const E value = b.Let(x.At({i, j}));
      b.If(value > best.Get(), [&] {
        best.Set(value);
        where.Set(i);
      });
    });
    b.Store(y, {j}, where.Get());
  });
  Array<float> xs({kN, kWidth});
  Array<int64_t> ys({kWidth});
  FillRandom(xs, 6, -1, 1);
  ASSERT_TRUE(Run(b.Finish(), {xs.view(), ys.view()}).ok());
  for (int64_t j = 0; j < kWidth; ++j) {
    int64_t where = 0;
    for (int64_t i = 1; i < kN; ++i) {
      if (xs.data[i * kWidth + j] > xs.data[where * kWidth + j]) where = i;
    }
    ASSERT_EQ(ys.data[j], where);
  }
}

TEST_P(Nest, ElseArmsAndNestedConditions) {
  Builder b("classes");
  const B x = b.Input("x", DataType::kI32, {b.I(500)}),
          y = b.Output("y", DataType::kI32, {b.I(500)});
  b.ParallelFor(b.I(500), [&](E i) {
    const E v = b.Let(x.At({i}));
    const auto result = b.Local(b.Int(0, DataType::kI32));
    b.If(
        v > 0, [&] { b.If(v > 50, [&] { result.Set(v * 2); }, [&] { result.Set(v + 1000); }); },
        [&] { result.Set(-v); });
    b.If(
        v == 7, [&] { b.Store(y, {i}, b.Int(77, DataType::kI32)); },
        [&] { b.Store(y, {i}, result.Get()); });
  });
  Array<int32_t> xs({500}), ys({500});
  FillRandom(xs, 7, -100, 100);
  xs.data[3] = 7;
  ASSERT_TRUE(Run(b.Finish(), {xs.view(), ys.view()}).ok());
  for (size_t i = 0; i < 500; ++i) {
    const int32_t v = xs.data[i];
    ASSERT_EQ(ys.data[i], v == 7 ? 77 : v > 50 ? v * 2 : v > 0 ? v + 1000 : -v) << v;
  }
}

TEST_P(Nest, GatherWithCheckedIndices) {
  Builder b("gather");
  const B x = b.Input("x", kF32, {b.I(10), b.I(3)}), index = b.Input("index", kI64, {b.I(200)});
  const B y = b.Output("y", kF32, {b.I(200), b.I(3)});
  b.ParallelFor(b.I(200), [&](E i) {
    const E at = b.Let(index.At({i}));
    b.Check(at >= -10 && at < 10, "gather: index out of range");
    b.ParallelFor(b.I(3), [&](E j) { b.Store(y, {i, j}, x.At({Select(at < 0, at + 10, at), j})); });
  });
  const Function f = b.Finish();
  Array<float> xs({10, 3}), ys({200, 3});
  Array<int64_t> indices({200});
  FillRandom(xs, 8, -1, 1);
  FillRandom(indices, 9, -9.9, 9.9);
  ASSERT_TRUE(Run(f, {xs.view(), indices.view(), ys.view()}).ok());
  for (int64_t i = 0; i < 200; ++i) {
    const int64_t at = indices.data[i] < 0 ? indices.data[i] + 10 : indices.data[i];
    for (int64_t j = 0; j < 3; ++j) ASSERT_EQ(ys.data[i * 3 + j], xs.data[at * 3 + j]);
  }
  indices.data[150] = 10;
  const absl::Status status = Run(f, {xs.view(), indices.view(), ys.view()});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "gather: index out of range");
}

TEST_P(Nest, OutOfRangeNamesTheBuffer) {
  for (const int64_t shift : {-1, 1, 1000}) {
    Builder b("shifted");
    const B x = b.Input("x", kF32, {b.I(2), b.I(300)}), y = b.Output("y", kF32, {b.I(2), b.I(300)});
    b.ParallelForAll(std::vector<E>{b.I(2), b.I(300)}, [&](std::span<const E> i) {
      b.Store(y, {i[0], i[1]}, x.At({i[0], i[1] + shift}));
    });
    Array<float> xs({2, 300}), ys({2, 300});
    const absl::Status status = Run(b.Finish(), {xs.view(), ys.view()});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("dim 1 of buffer `x`"), std::string::npos) << status;
  }
}

TEST_P(Nest, OutOfRangeStoresAndGathers) {
  Builder b("scatter");
  const B index = b.Input("index", kI64, {b.I(200)}), y = b.Output("y", kF32, {b.I(10)});
  b.ParallelFor(b.I(200), [&](E i) { b.Store(y, {index.At({i})}, b.F(1, kF32)); });
  const Function f = b.Finish();
  Array<int64_t> indices({200}, 3);
  Array<float> ys({10});
  EXPECT_TRUE(Run(f, {indices.view(), ys.view()}).ok());
  for (const int64_t bad : {int64_t{-1}, int64_t{10}, INT64_MIN, INT64_MAX}) {
    indices.data[199] = bad;
    const absl::Status status = Run(f, {indices.view(), ys.view()});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_NE(status.message().find("buffer `y`"), std::string::npos) << status;
  }
}

// An index that wraps around 2^64 is out of range, in whatever lane.
TEST_P(Nest, HugeIndicesDoNotWrapBackInside) {
  Builder b("wrap");
  const E n = b.I(200);
  const B x = b.Input("x", kF32, {n}), y = b.Output("y", kF32, {n});
  b.ParallelFor(n, [&](E i) { b.Store(y, {i}, x.At({i * (int64_t{1} << 62)})); });
  Array<float> xs({200}), ys({200});
  EXPECT_EQ(Run(b.Finish(), {xs.view(), ys.view()}).code(), absl::StatusCode::kInternal);
}

// A load behind a condition is not done ahead of it.
TEST_P(Nest, GuardedLoadsStayGuarded) {
  Builder b("guarded");
  const B x = b.Input("x", kF32, {b.I(4)}), y = b.Output("y", kF32, {b.I(300)});
  b.ParallelFor(b.I(300), [&](E i) {
    const auto value = b.Local(b.F(-1, kF32));
    b.If(i < 4, [&] { value.Set(x.At({i})); });
    // Uniform over lanes, and never true.
    b.If(b.Slot(0) > 100, [&] { value.Set(x.At({b.Slot(0)})); });
    b.Store(y, {i}, value.Get());
  });
  Array<float> xs({4}, 2), ys({300});
  ASSERT_TRUE(Run(b.Finish(), {xs.view(), ys.view()}, {50}).ok());
  for (int64_t i = 0; i < 300; ++i) EXPECT_EQ(ys.data[i], i < 4 ? 2 : -1);
}

TEST_P(Nest, WhileAndSlots) {
  Builder b("count");
  const B x = b.Input("x", kI64, {b.I(100)});
  const auto i = b.Local(b.I(0), "i");
  const auto found = b.Local(b.I(0), "found");
  b.While([&] { return i.Get() < 100; },
          [&] {
            b.If(x.At({i.Get()}) % 3 == 0, [&] { found.Set(found.Get() + 1); });
            i.Set(i.Get() + 1);
          });
  b.SetSlot(1, found.Get());
  b.SetSlot(2, b.Slot(1) * 2 + b.Slot(0));
  const Function f = b.Finish();
  Array<int64_t> xs({100});
  std::iota(xs.data.begin(), xs.data.end(), 0);
  std::vector<int64_t> slots = {5, 0, 0};
  const std::vector<BufferView> views = {xs.view()};
  ASSERT_TRUE(Interpret(f, views, slots, {}, {GetParam()}).ok());
  EXPECT_EQ(slots, (std::vector<int64_t>{5, 34, 73}));
}

TEST_P(Nest, SerialLoopsCarryValues) {
  Builder b("cumsum");
  const B x = b.Input("x", kF32, {b.I(5), b.I(260)}), y = b.Output("y", kF32, {b.I(5), b.I(260)});
  b.ParallelFor(b.I(260), [&](E j) {
    const auto sum = b.Local(b.F(0, kF32));
    b.For(b.I(5), [&](E i) {
      sum.Set(sum.Get() + x.At({i, j}));
      b.Store(y, {i, j}, sum.Get());
    });
  });
  b.For(b.I(1), b.I(5), [&](E i) { b.Store(y, {i, b.I(0)}, y.At({i - 1, b.I(0)}) + 1); });
  Array<float> xs({5, 260}, 1), ys({5, 260});
  ASSERT_TRUE(Run(b.Finish(), {xs.view(), ys.view()}).ok());
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 260; ++j) EXPECT_EQ(ys.data[i * 260 + j], static_cast<float>(i + 1));
  }
}

// A value of a local taken before a loop that changes the local, and used within: each read gives
// that moment's.
TEST_P(Nest, ReadsOfLocalsAreNotReusedAcrossSets) {
  Builder b("reads");
  const B y = b.Output("y", kI64, {b.I(4)});
  const auto v = b.Local(b.I(1), "v");
  const E twice = v.Get() * 2 + 1;
  b.Store(y, {b.I(0)}, twice);
  b.For(b.I(3), [&](E) { v.Set(twice); });
  b.Store(y, {b.I(1)}, twice);
  const E pinned = b.Let(v.Get());
  v.Set(b.I(100));
  b.Store(y, {b.I(2)}, pinned);
  b.Store(y, {b.I(3)}, twice);
  Array<int64_t> ys({4});
  ASSERT_TRUE(Run(b.Finish(), {ys.view()}).ok());
  EXPECT_EQ(ys.data, (std::vector<int64_t>{3, 31, 15, 201}));
}

TEST_P(Nest, LoadsAreNotReusedAcrossStores) {
  Builder b("reload");
  const B y = b.Output("y", kI64, {b.I(2)});
  const E first = y.At({b.I(0)});
  b.Store(y, {b.I(0)}, b.I(5));
  b.If(first == 5, [&] {
    b.Store(y, {b.I(0)}, b.I(6));
    b.Store(y, {b.I(1)}, first);
  });
  b.For(b.I(2), [&](E) { b.Store(y, {b.I(0)}, first * 2); });
  Array<int64_t> ys({2});
  ASSERT_TRUE(Run(b.Finish(), {ys.view()}).ok());
  EXPECT_EQ(ys.data, (std::vector<int64_t>{24, 6}));
}

TEST_P(Nest, TriangularBounds) {
  Builder b("triangle");
  const B y = b.Output("y", kI64, {b.I(200)});
  b.ParallelFor(b.I(200), [&](E i) {
    b.Store(y, {i}, b.Reduce(BinaryOp::kAdd, b.I(0), b.I(0), i, [&](E k) { return k; }));
  });
  Array<int64_t> ys({200});
  ASSERT_TRUE(Run(b.Finish(), {ys.view()}).ok());
  for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(ys.data[i], i * (i - 1) / 2);
}

TEST_P(Nest, LoopBoundsAreTakenOnce) {
  Builder b("bounds");
  const B y = b.Output("y", kI64, {});
  const auto end = b.Local(b.I(3), "end");
  const auto count = b.Local(b.I(0), "count");
  b.For(end.Get(), [&](E) {
    end.Set(end.Get() + 10);
    count.Set(count.Get() + 1);
  });
  b.Store(y, std::initializer_list<E>{}, count.Get());
  Array<int64_t> ys({});
  ASSERT_TRUE(Run(b.Finish(), {ys.view()}).ok());
  EXPECT_EQ(ys.data[0], 3);
}

TEST_P(Nest, FunctionScratchKeepsItsContents) {
  Builder b("two_steps");
  const B x = b.Input("x", kF32, {b.I(300)}), y = b.Output("y", kF32, {b.I(300)});
  const B t = b.Scratch("t", DataType::kBF16, {b.I(300)}, ScratchScope::kFunction);
  b.ParallelFor(b.I(300), [&](E i) { b.Store(t, {i}, x.At({i}) * 2); });
  b.ParallelFor(b.I(300), [&](E i) { b.Store(y, {i}, t.At({b.I(299) - i})); });
  Array<float> xs({300}), ys({300});
  std::iota(xs.data.begin(), xs.data.end(), 0.0f);
  ASSERT_TRUE(Run(b.Finish(), {xs.view(), ys.view()}).ok());
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(ys.data[i], Bfloat16ToFloat(FloatToBfloat16(static_cast<float>(2 * (299 - i)))));
  }
}

TEST_P(Nest, UnalignedBuffers) {
  Builder b("copy");
  const B x = b.Input("x", DataType::kF64, {b.I(200)}),
          y = b.Output("y", DataType::kF64, {b.I(200)});
  b.ParallelFor(b.I(200), [&](E i) { b.Store(y, {i}, x.At({i}) + 1); });
  b.For(b.I(1), [&](E) { b.Store(y, {b.I(0)}, x.At({b.I(1)})); });
  std::vector<std::byte> xs(201 * 8), ys(201 * 8);
  const double value = 2.5;
  for (size_t i = 0; i < 200; ++i) std::memcpy(&xs[1 + i * 8], &value, 8);
  ASSERT_TRUE(Run(b.Finish(), {{&xs[1], {200}}, {&ys[3], {200}}}).ok());
  double got = 0;
  std::memcpy(&got, &ys[3 + 199 * 8], 8);
  EXPECT_EQ(got, 3.5);
  std::memcpy(&got, &ys[3], 8);
  EXPECT_EQ(got, 2.5);
}

}  // namespace
}  // namespace quench::loops::nest_test
