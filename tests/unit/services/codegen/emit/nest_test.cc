// Nests of every shape against the interpreter: reference and scheduled, with and without fused
// multiply-add.
#include <gtest/gtest.h>

#include "tests/unit/services/codegen/emit/harness.h"

namespace quench::codegen::nest_test {
namespace {

using loops::B;
using loops::BinaryOp;
using loops::Builder;
using loops::E;
using loops::ScratchScope;
using loops::UnaryOp;
constexpr DataType kF32 = DataType::kF32;

TEST(Nest, PointwiseOverManySizesOfOneSymbol) {
  SymbolTable symbols;
  symbols.AddInput("n", {0, 0});
  Builder b("relu_scale");
  const E n = b.Slot(0);
  const B x = b.Input("x", kF32, {n, b.I(3)});
  const B y = b.Output("y", kF32, {n, b.I(3)});
  const E dims[] = {n, b.I(3)};
  b.ParallelForAll(dims, [&](std::span<const E> i) {
    b.Store(y, i, Max(x.At(i), b.F(0, kF32)) * b.F(1.5, kF32));
  });
  const loops::Function f = b.Finish();
  for (int64_t size : {0, 1, 2, 5, 8, 100, 1367, 5000}) {
    EXPECT_EQ(CompareEverywhere(f, {RandomBuffer(kF32, {size, 3}, 1)}, symbols, {size}), "")
        << size;
  }
}

TEST(Nest, BroadcastsStayInPlace) {
  SymbolTable symbols;
  Builder b("bias");
  const B x = b.Input("x", kF32, {b.I(2), b.I(5), b.I(7), b.I(9)});
  const B bias = b.Input("bias", kF32, {b.I(5)});
  const B row = b.Input("row", kF32, {b.I(9)});
  const B y = b.Output("y", kF32, {b.I(2), b.I(5), b.I(7), b.I(9)});
  const E dims[] = {b.I(2), b.I(5), b.I(7), b.I(9)};
  b.ParallelForAll(dims, [&](std::span<const E> i) {
    b.Store(y, i, x.At(i) * row.At({i[3]}) + bias.At({i[1]}));
  });
  EXPECT_EQ(CompareEverywhere(b.Finish(),
                              {RandomBuffer(kF32, {2, 5, 7, 9}, 1), RandomBuffer(kF32, {5}, 2),
                               RandomBuffer(kF32, {9}, 3)},
                              symbols),
            "");
}

TEST(Nest, TransposeAndReverse) {
  SymbolTable symbols;
  Builder b("transpose");
  const B x = b.Input("x", kF32, {b.I(19), b.I(37)});
  const B y = b.Output("y", kF32, {b.I(37), b.I(19)});
  const E dims[] = {b.I(37), b.I(19)};
  b.ParallelForAll(dims,
                   [&](std::span<const E> i) { b.Store(y, i, x.At({i[1], b.I(36) - i[0]})); });
  EXPECT_EQ(CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {19, 37}, 1)}, symbols), "");
  Builder r("reverse");
  const B u = r.Input("u", kF32, {r.I(101)});
  const B v = r.Output("v", kF32, {r.I(101)});
  r.ParallelFor(r.I(101), [&](E i) { r.Store(v, {i}, u.At({r.I(100) - i})); });
  EXPECT_EQ(CompareEverywhere(r.Finish(), {RandomBuffer(kF32, {101}, 1)}, symbols), "");
}

// Large enough to run in tiles, with ragged ones at both ends.
TEST(Nest, TransposesInTiles) {
  SymbolTable symbols;
  Builder b("transpose");
  const B x = b.Input("x", kF32, {b.I(3), b.I(70), b.I(45)});
  const B y = b.Output("y", kF32, {b.I(45), b.I(3), b.I(70)});
  const E dims[] = {b.I(45), b.I(3), b.I(70)};
  b.ParallelForAll(dims, [&](std::span<const E> i) { b.Store(y, i, x.At({i[1], i[2], i[0]})); });
  EXPECT_EQ(CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {3, 70, 45}, 1)}, symbols), "");
}

// Rows numbered by hand, scratch per row: lanes run over rows, each with its own scratch.
TEST(Nest, LanesOverRowsHaveTheirOwnScratch) {
  SymbolTable symbols;
  for (int64_t inner : {1, 5, 37}) {
    Builder b("softmax");
    const B x = b.Input("x", kF32, {b.I(3), b.I(9), b.I(inner)});
    const B y = b.Output("y", kF32, {b.I(3), b.I(9), b.I(inner)});
    const B row = b.Scratch("row", kF32, {b.I(9)}, ScratchScope::kIteration);
    b.ParallelFor(b.I(3 * inner), [&](E r) {
      const E i = b.Let(r % inner), n = b.Let(r / inner);
      b.ParallelFor(b.I(9), [&](E k) { b.Store(row, {k}, Unary(UnaryOp::kExp, x.At({n, k, i}))); });
      const E sum =
          b.Let(b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(9), [&](E k) { return row.At({k}); }));
      b.ParallelFor(b.I(9), [&](E k) { b.Store(y, {n, k, i}, row.At({k}) / sum); });
    });
    EXPECT_EQ(
        CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {3, 9, inner}, 8)}, symbols, {}, 1e-5),
        "")
        << inner;
  }
}

// Extents known at run time only: the interior may be empty, or everything.
TEST(Nest, WindowsOfSymbolicSize) {
  SymbolTable symbols;
  symbols.AddInput("w", {0, 1});
  Builder b("average");
  const E w = b.Slot(0);
  const B x = b.Input("x", kF32, {b.I(4), w});
  const B y = b.Output("y", kF32, {b.I(4), w});
  const E dims[] = {b.I(4), w};
  b.ParallelForAll(dims, [&](std::span<const E> i) {
    const E lo = b.Let(Max(i[1] - 2, b.I(0))), hi = b.Let(Min(i[1] + 3, w));
    const E sum =
        b.Reduce(BinaryOp::kAdd, b.F(0, kF32), hi - lo, [&](E k) { return x.At({i[0], lo + k}); });
    b.Store(y, i, sum);
  });
  const loops::Function f = b.Finish();
  for (int64_t size : {1, 2, 4, 5, 6, 40, 131}) {
    EXPECT_EQ(CompareEverywhere(f, {RandomBuffer(kF32, {4, size}, 6)}, symbols, {size}, 1e-5), "")
        << size;
  }
}

TEST(Nest, StridedReadsAndWrites) {
  SymbolTable symbols;
  for (int64_t step : {2, 3, 4, 7}) {
    Builder b("strided");
    const B x = b.Input("x", kF32, {b.I(step * 50)});
    const B y = b.Output("y", kF32, {b.I(50)});
    b.ParallelFor(b.I(50), [&](E i) { b.Store(y, {i}, x.At({i * step + (step - 1)})); });
    EXPECT_EQ(CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {step * 50}, 1)}, symbols), "")
        << step;
    Builder s("spread");
    const B u = s.Input("u", kF32, {s.I(50)});
    const B v = s.Output("v", kF32, {s.I(50), s.I(step)});
    s.ParallelFor(s.I(50), [&](E i) {
      for (int64_t k = 0; k < step; ++k)
        s.Store(v, {i, s.I(k)}, u.At({i}) * s.F(static_cast<double>(k), kF32));
    });
    EXPECT_EQ(CompareEverywhere(s.Finish(), {RandomBuffer(kF32, {50}, 1)}, symbols), "") << step;
  }
}

loops::Function ReduceRows(BinaryOp op, double init, int64_t rows, int64_t columns) {
  Builder b("reduce");
  const B x = b.Input("x", kF32, {b.I(rows), b.I(columns)});
  const B y = b.Output("y", kF32, {b.I(rows)});
  b.ParallelFor(b.I(rows), [&](E r) {
    b.Store(y, {r}, b.Reduce(op, b.F(init, kF32), b.I(columns), [&](E k) { return x.At({r, k}); }));
  });
  return b.Finish();
}

TEST(Nest, ReductionsAlongTheInnermostAxis) {
  SymbolTable symbols;
  for (int64_t columns : {1, 7, 8, 31, 32, 33, 100, 513}) {
    const std::vector<Buffer> x = {RandomBuffer(kF32, {5, columns}, 9)};
    EXPECT_EQ(CompareEverywhere(ReduceRows(BinaryOp::kAdd, 0.5, 5, columns), x, symbols, {}, 1e-5),
              "")
        << columns;
    EXPECT_EQ(CompareEverywhere(ReduceRows(BinaryOp::kMax, -1e9, 5, columns), x, symbols), "")
        << columns;
    EXPECT_EQ(CompareEverywhere(ReduceRows(BinaryOp::kMin, 1e9, 5, columns), x, symbols), "")
        << columns;
  }
  EXPECT_EQ(CompareEverywhere(ReduceRows(BinaryOp::kMul, 1, 5, 21),
                              {RandomBuffer(kF32, {5, 21}, 9, 0.5, 1.5)}, symbols),
            "");
}

// One after another, terms of 1/3 end far off.
TEST(Nest, LongSumsAreAsExactAsTheInterpreters) {
  SymbolTable symbols;
  symbols.AddInput("n", {0, 0});
  const auto third = [](std::vector<int64_t> dims) {
    return RandomBuffer(kF32, std::move(dims), 1, 0.33333, 0.33334);
  };
  constexpr int64_t kCount = 2'000'003;
  EXPECT_EQ(CompareEverywhere(ReduceRows(BinaryOp::kAdd, 0.5, 1, kCount), {third({1, kCount})},
                              symbols, {0}),
            "");
  // Down columns, which are the lanes; of sizes that only a run knows.
  Builder b("columns");
  const B x = b.Input("x", kF32, {b.Slot(0), b.I(19)}), y = b.Output("y", kF32, {b.I(19)});
  b.ParallelFor(b.I(19), [&](E c) {
    b.Store(y, {c},
            b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.Slot(0), [&](E k) { return x.At({k, c}); }));
  });
  const loops::Function f = b.Finish();
  for (const int64_t rows : {0, 3, 512, 513, 100'000})
    EXPECT_EQ(CompareEverywhere(f, {third({rows, 19})}, symbols, {rows}), "") << rows;
}

TEST(Nest, NanGetsThroughMaxAndMin) {
  SymbolTable symbols;
  for (int64_t at : {0, 5, 12, 40}) {
    Buffer x = RandomBuffer(kF32, {1, 41}, 3);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::copy_n(reinterpret_cast<const std::byte*>(&nan), 4, x.bytes.data() + at * 4);
    EXPECT_EQ(CompareEverywhere(ReduceRows(BinaryOp::kMax, -1e9, 1, 41), {x}, symbols), "") << at;
    EXPECT_EQ(CompareEverywhere(ReduceRows(BinaryOp::kMin, 1e9, 1, 41), {x}, symbols), "") << at;
  }
}

TEST(Nest, ReductionsAcrossAnOuterAxis) {
  SymbolTable symbols;
  Builder b("columns");
  const B x = b.Input("x", kF32, {b.I(13), b.I(67)});
  const B y = b.Output("y", kF32, {b.I(67)});
  b.ParallelFor(b.I(67), [&](E c) {
    b.Store(y, {c},
            b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(13), [&](E k) { return x.At({k, c}); }));
  });
  EXPECT_EQ(CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {13, 67}, 4)}, symbols, {}, 1e-5),
            "");
}

TEST(Nest, MatrixProductWithSymbolicSizes) {
  SymbolTable symbols;
  for (const char* name : {"m", "n", "k"}) symbols.AddInput(name, {0, symbols.size()});
  Builder b("matmul");
  const E m = b.Slot(0), n = b.Slot(1), k = b.Slot(2);
  const B x = b.Input("x", kF32, {m, k});
  const B w = b.Input("w", kF32, {k, n});
  const B y = b.Output("y", kF32, {m, n});
  const E dims[] = {m, n};
  b.ParallelForAll(dims, [&](std::span<const E> i) {
    b.Store(y, i, b.Reduce(BinaryOp::kAdd, b.F(0, kF32), k, [&](E j) {
      return x.At({i[0], j}) * w.At({j, i[1]});
    }));
  });
  const loops::Function f = b.Finish();
  for (int64_t size : {1, 3, 17, 40}) {
    const std::vector<int64_t> slots = {size + 2, size, size * 2};
    EXPECT_EQ(CompareEverywhere(f,
                                {RandomBuffer(kF32, {slots[0], slots[2]}, 5),
                                 RandomBuffer(kF32, {slots[2], slots[1]}, 6)},
                                symbols, slots, 1e-5),
              "")
        << size;
  }
}

loops::Function Softmax(int64_t rows, int64_t columns, bool inner) {
  Builder b("softmax");
  const B x = b.Input("x", kF32, {b.I(rows), b.I(columns)});
  const B y = b.Output("y", kF32, {b.I(rows), b.I(columns)});
  const auto at = [&](E r, E k) { return inner ? std::vector<E>{r, k} : std::vector<E>{k, r}; };
  b.ParallelFor(b.I(inner ? rows : columns), [&](E r) {
    const E count = b.I(inner ? columns : rows);
    const E top = b.Let(
        b.Reduce(BinaryOp::kMax, b.F(-1e30, kF32), count, [&](E k) { return x.At(at(r, k)); }));
    const E sum = b.Let(b.Reduce(BinaryOp::kAdd, b.F(0, kF32), count,
                                 [&](E k) { return Unary(UnaryOp::kExp, x.At(at(r, k)) - top); }));
    b.ParallelFor(count, [&](E k) {
      b.Store(y, at(r, k), Unary(UnaryOp::kExp, x.At(at(r, k)) - top) / sum);
    });
  });
  return b.Finish();
}

TEST(Nest, SoftmaxAlongBothAxes) {
  SymbolTable symbols;
  for (int64_t columns : {5, 64, 197}) {
    const std::vector<Buffer> x = {RandomBuffer(kF32, {6, columns}, 8)};
    EXPECT_EQ(CompareEverywhere(Softmax(6, columns, true), x, symbols, {}, 1e-5), "") << columns;
    EXPECT_EQ(CompareEverywhere(Softmax(6, columns, false), x, symbols, {}, 1e-5), "") << columns;
  }
}

// Windows clipped at the borders: loop bounds that differ from lane to lane.
loops::Function MaxPool(int64_t channels, int64_t size, int64_t step) {
  Builder b("maxpool");
  const int64_t out = (size + 2 - 3) / step + 1;
  const B x = b.Input("x", kF32, {b.I(1), b.I(channels), b.I(size), b.I(size)});
  const B y = b.Output("y", kF32, {b.I(1), b.I(channels), b.I(out), b.I(out)});
  const E dims[] = {b.I(1), b.I(channels), b.I(out), b.I(out)};
  b.ParallelForAll(dims, [&](std::span<const E> i) {
    const auto top = b.Local(b.F(-1e30, kF32));
    const E h = b.Let(i[2] * step - 1), w = b.Let(i[3] * step - 1);
    b.For(Max(h, b.I(0)), Min(h + 3, b.I(size)), [&](E ih) {
      b.For(Max(w, b.I(0)), Min(w + 3, b.I(size)),
            [&](E iw) { top.Set(Max(top.Get(), x.At({i[0], i[1], ih, iw}))); });
    });
    b.Store(y, i, top.Get());
  });
  return b.Finish();
}

TEST(Nest, PoolingWithClippedWindows) {
  SymbolTable symbols;
  for (int64_t step : {1, 2}) {
    for (int64_t size : {3, 8, 23, 56}) {
      EXPECT_EQ(CompareEverywhere(MaxPool(3, size, step),
                                  {RandomBuffer(kF32, {1, 3, size, size}, 2)}, symbols),
                "")
          << size << " step " << step;
    }
  }
}

TEST(Nest, PoolingInBlockedLayouts) {
  SymbolTable symbols;
  Layout blocked;
  blocked.blocked_axis = 1;
  blocked.block = 8;
  Layout last;
  last.order = {0, 2, 3, 1};
  for (int64_t channels : {8, 16, 20, 3}) {
    const std::vector<Buffer> x = {RandomBuffer(kF32, {1, channels, 13, 13}, 2)};
    for (const std::vector<Layout>& layouts : std::vector<std::vector<Layout>>{{blocked, blocked},
                                                                               {last, blocked},
                                                                               {{}, blocked},
                                                                               {blocked, {}},
                                                                               {last, last},
                                                                               {blocked, last}}) {
      for (bool vectorise : {false, true}) {
        CompareOptions options;
        options.layouts = layouts;
        options.vectorise = vectorise;
        EXPECT_EQ(CompareWithInterpreter(MaxPool(channels, 13, 2), x, symbols, options), "")
            << channels << " " << layouts[0].ToString() << " -> " << layouts[1].ToString();
      }
    }
  }
}

TEST(Nest, PointwiseInBlockedLayouts) {
  SymbolTable symbols;
  Layout blocked;
  blocked.blocked_axis = 1;
  blocked.block = 16;
  Layout wider = blocked;
  wider.block = 32;
  for (int64_t channels : {16, 32, 5}) {
    Builder b("add");
    const E dims[] = {b.I(2), b.I(channels), b.I(6), b.I(5)};
    const B x = b.Input("x", kF32, {dims[0], dims[1], dims[2], dims[3]});
    const B z = b.Input("z", kF32, {dims[0], dims[1], dims[2], dims[3]});
    const B y = b.Output("y", kF32, {dims[0], dims[1], dims[2], dims[3]});
    b.ParallelForAll(dims, [&](std::span<const E> i) { b.Store(y, i, x.At(i) + z.At(i)); });
    const loops::Function f = b.Finish();
    const std::vector<Buffer> inputs = {RandomBuffer(kF32, {2, channels, 6, 5}, 2),
                                        RandomBuffer(kF32, {2, channels, 6, 5}, 3)};
    for (bool vectorise : {false, true}) {
      CompareOptions options;
      options.vectorise = vectorise;
      for (const std::vector<Layout>& layouts : std::vector<std::vector<Layout>>{
               {blocked, blocked, blocked}, {wider, blocked, wider}, {{}, {}, wider}}) {
        options.layouts = layouts;
        EXPECT_EQ(CompareWithInterpreter(f, inputs, symbols, options), "")
            << channels << " " << layouts[2].ToString();
      }
    }
  }
}

TEST(Nest, ChecksOfDataReportTheirMessage) {
  SymbolTable symbols;
  Builder b("gather");
  const B x = b.Input("x", kF32, {b.I(10), b.I(12)});
  const B index = b.Input("index", DataType::kI64, {b.I(40)});
  const B y = b.Output("y", kF32, {b.I(40), b.I(12)});
  const E dims[] = {b.I(40), b.I(12)};
  b.ParallelForAll(dims, [&](std::span<const E> i) {
    const E raw = b.Let(index.At({i[0]}));
    b.Check(raw >= 0 && raw < 10, "index out of range");
    b.Store(y, i, x.At({raw, i[1]}));
  });
  const loops::Function f = b.Finish();
  Buffer good = RandomBuffer(DataType::kI64, {40}, 3, 0, 9.99), bad = good;
  const std::vector<Buffer> x_good = {RandomBuffer(kF32, {10, 12}, 1), good};
  EXPECT_EQ(CompareEverywhere(f, x_good, symbols), "");
  const int64_t beyond = 10;
  std::copy_n(reinterpret_cast<const std::byte*>(&beyond), 8, bad.bytes.data() + 37 * 8);
  EXPECT_EQ(CompareEverywhere(f, {x_good[0], bad}, symbols), "");
}

TEST(Nest, ChecksInLanes) {
  SymbolTable symbols;
  Builder b("lookup");
  const B x = b.Input("x", kF32, {b.I(10)});
  const B index = b.Input("index", DataType::kI32, {b.I(45)});
  const B y = b.Output("y", kF32, {b.I(45)});
  b.ParallelFor(b.I(45), [&](E i) {
    const E raw = b.Let(Cast(index.At({i}), DataType::kI64));
    b.Check(raw >= 0 && raw < 10, "index out of range");
    b.Store(y, {i}, x.At({raw}));
  });
  const loops::Function f = b.Finish();
  Buffer good = RandomBuffer(DataType::kI32, {45}, 3, 0, 9.99);
  const Buffer x_buffer = RandomBuffer(kF32, {10}, 1);
  EXPECT_EQ(CompareEverywhere(f, {x_buffer, good}, symbols), "");
  for (int64_t at : {0, 13, 44}) {
    Buffer bad = good;
    const int32_t beyond = -1;
    std::copy_n(reinterpret_cast<const std::byte*>(&beyond), 4, bad.bytes.data() + at * 4);
    EXPECT_EQ(CompareEverywhere(f, {x_buffer, bad}, symbols), "") << at;
  }
}

TEST(Nest, ControlFlowThatDiffersFromLaneToLane) {
  SymbolTable symbols;
  Builder b("branches");
  const B x = b.Input("x", kF32, {b.I(61)});
  const B y = b.Output("y", kF32, {b.I(61)});
  b.ParallelFor(b.I(61), [&](E i) {
    const auto value = b.Local(x.At({i}));
    b.If(
        value.Get() > b.F(0, kF32), [&] { value.Set(value.Get() * b.F(2, kF32)); },
        [&] { value.Set(value.Get() - b.F(1, kF32)); });
    // Halve until small: as many steps as the value asks for.
    b.While([&] { return value.Get() > b.F(0.5, kF32); },
            [&] { value.Set(value.Get() * b.F(0.5, kF32)); });
    b.Store(y, {i}, value.Get());
  });
  EXPECT_EQ(CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {61}, 3, -4, 40)}, symbols), "");
}

TEST(Nest, ArgMaxKeepsTheFirst) {
  SymbolTable symbols;
  Builder b("argmax");
  const B x = b.Input("x", kF32, {b.I(9), b.I(29)});
  const B y = b.Output("y", DataType::kI64, {b.I(29)});
  b.ParallelFor(b.I(29), [&](E c) {
    const auto best = b.Local(x.At({b.I(0), c}));
    const auto at = b.Local(b.I(0));
    b.For(b.I(1), b.I(9), [&](E k) {
      const E value = b.Let(x.At({k, c}));
      b.If(value > best.Get(), [&] { best.Set(value), at.Set(k); });
    });
    b.Store(y, {c}, at.Get());
  });
  EXPECT_EQ(CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {9, 29}, 3)}, symbols), "");
}

TEST(Nest, ScratchOnTheStackAndFromTheCaller) {
  SymbolTable symbols;
  symbols.AddInput("n", {0, 0});
  for (int64_t width : {40, 9000}) {
    Builder b("twice");
    const E n = b.Slot(0);
    const B x = b.Input("x", kF32, {n, b.I(width)});
    const B y = b.Output("y", kF32, {n, b.I(width)});
    const B t = b.Scratch("t", kF32, {b.I(width)}, ScratchScope::kIteration);
    b.ParallelFor(n, [&](E r) {
      b.ParallelFor(b.I(width), [&](E k) { b.Store(t, {k}, x.At({r, k}) * b.F(3, kF32)); });
      b.ParallelFor(b.I(width),
                    [&](E k) { b.Store(y, {r, k}, t.At({b.I(width - 1) - k}) + t.At({k})); });
    });
    EXPECT_EQ(CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {4, width}, 3)}, symbols, {4}), "")
        << width;
  }
}

TEST(Nest, FunctionScratchMakesOneTask) {
  SymbolTable symbols;
  Builder b("shared");
  const B x = b.Input("x", kF32, {b.I(50)});
  const B y = b.Output("y", kF32, {b.I(50)});
  const B t = b.Scratch("t", kF32, {b.I(50)}, ScratchScope::kFunction);
  b.ParallelFor(b.I(50), [&](E i) { b.Store(t, {i}, x.At({i}) + b.F(1, kF32)); });
  b.ParallelFor(b.I(50), [&](E i) { b.Store(y, {i}, t.At({b.I(49) - i})); });
  EXPECT_EQ(CompareEverywhere(b.Finish(), {RandomBuffer(kF32, {50}, 3)}, symbols), "");
}

TEST(Nest, SizesFunctionsWriteSlots) {
  SymbolTable symbols;
  Builder b("sizes");
  const B x = b.Input("x", DataType::kI64, {b.I(2)});
  b.SetSlot(0, x.At({b.I(0)}) * x.At({b.I(1)}));
  b.SetSlot(1, b.Slot(0) + 5);
  auto builder = *ModuleBuilder::Create(HostTarget());
  const auto kernel = EmitLoops(*builder, HostTarget(), b.Finish(), symbols, true);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->tasks, Dim(1));
  const auto library = Library::Load(HostTarget(), *builder, {*kernel});
  ASSERT_TRUE(library.ok()) << library.status();
  int64_t data[2] = {6, 7}, slots[2] = {0, 0};
  void* buffers[] = {data};
  EXPECT_EQ((*library)->Find(kernel->symbol)(buffers, slots, 0, 1), 0);
  EXPECT_EQ(slots[0], 42);
  EXPECT_EQ(slots[1], 47);
}

TEST(Nest, EqualNestsShareOneFunction) {
  SymbolTable symbols;
  auto builder = *ModuleBuilder::Create(HostTarget());
  const auto first =
      EmitLoops(*builder, HostTarget(), ReduceRows(BinaryOp::kAdd, 0, 4, 32), symbols, true);
  const auto same =
      EmitLoops(*builder, HostTarget(), ReduceRows(BinaryOp::kAdd, 0, 4, 32), symbols, true);
  const auto other =
      EmitLoops(*builder, HostTarget(), ReduceRows(BinaryOp::kAdd, 0, 4, 33), symbols, true);
  const auto reference =
      EmitLoops(*builder, HostTarget(), ReduceRows(BinaryOp::kAdd, 0, 4, 32), symbols, false);
  EXPECT_EQ(first->symbol, same->symbol);
  EXPECT_NE(first->symbol, other->symbol);
  EXPECT_NE(first->symbol, reference->symbol);
}

}  // namespace
}  // namespace quench::codegen::nest_test
