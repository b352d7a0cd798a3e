// Parts of a model for another backend, and the rest for this one.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/analyser/backends.h"

namespace quench::analyser {

struct PartitionOptions {
  bool remove_no_mac_subgraphs =
      true;                           // parts without convolutions, products, recurrent layers stay
  bool simplify_batch_matmul = true;  // MatMul by one constant matrix for all of a batch: rank 2
  bool simplify_scalar_add = true;    // one number that is added becomes a tensor of that shape
  bool remove_stacks = true;          // Unsqueezes before a Concat become one Reshape behind it
  int64_t min_nodes = 1;              // smaller parts stay
};

struct PartitionPart {
  std::string name;
  int64_t nodes = 0;
  int64_t macs = 0;  // symbolic sizes at their smallest
  std::map<std::string, int64_t> operators;
  std::vector<std::string> inputs, outputs;
};

struct LeftNode {
  std::string node, op, reason;
};

struct PartitionReport {
  std::string backend;
  std::vector<PartitionPart> parts;  // in an order in which they can run
  std::vector<LeftNode> left;        // what runs here, and why
  int64_t simplified = 0;            // nodes that the options rewrote
};

struct Partitioned {
  Graph graph;  // each part a q.partition node, whose body it is
  PartitionReport report;
};

// Moves the nodes that `backend` runs into as few parts as there can be: no part depends on itself by
// way of a node outside. A part may hold several pieces that do not touch. `graph` is canonical;
// partitions that it has are dissolved first. Nodes with bodies stay.
//
// The number is least because any two nodes with one between them that stays must lie in different
// parts, and nodes are gathered by the greatest number of such changes on a path to them.
absl::StatusOr<Partitioned> PartitionGraph(Graph graph, const Backend& backend,
                                           const PartitionOptions& options,
                                           const StepContext& context = {});

// Names of the graphs of a module but the main one: partitions and bodies of control flow.
std::vector<std::string> SubgraphNames(const Graph& graph);
// Backends of the module's partitions, each once.
std::vector<std::string> PartitionBackends(const Graph& graph);

// A part's computation as a module of its own: sizes that are not fixed are its inputs' own.
absl::StatusOr<Graph> StandAlone(const Node& partition);

// The graph with the rewrites of `options`, and how many nodes they changed.
std::pair<Graph, int64_t> SimplifyForPartition(Graph graph, const PartitionOptions& options);

std::string ToTable(const PartitionReport& report);
std::string ToJson(const PartitionReport& report);

}  // namespace quench::analyser
