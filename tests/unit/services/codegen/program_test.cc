// Programs as text, what is legal of them, and which of their kernels are one.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "common/base/status.h"
#include "common/ir/text.h"
#include "common/ops/op.h"
#include "services/codegen/codegen.h"
#include "services/codegen/emit/module.h"
#include "services/codegen/plan/program_parse.h"
#include "services/codegen/plan/program_text.h"
#include "services/codegen/plan/program_verify.h"
#include "services/codegen/plan/propose.h"
#include "services/codegen/plan/variants.h"
#include "services/codegen/targets/resolve.h"
#include "tests/support/matchers.h"

namespace quench::codegen::program_test {
namespace {

using ::quench::testing::HasSubstr;

Graph Parsed(const std::string& text) {
  Graph graph = ParseGraph(text).value();
  const absl::Status status = ops::InferGraph(graph);
  EXPECT_TRUE(status.ok()) << status;
  return graph;
}

std::string Zeros(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += i == 0 ? "0" : ", 0";
  return text + "]";
}

Graph Network() {
  return Parsed(R"(quench.ir 1
module "net" canonical {
  input %x: f32[1, 8, 4, 4]
  input %long: f32[1, 8, 4, 4]
  const %w: f32[16, 8, 1, 1] = )" +
                Zeros(128) + R"(
  %a = Conv(%x, %w)
  %b = Relu(%a)
  %c = Exp(%long)
  %d = Flatten(%c) {axis = 1}
  %e = Neg(%d)
  output %b, %e
})");
}

// Without the plans of kernels, which follow their calls: those are for tests of kernels.
std::string WithoutPlans(const std::string& text) {
  std::string rest;
  for (size_t line = 0, end = 0; line < text.size(); line = end) {
    end = text.find('\n', line) + 1;
    const std::string each = text.substr(line, end - line);
    if (!each.starts_with("  plan {")) rest += each;
  }
  return rest;
}

TEST(ProgramTest, StagesHaveATextEach) {
  CompileOptions options;
  options.target = "x86-64-v3";
  const std::string program = PlanText(Network(), options, PlanStage::kProgram).value();
  EXPECT_THAT(program, HasSubstr("s3 arena, lives 2..7\n"));  // nothing has a place yet
  EXPECT_THAT(program, HasSubstr("b0) -> b2, 4 tasks\n  plan {\"shape\":{"));
  EXPECT_EQ(WithoutPlans(PlanText(Network(), options, PlanStage::kMemory).value()),
            R"(variant x86-64-v3
program of 8 positions
s0 input 0, lives 0..2
s1 input 1, lives 0..4
s2 arena, lives 1..2, at 1024
s3 arena, lives 2..7, at 0
s4 arena, lives 4..6, at 1024
s5 output 1, lives 6..6
s6 output 0, lives 7..7
b0 s0 `x`: f32[1, 8, 4, 4]
b1 s1 `long`: f32[1, 8, 4, 4]
b2 s2 `b prepared`: u8[512]
b3 s3 `b`: f32[1, 16, 4, 4] NCHW8c
b4 s4 `c`: f32[1, 8, 4, 4]
b5 s4 `d`: f32[1, 128]
b6 s5 `e`: f32[1, 128]
b7 s6 `b`: f32[1, 16, 4, 4]
0 node 0: `a+b` (q.fused) by conv
1 call conv_prepare(b0) -> b2, 4 tasks
2 call conv(b0, b2) -> b3, packs w0
3 node 1: `c` (Exp) by scheduled
4 call Exp(b1) -> b4, may write over b1
  loops
5 node 2: `e` (Neg) by scheduled
6 call Neg(b5) -> b6, may write over b5
  loops
7 call transform(b3) -> b7, 32 tasks, of no node
  loops
value `b` in b3 from 3 on, by node 0
value `c` in b4 from 5 on, by node 1
value `d` in b5 from 5 on
value `e` in b6 from 7 on, by node 2
plan: 3 slots, arena in 0, lower bound in 1, scratch in 2
arena 1536 bytes at typical sizes, at least 1536
)");
}

// The check of a view comes after its operand is written, which may be larger than the caller's memory.
TEST(ProgramTest, ViewsOfAnotherSizeAreNotComputedInTheOutput) {
  const Graph graph = Parsed(R"(quench.ir 1
module "net" canonical {
  symbol rows = input(0, 0) in 0..64
  input %x: f32[rows, 16]
  const %dims: i64[2] = [2, 8]
  const %any: i64[2] = [-1, 8]
  %a = Neg(%x)
  %fixed = Reshape(%a, %dims)
  %b = Exp(%x)
  %open = Reshape(%b, %any)
  output %fixed, %open
})");
  const std::string text = PlanText(graph, {}, PlanStage::kProgram).value();
  EXPECT_THAT(text, HasSubstr("s1 arena"));  // of `a`
  EXPECT_THAT(text, HasSubstr("`a`: f32[rows, 16]"));
  EXPECT_THAT(text, HasSubstr("s2 output 1"));  // of `b`: any number of rows fits
  EXPECT_THAT(text, HasSubstr("s3 output 0"));
}

// A group is asked about while groups are cut, and when kernels are chosen.
TEST(ProgramTest, GroupsAreProposedForOnce) {
  CompileOptions options;
  options.target = "x86-64-v3";
  const Target target = ResolveTarget(options.target).value()[0];
  Graph groups = WithOwnSymbols(GroupGraph(Network(), options).value());
  Proposer proposer(target, options);
  std::map<std::string, std::shared_ptr<const VectorCode>> first;
  const Graph cut = passes::CutGroups(std::move(groups), [&](const Graph& graph, const Node& node) {
                      const Proposals proposals = proposer.Of(graph, node);
                      first[node.name] = proposals.candidates.at(0).code;
                      return true;
                    }).value();
  ASSERT_FALSE(first.empty());
  for (const Node& node : cut.nodes) {
    if (node.op != "q.fused") continue;
    EXPECT_EQ(proposer.Of(cut, node).candidates.at(0).code, first.at(node.name)) << node.name;
  }
}

TEST(ProgramTest, KernelsTakeTheLongestPrefixOfAGroup) {
  const std::string weights = Zeros(12 * 16);
  const Graph graph = Parsed(R"(quench.ir 1
module "scores" canonical {
  input %x: f32[2, 8, 12]
  input %mask: f32[2, 1, 16]
  const %k: f32[12, 16] = )" +
                             weights + R"(
  const %scale: f32[] = [0.25]
  const %half: f32[] = [0.5]
  %s = MatMul(%x, %k)
  %m = Mul(%s, %scale)
  %a = Add(%m, %mask)
  %y = Mul(%a, %half)
  output %y
})");
  CompileOptions options;
  options.target = "x86-64-v3";
  const std::string text = PlanText(graph, options, PlanStage::kProgram).value();
  EXPECT_THAT(text, HasSubstr("node 0: `s+m` (q.fused) by matmul"));
  EXPECT_THAT(text, HasSubstr("node 1: `a+y` (q.fused) by scheduled"));
  EXPECT_THAT(text, HasSubstr("call fused(b2, b1) -> b3"));
}

// The condition of a branch is read before the branches, and its memory may be theirs.
TEST(ProgramTest, ConditionsAreComputedToo) {
  const Graph graph = Parsed(R"(quench.ir 1
module "if" canonical {
  input %x: f32[4]
  const %zero: f32[] = [0.0]
  const %axes: i64[1] = [0]
  %sum = ReduceSum(%x, %axes) {keepdims = 0}
  %positive = Greater(%sum, %zero)
  %y = If(%positive, %x) {
    else_branch = graph "no" { input %a: f32[4] %p = Neg(%a) %q = Softmax(%p) output %q },
    then_branch = graph "yes" { input %b: f32[4] %r = Softmax(%b) %s = Neg(%r) output %s }
  }
  output %y
})");
  for (const char* target : {"x86-64-v2", "x86-64-v4", "armv7"}) {
    CompileOptions options;
    options.target = target;
    for (const PlanStage stage : {PlanStage::kProgram, PlanStage::kMemory}) {
      const auto text = PlanText(graph, options, stage);
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_THAT(*text, HasSubstr("if b"));
    }
  }
}

TEST(ProgramTest, TensorsWithoutElementsLieNowhere) {
  const Graph graph = Parsed(R"(quench.ir 1
module "empty" canonical {
  input %x: f32[4, 3]
  const %parts: i64[2] = [0, 4]
  %e = Exp(%x)
  %empty, %all = Split(%e, %parts) {axis = 0}
  %none = Neg(%empty)
  %y = Neg(%all)
  %z = Add(%y, %e)
  output %z, %none
})");
  CompileOptions options;
  options.opt_level = 0;
  EXPECT_TRUE(PlanText(graph, options, PlanStage::kMemory).ok());
}

struct Planned {
  Program program;
  size_t weights = 0;
};

Planned Plan() {
  const Target target = ResolveTarget("x86-64-v3").value()[0];
  CompileOptions options;
  const Graph groups = GroupGraph(Network(), options).value();
  WeightTable weights;
  std::vector<PlannedVariant> variants =
      PlanVariants(groups, {target}, options, weights, {}).value();
  return {std::move(variants[0].built.program), weights.entries().size()};
}

TEST(ProgramTest, DefectsAreNamed) {
  const auto defect = [](const std::function<void(Program&)>& change) {
    Planned planned = Plan();
    EXPECT_TRUE(VerifyProgram(planned.program, planned.weights).ok());
    change(planned.program);
    return VerifyProgram(planned.program, planned.weights).ToString();
  };
  const auto call = [](Program& program) -> CallStep& {
    return *std::find_if(program.steps.begin(), program.steps.end(), [](const Step& step) {
              const auto* each = step.As<CallStep>();
              return each != nullptr && !each->packs.empty();
            })->As<CallStep>();
  };
  EXPECT_THAT(defect([](Program& p) { p.buffers[0].storage = 99; }),
              HasSubstr("buffer b0 lies in no storage"));
  EXPECT_THAT(defect([](Program& p) { p.buffers[3].offset = 64; }),
              HasSubstr("buffer b3 ends 1088 bytes into storage s3, which has 1024"));
  EXPECT_THAT(defect([&](Program& p) { call(p).buffers[0] = -1; }), HasSubstr("names buffer b-1"));
  EXPECT_THAT(defect([&](Program& p) { call(p).packs[0] = 7; }),
              HasSubstr("names weight entry w7"));
  EXPECT_THAT(defect([&](Program& p) { call(p).kernel = {}; }),
              HasSubstr("calls a kernel without a plan"));
  EXPECT_THAT(defect([&](Program& p) {
                for (Storage& storage : p.storages) storage.begin = 100;
              }),
              HasSubstr("which lives 100.."));
  EXPECT_THAT(defect([](Program& p) {
                ASSERT_GE(p.typical_places.size(), 2u);
                for (PlacedStorage& place : p.typical_places) {
                  place.offset = 0;
                  p.storages[static_cast<size_t>(place.storage)].begin = 0;
                }
              }),
              HasSubstr("are alive at once in the same memory"));
}

// Two calls of two tasks each: the first makes two rows by each, and each of the second needs three and four.
Program Banded(std::vector<BandsStep::Range> order) {
  Program program;
  program.nodes.resize(2);
  BandsStep bands;
  for (int i = 0; i < 2; ++i) {
    bands.body.push_back({2 * i, i, BeginStep{}});
    CallStep call;
    call.kernel.tasks = 2;
    call.rows = i == 0 ? RowOrder{0, {2, 4}, {2, 4}} : RowOrder{0, {3, 4}, {1, 2}};
    bands.body.push_back({2 * i + 1, i, std::move(call)});
  }
  bands.order = std::move(order);
  program.steps.push_back({3, 1, std::move(bands)});
  return program;
}

TEST(ProgramTest, BandsFindTheRowsThatTheyRead) {
  const auto problem = [](std::vector<BandsStep::Range> order) {
    return VerifyProgram(Banded(std::move(order)), 0).ToString();
  };
  EXPECT_EQ(problem({{1, 0, 2}, {3, 0, 1}, {3, 1, 2}}), "OK");
  EXPECT_THAT(problem({{1, 0, 1}, {3, 0, 1}, {1, 1, 2}, {3, 1, 2}}),
              HasSubstr("step 3 reads rows that are not there"));
  EXPECT_THAT(problem({{1, 0, 2}, {3, 0, 1}}), HasSubstr("step 3 leaves tasks out"));
  EXPECT_THAT(problem({{1, 1, 2}}), HasSubstr("step 3 has tasks 1..2 out of order"));
  EXPECT_THAT(problem({{1, 0, 3}}), HasSubstr("step 3 has tasks 0..3 out of order"));
  EXPECT_THAT(problem({{2, 0, 1}}), HasSubstr("step 3 has tasks 0..1 out of order"));
}

TEST(ProgramTest, KernelsOfATextHaveNoCode) {
  SymbolTable symbols;
  const Program program =
      ParseProgram("program of 1 positions\n0 call Exp()\n  loops\n", symbols).value();
  const Target target = ResolveTarget("x86-64-v3").value()[0];
  const auto module = ModuleBuilder::Create(target).value();
  const auto kernel = module->Emit(program.steps[0].As<CallStep>()->kernel);
  EXPECT_EQ(kernel.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(kernel.status().ToString(), HasSubstr("read from a text"));
}

// ---- which kernels are one ----

// The symbols of a graph's kernel and of its preparation, if it has one.
std::string SymbolOf(const std::string& text, ModuleBuilder& module, const Target& target) {
  CompileOptions options;
  WeightTable weights;
  const auto groups = GroupGraph(Parsed(text), options);
  EXPECT_TRUE(groups.ok()) << groups.status() << text;
  const auto variants = PlanVariants(*groups, {target}, options, weights, {});
  EXPECT_TRUE(variants.ok()) << variants.status() << text;
  std::string symbol;
  bool prepared = false;
  for (const Step& step : (*variants)[0].built.program.steps) {
    const auto* call = step.As<CallStep>();
    if (call == nullptr || call->kernel.name == "transform") continue;
    const auto kernel = module.Emit(call->kernel);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_TRUE(symbol.empty() || prepared) << "two kernels: " << text;
    prepared = call->kernel.name.ends_with("_prepare");
    symbol += kernel->symbol + " ";
  }
  return symbol;
}

std::string Conv(const std::string& attributes, const std::string& x, const std::string& w,
                 int weights, const std::string& tail) {
  return "quench.ir 1\nmodule \"m\" canonical {\n  input %x: f32" + x + "\n  const %w: f32" + w +
         " = " + Zeros(weights) + "\n  %a = Conv(%x, %w) {" + attributes + "}\n  " + tail + "\n}";
}

// Everything that a node can say of a convolution changes the code, and nothing else does.
TEST(SharingTest, DifferentKernelsDoNotShareCode) {
  const std::string plain = "output %a", relu = "%b = Relu(%a) output %b";
  const std::string pads = "pads = [1, 1, 1, 1]", x = "[1, 8, 9, 9]", w = "[8, 8, 3, 3]";
  const std::vector<std::string> different = {
      Conv(pads, x, w, 576, plain),
      Conv("pads = [0, 1, 2, 1]", x, w, 576, plain),
      Conv("pads = [1, 0, 1, 2]", x, w, 576, plain),
      Conv(pads + ", strides = [2, 2]", x, w, 576, plain),
      Conv("pads = [2, 2, 2, 2], dilations = [2, 2]", x, w, 576, plain),
      Conv(pads, "[1, 8, 9, 10]", w, 576, plain),
      Conv(pads, "[1, 8, 10, 9]", w, 576, plain),
      Conv(pads, "[1, 16, 9, 9]", "[8, 16, 3, 3]", 1152, plain),
      Conv(pads, x, "[40, 8, 3, 3]", 2880, plain),
      Conv(pads + ", group = 8", x, "[8, 1, 3, 3]", 72, plain),
      Conv("group = 1", x, "[8, 8, 1, 1]", 64, plain),
      Conv(pads, x, w, 576, relu),
      Conv(pads, x, w, 576, "%b = LeakyRelu(%a) {alpha = 0.1} output %b"),
      Conv(pads, x, w, 576, "%b = LeakyRelu(%a) {alpha = 0.2} output %b"),
      Conv(pads, x, w, 576, "%b = Sigmoid(%a) output %b"),
      Conv(pads, x, w, 576, "input %r: f32[1, 8, 9, 9] %b = Add(%a, %r) output %b"),
      Conv(pads, x, w, 576, "input %r: f32[1, 8, 9, 9] %b = Sub(%r, %a) output %b"),
      Conv(pads, x, w, 576, "input %r: f32[1, 8, 9, 9] %b = Sub(%a, %r) output %b"),
      "quench.ir 1\nmodule \"m\" canonical { input %x: f32[4, 7] %y = Exp(%x) output %y }",
      "quench.ir 1\nmodule \"m\" canonical { input %x: f32[4, 700] %y = Exp(%x) output %y }",
      "quench.ir 1\nmodule \"m\" canonical { input %x: f64[4, 7] %y = Exp(%x) output %y }",
      "quench.ir 1\nmodule \"m\" canonical { input %x: f32[4, 7] %y = Softmax(%x) {axis = 0} "
      "output %y }",
      "quench.ir 1\nmodule \"m\" canonical { input %x: f32[4, 7] %y = Softmax(%x) {axis = 1} "
      "output %y }",
      "quench.ir 1\nmodule \"m\" canonical { input %x: f32[7, 4] input %z: f32[4, 7] %y = "
      "MatMul(%x, %z) output %y }",
      "quench.ir 1\nmodule \"m\" canonical { input %x: f32[7, 5] input %z: f32[5, 7] %y = "
      "MatMul(%x, %z) output %y }",
  };
  for (const char* name : {"x86-64-v3", "x86-64-v4-vnni", "aarch64"}) {
    const Target target = ResolveTarget(name).value()[0];
    const auto module = ModuleBuilder::Create(target).value();
    std::map<std::string, std::string> owners;
    for (const std::string& text : different) {
      const auto [owner, fresh] = owners.emplace(SymbolOf(text, *module, target), text);
      EXPECT_TRUE(fresh) << name << ": one function for\n" << owner->second << "\nand\n" << text;
    }
    for (const std::string& text : different)
      EXPECT_EQ(owners.count(SymbolOf(text, *module, target)), 1u) << text;
    EXPECT_EQ(owners.size(), different.size());
  }
}

// An exponential whose multiplications may be fused with additions is another one than where they may
// not.
TEST(SharingTest, FusionIsPartOfTheCode) {
  const Target target = ResolveTarget("x86-64-v3").value()[0];
  const auto module = ModuleBuilder::Create(target).value();
  CompileOptions options;
  WeightTable weights;
  const Graph graph =
      Parsed("quench.ir 1\nmodule \"m\" canonical { input %x: f32[4, 7] %y = Exp(%x) output %y }");
  const auto variants =
      PlanVariants(GroupGraph(graph, options).value(), {target}, options, weights, {}).value();
  std::set<std::string> symbols;
  for (const Step& step : variants[0].built.program.steps) {
    const auto* call = step.As<CallStep>();
    if (call == nullptr) continue;
    for (const bool fuses : {true, false}) {
      KernelPlan plan = call->kernel;
      plan.fuses = fuses;
      symbols.insert(module->Emit(plan)->symbol);
    }
  }
  EXPECT_EQ(symbols.size(), 2u);
}

}  // namespace
}  // namespace quench::codegen::program_test
