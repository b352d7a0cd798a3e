// Programs that the interpreter refuses, and its early ends.
#include "common/loops/interpreter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/unit/common/loops/harness.h"

namespace quench::loops::interpreter_test {
namespace {

constexpr DataType kF32 = DataType::kF32;
constexpr DataType kI64 = DataType::kI64;

Function Copy(DataType type = kF32) {
  Builder b("copy");
  const B x = b.Input("x", type, {b.Slot(0)}), y = b.Output("y", type, {b.Slot(0)});
  b.ParallelFor(b.Slot(0), [&](E i) { b.Store(y, {i}, x.At({i})); });
  return b.Finish();
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find(text), std::string_view::npos) << status;
}

TEST(Interpreter, BuffersMustFitTheDeclaration) {
  Array<float> x({4}), y({4}), z({5});
  EXPECT_TRUE(RunFunction(Copy(), {x.view(), y.view()}, {4}).ok());
  ExpectError(RunFunction(Copy(), {x.view()}, {4}), absl::StatusCode::kInternal,
              "1 buffers given, takes 2");
  ExpectError(RunFunction(Copy(), {x.view(), y.view(), z.view()}, {4}), absl::StatusCode::kInternal,
              "3 buffers given, takes 2");
  ExpectError(RunFunction(Copy(), {x.view(), z.view()}, {4}), absl::StatusCode::kInternal,
              "buffer `y` has dims [5], takes [4]");
  ExpectError(RunFunction(Copy(), {x.view(), y.view()}, {}), absl::StatusCode::kInternal,
              "slot 0 is read, 0 were given");
  ExpectError(RunFunction(Copy(), {x.view(), {nullptr, {4}}}, {4}), absl::StatusCode::kInternal,
              "`y` has no memory");
  EXPECT_TRUE(RunFunction(Copy(), {{nullptr, {0}}, {nullptr, {0}}}, {0}).ok());
}

TEST(Interpreter, NarrowTypesAreRefused) {
  for (const DataType type : {DataType::kI4, DataType::kU4, DataType::kI2, DataType::kU2,
                              DataType::kF4E2M1, DataType::kF8E8M0}) {
    Array<uint8_t> x({4}), y({4});
    ExpectError(RunFunction(Copy(type), {x.view(), y.view()}, {4}),
                absl::StatusCode::kUnimplemented, std::string(DataTypeName(type)));
  }
}

TEST(Interpreter, ScratchIsLimited) {
  Builder b("large");
  const B y = b.Output("y", kF32, {});
  const B t = b.Scratch("t", kF32, {b.Slot(0), b.Slot(1)}, ScratchScope::kFunction);
  b.If(b.Slot(0) > 0, [&] { b.Store(y, std::initializer_list<E>{}, t.At({b.I(0), b.I(0)}) + 1); });
  const Function f = b.Finish();
  Array<float> ys({});
  EXPECT_TRUE(RunFunction(f, {ys.view()}, {1000, 1000}).ok());
  EXPECT_EQ(ys.data[0], 1);
  ExpectError(RunFunction(f, {ys.view()}, {1 << 20, 1 << 20}), absl::StatusCode::kResourceExhausted,
              "buffer `t`");
  ExpectError(RunFunction(f, {ys.view()}, {INT64_MAX, INT64_MAX}),
              absl::StatusCode::kResourceExhausted, "too many");
  // Negative extents: empty.
  EXPECT_TRUE(RunFunction(f, {ys.view()}, {-5, 1 << 30}).ok());
}

TEST(Interpreter, NegativeLoopsAreEmpty) {
  Builder b("empty");
  const B y = b.Output("y", kF32, {b.I(1)});
  b.ParallelFor(b.Slot(0), [&](E i) { b.Store(y, {i}, b.F(1, kF32)); });
  b.For(b.I(3), b.I(-3), [&](E i) { b.Store(y, {i}, b.F(2, kF32)); });
  b.For(b.I(INT64_MAX), b.I(INT64_MIN), [&](E i) { b.Store(y, {i}, b.F(3, kF32)); });
  Array<float> ys({1}, 7);
  EXPECT_TRUE(RunFunction(b.Finish(), {ys.view()}, {-1}).ok());
  EXPECT_EQ(ys.data[0], 7);
}

TEST(Interpreter, LoopsReachTheLastInteger) {
  Builder b("last");
  const B y = b.Output("y", kI64, {});
  const auto count = b.Local(b.I(0));
  b.For(b.I(INT64_MAX - 3), b.I(INT64_MAX), [&](E) { count.Set(count.Get() + 1); });
  b.Store(y, std::initializer_list<E>{}, count.Get());
  Array<int64_t> ys({});
  EXPECT_TRUE(RunFunction(b.Finish(), {ys.view()}).ok());
  EXPECT_EQ(ys.data[0], 3);
}

TEST(Interpreter, FailedCheckSaysItsMessage) {
  Builder b("check");
  b.Check(b.Slot(0) == 3, "size is not three");
  const Function f = b.Finish();
  EXPECT_TRUE(RunFunction(f, {}, {3}).ok());
  const absl::Status status = RunFunction(f, {}, {4});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "size is not three");
}

TEST(Interpreter, DeepExpressionsAreRefused) {
  Builder b("deep");
  const B y = b.Output("y", kF32, {});
  E x = Cast(b.Slot(0), kF32);
  for (int i = 0; i < 5000; ++i) x = x + b.F(i, kF32);
  b.Store(y, std::initializer_list<E>{}, x);
  Array<float> ys({});
  ExpectError(RunFunction(b.Finish(), {ys.view()}, {1}), absl::StatusCode::kResourceExhausted,
              "at most 1000");
}

TEST(Interpreter, LongChainsOfLetsRun) {
  Builder b("chain");
  const B y = b.Output("y", kI64, {b.I(200)});
  b.ParallelFor(b.I(200), [&](E i) {
    E v = i;
    for (int k = 0; k < 20000; ++k) v = b.Let(v + 1);
    b.Store(y, {i}, v);
  });
  Array<int64_t> ys({200});
  ASSERT_TRUE(RunFunction(b.Finish(), {ys.view()}).ok());
  EXPECT_EQ(ys.data[5], 5 + 20000);
}

TEST(Interpreter, NearlyTooDeepExpressionsRun) {
  Builder b("deep");
  const B x = b.Input("x", kF32, {b.I(100)}), y = b.Output("y", kF32, {b.I(100)});
  b.ParallelFor(b.I(100), [&](E i) {
    E v = x.At({i});
    for (int k = 0; k < 990; ++k) v = v + b.F(1, kF32);
    b.Store(y, {i}, v);
  });
  const Function f = b.Finish();
  Array<float> xs({100}), ys({100});
  for (const bool lanes : {false, true}) {
    ASSERT_TRUE(RunFunction(f, {xs.view(), ys.view()}, {}, lanes).ok());
    EXPECT_EQ(ys.data[99], 990);
  }
}

// Counts to 2^62, one way or the other.
Function Endless(int kind) {
  Builder b("endless");
  const B y = b.Output("y", kI64, {b.I(300)});
  const E end = b.I(int64_t{1} << 62);
  const auto count = b.Local(b.I(0));
  const std::function<void()> step = [&] { count.Set(count.Get() + 1); };
  if (kind == 0) b.While([&] { return count.Get() < end; }, step);
  if (kind == 1) b.For(end, [&](E) { step(); });
  if (kind == 2) b.For(end, [&](E) {});
  if (kind == 3) {
    b.For(end, [&](E j) { b.ParallelFor(b.I(300), [&](E i) { b.Store(y, {i}, i * j); }); });
  }
  if (kind == 4)
    b.Store(y, {b.I(0)}, b.Reduce(BinaryOp::kMax, b.I(0), end, [&](E k) { return k * 3; }));
  return b.Finish();
}

class Cancel : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Loops, Cancel, testing::Range(0, 5));

TEST_P(Cancel, StopsEveryKindOfLoop) {
  const Function f = Endless(GetParam());
  for (const bool lanes : {false, true}) {
    Array<int64_t> ys({300});
    StepContext context;
    std::thread canceller([token = context.cancel_token()] { token->Cancel(); });
    const std::vector<BufferView> views = {ys.view()};
    EXPECT_EQ(Interpret(f, views, {}, context, {lanes}).code(), absl::StatusCode::kCancelled);
    canceller.join();
  }
}

TEST_P(Cancel, DeadlineStopsEveryKindOfLoop) {
  Array<int64_t> ys({300});
  StepContext context;
  context.set_deadline(std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
  const std::vector<BufferView> views = {ys.view()};
  EXPECT_EQ(Interpret(Endless(GetParam()), views, {}, context).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(EvaluateExtent, ComputesSizes) {
  Builder b("sizes");
  const E size =
      Max(CeilDiv(b.Slot(0) * 3 + 1, b.I(2)), Select(b.Slot(1) > 4, b.I(100), -b.Slot(1)));
  const B y = b.Output("y", kF32, {size});
  (void)y;
  const Function f = b.Finish();
  const ExprId dim = f.buffers[0].dims[0];
  EXPECT_EQ(*EvaluateExtent(f, dim, std::vector<int64_t>{5, 2}), 8);
  EXPECT_EQ(*EvaluateExtent(f, dim, std::vector<int64_t>{5, 9}), 100);
  EXPECT_EQ(EvaluateExtent(f, dim, std::vector<int64_t>{5}).status().code(),
            absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace quench::loops::interpreter_test
