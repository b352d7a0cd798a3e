// Random inputs that a graph can take.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "common/ir/text.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "common/runner/inputs.h"

namespace quench::graph_inputs_test {
namespace {

Graph Parsed(const std::string& body) {
  absl::StatusOr<Graph> graph =
      ParseGraph("quench.ir 1\nmodule \"drawn\" canonical {\n" + body + "}\n");
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  const absl::Status status = ops::InferGraph(*graph);
  EXPECT_TRUE(status.ok()) << status;
  return *std::move(graph);
}

std::vector<Tensor> Drawn(const Graph& graph, uint64_t seed,
                          const std::map<std::string, InputRange>& ranges = {}) {
  absl::StatusOr<std::vector<Tensor>> inputs = RandomInputs(graph, seed, {}, ranges);
  EXPECT_TRUE(inputs.ok()) << inputs.status();
  return inputs.ok() ? *std::move(inputs) : std::vector<Tensor>();
}

std::set<int64_t> Values(const Tensor& tensor) {
  const std::vector<int64_t> ints = tensor.ToInts();
  return {ints.begin(), ints.end()};
}

struct Case {
  std::string name, body;
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class TakenTest : public ::testing::TestWithParam<Case> {};

// Whatever the seed, the interpreter, which checks every index and every size, takes the inputs.
TEST_P(TakenTest, ByTheInterpreter) {
  const Graph graph = Parsed(GetParam().body);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto results = ops::Evaluate(graph, Drawn(graph, seed));
    EXPECT_TRUE(results.ok()) << "seed " << seed << ": " << results.status();
  }
}

std::vector<Case> OfIndices() {
  return {
      {"indices", R"(
  input %x: f32[5, 7]
  input %ids: i32[4]
  input %places: i64[2, 7]
  input %tuples: i64[3, 2]
  %long = Cast(%ids) {to = 7}
  const %last: i64[1] = [1]
  %column = Unsqueeze(%long, %last)
  %a = Gather(%x, %column)
  %b = GatherElements(%x, %places)
  %c = GatherND(%x, %tuples)
  output %a, %b, %c
)"},
      {"places", R"(
  input %x: f32[5, 7]
  input %places: i64[5, 3]
  input %tuples: i64[6, 2]
  input %updates: f32[5, 3]
  input %more: f32[6]
  input %cache: f32[2, 1, 8, 4]
  input %steps: f32[2, 1, 3, 4]
  input %begin: i64[2]
  %a = ScatterElements(%x, %places, %updates) {axis = 1}
  %b = ScatterND(%x, %tuples, %more)
  %c = TensorScatter(%cache, %steps, %begin)
  output %a, %b, %c
)"},
      {"sums_of_indices", R"(
  input %table: f32[9, 2]
  input %ids: i64[6]
  input %others: i64[6]
  const %three: i64[] = [3]
  const %two: i64[] = [2]
  %shifted = Add(%ids, %three)
  %halved = Sub(%three, %others)
  %doubled = Mul(%halved, %two)
  %sum = Add(%ids, %others)
  %a = Gather(%table, %shifted)
  %b = Gather(%table, %doubled)
  %c = Gather(%table, %sum)
  output %a, %b, %c
)"},
  };
}

std::vector<Case> OfSizes() {
  return {
      {"sizes", R"(
  input %x: f32[4, 6]
  input %shape: i64[3]
  input %rows: i64[]
  input %wide: i64[2]
  input %times: i64[2]
  input %parts: i64[2]
  input %k: i64[1]
  input %fill: i64[2]
  const %first: i64[1] = [0]
  const %rest: i64[1] = [-1]
  %a = Reshape(%x, %shape)
  %one = Unsqueeze(%rows, %first)
  %two = Concat(%one, %rest) {axis = 0}
  %b = Reshape(%x, %two)
  %c = Expand(%x, %wide)
  %d = Tile(%x, %times)
  %e, %f = Split(%x, %parts) {axis = 1}
  %g, %h = TopK(%x, %k)
  %i = ConstantOfShape(%fill)
  output %a, %b, %c, %d, %e, %f, %g, %h, %i
)"},
      {"bounds", R"(
  input %x: f32[8, 6]
  input %starts: i64[2]
  input %ends: i64[2]
  input %pads: i64[4]
  input %from: i64[]
  input %to: i64[]
  input %by: i64[]
  input %scales: f32[4]
  input %sizes: i64[4]
  input %picture: f32[1, 2, 4, 4]
  %a = Slice(%x, %starts, %ends)
  %b = Pad(%x, %pads) {mode = "reflect"}
  %c = Range(%from, %to, %by)
  %d = Resize(%picture, _, _, %sizes) {mode = "nearest"}
  output %a, %b, %c, %d
)"},
  };
}

std::vector<Case> OfTheRest() {
  return {
      {"axes_and_lengths", R"(
  input %x: f32[5, 3, 4]
  input %axes: i64[2]
  input %axis: i64[]
  input %lengths: i64[3]
  input %classes: i64[5]
  input %scores: f32[5, 6]
  input %shift: u8[4]
  input %bytes: u8[4]
  input %by: i32[4]
  input %of: i32[4]
  %a = ReduceSum(%x, %axes) {keepdims = 1}
  %b = CumSum(%x, %axis)
  %c = ReverseSequence(%x, %lengths) {batch_axis = 1, time_axis = 0}
  %d = NegativeLogLikelihoodLoss(%scores, %classes)
  %e = BitShift(%bytes, %shift) {direction = "LEFT"}
  %f = Div(%of, %by)
  output %a, %b, %c, %d, %e, %f
)"},
      {"within_bodies", R"(
  input %times: i64[]
  input %on: bool[]
  input %ids: i64[2]
  input %x: f32[2]
  const %table: f32[3, 2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
  %end = Loop(%times, %on, %x, %ids, %table) {
    body = graph "" {
      input %i: i64[]
      input %go_on: bool[]
      input %state: f32[2]
      input %inner: i64[2]
      input %rows: f32[3, 2]
      %picked = Gather(%rows, %inner)
      const %zero: i64[1] = [0]
      %sum = ReduceSum(%picked, %zero) {keepdims = 0}
      %next = Add(%state, %sum)
      %still = Identity(%go_on)
      output %still, %next
    },
    q.captures = 2
  }
  output %end
)"},
  };
}
std::vector<Case> Cases() {
  std::vector<Case> all = OfIndices();
  for (const std::vector<Case>& more : std::array{OfSizes(), OfTheRest()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, TakenTest, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

TEST(GraphInputs, IndicesCoverTheWholeTable) {
  const Graph graph = Parsed(R"(
  input %x: f32[40, 1]
  input %ids: i64[400]
  %y = Gather(%x, %ids)
  output %y
)");
  const std::set<int64_t> values = Values(Drawn(graph, 1)[1]);
  EXPECT_GT(values.size(), 50U);
  EXPECT_EQ(*values.rbegin(), 39);
  EXPECT_TRUE(values.contains(0));
  EXPECT_EQ(*values.begin(), -40);
}

TEST(GraphInputs, PlacesThatAreWrittenDiffer) {
  const Graph graph = Parsed(Cases()[1].body);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::vector<Tensor> inputs = Drawn(graph, seed);
    const std::vector<int64_t> places = inputs[1].ToInts(), tuples = inputs[2].ToInts();
    for (size_t row = 0; row < 5; ++row)
      EXPECT_EQ(std::set<int64_t>(&places[row * 3], &places[row * 3] + 3).size(), 3U);
    std::set<std::pair<int64_t, int64_t>> rows;
    for (size_t row = 0; row < 6; ++row) rows.emplace(tuples[2 * row], tuples[2 * row + 1]);
    EXPECT_EQ(rows.size(), 6U);
  }
}

TEST(GraphInputs, MasksAreZeroAndOne) {
  const Graph graph = Parsed(R"(
  input %scores: f32[8, 16]
  input %floats: f32[8, 16]
  input %integers: i64[8, 16]
  const %one: f32[] = [1.0]
  const %low: f32[] = [-10000.0]
  const %none: f32[] = [-inf]
  %out = Sub(%one, %floats)
  %added = Mul(%out, %low)
  %masked = Add(%scores, %added)
  %p = Softmax(%masked)
  %keep = Cast(%integers) {to = 9}
  %chosen = Where(%keep, %scores, %none)
  %q = Softmax(%chosen)
  output %p, %q
)");
  bool shuts_out_a_row = false;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::vector<Tensor> inputs = Drawn(graph, seed);
    for (int64_t i = 0; i < inputs[1].size(); ++i) {
      const double mask = inputs[1].FloatAt(i);
      EXPECT_TRUE(mask == 0 || mask == 1) << mask;
      shuts_out_a_row = shuts_out_a_row || (i % 16 == 0 && mask == 0);
      if (i % 16 == 0) EXPECT_EQ(inputs[2].IntAt(i), 1);
    }
    EXPECT_EQ(Values(inputs[2]), (std::set<int64_t>{0, 1}));
    const auto results = ops::Evaluate(graph, inputs);
    ASSERT_TRUE(results.ok()) << results.status();
    for (const Tensor& each : *results) {
      for (int64_t i = 0; i < each.size(); ++i) EXPECT_FALSE(std::isnan(each.FloatAt(i)));
    }
  }
  EXPECT_TRUE(shuts_out_a_row);
  const auto any = AnyMagnitude(graph);
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_EQ(*any, (std::vector<bool>{true, false, false}));
}

TEST(GraphInputs, ExtremaHaveAnyNumberOfOperands) {
  const Graph graph = Parsed(R"(
  input %x: i64[8]
  input %y: i64[8]
  input %z: i64[8]
  input %table: f32[5, 3]
  const %last: i64[] = [4]
  %alone = Max(%x)
  %rows = Gather(%table, %alone)
  %least = Min(%y, %last, %z)
  %others = Gather(%table, %least)
  output %rows, %others
)");
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const auto results = ops::Evaluate(graph, Drawn(graph, seed));
    ASSERT_TRUE(results.ok()) << results.status();
  }
}

TEST(GraphInputs, BytesHaveAllValuesAndComparedNumbersAreMet) {
  const Graph graph = Parsed(R"(
  input %bytes: u8[4000]
  input %ids: i64[200]
  const %pad: i64[] = [50256]
  %y = Cast(%bytes) {to = 1}
  %padded = Equal(%ids, %pad)
  output %y, %padded
)");
  const std::vector<Tensor> inputs = Drawn(graph, 1);
  EXPECT_EQ(Values(inputs[0]).size(), 256U);
  EXPECT_TRUE(Values(inputs[1]).contains(50256));
  EXPECT_GT(Values(inputs[1]).size(), 2U);
}

TEST(GraphInputs, FloatsAreAsWideAsRangesSay) {
  const Graph graph = Parsed(R"(
  input %x: f32[1000]
  input %free: f32[1000]
  %y = Add(%x, %free)
  output %y
)");
  const std::vector<Tensor> inputs = Drawn(graph, 1, {{"x", {-100, 300}}});
  double low = 0, high = 0;
  for (int64_t i = 0; i < inputs[0].size(); ++i) {
    low = std::min(low, inputs[0].FloatAt(i));
    high = std::max(high, inputs[0].FloatAt(i));
  }
  EXPECT_EQ(low, -100);
  EXPECT_EQ(high, 300);
  const std::vector<Tensor> plain = *RandomInputs(InputsOf(graph), 1);
  EXPECT_EQ(RelativeError(inputs[1], plain[1]), 0);  // what has no rule is as it was
}

}  // namespace
}  // namespace quench::graph_inputs_test
