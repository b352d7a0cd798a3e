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
  // Symbolic dims at ModuleFacts::sizes; 0 where the type is not known, absent where a size in it is wanted.
  std::optional<int64_t> bytes = 0;
  bool constant = false;
};

struct NodeFacts {
  std::string graph;  // "main", or the node and the attribute that have the body: "main/loop.body"
  std::string name, op, domain;
  int version = 0;     // the opset the node was written against; 0: a canonical one
  std::string origin;  // name in the source model
  std::map<std::string, std::string> attributes;  // as JSON; tensors and bodies by what they are
  std::vector<ValueFacts> inputs, outputs;        // without those that are omitted
};

struct ModuleFacts {
  std::string name, stage, fingerprint, structure_hash;
  std::map<std::string, std::string> metadata;  // where it comes from
  int64_t graph_count = 0, subgraph_count = 0;  // bodies and parts, and the main graph
  std::map<std::string, int64_t> operators;     // of all graphs
  bool is_dynamic = false;                      // some value has a symbolic dim
  bool is_quantized = false;   // made by the quantizer, or has nodes that quantize or take integers
  bool is_calibrated = false;  // ranges come from data
  bool is_split_tensors = false;
  std::vector<std::string> partition_backends;   // that parts of the module are for
  std::vector<std::string> unfrozen_parameters;  // names of inputs
  std::vector<ValueFacts> inputs, outputs;
  std::vector<NodeFacts> nodes;  // those asked for, of all graphs, in order
  // Sizes of symbolic dims of inputs: NodesOptions::sizes, and the least of a batch.
  std::map<std::string, int64_t> sizes;
  std::string sizes_wanted;  // which others bytes depend on, and how to give them; empty: none
};

struct NodesOptions {
  std::vector<std::string> ops = {};    // patterns as of a shell, any of them; empty: all operators
  std::vector<std::string> names = {};  // the same of names and names in the source model
  std::map<std::string, int64_t> sizes = {};
};
// NOT_FOUND for a pattern that no node matches, with what there is.
absl::StatusOr<ModuleFacts> Introspect(const Graph& graph, const NodesOptions& options);

std::string ToTable(const ModuleFacts& facts);
std::string ToJson(const ModuleFacts& facts);

}  // namespace quench::analyser
