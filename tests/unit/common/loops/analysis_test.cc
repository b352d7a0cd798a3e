#include "common/loops/analysis.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/common/loops/harness.h"

namespace quench::loops::analysis_test {
namespace {

constexpr DataType kF32 = DataType::kF32;
constexpr DataType kI64 = DataType::kI64;

StmtId FindLoop(const Function& f, const std::string& name) {
  for (size_t i = 0; i < f.stmts.size(); ++i) {
    if (f.stmts[i].kind == StmtKind::kFor && f.vars[static_cast<size_t>(f.stmts[i].id)] == name) {
      return static_cast<StmtId>(i);
    }
  }
  ADD_FAILURE() << "no loop over " << name;
  return 0;
}

TEST(LoopAnalysis, Strides) {
  Builder b("strides");
  const B x = b.Input("x", kI64, {b.I(100)}), y = b.Output("y", kI64, {b.I(100)});
  std::vector<std::pair<E, std::optional<int64_t>>> cases;
  b.For(
      b.I(10),
      [&](E i) {
        b.For(
            b.I(10),
            [&](E j) {
              const auto local = b.Local(b.I(0), "inner");
              const E let = b.Let(j * 3 + i);
              cases = {
                  {j, 1},
                  {i, 0},
                  {b.I(4) - j, -1},
                  {-(j * 2), -2},
                  {(j * 2 + i) * 5 + b.Slot(0), 10},
                  {let * 2, 6},
                  {let - j * 3, 0},
                  {j * i, std::nullopt},
                  {i * b.Slot(0), 0},
                  {j * j, std::nullopt},
                  {FloorDiv(j, b.I(2)), std::nullopt},
                  {FloorDiv(i, b.I(2)), 0},
                  {Cast(j, DataType::kI32), std::nullopt},
                  {Cast(j, kF32), std::nullopt},
                  {x.At({i}), 0},
                  {x.At({j}), std::nullopt},
                  {y.At({i}), std::nullopt},  // stored to under the loop
                  {local.Get(), std::nullopt},
              };
              b.Store(y, {j}, local.Get() + let);
            },
            "j");
      },
      "i");
  const Function f = b.Finish();
  const LoopAnalysis analysis(f, FindLoop(f, "j"));
  for (size_t k = 0; k < cases.size(); ++k) {
    EXPECT_EQ(analysis.Stride(cases[k].first.id()), cases[k].second) << "case " << k;
    EXPECT_EQ(analysis.Invariant(cases[k].first.id()), cases[k].second == 0) << "case " << k;
  }
  EXPECT_TRUE(analysis.stores_to(1));
  EXPECT_FALSE(analysis.stores_to(0));
  EXPECT_TRUE(analysis.assigns(0));
}

TEST(Accesses, AreListedInProgramOrder) {
  Builder b("accesses");
  const B x = b.Input("x", kF32, {b.I(4)}), y = b.Output("y", kF32, {b.I(4)});
  b.For(b.I(4), [&](E i) {
    const E v = x.At({i}) * x.At({b.I(3) - i});
    b.If(v > 0, [&] { b.Store(y, {i}, v + x.At({i})); });
  });
  const Function f = b.Finish();
  std::string order;
  for (const Access& access : Accesses(f, f.body)) {
    order += access.is_store() ? "S" : "L";
    order += std::to_string(access.buffer);
    EXPECT_EQ(access.indices.size(), 1u);
  }
  EXPECT_EQ(order, "L0L0L0L0S1");
  EXPECT_EQ(StatementsUnder(f, f.body).size(), 3u);
}

// Splits the loop of y[i] = x[i] * 2 + i by 4 through Clone, and runs it.
TEST(Rewriting, SplitsALoop) {
  Builder b("split");
  const B x = b.Input("x", kI64, {b.I(12)}), y = b.Output("y", kI64, {b.I(12)});
  b.For(b.I(12), [&](E i) {
    const E v = b.Let(x.At({i}) * 2);
    b.Store(y, {i}, v + i);
  });
  Function f = b.Finish();
  const StmtId loop = f.body[0];
  const VarId var = f.stmts[static_cast<size_t>(loop)].id;
  const ExprId outer = AddVar(f, "outer"), inner = AddVar(f, "inner");
  Substitution substitution;
  substitution.vars[var] =
      AddBinary(f, BinaryOp::kAdd, AddBinary(f, BinaryOp::kMul, outer, AddInt(f, 4)), inner);
  Stmt inside = {.kind = StmtKind::kFor,
                 .id = f.exprs[static_cast<size_t>(inner)].id,
                 .args = {AddInt(f, 0), AddInt(f, 4)}};
  inside.body = Clone(f, f.stmts[static_cast<size_t>(loop)].body, substitution);
  Stmt outside = {.kind = StmtKind::kFor,
                  .id = f.exprs[static_cast<size_t>(outer)].id,
                  .args = {AddInt(f, 0), AddInt(f, 3)}};
  outside.body = {AddStmt(f, inside)};
  f.body = {AddStmt(f, outside)};
  ASSERT_EQ(Verify(f), "");
  EXPECT_EQ(Print(f), R"(function split
  input x: i64[12]
  output y: i64[12]
  for outer in 0 .. 3
    for inner in 0 .. 4
      let t_1 = x[outer * 4 + inner] * 2
      y[outer * 4 + inner] = t_1 + (outer * 4 + inner)
)");
  Array<int64_t> xs({12}), ys({12});
  std::iota(xs.data.begin(), xs.data.end(), 100);
  ASSERT_TRUE(RunFunction(f, {xs.view(), ys.view()}).ok());
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(ys.data[static_cast<size_t>(i)], (100 + i) * 2 + i);
}

TEST(Rewriting, SubstituteKeepsWhatDoesNotChange) {
  Builder b("same");
  const E e = b.Slot(0) * 3 + 1;
  b.SetSlot(1, e);
  Function f = b.Finish();
  const size_t before = f.exprs.size();
  EXPECT_EQ(Substitute(f, e.id(), {}), e.id());
  EXPECT_EQ(f.exprs.size(), before);
}

TEST(Rewriting, SubstituteKeepsSharing) {
  Builder b("shared");
  b.For(b.I(2), [&](E i) {
    E x = i;
    for (int k = 0; k < 60; ++k) x = x * x + i;
    b.SetSlot(0, x);
  });
  Function f = b.Finish();
  const Stmt& loop = f.stmts[static_cast<size_t>(f.body[0])];
  const ExprId value = f.stmts[static_cast<size_t>(loop.body[0])].args[0];
  const VarId var = loop.id;
  const size_t before = f.exprs.size();
  Substitution substitution;
  substitution.vars[var] = AddInt(f, 7);
  Substitute(f, value, substitution);
  EXPECT_LE(f.exprs.size(), 2 * before + 1);
}

TEST(Rewriting, CloneRenamesLocalsAndBuffers) {
  Builder b("rename");
  const B x = b.Input("x", kF32, {b.I(8)}), y = b.Output("y", kF32, {}),
          z = b.Output("z", kF32, {});
  b.Store(y, std::initializer_list<E>{},
          b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.I(8), [&](E k) { return x.At({k}); }));
  (void)z;
  Function f = b.Finish();
  Substitution substitution;
  substitution.locals[0] = AddLocal(f, "other", kF32);
  substitution.buffers[1] = 2;
  const std::vector<StmtId> copy = Clone(f, f.body, substitution);
  f.body.insert(f.body.end(), copy.begin(), copy.end());
  ASSERT_EQ(Verify(f), "");
  Array<float> xs({8}, 1), ys({}), zs({});
  ASSERT_TRUE(RunFunction(f, {xs.view(), ys.view(), zs.view()}).ok());
  EXPECT_EQ(ys.data[0], 8);
  EXPECT_EQ(zs.data[0], 8);
}

TEST(Rewriting, AddBinaryFolds) {
  Function f;
  const ExprId zero = AddInt(f, 0), one = AddInt(f, 1), three = AddInt(f, 3);
  const ExprId v = AddVar(f, "v");
  EXPECT_EQ(AddBinary(f, BinaryOp::kAdd, v, zero), v);
  EXPECT_EQ(AddBinary(f, BinaryOp::kAdd, zero, v), v);
  EXPECT_EQ(AddBinary(f, BinaryOp::kMul, v, one), v);
  EXPECT_EQ(AddBinary(f, BinaryOp::kMul, v, zero), zero);
  EXPECT_EQ(ConstantOf(f, AddBinary(f, BinaryOp::kSub, one, three)), -2);
  EXPECT_EQ(ConstantOf(f, v), std::nullopt);
}

}  // namespace
}  // namespace quench::loops::analysis_test
