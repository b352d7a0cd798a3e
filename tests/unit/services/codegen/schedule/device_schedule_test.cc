// Schedules for GPUs: which loops become lanes of a thread, which ones threads share.
#include <gtest/gtest.h>

#include <vector>

#include "common/loops/analysis.h"
#include "common/loops/builder.h"
#include "common/loops/interpreter.h"
#include "services/codegen/schedule/make_schedule.h"
#include "services/codegen/schedule/plan_nest.h"
#include "services/codegen/schedule/schedule.h"

namespace quench::codegen::device_schedule_test {
namespace {

using loops::B;
using loops::BinaryOp;
using loops::Builder;
using loops::E;
constexpr DataType kF32 = DataType::kF32, kF16 = DataType::kF16;
constexpr int64_t kBusy = 1000;

Target SmallGpu() {
  Target target;
  target.vector_bits = 32;
  target.gpu = Gpu{.arch = "sm_80", .busy_threads = kBusy};
  return target;
}

Schedule ScheduleOf(const loops::Function& function) {
  SymbolTable symbols;
  absl::StatusOr<Schedule> schedule = MakeSchedule(function, {}, symbols, SmallGpu(), true);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(loops::Verify(schedule->function), "");
  return *std::move(schedule);
}

int LanesOf(const Schedule& schedule) {
  return schedule.lanes.empty() ? 1 : schedule.lanes.begin()->second;
}

// y[r, c] = x[r, c] + b[c] or b[r]
loops::Function AddBias(int64_t rows, int64_t columns, bool of_column, DataType type) {
  Builder b("bias");
  const E dims[] = {b.I(rows), b.I(columns)};
  const B x = b.Input("x", type, {dims[0], dims[1]});
  const B bias = b.Input("bias", type, {dims[of_column ? 1 : 0]});
  const B y = b.Output("y", type, {dims[0], dims[1]});
  b.ParallelForAll(dims, [&](std::span<const E> i) {
    b.Store(y, i, x.At(i) + bias.At({i[of_column ? 1 : 0]}));
  });
  return b.Finish();
}

loops::Function Copy(int64_t rows, int64_t columns, bool transposed) {
  Builder b("copy");
  const B x =
      b.Input("x", kF32, {b.I(transposed ? columns : rows), b.I(transposed ? rows : columns)});
  const B y = b.Output("y", kF32, {b.I(rows), b.I(columns)});
  const E dims[] = {b.I(rows), b.I(columns)};
  b.ParallelForAll(dims, [&](std::span<const E> i) {
    b.Store(y, i, transposed ? x.At({i[1], i[0]}) : x.At(i));
  });
  return b.Finish();
}

loops::Function Softmax(int64_t rows, int64_t columns) {
  Builder b("softmax");
  const B x = b.Input("x", kF32, {b.I(rows), b.I(columns)});
  const B y = b.Output("y", kF32, {b.I(rows), b.I(columns)});
  const B row = b.Scratch("row", kF32, {b.I(columns)}, loops::ScratchScope::kIteration);
  b.ParallelFor(b.I(rows), [&](E r) {
    const E largest = b.Let(
        b.Reduce(BinaryOp::kMax, b.F(-1e30, kF32), b.I(columns), [&](E k) { return x.At({r, k}); }),
        "largest");
    b.ParallelFor(b.I(columns), [&](E k) {
      b.Store(row, {k}, Unary(loops::UnaryOp::kExp, x.At({r, k}) - largest));
    });
    const E sum = b.Let(
        b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(columns), [&](E k) { return row.At({k}); }),
        "sum");
    b.ParallelFor(b.I(columns), [&](E k) { b.Store(y, {r, k}, row.At({k}) / sum); });
  });
  return b.Finish();
}

loops::Function Sums(int64_t rows, int64_t columns, bool of_rows, DataType type = kF32) {
  Builder b("sums");
  const B x = b.Input("x", type, {b.I(rows), b.I(columns)});
  const B y = b.Output("y", type, {b.I(of_rows ? rows : columns)});
  b.ParallelFor(b.I(of_rows ? rows : columns), [&](E i) {
    b.Store(y, {i}, b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(of_rows ? columns : rows), [&](E k) {
      return of_rows ? x.At({i, k}) : x.At({k, i});
    }));
  });
  return b.Finish();
}

TEST(DeviceSchedule, ThreadsDo16BytesOfNeighbours) {
  const Schedule flat = ScheduleOf(Copy(64, 100, false));
  EXPECT_EQ(LanesOf(flat), 4);
  EXPECT_EQ(flat.tasks, Dim(1600));
  EXPECT_EQ(LanesOf(ScheduleOf(AddBias(64, 200, true, kF16))), 8);
  EXPECT_EQ(LanesOf(ScheduleOf(AddBias(64, 200, false, kF32))), 4);
}

TEST(DeviceSchedule, ThreadsDoLessWhereTheyAreFew) {
  EXPECT_EQ(LanesOf(ScheduleOf(Copy(30, 100, false))), 2);
  EXPECT_EQ(LanesOf(ScheduleOf(Copy(19, 100, false))), 1);
}

TEST(DeviceSchedule, LanesBeginAtMultiplesOfTheirNumber) {
  EXPECT_EQ(LanesOf(ScheduleOf(AddBias(100, 102, true, kF32))), 2);
  EXPECT_EQ(LanesOf(ScheduleOf(AddBias(100, 101, true, kF32))), 1);  // rows are not aligned
  EXPECT_EQ(LanesOf(ScheduleOf(Copy(101, 101, false))), 4);          // one loop with a rest
  EXPECT_EQ(LanesOf(ScheduleOf(Copy(200, 200, true))), 1);           // apart from each other
}

TEST(DeviceSchedule, LanesWithSumsAreFew) {
  EXPECT_EQ(LanesOf(ScheduleOf(Sums(9, 8000, false, kF16))), 4);
}

TEST(DeviceSchedule, WarpsKeepShortRows) {
  const Schedule schedule = ScheduleOf(Softmax(100, 200));
  EXPECT_EQ(schedule.shared_loops.size(), 4u);
  EXPECT_EQ(schedule.task_threads, 32);
  EXPECT_EQ(schedule.row, 200);
  EXPECT_EQ(schedule.kept.size(), 1u);
  EXPECT_EQ(LanesOf(schedule), 4);
  EXPECT_EQ(LanesOf(ScheduleOf(Softmax(100, 90))), 2);
  EXPECT_EQ(LanesOf(ScheduleOf(Softmax(100, 197))), 1);
}

TEST(DeviceSchedule, BlocksDoLongOrFewRows) {
  const Schedule is_long = ScheduleOf(Softmax(1000, 5000));
  EXPECT_EQ(is_long.task_threads, 256);
  EXPECT_EQ(is_long.row, 5000);
  const Schedule few = ScheduleOf(Softmax(2, 1000));
  EXPECT_EQ(few.task_threads, 64);
  EXPECT_EQ(few.row, 1000);
  const Schedule sum = ScheduleOf(Sums(1, 100000, true));
  EXPECT_EQ(sum.task_threads, 512);
  EXPECT_EQ(sum.row, 0);  // too long to be kept
  EXPECT_EQ(LanesOf(sum), 4);
}

TEST(DeviceSchedule, PlansOfBlocksHaveSharedMemoryAndNoStack) {
  SymbolTable symbols;
  const auto kept = PlanNest({Softmax(1000, 5000), {}, true}, symbols, SmallGpu());
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->block_threads, 256);
  EXPECT_EQ(kept->shared_bytes, 64);
  EXPECT_EQ(kept->scratch_bytes, Dim(0));
  const auto in_memory = PlanNest({Softmax(3, 100000), {}, true}, symbols, SmallGpu());
  ASSERT_TRUE(in_memory.ok()) << in_memory.status();
  EXPECT_EQ(in_memory->block_threads, 512);
  EXPECT_EQ(in_memory->scratch_bytes, Dim(400000));
}

TEST(DeviceSchedule, NeighboursAcrossTasksStayWithThreads) {
  EXPECT_TRUE(ScheduleOf(Sums(100, 5000, false)).shared_loops.empty());
  EXPECT_EQ(ScheduleOf(Sums(100, 500, false)).task_threads, 32);  // too few for that
  EXPECT_EQ(ScheduleOf(Sums(5000, 100, true)).task_threads, 32);
  EXPECT_TRUE(ScheduleOf(Sums(5000, 10, true)).shared_loops.empty());
}

// y = x - mean of x over the last two axes, times s of the last.
loops::Function Centre(int64_t rows, int64_t height, int64_t width, bool scaled) {
  Builder b("centre");
  const std::vector<E> dims = {b.I(rows), b.I(height), b.I(width)};
  const B x = b.Input("x", kF32, dims);
  const B scale = b.Input("scale", kF32, {b.I(width)});
  const B y = b.Output("y", kF32, dims);
  b.ParallelFor(b.I(rows), [&](E r) {
    const E extents[] = {b.I(height), b.I(width)};
    const E sum = b.ReduceAll(BinaryOp::kAdd, b.F(0, kF32), extents,
                              [&](std::span<const E> k) { return x.At({r, k[0], k[1]}); });
    const E mean = b.Let(sum / b.F(static_cast<double>(height * width), kF32), "mean");
    b.ParallelForAll(extents, [&](std::span<const E> k) {
      const E value = x.At({r, k[0], k[1]}) - mean;
      b.Store(y, {r, k[0], k[1]}, scaled ? value * scale.At({k[1]}) : value);
    });
  });
  return b.Finish();
}

TEST(DeviceSchedule, NestsOverOneRowMergeTogether) {
  const Schedule schedule = ScheduleOf(Centre(40, 6, 20, false));
  EXPECT_EQ(schedule.shared_loops.size(), 2u);
  EXPECT_EQ(schedule.row, 120);
  EXPECT_EQ(ScheduleOf(Centre(40, 6, 20, true)).row, 20);  // the scale knows the axes apart
  std::vector<float> x(40 * 120), scale(20), expected(x.size()), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 13);
  const auto view = [](std::vector<float>& data, std::vector<int64_t> dims) {
    return loops::BufferView{reinterpret_cast<std::byte*>(data.data()), std::move(dims)};
  };
  ASSERT_TRUE(loops::Interpret(
                  Centre(40, 6, 20, false),
                  std::vector{view(x, {40, 6, 20}), view(scale, {20}), view(expected, {40, 6, 20})},
                  {})
                  .ok());
  ASSERT_TRUE(
      loops::Interpret(schedule.function,
                       std::vector{view(x, {40, 120}), view(scale, {20}), view(y, {40, 120})}, {})
          .ok());
  EXPECT_EQ(y, expected);
}

TEST(DeviceSchedule, ReductionsOverSeveralAxesAreOneLoop) {
  Builder b("pool");
  const B x = b.Input("x", kF32, {b.I(40), b.I(7), b.I(9)});
  const B y = b.Output("y", kF32, {b.I(40)});
  b.ParallelFor(b.I(40), [&](E c) {
    const E extents[] = {b.I(7), b.I(9)};
    b.Store(y, {c}, b.ReduceAll(BinaryOp::kAdd, b.F(0, kF32), extents, [&](std::span<const E> k) {
      return x.At({c, k[0], k[1]});
    }));
  });
  const Schedule schedule = ScheduleOf(b.Finish());
  EXPECT_EQ(schedule.shared_loops.size(), 1u);
  EXPECT_EQ(schedule.row, 63);
}

}  // namespace
}  // namespace quench::codegen::device_schedule_test
