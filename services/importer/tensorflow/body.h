// The nodes of a graph or function with their references resolved.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "quench/tensorflow/v1/tensorflow.pb.h"

namespace quench::importer {

namespace tf = ::quench::tensorflow::v1;

// Output `output` of a node, or argument `~node` of the function if `node` is negative.
struct TfRef {
  int node = 0;
  int output = 0;
  friend auto operator<=>(const TfRef&, const TfRef&) = default;
};

// A loop of version 1: the merges whose first input enters the frame.
struct TfFrame {
  std::string name;
  std::vector<int> merges;
  int condition = -1;  // the LoopCond
};

// The conditions under which a value exists: (predicate, side) of each conditional around it.
using TfConditions = std::set<std::pair<TfRef, int>>;

struct TfBody {
  const tf::FunctionDef* function = nullptr;  // null: the graph
  std::vector<const tf::NodeDef*> nodes;
  std::unordered_map<std::string, int> by_name;
  std::vector<std::vector<TfRef>> inputs;  // of each node, without control inputs
  std::vector<std::vector<int>> controls;  // control inputs of each node
  std::vector<int> outputs;                // number of outputs of each node
  std::vector<TfRef> results;              // of a function, in the order of its signature
  std::map<std::string, TfFrame> frames;
  std::vector<std::string> frame_of_merge;  // "" for merges of conditionals and other nodes
  std::vector<TfConditions> conditions;     // by node; empty if there are no conditionals

  const tf::NodeDef& node(int i) const { return *nodes[static_cast<size_t>(i)]; }
  const std::vector<TfRef>& inputs_of(int i) const { return inputs[static_cast<size_t>(i)]; }
};

using TfLibrary = std::unordered_map<std::string, const tf::FunctionDef*>;

// INVALID_ARGUMENT lists every reference to a node, argument or output that does not exist.
absl::StatusOr<TfBody> BodyOf(const tf::GraphDef& graph, const TfLibrary& library);
absl::StatusOr<TfBody> BodyOf(const tf::FunctionDef& function, const TfLibrary& library);

// The node and output named by a string: "node", "node:1".
absl::StatusOr<TfRef> FindTensor(const TfBody& body, const std::string& text);

const tf::AttrValue* FindAttr(const tf::NodeDef& node, const std::string& name);
// The function that the node runs, by its operator or `f` attribute; null if there is none.
const tf::FunctionDef* CalledBy(const tf::NodeDef& node, const TfLibrary& library);

// (predicate, side) for each conditional around a value.
TfConditions ConditionsOf(const TfBody& body, const TfRef& ref);

}  // namespace quench::importer
