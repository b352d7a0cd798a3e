// One broken function per rule.
#include <gtest/gtest.h>

#include "common/loops/analysis.h"
#include "tests/unit/common/loops/harness.h"

namespace quench::loops::verify_test {
namespace {

constexpr DataType kF32 = DataType::kF32;
constexpr DataType kI64 = DataType::kI64;

// y[i] = sum over k of x[i, k], and a let, a while, an if, a check.
Function Good() {
  Builder b("good");
  const B x = b.Input("x", kF32, {b.I(4), b.Slot(0)}), y = b.Output("y", kF32, {b.I(4)});
  b.Check(b.Slot(0) > 0, "empty");
  b.ParallelFor(b.I(4), [&](E i) {
    const E sum =
        b.Reduce(BinaryOp::kAdd, b.F(0, kF32), b.Slot(0), [&](E k) { return x.At({i, k}); });
    const E scaled = b.Let(sum * b.F(2, kF32));
    b.If(scaled > b.F(1, kF32), [&] { b.Store(y, {i}, scaled); });
  });
  const auto count = b.Local(b.I(0));
  b.While([&] { return count.Get() < 3; }, [&] { count.Set(count.Get() + 1); });
  return b.Finish();
}

Stmt& Find(Function& f, StmtKind kind, LoopMark mark = LoopMark::kSerial) {
  for (Stmt& stmt : f.stmts) {
    if (stmt.kind == kind && (kind != StmtKind::kFor || stmt.mark == mark)) return stmt;
  }
  ADD_FAILURE() << "no such statement";
  return f.stmts[0];
}

Expr& Find(Function& f, ExprKind kind) {
  for (Expr& e : f.exprs) {
    if (e.kind == kind) return e;
  }
  ADD_FAILURE() << "no such expression";
  return f.exprs[0];
}

void ExpectDefect(const std::string& text, const std::function<void(Function&)>& damage) {
  Function f = Good();
  ASSERT_EQ(Verify(f), "");
  damage(f);
  const std::string defect = Verify(f);
  EXPECT_NE(defect.find(text), std::string::npos) << "got `" << defect << "`, not `" << text << "`";
}

TEST(Verify, Expressions) {
  ExpectDefect("not an earlier expression",
               [](Function& f) { Find(f, ExprKind::kBinary).args[0] = 1000; });
  ExpectDefect("not an earlier expression",
               [](Function& f) { Find(f, ExprKind::kBinary).args[0] = -1; });
  ExpectDefect("does not fit i8", [](Function& f) {
    f.exprs.push_back({.kind = ExprKind::kInt, .type = DataType::kI8, .i = 128});
  });
  ExpectDefect("an integer type or bool",
               [](Function& f) { f.exprs.push_back({.kind = ExprKind::kInt, .type = kF32}); });
  ExpectDefect("f32 or f64", [](Function& f) { Find(f, ExprKind::kFloat).type = DataType::kF16; });
  ExpectDefect("unknown variable", [](Function& f) { Find(f, ExprKind::kVar).id = 99; });
  ExpectDefect("unknown local", [](Function& f) { Find(f, ExprKind::kLocal).id = 99; });
  ExpectDefect("the local's", [](Function& f) { Find(f, ExprKind::kLocal).type = DataType::kF64; });
  ExpectDefect("slot has an id", [](Function& f) { Find(f, ExprKind::kSlot).id = -1; });
  ExpectDefect("only a scalar function has params",
               [](Function& f) { Find(f, ExprKind::kSlot).kind = ExprKind::kParam; });
  ExpectDefect("unknown buffer", [](Function& f) { Find(f, ExprKind::kLoad).id = 99; });
  ExpectDefect("that of buffer `x`",
               [](Function& f) { Find(f, ExprKind::kLoad).type = DataType::kF64; });
  ExpectDefect("1 indices for buffer `x` of rank 2",
               [](Function& f) { Find(f, ExprKind::kLoad).args.pop_back(); });
  ExpectDefect("takes 2", [](Function& f) { Find(f, ExprKind::kBinary).args.pop_back(); });
  ExpectDefect("wrong result type",
               [](Function& f) { Find(f, ExprKind::kBinary).type = DataType::kU8; });
}

TEST(Verify, OperandTypes) {
  const auto expect = [](const std::string& text, const std::function<Expr(Function&)>& make) {
    Function f;
    f.exprs.push_back({.kind = ExprKind::kInt, .type = kI64, .i = 1});
    f.exprs.push_back({.kind = ExprKind::kFloat, .type = kF32, .f = 1});
    f.exprs.push_back({.kind = ExprKind::kInt, .type = DataType::kBool, .i = 1});
    f.exprs.push_back({.kind = ExprKind::kCast, .type = DataType::kF16, .args = {1}});
    ASSERT_EQ(Verify(f), "");
    f.exprs.push_back(make(f));
    EXPECT_NE(Verify(f).find(text), std::string::npos) << Verify(f);
  };
  const auto unary = [](UnaryOp op, DataType type, ExprId a) {
    return [=](Function&) {
      return Expr{.kind = ExprKind::kUnary, .type = type, .unary = op, .args = {a}};
    };
  };
  const auto binary = [](BinaryOp op, DataType type, ExprId a, ExprId b) {
    return [=](Function&) {
      return Expr{.kind = ExprKind::kBinary, .type = type, .binary = op, .args = {a, b}};
    };
  };
  expect("`exp` of i64", unary(UnaryOp::kExp, kI64, 0));
  expect("`neg` of bool", unary(UnaryOp::kNeg, DataType::kBool, 2));
  expect("`not` of f32", unary(UnaryOp::kNot, kF32, 1));
  expect("arithmetic on f16", unary(UnaryOp::kNeg, DataType::kF16, 3));
  expect("result type", unary(UnaryOp::kIsNan, kF32, 1));
  expect("operands of `+` are i64 and f32", binary(BinaryOp::kAdd, kI64, 0, 1));
  expect("`+` of bool", binary(BinaryOp::kAdd, DataType::kBool, 2, 2));
  expect("`&` of f32", binary(BinaryOp::kAnd, kF32, 1, 1));
  expect("`<<` of bool", binary(BinaryOp::kShl, DataType::kBool, 2, 2));
  expect("arithmetic on f16", binary(BinaryOp::kAdd, DataType::kF16, 3, 3));
  expect("wrong result type", binary(BinaryOp::kLt, kI64, 0, 0));
  expect("condition of a select is bool", [](Function&) {
    return Expr{.kind = ExprKind::kSelect, .type = kI64, .args = {0, 0, 0}};
  });
  expect("sides of a select", [](Function&) {
    return Expr{.kind = ExprKind::kSelect, .type = kI64, .args = {2, 0, 1}};
  });
  expect("between numbers or bools", [](Function&) {
    return Expr{.kind = ExprKind::kCast, .type = DataType::kString, .args = {0}};
  });
}

TEST(Verify, Buffers) {
  ExpectDefect("dtype string", [](Function& f) { f.buffers[1].dtype = DataType::kString; });
  ExpectDefect("inputs come first", [](Function& f) { f.buffers[0].role = BufferRole::kScratch; });
  ExpectDefect("a dim is an i64 expression", [](Function& f) { f.buffers[0].dims[0] = 1000; });
  ExpectDefect("constants and slots only", [](Function& f) {
    for (size_t i = 0; i < f.exprs.size(); ++i) {
      if (f.exprs[i].kind == ExprKind::kVar && f.exprs[i].type == kI64)
        f.buffers[1].dims[0] = static_cast<ExprId>(i);
    }
  });
  ExpectDefect("local `acc` has type f16", [](Function& f) {
    f.locals[0].type = DataType::kF16;
    for (Expr& e : f.exprs) {
      if (e.kind == ExprKind::kLocal && e.id == 0) e = {.kind = ExprKind::kFloat, .type = kF32};
    }
  });
}

TEST(Verify, Statements) {
  ExpectDefect("appears twice", [](Function& f) { f.body.push_back(f.body[0]); });
  ExpectDefect("unknown statement", [](Function& f) { f.body.push_back(1000); });
  ExpectDefect("unknown expression", [](Function& f) { Find(f, StmtKind::kLet).args[0] = 1000; });
  ExpectDefect("takes 2",
               [](Function& f) { Find(f, StmtKind::kFor, LoopMark::kReduce).args.pop_back(); });
  ExpectDefect("takes bool", [](Function& f) {
    Find(f, StmtKind::kIf).args[0] = Find(f, StmtKind::kStore).args[0];
  });
  ExpectDefect("takes bool",
               [](Function& f) { Find(f, StmtKind::kCheck).args[0] = f.buffers[0].dims[0]; });
  ExpectDefect("takes i64", [](Function& f) {
    f.stmts.push_back(
        {.kind = StmtKind::kSetSlot, .id = 0, .args = {Find(f, StmtKind::kCheck).args[0]}});
    f.body.push_back(static_cast<StmtId>(f.stmts.size()) - 1);
  });
  ExpectDefect("stores to input `x`", [](Function& f) { Find(f, StmtKind::kStore).id = 0; });
  ExpectDefect("stores bool to `y` of f32", [](Function& f) {
    Find(f, StmtKind::kStore).args[0] = Find(f, StmtKind::kIf).args[0];
  });
  ExpectDefect("store to `y`: has 1 arguments",
               [](Function& f) { Find(f, StmtKind::kStore).args.pop_back(); });
  ExpectDefect("sets an unknown local", [](Function& f) { Find(f, StmtKind::kSet).id = 99; });
  ExpectDefect("is defined already", [](Function& f) {
    Find(f, StmtKind::kLet).id = Find(f, StmtKind::kFor, LoopMark::kParallel).id;
  });
  ExpectDefect("only a loop marked reduce has reductions", [](Function& f) {
    Find(f, StmtKind::kFor, LoopMark::kParallel).reductions.push_back({0, BinaryOp::kAdd});
  });
  ExpectDefect("a loop has no otherwise", [](Function& f) {
    f.stmts.push_back({.kind = StmtKind::kCheck, .args = {Find(f, StmtKind::kCheck).args[0]}});
    Find(f, StmtKind::kFor, LoopMark::kParallel)
        .otherwise.push_back(static_cast<StmtId>(f.stmts.size()) - 1);
  });
}

TEST(Verify, VariablesAreUsedInTheirScope) {
  ExpectDefect("is not defined here", [](Function& f) {
    // The store moves out of its loop.
    const StmtId store = Find(f, StmtKind::kIf).body[0];
    Find(f, StmtKind::kIf).body.clear();
    f.body.push_back(store);
  });
  ExpectDefect("is not defined here", [](Function& f) {
    // The let comes after its use.
    std::vector<StmtId>& body = Find(f, StmtKind::kFor, LoopMark::kParallel).body;
    std::swap(body[body.size() - 1], body[body.size() - 2]);
  });
}

TEST(Verify, ReduceMarks) {
  const auto reduce = [&](Function& f) -> Stmt& {
    return Find(f, StmtKind::kFor, LoopMark::kReduce);
  };
  ExpectDefect("has no reductions", [&](Function& f) { reduce(f).reductions.clear(); });
  ExpectDefect("`-` is not a reduction",
               [&](Function& f) { reduce(f).reductions[0].op = BinaryOp::kSub; });
  ExpectDefect("`acc = acc max value`",
               [&](Function& f) { reduce(f).reductions[0].op = BinaryOp::kMax; });
  ExpectDefect("is reduced twice",
               [&](Function& f) { reduce(f).reductions.push_back(reduce(f).reductions[0]); });
  ExpectDefect("unknown local", [&](Function& f) { reduce(f).reductions[0].local = 99; });
  ExpectDefect("stores", [&](Function& f) {
    Stmt store = Find(f, StmtKind::kStore);
    store.args[0] = Find(f, StmtKind::kSet).args[0];
    const StmtId id = AddStmt(f, store);
    reduce(f).body.push_back(id);
  });
  ExpectDefect("reduced local `acc` is read", [&](Function& f) {
    // acc = acc + acc
    Stmt& set = f.stmts[static_cast<size_t>(reduce(f).body[0])];
    const ExprId acc = f.exprs[static_cast<size_t>(set.args[0])].args[0];
    set.args[0] = AddBinary(f, BinaryOp::kAdd, acc, acc);
  });
  ExpectDefect("sets a slot", [&](Function& f) {
    const StmtId id =
        AddStmt(f, {.kind = StmtKind::kSetSlot, .id = 0, .args = {f.buffers[0].dims[0]}});
    reduce(f).body.push_back(id);
  });
}

TEST(Verify, LocalsOfMarkedLoopsArePrivate) {
  ExpectDefect("local `v` is read before it is set", [](Function& f) {
    // A sum over all iterations of the parallel loop.
    const ExprId next = AddBinary(f, BinaryOp::kAdd, AddLocalRead(f, 1), AddInt(f, 1));
    const StmtId set = AddStmt(f, {.kind = StmtKind::kSet, .id = 1, .args = {next}});
    Find(f, StmtKind::kFor, LoopMark::kParallel).body.push_back(set);
  });
  ExpectDefect("local `v` is read outside", [](Function& f) {
    const StmtId set = AddStmt(f, {.kind = StmtKind::kSet, .id = 1, .args = {AddInt(f, 1)}});
    Find(f, StmtKind::kFor, LoopMark::kParallel).body.push_back(set);
  });
}

TEST(Verify, PrivateLocalsMayBeSetInBothArms) {
  Builder b("arms");
  const B x = b.Input("x", kF32, {b.I(9)}), y = b.Output("y", kF32, {b.I(9)});
  const auto v = b.Local(b.F(0, kF32));
  b.ParallelFor(b.I(9), [&](E i) {
    b.If(x.At({i}) > 0, [&] { v.Set(x.At({i})); }, [&] { v.Set(-x.At({i})); });
    b.Store(y, {i}, v.Get());
  });
  EXPECT_EQ(Verify(b.Finish()), "");
}

TEST(Verify, ScalarFunctions) {
  Builder b("scalar");
  ScalarFunction f = b.FinishScalar(b.Param(0, kF32) * b.F(2, kF32), {kF32});
  EXPECT_EQ(Verify(f), "");
  ScalarFunction broken = f;
  broken.result = 99;
  EXPECT_EQ(Verify(broken), "unknown result");
  broken = f;
  broken.param_types = {DataType::kF16};
  EXPECT_EQ(Verify(broken), "param of f16");
  broken = f;
  for (Expr& e : broken.exprs) {
    if (e.kind == ExprKind::kParam) e.id = 1;
  }
  EXPECT_NE(Verify(broken).find("unknown param"), std::string::npos);
  for (const ExprKind kind : {ExprKind::kVar, ExprKind::kLocal, ExprKind::kSlot, ExprKind::kLoad}) {
    broken = f;
    broken.exprs.push_back({.kind = kind, .type = kI64, .id = 0});
    EXPECT_NE(Verify(broken).find("a scalar function has no"), std::string::npos);
  }
}

}  // namespace
}  // namespace quench::loops::verify_test
