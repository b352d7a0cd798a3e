#include "services/codegen/plan/program_parse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/text.h"
#include "common/ops/op.h"
#include "services/codegen/plan/assign.h"
#include "services/codegen/plan/program_text.h"
#include "services/codegen/plan/program_verify.h"
#include "services/codegen/plan/variants.h"
#include "services/codegen/targets/resolve.h"
#include "tests/fuzz/graphs/grower.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"
#include "tests/support/networks.h"

namespace quench::codegen::program_parse_test {
namespace {

using ::quench::testing::HasSubstr;

Graph Parsed(const std::string& body) {
  Graph graph = ParseGraph("quench.ir 1\nmodule \"m\" canonical {\n" + body + "\n}").value();
  const absl::Status status = ops::InferGraph(graph);
  EXPECT_TRUE(status.ok()) << status;
  return graph;
}

// The program of each variant, by its target's name.
std::vector<std::pair<std::string, std::string>> ByVariant(const std::string& text) {
  const std::string mark = "variant ";
  std::vector<std::pair<std::string, std::string>> programs;
  for (size_t at = text.find(mark); at != std::string::npos;) {
    const size_t line = text.find('\n', at), next = text.find("\n" + mark, line);
    const size_t end = next == std::string::npos ? text.size() : next;
    programs.emplace_back(text.substr(at + mark.size(), line - at - mark.size()),
                          text.substr(line + 1, end - line - 1));
    at = next == std::string::npos ? next : next + 1;
  }
  return programs;
}

// The text of the program that this text gives.
std::string Again(const std::string& text) {
  SymbolTable symbols;
  const absl::StatusOr<Program> program = ParseProgram(text, symbols);
  return program.ok() ? ProgramText(*program, symbols) : program.status().ToString();
}

// The text is whole: what is read of a program has the same text, is legal, and gets the same memory as
// the program that was built. Returns the text with memory; "" for a graph that is not planned.
std::string ExpectWhole(const Graph& graph, const CompileOptions& options) {
  const auto text = PlanText(graph, options, PlanStage::kProgram);
  if (!text.ok()) return "";
  const auto memory = PlanText(graph, options, PlanStage::kMemory);
  EXPECT_TRUE(memory.ok()) << memory.status();
  if (!memory.ok()) return "";
  const auto before = ByVariant(*text), after = ByVariant(*memory);
  const std::vector<Target> targets = ResolveTarget(options.target).value();
  EXPECT_EQ(before.size(), targets.size());
  EXPECT_EQ(after.size(), targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    SCOPED_TRACE(before[i].first);
    EXPECT_EQ(Again(before[i].second), before[i].second);
    EXPECT_EQ(Again(after[i].second), after[i].second);
    SymbolTable symbols;
    absl::StatusOr<Program> program = ParseProgram(before[i].second, symbols);
    if (!program.ok()) continue;
    const absl::Status assigned = AssignMemory(*program, symbols, targets[i]);
    EXPECT_TRUE(assigned.ok()) << assigned;
    EXPECT_EQ(ProgramText(*program, symbols), after[i].second);
    const absl::Status legal = VerifyProgram(*program, INT32_MAX);
    EXPECT_TRUE(legal.ok()) << legal;
  }
  return *memory;
}

std::string ExpectWhole(const Graph& graph, const std::string& target = "x86-64-v3",
                        int level = 3) {
  CompileOptions options;
  options.target = target;
  options.opt_level = level;
  const std::string text = ExpectWhole(graph, options);
  EXPECT_FALSE(text.empty()) << "the graph is not planned";
  return text;
}

TEST(ProgramParseTest, CasesOfPasses) {
  int planned = 0;
  for (const auto& entry : std::filesystem::directory_iterator(QUENCH_PASS_CASES)) {
    SCOPED_TRACE(entry.path().filename());
    const std::string text = *ReadFile(entry.path());
    const absl::StatusOr<Graph> graph = ParseGraph(text.substr(text.find("---\n") + 4));
    if (!graph.ok() || graph->stage == Stage::kImported) continue;
    for (const char* target : {"x86-64-v4-vnni", "aarch64"}) {
      CompileOptions options;
      options.target = target;
      planned += ExpectWhole(*graph, options).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(planned, 40);
}

TEST(ProgramParseTest, RandomGraphs) {
  fuzz::Statistics statistics;
  std::string all;
  int planned = 0;
  const std::vector<std::string> targets = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64",
                                            "armv7"};
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const fuzz::Specimen specimen = fuzz::Grow(seed, statistics);
    CompileOptions options;
    options.target = targets[seed % targets.size()];
    options.opt_level = static_cast<int>(seed % 4);
    options.taps = static_cast<Taps>(seed % 3);
    const std::string text = ExpectWhole(specimen.graph, options);
    planned += text.empty() ? 0 : 1;
    all += text;
  }
  EXPECT_GT(planned, 35);
  for (const char* part : {"symbol ", "let $", " heap ", " given up", ", moved", "becomes output",
                           "\nthen\n", "\ndo\n", "\n    ", "plan {", "loops", "tap 0", "slot"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
}

TEST(ProgramParseTest, ANetwork) {
  const std::string text = ExpectWhole(testing::Googlenet(), "x86-64-v4-vnni");
  EXPECT_THAT(text, HasSubstr("by joined"));
  EXPECT_THAT(text, HasSubstr("rows of input 0"));
}

// A depthwise convolution takes turns with the convolution whose rows it reads.
TEST(ProgramParseTest, Bands) {
  using testing::Add;
  constexpr int64_t kFew = 8, kMany = 112;
  const std::vector<int64_t> ones(4, 1);
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, kFew, 60, 60}));
  const auto weights = [&](std::vector<int64_t> dims) {
    return graph.AddConstant("w", testing::RandomTensor(dims, 1));
  };
  const ValueId tame = Add(graph, "Softmax", {x}, {{"axis", int64_t{1}}});
  const ValueId wide = Add(graph, "Conv", {tame, weights({kMany, kFew, 1, 1})});
  const ValueId deep = Add(graph, "Conv", {Add(graph, "Relu", {wide}), weights({kMany, 1, 3, 3})},
                           {{"group", kMany}, {"pads", ones}});
  graph.outputs = {Add(graph, "Conv", {deep, weights({kFew, kMany, 1, 1})})};
  const std::string text = ExpectWhole(graph);
  EXPECT_THAT(text, HasSubstr(" bands\nof\n  "));
  EXPECT_THAT(text, HasSubstr("\non one thread tasks "));
}

// Several variants, each with its own program.
TEST(ProgramParseTest, Variants) {
  const Graph graph = Parsed(R"(
  symbol n = input(0, 0) in 1..64
  input %x: f32[n, 16]
  %a = Softmax(%x) {axis = 1}
  %b = Add(%a, %x)
  output %b)");
  const std::string text = ExpectWhole(graph, "x86-64");
  EXPECT_EQ(ByVariant(text).size(), 3u);
}

// Rows that a loop adds, and a result whose size only the run tells.
TEST(ProgramParseTest, LoopsAndSizesOfTheRun) {
  const std::string text = ExpectWhole(Parsed(R"(
  symbol n = input(0, 0) in 1..64
  input %x: f32[n, 4]
  input %count: i64[]
  input %go: bool[]
  %nonzero = NonZero(%x)
  %y, %rows = Loop(%count, %go, %x) {
    body = graph "body" {
      input %i: i64[]
      input %c: bool[]
      input %v: f32[n, 4]
      %w = Exp(%v)
      %r = Softmax(%w) {axis = 1}
      %d = Identity(%c)
      output %d, %w, %r
    }
  }
  output %nonzero, %y, %rows)"));
  EXPECT_THAT(text, HasSubstr(" heap 0"));
  EXPECT_THAT(text, HasSubstr("append b"));
  EXPECT_THAT(text, HasSubstr(", room in slot "));
  EXPECT_THAT(text, HasSubstr(" loop, b"));
}

TEST(ProgramParseTest, BranchesOfOtherSizes) {
  const std::string text = ExpectWhole(Parsed(R"(
  input %x: f32[4, 2]
  input %c: bool[]
  %y = If(%c, %x) {
    else_branch = graph "no" { input %a: f32[4, 2] %p = NonZero(%a) output %p },
    then_branch = graph "yes" { input %b: f32[4, 2] %r = Neg(%b) %q = NonZero(%r) output %q }
  }
  output %y)"));
  EXPECT_THAT(text, HasSubstr("\nthen\n  "));
}

// A plan with a number that JSON has no word for: a masked score is minus infinity.
TEST(ProgramParseTest, PlansWithInfinities) {
  const std::string text = ExpectWhole(Parsed(R"(
  input %x: f32[1, 32, 96]
  input %mask: bool[1, 1, 32, 32]
  %y = q.attention(%x, %x, %x, %mask) {
    fill = -inf, folded = 1, heads = 2, kv_heads = 2, offsets = [0, 32, 64], scale = 0.25,
    size = 16, value_size = 16
  }
  output %y)"));
  EXPECT_THAT(text, HasSubstr("\"fill\":\"-inf\""));
}

TEST(ProgramParseTest, SizesMayHaveNamesLikeBuffers) {
  for (const std::string name : {"batch", "b1", "bytes"}) {
    const std::string text =
        ExpectWhole(Parsed("  symbol " + name + " = input(0, 0) in 1..\n  input %x: f32[" + name +
                           ", 64]\n  %y = Softmax(%x) {axis = 1}\n  output %y"));
    EXPECT_THAT(text, HasSubstr(" -> b1, " + name + " tasks"));
  }
}

TEST(ProgramParseTest, NamesOfAnyCharacters) {
  Program program;
  program.num_positions = 2;
  for (const char* name : {"plain", "a `b`", "line\nbreak", "\xff", "", "a\\b", "\"q\""}) {
    const int id = static_cast<int>(program.buffers.size());
    Storage storage;
    storage.shape.dims = {4};
    program.storages.push_back(storage);
    program.buffers.push_back({name, storage.shape, id});
    program.nodes.push_back({name, name, name});
    program.steps.push_back({1, id, BeginStep{}});
    program.shown.push_back({name, id, id, 1});
    program.taps.push_back(id);
    program.tap_names.emplace_back(name);
  }
  const std::string text = ProgramText(program, {});
  EXPECT_EQ(Again(text), text);
  SymbolTable symbols;
  const Program again = ParseProgram(text, symbols).value();
  ASSERT_EQ(again.buffers.size(), program.buffers.size());
  for (size_t i = 0; i < again.buffers.size(); ++i) {
    EXPECT_EQ(again.buffers[i].name, program.buffers[i].name);
    EXPECT_EQ(again.nodes[i].op, program.nodes[i].op);
    EXPECT_EQ(again.tap_names[i], program.tap_names[i]);
  }
}

// Every field that steps after planning use is read, and not only printed.
TEST(ProgramParseTest, FieldsOfACall) {
  SymbolTable symbols;
  const Program program = ParseProgram(R"(program of 4 positions and 2 pointers
symbol n = input(0, 0) in 1..64 multiple 2
let $1 = (2*n)
s0 input 3, lives 0..2, shared
s1 heap 1, lives 1..2, moved, becomes output 2, for u8[n, 2]
s2 arena, lives 1..3
b0 s0 `x`: f32[n, 8, 4, 4] NCHW8c
b1 s2+64 `y`: f32[8]
0 node 0: `first` (Exp) by scheduled
1 call Exp(b0, b0) -> b1, packs w2 w0, 2*n tasks by 3, n bytes of scratch, scratch in s1, may write over b0, updates, unfused
  loops
  rows of input 1: needs 1..5 by 2, 5, 7 x 3, 9; makes 1..8; 2.5 us
2 call scores() -> b1, 4 tasks by thread, of no node
)",
                                       symbols)
                              .value();
  EXPECT_EQ(symbols.size(), 2);
  const Dim n = Dim::OfSymbol(0), twice = Dim::OfSymbol(1);
  EXPECT_EQ(program.num_pointers, 2);
  EXPECT_EQ(program.storages[0].home, Home::kInput);
  EXPECT_EQ(program.storages[0].index, 3);
  EXPECT_TRUE(program.storages[0].shared);
  EXPECT_EQ(program.storages[0].shape, program.buffers[0].shape);
  EXPECT_EQ(program.storages[1].shape, (Shape{DataType::kU8, {n, 2}, {}}));
  EXPECT_TRUE(program.storages[1].moved);
  EXPECT_EQ(program.storages[1].output, 2);
  EXPECT_EQ(program.buffers[0].shape, (Shape{DataType::kF32, {n, 8, 4, 4}, Layout{1, 8, {}}}));
  EXPECT_EQ(program.buffers[1].offset, 64);
  ASSERT_EQ(program.steps.size(), 3u);
  const CallStep& call = *program.steps[1].As<CallStep>();
  EXPECT_EQ(program.steps[1].node, 0);
  EXPECT_EQ(call.kernel.name, "Exp");
  EXPECT_EQ(call.buffers, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(call.first_output, 2);
  EXPECT_EQ(call.packs, (std::vector<int>{2, 0}));
  EXPECT_EQ(call.kernel.tasks, twice);
  EXPECT_TRUE(call.parallel);
  EXPECT_EQ(call.grain, 3);
  EXPECT_EQ(call.kernel.scratch_bytes, n);
  EXPECT_EQ(call.scratch_storage, 1);
  EXPECT_EQ(call.in_place, 0);
  EXPECT_TRUE(call.updates);
  EXPECT_FALSE(call.kernel.fuses);
  ASSERT_TRUE(call.rows.has_value());
  EXPECT_EQ(call.rows->input, 1);
  EXPECT_EQ(call.rows->needs, (std::vector<int64_t>{1, 3, 5, 5, 7, 7, 7, 9}));
  EXPECT_EQ(call.rows->makes, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(call.cost, 2.5);
  EXPECT_EQ(program.steps[2].node, -1);
  EXPECT_TRUE(program.steps[2].As<CallStep>()->one_range);
  EXPECT_TRUE(program.steps[2].As<CallStep>()->kernel.empty());
}

std::string ProblemOf(const std::string& text) {
  SymbolTable symbols;
  return std::string(ParseProgram(text, symbols).status().message());
}

TEST(ProgramParseTest, BadTextsAreNamed) {
  const std::string head = "program of 4 positions\n";
  const std::string memory = head + "s0 arena, lives 0..3\nb0 s0 `x`: f32[4]\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "1:1: the text ends, `program of ` was expected"},
      {"quench.ir 1", "1:1: `quench.ir 1` was found, `program of ` was expected"},
      {"program of 9999999999 positions",
       "1:12: `9999999999 positions` was found, a number from 0 to 1048576 was expected"},
      {head + "s1 arena, lives 0..1", "2:1: `s1 arena, lives 0..1` was found, `s0 ` was expected"},
      {head + "s0 stack",
       "2:4: `stack` was found, arena, input, output, weights or heap was expected"},
      {head + "s0 heap 0, lives 0..1",
       "2:9: there is a heap storage, but the program is of no pointers"},
      {head + "s0 arena, lives 0..5", "2:20: `5` was found, a number from 0 to 4 was expected"},
      {head + "s0 arena, lives 3..2",
       "2:21: s0 ends before it begins: one that nothing lies in is `given up`"},
      {head + "s0 arena, lives 0..3",
       "2:1: no buffer lies in s0: its line ends with `, for f32[2, 3]`, its shape"},
      {head + "b0 s0 `x`: f32[4]", "2:4: there is no `s0`: none is declared"},
      {head + "s0 arena, lives 0..3\nb0 s0 `x: f32[4]",
       "3:8: the name does not end with a backtick"},
      {head + "s0 arena, lives 0..3\nb0 s0 `x`: f33[4]", "3:12: unknown dtype `f33`"},
      {head + "s0 arena, lives 0..3\nb0 s0 `x`: f32[n]",
       "3:16: size `n`, character 1: there is no symbol `n`"},
      {head + "s0 arena, lives 0..3\nb0 s0 `x`: f32[-4]",
       "3:16: -4 is not a size: those are from 0 to 70368744177664"},
      {head + "s0 arena, lives 0..3\nb0 s0 `x`: f32[4] NCHW8c",
       "3:19: `NCHW8c` is not a layout of 1 axes: those are like `NHWC` or `NCHW8c`"},
      {memory + "0 call f(b7)", "4:10: there is no `b7`: the last one that is declared is `b0`"},
      {memory + "0 call f(b0), may write over b0, quickly",
       "4:34: `quickly` was found, `packs w0 w1`, `4 tasks by 2`, `64 bytes of scratch`, `scratch "
       "in "
       "s0`, `may write over b0`, `updates` or `unfused` was expected"},
      {memory + "0 call f() -> b0, may write over b0", "4:34: b0 is not an input of the call"},
      {memory + "0 call conv(b0)\n  plan {", "5:3: plan `{` is not JSON"},
      {memory + "0 call conv(b0)\n  plan {\"q\":1}", "5:3: plan: there is no field `q`"},
      {memory + "0 call Exp(b0)\n  plan {}", "5:3: kernel `Exp` has loops, not a plan"},
      {memory + "0 call f(b0) -> b0\n  rows of input 0: needs 1..3; makes 1",
       "5:17: 3 tasks need rows and 1 make some: each does both"},
      {memory + "0 call f(b0) -> b0\n  rows of input 0: needs 0 x 9999999999; makes 1",
       "5:26: tasks have more than 4194304 numbers of rows"},
      {memory + "0 free s0, of node 2", "4:20: no step begins node 2"},
      {memory + "0 allocate s0, slot 7 bytes", "4:21: there is no slot 7: there are 0"},
      {memory + "0 tap 0 is b0", "4:7: there is no tap 0: 0 are declared"},
      {memory + "1 if b0\nthen\n",
       "6:1: the text ends, `else`, indented by 0 spaces, was expected"},
      {memory + "1 loop\n  0 free s0\n",
       "5:3: `0 free s0` was found, `do`, indented by 0 spaces, was expected"},
      {memory + "1 bands\nof\non one thread tasks 0 0..1", "6:21: the bands have no call at 0"},
      {memory + "0 jump",
       "4:3: `jump` was found, node, nothing follows, call, allocate, free, move, copy, append, "
       "tap, "
       "if, loop or bands was expected"},
      {memory + "  0 free s0", "4:3: the line is not indented by 0 spaces"},
      {memory + "0 free s0\ns1 arena, lives 0..1",
       "5:1: `s1 arena, lives 0..1` was found, the end, or a line in this order: symbols, "
       "storages, "
       "buffers, taps, inputs, outputs, steps, values, plan was expected"},
      {head + "symbol n = input(0, 0) in 1..8\nlet $0 = (2*n)",
       "3:1: symbol 1 was expected: the table defines every symbol once, in order, and expressions "
       "as "
       "`let $1 = (...)`"},
      {head + "symbol n = input(0, 0) in 1..8\nlet $1 = (n + 0)",
       "3:1: symbol 1 was expected: the table defines every symbol once, in order, and expressions "
       "as "
       "`let $1 = (...)`"},
      {head + "symbol n = input(0, 0) in 1..8 s0", "2:32: the end of the line was expected"},
      {head + "symbol n = input(0, 0) in 1..8\nplan: 4 slots, arena in 0, lower bound in 1, "
              "scratch in 2\n"
              "arena 0 bytes at typical sizes, at least 0",
       "3:7: slot 0 is a symbol's: the 1 symbols of the text have the first slots"},
  };
  for (const auto& [text, problem] : cases) EXPECT_EQ(ProblemOf(text), problem) << text;
}

// Texts with a few characters or lines changed give a program or an error, and a program is whole.
TEST(ProgramParseTest, ChangedTextsDoNoHarm) {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(QUENCH_PROGRAM_CASES))
    seeds.push_back(*ReadFile(entry.path()));
  ASSERT_FALSE(seeds.empty());
  std::mt19937 random(7);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const std::string letters = "0123456789 ,.:;`\"$()[]{}->bswn\n-";
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string& seed = seeds[below(seeds.size())];
    std::string text = seed.substr(0, seed.find("\n---\n") + 1);
    for (size_t edits = 1 + below(3); edits > 0 && !text.empty(); --edits) {
      const size_t at = below(text.size()), length = std::min(below(12), text.size() - at);
      const std::string other = text.substr(below(text.size()), below(12));
      text.replace(at, length,
                   below(2) == 0 ? other : std::string(1, letters[below(letters.size())]));
    }
    SymbolTable symbols;
    const absl::StatusOr<Program> program = ParseProgram(text, symbols);
    if (!program.ok()) {
      EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument) << text;
      continue;
    }
    ++read;
    VerifyProgram(*program, 4).IgnoreError();
    const std::string printed = ProgramText(*program, symbols);
    EXPECT_EQ(Again(printed), printed) << text;
  }
  EXPECT_GT(read, 200);
}

}  // namespace
}  // namespace quench::codegen::program_parse_test
