// What is a module, node by node?
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::analyser {

struct ValueFacts {
  std::string name, type;  // "x", "f32[batch, 3]"
  // Symbolic dims count at ModuleFacts::sizes; 0 if the type is not known, absent if one of its sizes is missing.
  std::optional<int64_t> bytes = 0;
  bool constant = false;
};

struct NodeFacts {
  std::string graph;  // "main", or the node and attribute with the body: "main/loop.body"
  std::string name, op, domain;
  int version = 0;                                // the opset of the node; 0: a canonical node
  std::string origin;                             // name in the source model
  std::map<std::string, std::string> attributes;  // as JSON; tensors and bodies are described
  std::vector<ValueFacts> inputs, outputs;        // without omitted ones
};

struct ModuleFacts {
  std::string name, stage, fingerprint, structure_hash;
  std::map<std::string, std::string> metadata;  // the module's origin
  int64_t graph_count = 0, subgraph_count = 0;  // graph_count: with the main graph
  std::map<std::string, int64_t> operators;     // of all graphs
  bool is_dynamic = false;                      // a value has a symbolic dim
  bool is_quantized = false;   // made by the quantizer, or has nodes that quantize or take integers
  bool is_calibrated = false;  // its ranges come from data
  bool is_split_tensors = false;
  std::vector<std::string> partition_backends;   // the backends of its partitions
  std::vector<std::string> unfrozen_parameters;  // names of inputs
  std::vector<ValueFacts> inputs, outputs;
  std::vector<NodeFacts> nodes;  // the chosen nodes of all graphs, in order
  // Sizes of the inputs' symbolic dims: NodesOptions::sizes, and the smallest size of a batch.
  std::map<std::string, int64_t> sizes;
  std::string sizes_wanted;  // sizes still needed for bytes, and how to give them; or empty
};

struct NodesOptions {
  std::vector<std::string> ops = {};    // patterns as in a shell, any of them; empty: all operators
  std::vector<std::string> names = {};  // the same for names, here or in the source model
  std::map<std::string, int64_t> sizes = {};
};
// NOT_FOUND for a pattern that no node matches; the error lists existing ones.
absl::StatusOr<ModuleFacts> Introspect(const Graph& graph, const NodesOptions& options);

std::string ToTable(const ModuleFacts& facts);
std::string ToJson(const ModuleFacts& facts);

}  // namespace quench::analyser
