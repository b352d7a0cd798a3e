// Graphs that scripts/fuzz_graphs has found, shrunk: what was wrong with their libraries is above each.
#include <gtest/gtest.h>

#include <map>

#include "common/base/status.h"
#include "common/ir/text.h"
#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::found_graphs_test {
namespace {

struct Found {
  std::string name, body;
  std::map<std::string, Tensor> inputs = {};  // by name; the others are random
  std::string layout = {};
};
void PrintTo(const Found& found, std::ostream* out) { *out << found.name; }

class FoundGraphTest : public ::testing::TestWithParam<Found> {};

TEST_P(FoundGraphTest, EqualsTheInterpreter) {
  const Found& found = GetParam();
  absl::StatusOr<Graph> graph =
      ParseGraph("quench.ir 1\nmodule \"found\" canonical {\n" + found.body + "}\n");
  ASSERT_TRUE(graph.ok()) << graph.status();
  Infer(*graph);
  std::vector<Tensor> inputs = RandomInputs(InputsOf(*graph), 7).value();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto given = found.inputs.find(graph->value(graph->inputs[i]).name);
    if (given != found.inputs.end()) inputs[i] = given->second;
  }
  const std::vector<Tensor> expected = ops::Evaluate(*graph, inputs).value();
  for (int level = 0; level <= 3; ++level) {
    CompileOptions options;
    options.opt_level = level;
    options.channel_layout = found.layout;
    const absl::StatusOr<Compiled> compiled = CompileGraph(*graph, options);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ForEachRun(*compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& where) {
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(actual[i].dims(), expected[i].dims()) << where << ", level " << level;
        EXPECT_LE(RelativeError(actual[i], expected[i]), 1e-5) << where << ", level " << level;
      }
    });
  }
}

std::vector<Found> AllFound() {
  return {
      // The bytes of the constant were copied as they are to a result with channels last.
      {"updates_of_a_constant",
       R"(
  input %at: i64[2, 3]
  input %to: f32[2, 4]
  input %more: f32[2, 3, 2, 4]
  const %c: f32[2, 3, 2, 4] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0,
    13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0, 28.0,
    29.0, 30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0, 37.0, 38.0, 39.0, 40.0, 41.0, 42.0, 43.0, 44.0,
    45.0, 46.0, 47.0, 48.0]
  %scattered = ScatterND(%c, %at, %to)
  %sum = Add(%scattered, %more)
  output %sum
)",
       {{"at", Tensor::I64({0, 1, 1, 1, 2, 0}).Reshaped({2, 3})}},
       "last"},
      // Scratch of a size that only a run can tell was not allocated for functions of sizes.
      {"sizes_from_sizes_of_the_run",
       R"(
  input %x: i64[40]
  %once, %first, %group, %counts = Unique(%x) {sorted = 1}
  %kinds = Unique(%counts) {sorted = 1}
  output %kinds
)"},
      // Scratch of 0 times a size of the run was taken for scratch on the stack, and LLVM gave up.
      {"scratch_of_no_rows",
       R"(
  symbol n = input(0, 2) in 0..64
  input %x: f32[0, 8, n]
  const %weights: f32[8] = [3.0, -4.0, -2.0, 0.0, 1.0, 3.0, -3.0, -2.0]
  const %labels: i64[0, 1] = []
  %loss = SoftmaxCrossEntropyLoss(%x, %labels, %weights) {reduction = "sum"}
  output %loss
)"},
      // The memory of the output was asked for before its sizes were known.
      {"output_of_sizes_of_the_run",
       R"(
  input %x: f32[8, 6, 1, 2]
  input %to: i64[2]
  %y = Erf(%x)
  %z = Reshape(%y, %to)
  output %z
)",
       {{"to", Tensor::I64({24, 4})}}},
      // Rows of a size that the body tells were given memory before the loop.
      {"rows_of_sizes_of_the_run",
       R"(
  input %start: f32[3]
  input %rows: f32[5, 3]
  %end, %kept = Scan(%start, %rows) {
    body = graph "" {
      input %state: f32[3]
      input %row: f32[3]
      const %which: bool[3] = [true, false, true]
      %few = Compress(%state, %which) {axis = 0}
      %next = Tanh(%row)
      %opposite = Neg(%few)
      output %next, %opposite
    },
    num_scan_inputs = 1
  }
  output %end, %kept
)"},
      // A loop that collects rows of a size told before it made that size 0 for all who read it later.
      {"rows_of_sizes_told_before_the_loop",
       R"(
  symbol few_0 = runtime("few", 4)
  symbol end_0 = runtime("end")
  input %n: i64[]
  input %x: f32[4]
  const %which: bool[4] = [true, false, true, true]
  %few: f32[few_0] = Compress(%x, %which) {axis = 0}
  %end: f32[4], %kept: f32[end_0, few_0] = Loop(%n, _, %x, %few) {
    body = graph "" {
      input %iteration: i64[]
      input %going: bool[]
      input %state: f32[4]
      input %given: f32[few_0]
      %on: bool[] = Identity(%going)
      %next: f32[4] = Tanh(%state)
      %opposite: f32[few_0] = Neg(%given)
      output %on, %next, %opposite
    },
    q.captures = 1
  }
  %later: f32[few_0] = Exp(%few)
  output %end, %kept, %later
)",
       {{"n", Tensor::I64({2}).Reshaped({})}}},
      // A loop of so many iterations refused to collect rows of a size told before it.
      {"as_many_rows_of_sizes_told_before_the_loop",
       R"(
  symbol few_0 = runtime("few", 4)
  input %x: f32[4]
  const %two: i64[] = [2]
  const %which: bool[4] = [true, false, true, true]
  %few: f32[few_0] = Compress(%x, %which) {axis = 0}
  %end: f32[few_0], %kept: f32[2, few_0] = Loop(%two, _, %few) {
    body = graph "" {
      input %iteration: i64[]
      input %going: bool[]
      input %state: f32[few_0]
      %on: bool[] = Identity(%going)
      %next: f32[few_0] = Tanh(%state)
      %opposite: f32[few_0] = Neg(%next)
      output %on, %next, %opposite
    },
    q.captures = 0
  }
  output %end, %kept
)"},
      // Sums of products of bytes lost the additions between their quarters, where there is VNNI.
      {"sums_of_products_of_bytes",
       R"(
  input %x: i8[4, 16]
  const %w: u8[16, 3] = [10, 102, 118, 142, 181, 4, 113, 243, 5, 59, 253, 200, 205, 152, 89, 220,
    122, 224, 209, 216, 18, 167, 84, 213, 77, 73, 252, 16, 161, 213, 155, 177, 94, 7, 168, 112, 96,
    165, 245, 3, 221, 77, 241, 105, 240, 125, 61, 175]
  %y = MatMulInteger(%x, %w)
  output %y
)"},
      // The size of a result was inferred as the larger one of 1 and 0.
      {"choice_among_no_sizes",
       R"(
  input %x: f32[3]
  const %none: i64[0] = []
  const %yes: bool[1] = [1]
  const %one: i64[1] = [5]
  const %three: i64[1] = [3]
  %chosen = Where(%yes, %none, %one)
  %y = Reshape(%x, %three)
  output %chosen, %y
)"},
      // The same of sizes that inputs decide: 0 rows beside 1 were refused.
      {"no_rows_beside_one",
       R"(
  symbol size = input(0, 0) in 0..64
  input %x: f32[size, 16]
  %first, %second, %third = Split(%x) {axis = 0, num_outputs = 3}
  %y = Mul(%third, %first)
  output %y
)",
       {{"x", Tensor::Of(DataType::kF32, {2, 16}, std::vector<float>(32, 1.5F))}}},
  };
}

INSTANTIATE_TEST_SUITE_P(Found, FoundGraphTest, ::testing::ValuesIn(AllFound()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quench::codegen::found_graphs_test
