// Concats whose operands are computed where they belong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/ir/text.h"
#include "common/ops/op.h"
#include "services/codegen/plan/program_text.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::joins_test {
namespace {

using ::quench::testing::HasSubstr;

// A graph around `nodes`, which read %x and %z, f32[1, 16, 6, 6], and give what they say.
Graph Around(const std::string& nodes) {
  Graph graph = ParseGraph("quench.ir 1\nmodule \"m\" canonical {\n  input %x: f32[1, 16, 6, 6]\n" +
                           std::string("  input %z: f32[1, 16, 6, 6]\n") + nodes + "\n}")
                    .value();
  Infer(graph);
  return graph;
}

struct JoinCase {
  const char* name;
  const char* nodes;
  int joined;      // Concats without a kernel
  int copied = 0;  // tensors
};

const JoinCase kJoins[] = {
    {"outermost axis", "%a = Exp(%x) %b = Softmax(%z) %y = Concat(%a, %b) {axis = 0} output %y", 1},
    {"channels", "%a = Exp(%x) %b = Softmax(%z) %y = Concat(%a, %b) {axis = -3} output %y", 1},
    {"read afterwards",
     "%a = Exp(%x) %b = Softmax(%z) %y = Concat(%a, %b) {axis = 1} %c = Neg(%a) %d = Tanh(%b) "
     "%e = Relu(%y) output %c, %d, %e",
     1},
    {"an output as well",
     "%a = Exp(%x) %b = Softmax(%z) %y = Concat(%a, %b) {axis = 1} output %a, %y", 1, 1},
    {"an operand twice", "%a = Exp(%x) %y = Concat(%a, %a) {axis = 1} output %y", 1, 1},
    {"an input", "%a = Softmax(%x) %y = Concat(%a, %z) {axis = 1} output %y", 1, 1},
    {"mostly inputs", "%a = Softmax(%x) %y = Concat(%x, %a, %z) {axis = 1} output %y", 0},
    {"under other dims",
     "const %s: i64[2] = [4, 144] %a = Exp(%x) %b = Softmax(%z) %c = Reshape(%a, %s) "
     "%d = Reshape(%b, %s) %y = Concat(%c, %d) {axis = 0} %e = Neg(%a) output %y, %e",
     1},
    {"in the middle of rows",
     "%a = Exp(%x) %b = Softmax(%z) %y = Concat(%a, %b) {axis = 2} output %y", 0},
    {"in the middle of a vector",
     "const %k: i64[2] = [1, 15] %a, %b = Split(%x, %k) {axis = 1} %c = Exp(%a) %d = Softmax(%b) "
     "%y = Concat(%c, %d) {axis = 1} output %y",
     0},
    // As DenseNet has it.
    {"all that came before",
     "%a = Exp(%x) %b = Softmax(%z) %c = Concat(%a, %b) {axis = 1} %d = Tanh(%c) "
     "%e = Concat(%a, %b, %d) {axis = 1} %f = Relu(%e) %g = Concat(%a, %b, %d, %f) {axis = 1} "
     "%h = Neg(%g) output %h",
     3},
    {"in another order",
     "%a = Exp(%x) %b = Softmax(%z) %c = Concat(%a, %b) {axis = 1} %d = Tanh(%c) "
     "%e = Concat(%b, %a, %d) {axis = 1} %f = Neg(%e) output %f",
     2, 2},
    {"a part of another",
     "%a = Exp(%x) %b = Softmax(%z) %c = Concat(%a, %b) {axis = 1} %d = Neg(%c) %t = Tanh(%z) "
     "%e = Concat(%b, %t) {axis = 1} %f = Neg(%e) output %d, %f",
     2, 2},
    {"joined with itself",
     "%a = Exp(%x) %b = Softmax(%z) %c = Concat(%a, %b) {axis = 1} "
     "%e = Concat(%c, %c) {axis = 1} %f = Neg(%e) output %f",
     2, 1},
    {"of branches",
     "const %zero: f32[] = [0.0] %a = Exp(%x) %sum = ReduceSum(%a) {keepdims = 0} "
     "%positive = Greater(%sum, %zero) %b = If(%positive, %x) { "
     "else_branch = graph \"no\" { input %p: f32[1, 16, 6, 6] %q = Softmax(%p) output %q }, "
     "then_branch = graph \"yes\" { input %r: f32[1, 16, 6, 6] %s = Tanh(%r) output %s } } "
     "%y = Concat(%a, %b) {axis = 1} %e = Neg(%y) output %e",
     1, 2},
    {"updated in place",
     "const %i: i64[1, 1] = [0] %u = Tanh(%z) %a = Exp(%x) %b = Softmax(%z) "
     "%y = Concat(%a, %b) {axis = 1} %c = ScatterND(%a, %i, %u) %e = Neg(%y) output %c, %e",
     1, 1},
};

TEST(JoinsTest, OperandsAreComputedWhereTheyBelong) {
  for (const JoinCase& c : kJoins) {
    SCOPED_TRACE(c.name);
    const Graph graph = Around(c.nodes);
    ExpectSameAsInterpreter(graph);
    const Compiled compiled = CompileGraph(graph).value();
    EXPECT_EQ(std::count_if(compiled.report.kernels.begin(), compiled.report.kernels.end(),
                            [](const KernelReport& kernel) { return kernel.kernel == "joined"; }),
              c.joined);
    const std::string text = PlanText(graph, {}, PlanStage::kMemory).value();
    int copies = 0;
    for (size_t at = 0; (at = text.find(" copy b", at)) != std::string::npos; ++at) ++copies;
    EXPECT_EQ(copies, c.copied) << text;
  }
}

// Channels in blocks, of which only the last operand may have fewer than a vector.
TEST(JoinsTest, BlocksOfChannels) {
  for (const int odd : {16, 11}) {
    SCOPED_TRACE(odd);
    Graph graph;
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 24, 9, 9}));
    const auto convolve = [&](ValueId from, int in, int out) {
      const ValueId w =
          graph.AddConstant("w", Values({out, in, 3, 3}, static_cast<uint64_t>(in + out)));
      return Node1(graph, "Conv", {from, w}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    };
    const ValueId a = convolve(x, 24, 32), b = Node1(graph, "Relu", {convolve(a, 32, 16)});
    const ValueId c = Node1(graph, "Concat", {a, b}, {{"axis", int64_t{1}}});
    const ValueId d = convolve(c, 48, odd);
    const ValueId e = Node1(graph, "Concat", {a, b, d}, {{"axis", int64_t{1}}});
    graph.outputs = {convolve(e, 48 + odd, 40), b};
    Infer(graph);
    ExpectSameAsInterpreter(graph, {}, 1e-4);
    const std::string text = PlanText(graph, {}, PlanStage::kMemory).value();
    EXPECT_THAT(text, HasSubstr("by joined"));
    EXPECT_EQ(text.find("(Concat) by scheduled"), std::string::npos) << text;
  }
}

struct SplitCase {
  const char* name;
  const char* nodes;
  int views;  // Splits without a kernel
};

const SplitCase kSplits[] = {
    {"outermost axis",
     "%w = Concat(%x, %z) {axis = 0} %e = Softmax(%w) {axis = 1} %a, %b = Split(%e) {axis = 0, "
     "num_outputs = 2} %c = Neg(%a) %d = Tanh(%b) output %c, %d",
     1},
    {"channels",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 1, num_outputs = 2} %c = Neg(%a) "
     "%d = Tanh(%b) output %c, %d",
     1},
    {"outputs of the model",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 1, num_outputs = 2} output %a, %b, %e", 1},
    {"an input", "%a, %b = Split(%x) {axis = 1, num_outputs = 2} %c = Neg(%b) output %a, %c", 1},
    {"of a view",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 1, num_outputs = 2} %c, %d = Split(%b) {axis = "
     "1, "
     "num_outputs = 2} %f = Neg(%d) %g = Tanh(%c) output %a, %f, %g",
     2},
    {"other dims of a later result",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 1, num_outputs = 2} const %k: i64[2] = [8, 36] "
     "%r = Reshape(%b, %k) %c = Neg(%r) output %a, %c, %r",
     1},
    {"other dims of a view's view",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 1, num_outputs = 2} const %k: i64[2] = [8, 36] "
     "%r = Reshape(%b, %k) %c, %d = Split(%r) {axis = 0, num_outputs = 2} const %l: i64[3] = "
     "[2, 2, 36] %s = Reshape(%d, %l) %t = Flatten(%s) %f = Neg(%t) %g = Tanh(%s) output %c, %f, "
     "%g",
     2},
    {"joined in another order",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 1, num_outputs = 2} %y = Concat(%b, %a) {axis = "
     "1} %h = Tanh(%y) output %h, %e",
     1},
    {"joined again",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 1, num_outputs = 2} %c = Neg(%b) "
     "%y = Concat(%a, %c) {axis = 1} %h = Tanh(%y) output %h",
     1},
    {"of what is joined",
     "%a = Exp(%x) %b = Softmax(%z) %y = Concat(%a, %b) {axis = 1} %c, %d = Split(%b) {axis = 1, "
     "num_outputs = 2} %f = Neg(%d) %g = Tanh(%y) output %c, %f, %g",
     1},
    {"read afterwards",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 1, num_outputs = 2} %c = Neg(%a) %d = Tanh(%e) "
     "output %b, %c, %d",
     1},
    {"updated in place",
     "const %i: i64[1, 1] = [0] const %k: i64[2] = [8, 8] %u, %v = Split(%z, %k) {axis = 1} "
     "%e = Softmax(%x) %a, %b = Split(%e, %k) {axis = 1} %c = ScatterND(%a, %i, %u) output %b, %c, "
     "%v",
     2},
    {"in the middle of rows",
     "%e = Softmax(%x) %a, %b = Split(%e) {axis = 2, num_outputs = 2} %c = Neg(%a) output %b, %c",
     0},
    {"in a body",
     "const %zero: f32[] = [0.0] %a = Exp(%x) %sum = ReduceSum(%a) {keepdims = 0} "
     "%positive = Greater(%sum, %zero) %b = If(%positive, %x) { "
     "else_branch = graph \"no\" { input %p: f32[1, 16, 6, 6] %q, %r = Split(%p) {axis = 1, "
     "num_outputs = 2} output %r }, "
     "then_branch = graph \"yes\" { input %s: f32[1, 16, 6, 6] %t, %u = Split(%s) {axis = 1, "
     "num_outputs = 2} output %t } } output %b",
     0},
};

TEST(JoinsTest, ResultsOfSplitsAreViews) {
  for (const SplitCase& c : kSplits) {
    SCOPED_TRACE(c.name);
    const Graph graph = Around(c.nodes);
    ExpectSameAsInterpreter(graph);
    const Compiled compiled = CompileGraph(graph).value();
    EXPECT_EQ(std::count_if(compiled.report.kernels.begin(), compiled.report.kernels.end(),
                            [](const KernelReport& kernel) { return kernel.kernel == "view"; }),
              c.views);
  }
}

// A result is reserved from its first part on: small ones that wait for large ones are copied.
TEST(JoinsTest, TheArenaStaysSmall) {
  std::string nodes, outputs;
  for (int i = 0; i < 8; ++i)
    nodes += fmt::format("const %s{0}: f32[] = [{0}.5] %small{0} = Mul(%x, %s{0}) ", i);
  for (int i = 0; i < 8; ++i) {
    nodes += fmt::format(
        "const %t{0}: i64[4] = [1, 64, 1, 1] %tile{0} = Tile(%small{0}, %t{0}) "
        "%large{0} = Softmax(%tile{0}) %y{0} = Concat(%small{0}, %large{0}) {{axis = 1}} "
        "%sum{0} = ReduceSum(%y{0}) {{keepdims = 0}} output %sum{0} ",
        i);
  }
  const Graph graph = Around(nodes);
  ExpectSameAsInterpreter(graph, {}, 1e-3);  // sums of 37,440 numbers
  const int64_t result = 4 * 16 * 65 * 36;
  EXPECT_LT(CompileGraph(graph).value().report.arena_bytes, 4 * result);
}

// Memory of a size that only the run knows, seen under dims that the model states.
TEST(JoinsTest, StatedDimsOfSymbolicMemory) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, 64}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {n, 8}));
  const ValueId z = graph.AddInput("z", Type::Tensor(DataType::kF32, {4, 8}));
  const ValueId dims = graph.AddConstant("dims", Tensor::I64({4, 8}));
  const ValueId stated = Node1(graph, "Reshape", {Node1(graph, "Exp", {x}), dims});
  graph.outputs = {
      Node1(graph, "Concat", {Node1(graph, "Softmax", {z}), stated}, {{"axis", int64_t{0}}})};
  Infer(graph);
  ExpectSameAsInterpreter(graph, {{"n", 4}});
}

// With several images, and where sizes are known only at run time, nothing is in one piece or its
// place is not known.
TEST(JoinsTest, OtherSizes) {
  Graph graph;
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, 64}));
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {n, 8}));
  const ValueId y = graph.AddInput("y", Type::Tensor(DataType::kF32, {3, 8}));
  const ValueId a = Node1(graph, "Exp", {x}), b = Node1(graph, "Softmax", {x});
  const ValueId c = Node1(graph, "Exp", {y}), d = Node1(graph, "Softmax", {y});
  graph.outputs = {Node1(graph, "Concat", {a, b}, {{"axis", int64_t{0}}}),
                   Node1(graph, "Concat", {a, b}, {{"axis", int64_t{1}}}),
                   Node1(graph, "Concat", {c, d}, {{"axis", int64_t{1}}}),
                   Node1(graph, "Concat", {a, c}, {{"axis", int64_t{0}}})};
  Infer(graph);
  for (const int64_t size : {1, 2, 7}) ExpectSameAsInterpreter(graph, {{"n", size}});
  EXPECT_EQ(PlanText(graph, {}, PlanStage::kProgram).value().find("by joined"), std::string::npos);
}

}  // namespace
}  // namespace quench::codegen::joins_test
