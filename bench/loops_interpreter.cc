// Speed of the loops interpreter: millions of scalar operations a second (a multiply-accumulate
// counts as two), in lanes and one iteration at a time, and the time to compile and run a tiny
// nest.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "common/loops/builder.h"
#include "common/loops/interpreter.h"

namespace {

using namespace quench;         // NOLINT: a program, not a header
using namespace quench::loops;  // NOLINT

constexpr DataType kF32 = DataType::kF32;

struct Case {
  std::string name;
  Function function;
  double operations = 0;  // of one run
};

Function Matmul(int64_t m, int64_t k, int64_t n) {
  Builder b("matmul");
  const B x = b.Input("x", kF32, {b.I(m), b.I(k)}), w = b.Input("w", kF32, {b.I(k), b.I(n)});
  const B y = b.Output("y", kF32, {b.I(m), b.I(n)});
  b.ParallelForAll(std::vector<E>{b.I(m), b.I(n)}, [&](std::span<const E> i) {
    b.Store(y, {i[0], i[1]}, b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(k), [&](E j) {
      return x.At({i[0], j}) * w.At({j, i[1]});
    }));
  });
  return b.Finish();
}

Function Conv(int64_t c, int64_t m, int64_t h, int64_t w) {
  Builder b("conv3x3");
  const B x = b.Input("x", kF32, {b.I(c), b.I(h), b.I(w)});
  const B f = b.Input("f", kF32, {b.I(m), b.I(c), b.I(3), b.I(3)});
  const B y = b.Output("y", kF32, {b.I(m), b.I(h), b.I(w)});
  b.ParallelForAll(std::vector<E>{b.I(m), b.I(h), b.I(w)}, [&](std::span<const E> i) {
    const E sum = b.ReduceAll(
        BinaryOp::kAdd, b.F(0, kF32), std::vector<E>{b.I(c), b.I(3), b.I(3)},
        [&](std::span<const E> k) {
          const E row = i[1] + k[1] - 1, column = i[2] + k[2] - 1;
          const E inside = row >= 0 && row < h && column >= 0 && column < w;
          const E value =
              x.At({k[0], Max(Min(row, b.I(h - 1)), b.I(0)), Max(Min(column, b.I(w - 1)), b.I(0))});
          return Select(inside, value, b.F(0, kF32)) * f.At({i[0], k[0], k[1], k[2]});
        });
    b.Store(y, {i[0], i[1], i[2]}, sum);
  });
  return b.Finish();
}

Function Softmax(int64_t rows, int64_t n) {
  Builder b("softmax");
  const B x = b.Input("x", kF32, {b.I(rows), b.I(n)}), y = b.Output("y", kF32, {b.I(rows), b.I(n)});
  b.ParallelFor(b.I(rows), [&](E r) {
    const E top =
        b.Reduce(BinaryOp::kMax, b.F(-INFINITY, kF32), b.I(n), [&](E k) { return x.At({r, k}); });
    const E sum = b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(n),
                           [&](E k) { return Unary(UnaryOp::kExp, x.At({r, k}) - top); });
    b.ParallelFor(b.I(n),
                  [&](E k) { b.Store(y, {r, k}, Unary(UnaryOp::kExp, x.At({r, k}) - top) / sum); });
  });
  return b.Finish();
}

Function Recurrence(int64_t n) {
  Builder b("recurrence");
  const B x = b.Input("x", kF32, {b.I(n)}), y = b.Output("y", kF32, {b.I(n)});
  const auto state = b.Local(b.F(0, kF32));
  b.For(b.I(n), [&](E i) {
    state.Set(state.Get() * b.F(0.5, kF32) + x.At({i}));
    b.Store(y, {i}, state.Get());
  });
  return b.Finish();
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// CPU seconds of one run, the best of several: other work on the machine does not count.
double Time(const std::function<void()>& run) {
  double best = 1e30;
  const double stop = CpuSeconds() + 0.5;
  do {
    const double start = CpuSeconds();
    run();
    best = std::min(best, CpuSeconds() - start);
  } while (CpuSeconds() < stop);
  return best;
}

double TimeRun(const Function& function, bool lanes) {
  std::vector<std::vector<float>> storage;
  std::vector<BufferView> views;
  for (const Buffer& buffer : function.buffers) {
    BufferView view;
    int64_t count = 1;
    for (const ExprId dim : buffer.dims) {
      view.dims.push_back(*EvaluateExtent(function, dim, {}));
      count *= view.dims.back();
    }
    storage.emplace_back(static_cast<size_t>(count), 0.5f);
    view.data = reinterpret_cast<std::byte*>(storage.back().data());
    views.push_back(std::move(view));
  }
  return Time([&] {
    const absl::Status status = Interpret(function, views, {}, {}, {lanes});
    if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  });
}

}  // namespace

int main() {
  const std::vector<Case> cases = {
      {"matmul 128x256x256", Matmul(128, 256, 256), 2.0 * 128 * 256 * 256},
      {"matmul 1x2048x1000", Matmul(1, 2048, 1000), 2.0 * 2048 * 1000},
      {"conv3x3 16->32 56x56", Conv(16, 32, 56, 56), 2.0 * 16 * 32 * 56 * 56 * 9},
      {"conv3x3 64->64 7x7", Conv(64, 64, 7, 7), 2.0 * 64 * 64 * 7 * 7 * 9},
      {"softmax 64x1000", Softmax(64, 1000), 5.0 * 64 * 1000},
      {"recurrence 1M (serial)", Recurrence(1 << 20), 2.0 * (1 << 20)},
  };
  fmt::print("{:<24} {:>14} {:>14}\n", "", "lanes Mop/s", "scalar Mop/s");
  for (const Case& c : cases) {
    fmt::print("{:<24} {:>14.0f} {:>14.0f}\n", c.name,
               c.operations / TimeRun(c.function, true) * 1e-6,
               c.operations / TimeRun(c.function, false) * 1e-6);
  }
  fmt::print("compile and run of a 2x2x2 matmul: {:.1f} us\n",
             TimeRun(Matmul(2, 2, 2), true) * 1e6);
  fmt::print("compile and run of a 4x10 softmax: {:.1f} us\n", TimeRun(Softmax(4, 10), true) * 1e6);
  return 0;
}
