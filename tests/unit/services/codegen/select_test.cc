// The joint choice of kernels and layouts, beside trying every combination.
#include "services/codegen/plan/select.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "services/codegen/plan/layout_problem.h"
#include "services/codegen/targets/resolve.h"
#include "tests/support/networks.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::select_test {
namespace {

using Ints = std::vector<int64_t>;

// A few layers in a row or joined, of operators with one layout and with several.
Graph DrawGraph(std::mt19937& random) {
  Graph graph;
  std::vector<ValueId> values = {
      graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 16, 14, 14}))};
  const int layers = 2 + static_cast<int>(random() % 3);
  for (int i = 0; i < layers; ++i) {
    const ValueId x = values[random() % values.size()];
    const ValueId last = values.back();
    ValueId y = quench::kNone;
    switch (random() % 6) {
      case 0:
        y = Node1(graph, "Conv", {last, graph.AddConstant("w", Values({16, 16, 3, 3}, 5))},
                  {{"pads", Ints{1, 1, 1, 1}}});
        break;
      case 1:
        y = Node1(graph, "Conv", {last, graph.AddConstant("w", Values({16, 16, 1, 1}, 7))});
        break;
      case 2:
        y = Node1(
            graph, "MaxPool", {last},
            {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{1, 1}}});
        break;
      case 3:
        y = Node1(graph, "Softmax", {last}, {{"axis", int64_t{3}}});
        break;
      case 4:
        y = Node1(graph, "Add", {last, x});
        break;
      default:
        y = Node1(graph, "CumSum",
                  {last, graph.AddConstant("axis", Tensor::Of(DataType::kI64, {}, Ints{2}))});
    }
    values.push_back(y);
    Infer(graph);
  }
  graph.outputs = {values.back()};
  if (random() % 2 == 0) graph.outputs.push_back(values[1]);
  Infer(graph);
  return graph;
}

std::vector<std::vector<Candidate>> CandidatesOf(const Graph& graph, const Target& target) {
  std::vector<std::vector<Candidate>> all;
  const CompileOptions options;
  Proposer proposer(target, options);
  for (const Node& node : graph.nodes) all.push_back(proposer.Of(graph, node).candidates);
  return all;
}

// Measured choices are kept by these keys.
TEST(CandidateKeys, TellPreparationsAndPacksApart) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 32, 8, 8}));
  graph.outputs = {Node1(graph, "Conv", {x, graph.AddConstant("w", Values({64, 32, 3, 3}, 5))},
                         {{"pads", Ints{1, 1, 1, 1}}})};
  Infer(graph);
  const Target target = ResolveTarget("x86-64-v3").value()[0];
  const CompileOptions options;
  Proposer proposer(target, options);
  const Proposals proposals = proposer.Of(graph, graph.nodes[0]);
  int prepared = 0, packed = 0;
  for (const Candidate& candidate : proposals.candidates) {
    SCOPED_TRACE(candidate.reason);
    const auto key_after = [&](const std::function<void(Candidate&)>& change) {
      Candidate other = candidate;
      change(other);
      return CandidateKey(graph.nodes[0], other, *proposals.symbols);
    };
    const std::string key = key_after([](Candidate&) {});
    if (candidate.preparation) {
      ++prepared;
      EXPECT_NE(key_after([](Candidate& other) { other.preparation.reset(); }), key);
      EXPECT_NE(key_after([](Candidate& other) { other.preparation->workspace_bytes = 1; }), key);
    }
    if (candidate.packs.empty()) continue;
    ++packed;
    EXPECT_NE(key_after([](Candidate& other) { other.packs[0].params["lanes"] += 1; }), key);
    EXPECT_NE(key_after([](Candidate& other) { other.packs[0].transform += "_other"; }), key);
    EXPECT_NE(key_after([](Candidate& other) { other.packs[0].inputs = {0}; }), key);
    EXPECT_NE(key_after([](Candidate& other) { other.packs.pop_back(); }), key);
  }
  EXPECT_GT(prepared, 0);
  EXPECT_GT(packed, 1);
}

TEST(LayoutProblem, NoOtherCombinationIsCheaper) {
  std::mt19937 random(11);
  int tried = 0, joint = 0;
  for (int round = 0; round < 150; ++round) {
    const Graph graph = DrawGraph(random);
    const Target target = ResolveTarget(round % 2 == 0 ? "x86-64-v3" : "aarch64").value()[0];
    const auto candidates = CandidatesOf(graph, target);
    double combinations = 1;
    for (const auto& each : candidates) combinations *= static_cast<double>(each.size());
    if (combinations > 20000) continue;
    ++tried;
    LayoutProblem problem(graph, target, candidates);
    const std::vector<int> chosen = problem.Solve(std::numeric_limits<int64_t>::max());
    EXPECT_TRUE(problem.optimal());
    const double cost = problem.CostOf(chosen);
    // The choice of each node by itself, ignoring transforms.
    std::vector<int> selfish;
    for (const auto& each : candidates) {
      const auto least = std::min_element(
          each.begin(), each.end(), [](const auto& a, const auto& b) { return a.cost < b.cost; });
      selfish.push_back(static_cast<int>(least - each.begin()));
    }
    joint += problem.CostOf(selfish) > cost * (1 + 1e-9);
    double least = std::numeric_limits<double>::infinity();
    std::vector<int> choice(candidates.size(), 0);
    for (size_t i = 0; i < choice.size();) {
      least = std::min(least, problem.CostOf(choice));
      for (i = 0; i < choice.size(); ++i) {
        if (++choice[i] < static_cast<int>(candidates[i].size())) break;
        choice[i] = 0;
      }
    }
    EXPECT_NEAR(cost, least, 1e-9 * least) << "round " << round;
  }
  EXPECT_GT(tried, 30);
  EXPECT_GT(joint, 3);  // or the graphs are too easy
}

// Means over an image between convolutions, as exporters write global pools: on blocks, the last one in part.
TEST(LayoutProblem, ReductionsStayOnBlocks) {
  for (const char* op : {"ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"}) {
    Graph graph;
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, 20, 9, 9}));
    const ValueId c = Node1(graph, "Conv", {x, graph.AddConstant("w", Values({40, 20, 3, 3}, 5))});
    const ValueId axes = graph.AddConstant("axes", Tensor::Of(DataType::kI64, {2}, Ints{2, 3}));
    const ValueId r = Node1(graph, op, {c, axes}, {{"keepdims", int64_t{1}}});
    graph.outputs = {Node1(graph, "Conv", {r, graph.AddConstant("v", Values({24, 40, 1, 1}, 7))}),
                     r};
    Infer(graph);
    const std::vector<Tensor> inputs = RandomInputs(InputsOf(graph), 3).value();
    const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
    ForEachBuild(graph, {3}, [&](const Compiled& compiled, int, const std::string& where) {
      EXPECT_EQ(compiled.report.kernels[1].reason, "vectorised nest over blocks of channels")
          << op << ", " << where;
      ForEachRun(compiled, inputs, [&](const std::vector<Tensor>& outputs, const std::string& run) {
        for (const size_t i : {0, 1})
          EXPECT_LE(RelativeError(outputs[i], expected[i]), 1e-5) << op << where << run;
      });
    });
  }
}

// Whole networks, with residual sums, branches and joins.
TEST(LayoutProblem, NetworksAreSolved) {
  for (Graph (*make)() : {testing::Resnet50, testing::Googlenet, testing::BertBase}) {
    Graph graph = passes::RunPipeline(make(), {}, {}).value();
    Infer(graph);
    graph = passes::RunCodegenPasses(std::move(graph), {}, {}).value();
    const Target target = ResolveTarget("x86-64-v3").value()[0];
    LayoutProblem problem(graph, target, CandidatesOf(graph, target));
    problem.Solve(std::numeric_limits<int64_t>::max());
    EXPECT_TRUE(problem.optimal()) << graph.name;
  }
}

}  // namespace
}  // namespace quench::codegen::select_test
