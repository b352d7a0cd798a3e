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
      true;  // leave parts without convolutions, products, recurrent layers
  bool simplify_batch_matmul = true;  // MatMul of a batch by one constant matrix becomes rank 2
  bool simplify_scalar_add = true;    // an added scalar becomes a tensor of the other's shape
  bool remove_stacks = true;          // Unsqueezes before a Concat become one Reshape after it
  int64_t min_nodes = 1;              // smaller parts are left
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
  std::vector<LeftNode> left;        // nodes that the backend does not take, and why
  int64_t simplified = 0;            // nodes that the options rewrote
};

struct Partitioned {
  Graph graph;  // each part is the body of a q.partition node
  PartitionReport report;
};

// Moves the nodes that `backend` runs into as few parts as possible, such that no part depends on
// itself through a node outside. A part may hold several unconnected pieces. `graph` is canonical;
// existing partitions are dissolved first. Nodes with bodies are not moved.
//
// The number is minimal because two nodes with an unmoved node on a path between them must lie in
// different parts, and nodes are grouped by the greatest number of such changes on a path to them.
absl::StatusOr<Partitioned> PartitionGraph(Graph graph, const Backend& backend,
                                           const PartitionOptions& options,
                                           const StepContext& context = {});

// Names of all graphs of a module except the main one: partitions and bodies of control flow.
std::vector<std::string> SubgraphNames(const Graph& graph);
// Backends of the module's partitions, each once.
std::vector<std::string> PartitionBackends(const Graph& graph);

// The graph with the rewrites of `options`, and the number of nodes they changed.
std::pair<Graph, int64_t> SimplifyForPartition(Graph graph, const PartitionOptions& options);

std::string ToTable(const PartitionReport& report);
std::string ToJson(const PartitionReport& report);

}  // namespace quench::analyser
