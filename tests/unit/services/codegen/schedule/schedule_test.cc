// Decisions of the schedule, and proof that its rewriting keeps the meaning (the interpreter runs
// both sides).
#include "services/codegen/schedule/schedule.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "common/loops/analysis.h"
#include "common/loops/builder.h"
#include "common/loops/interpreter.h"
#include "services/codegen/schedule/collapse.h"
#include "services/codegen/schedule/make_schedule.h"
#include "services/codegen/schedule/physical_index.h"
#include "services/codegen/schedule/scratch.h"

namespace quench::codegen::schedule_test {
namespace {

using loops::B;
using loops::BinaryOp;
using loops::Builder;
using loops::E;
using loops::StmtKind;
constexpr DataType kF32 = DataType::kF32;

Target Avx2() {
  Target target;
  target.vector_bits = 256;
  return target;
}

std::vector<float> Noise(int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-2, 2);
  std::vector<float> result(static_cast<size_t>(count));
  for (float& element : result) element = value(random);
  return result;
}

loops::BufferView View(std::vector<float>& data, std::vector<int64_t> dims) {
  return {reinterpret_cast<std::byte*>(data.data()), std::move(dims)};
}

loops::Function Relu(std::vector<int64_t> sizes) {
  Builder b("relu");
  std::vector<E> dims;
  for (int64_t size : sizes) dims.push_back(b.I(size));
  const B x = b.Input("x", kF32, dims);
  const B y = b.Output("y", kF32, dims);
  b.ParallelForAll(dims, [&](std::span<const E> i) { b.Store(y, i, Max(x.At(i), b.F(0, kF32))); });
  return b.Finish();
}

// Names of the loops that are vectorised, with their lanes.
std::string LanesOf(const Schedule& schedule) {
  std::string text;
  for (const auto& [id, lanes] : schedule.lanes) {
    const loops::Stmt& loop = schedule.function.stmts[static_cast<size_t>(id)];
    text +=
        schedule.function.vars[static_cast<size_t>(loop.id)] + ":" + std::to_string(lanes) + " ";
  }
  return text;
}

int CountLoops(const loops::Function& f) {
  int count = 0;
  for (loops::StmtId id : loops::StatementsUnder(f, f.body)) {
    count += f.stmts[static_cast<size_t>(id)].kind == StmtKind::kFor ? 1 : 0;
  }
  return count;
}

TEST(Schedule, PointwiseLoopsCollapseIntoOne) {
  loops::Function f = Relu({2, 3, 5, 7});
  CollapseLoops(f, {});
  EXPECT_EQ(loops::Verify(f), "");
  EXPECT_EQ(CountLoops(f), 1) << loops::Print(f);
  std::vector<float> x = Noise(210), y(210), expected(210);
  ASSERT_TRUE(loops::Interpret(Relu({2, 3, 5, 7}),
                               std::vector{View(x, {2, 3, 5, 7}), View(expected, {2, 3, 5, 7})}, {})
                  .ok());
  ASSERT_TRUE(loops::Interpret(f, std::vector{View(x, {210}), View(y, {210})}, {}).ok());
  EXPECT_EQ(y, expected);
}

TEST(Schedule, ABroadcastAxisStaysALoop) {
  Builder b("bias");
  const E dims[] = {b.I(4), b.I(6), b.I(5), b.I(5)};
  const B x = b.Input("x", kF32, {dims[0], dims[1], dims[2], dims[3]});
  const B bias = b.Input("bias", kF32, {dims[1]});
  const B y = b.Output("y", kF32, {dims[0], dims[1], dims[2], dims[3]});
  b.ParallelForAll(dims, [&](std::span<const E> i) { b.Store(y, i, x.At(i) + bias.At({i[1]})); });
  loops::Function f = b.Finish();
  CollapseLoops(f, {});
  EXPECT_EQ(loops::Verify(f), "");
  EXPECT_EQ(CountLoops(f), 3) << loops::Print(f);
}

TEST(Schedule, FlatNestsBecomeRangesOfTasks) {
  SymbolTable symbols;
  const auto schedule = MakeSchedule(Relu({8, 64, 56, 56}), {}, symbols, Avx2(), true);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->lanes.size(), 1u);
  EXPECT_EQ(schedule->lanes.begin()->second, 8);
  EXPECT_EQ(schedule->tasks, Dim(8 * 64 * 56 * 56 / 4096));
}

TEST(Schedule, ReferenceNestsHaveNoLanesButTasks) {
  SymbolTable symbols;
  const auto schedule = MakeSchedule(Relu({8, 64, 5, 5}), {}, symbols, Avx2(), false);
  ASSERT_TRUE(schedule.ok());
  EXPECT_TRUE(schedule->lanes.empty());
  EXPECT_EQ(schedule->tasks, Dim(8 * 64));
}

TEST(Schedule, TasksOfSymbolicLoopsAreDims) {
  SymbolTable symbols;
  const SymbolId n = symbols.AddInput("n", {0, 0});
  Builder b("rows");
  const B x = b.Input("x", kF32, {b.Slot(n), b.I(100)});
  const B y = b.Output("y", kF32, {b.Slot(n)});
  b.ParallelFor(b.Slot(n), [&](E r) {
    b.Store(y, {r},
            b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(100), [&](E k) { return x.At({r, k}); }));
  });
  const auto schedule = MakeSchedule(b.Finish(), {}, symbols, Avx2(), true);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->tasks, Dim::OfSymbol(n));
  EXPECT_EQ(LanesOf(*schedule), "k:32 ");
}

TEST(Schedule, ReductionsAcrossRowsVectoriseTheColumns) {
  SymbolTable symbols;
  Builder b("columns");
  const B x = b.Input("x", kF32, {b.I(50), b.I(96)});
  const B y = b.Output("y", kF32, {b.I(96)});
  b.ParallelFor(
      b.I(96),
      [&](E c) {
        b.Store(y, {c},
                b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(50), [&](E k) { return x.At({k, c}); }));
      },
      "c");
  const auto schedule = MakeSchedule(b.Finish(), {}, symbols, Avx2(), true);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(LanesOf(*schedule), "c:32 ");
}

TEST(Schedule, BlockLanesNeedNoDivision) {
  SymbolTable symbols;
  Layout blocked;
  blocked.blocked_axis = 1;
  blocked.block = 8;
  const Layout layouts[] = {blocked, blocked};
  const auto schedule = MakeSchedule(Relu({2, 16, 6, 6}), layouts, symbols, Avx2(), true);
  ASSERT_TRUE(schedule.ok());
  const std::string text = loops::Print(schedule->function);
  EXPECT_EQ(text.find("floordiv"), std::string::npos) << text;
  EXPECT_EQ(text.find("floormod"), std::string::npos) << text;
  EXPECT_TRUE(schedule->fill.empty());
  EXPECT_EQ(CountLoops(schedule->function), 1) << text;
}

TEST(Schedule, PaddingLanesAreFilled) {
  SymbolTable symbols;
  Layout layout;
  layout.blocked_axis = 1;
  layout.block = 8;
  const Layout layouts[] = {Layout{}, layout};
  const auto schedule = MakeSchedule(Relu({1, 5, 4, 4}), layouts, symbols, Avx2(), true);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->fill.size(), 1u);
}

TEST(Schedule, LayoutsThatDoNotFitAreErrors) {
  SymbolTable symbols;
  Layout bad;
  bad.order = {0, 0, 1};
  EXPECT_FALSE(MakeSchedule(Relu({1, 2, 3}), std::vector<Layout>{bad}, symbols, Avx2(), true).ok());
  Layout beyond;
  beyond.blocked_axis = 3;
  beyond.block = 4;
  EXPECT_FALSE(
      MakeSchedule(Relu({1, 2, 3}), std::vector<Layout>{beyond}, symbols, Avx2(), true).ok());
}

TEST(Schedule, ScratchIsCountedOnceItIsLarge) {
  SymbolTable symbols;
  const SymbolId n = symbols.AddInput("n", {0, 0});
  const auto with_scratch = [&](E (*size)(Builder&, SymbolId), SymbolId symbol) {
    Builder b("scratch");
    const B x = b.Input("x", kF32, {b.I(4)});
    const B y = b.Output("y", kF32, {b.I(4)});
    b.Scratch("t", kF32, {size(b, symbol)}, loops::ScratchScope::kIteration);
    b.ParallelFor(b.I(4), [&](E i) { b.Store(y, {i}, x.At({i})); });
    return *ScratchBytes(b.Finish(), symbols, kStackScratchBytes);
  };
  EXPECT_EQ(with_scratch([](Builder& b, SymbolId) { return b.I(1000); }, n), Dim(0));
  EXPECT_EQ(with_scratch([](Builder& b, SymbolId) { return b.I(10001); }, n), Dim(40064));
  EXPECT_FALSE(with_scratch([](Builder& b, SymbolId s) { return b.Slot(s); }, n).is_static());
}

}  // namespace
}  // namespace quench::codegen::schedule_test
