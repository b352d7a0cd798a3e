// Runs one pass on a graph and checks that it keeps the function.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "common/passes/pass.h"
#include "tests/support/graphs.h"

namespace quench::passes {

using ::quench::testing::Add;
using ::quench::testing::CountOps;
using ::quench::testing::Difference;
using ::quench::testing::RandomTensor;

// The graph after the pass, which must be legal and compute the same.
inline Graph After(const char* name, const Graph& before, const PassOptions& options = {},
                   double tolerance = 1e-5) {
  const PassInfo* pass = FindPass(name);
  EXPECT_NE(pass, nullptr) << name;
  absl::StatusOr<Graph> after = RunPass(*pass, before, options, {});
  EXPECT_TRUE(after.ok()) << after.status();
  if (!after.ok()) return before;
  EXPECT_LE(Difference(before, *after), tolerance) << name << " changed what the graph computes";
  return *std::move(after);
}

// Codegen's passes from floats between integers to integers.
inline absl::StatusOr<Graph> RunIntegerPasses(const Graph& graph) {
  PassOptions options;
  options.opt_level = 2;  // no groups
  options.disabled = {"recurrent_products", "attention", "pointwise_tables", "widen_integers"};
  return RunCodegenPasses(graph, options, {});
}

// The same, where it must not change what the graph computes (1e-5).
inline Graph AfterIntegers(const Graph& before) {
  absl::StatusOr<Graph> after = RunIntegerPasses(before);
  EXPECT_TRUE(after.ok()) << after.status();
  if (!after.ok()) return before;
  EXPECT_LE(Difference(before, *after), 1e-5);
  return *std::move(after);
}

inline Graph ImageGraph(ValueId* x, std::vector<Dim> dims = {2, 3, 6, 6}) {
  Graph graph;
  graph.name = "test";
  *x = graph.AddInput("x", Type::Tensor(DataType::kF32, std::move(dims)));
  return graph;
}

}  // namespace quench::passes
