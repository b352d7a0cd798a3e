// Builds the imported graph while a PyTorch program is read: nodes are calls of operators, and the types
// of their results are known at once.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "services/importer/graph/interface.h"
#include "services/importer/graph/names.h"
#include "services/importer/graph/weights.h"
#include "services/importer/torch/type_probe.h"
#include "services/importer/torch/value.h"

namespace quench::importer {

using TorchArguments = std::vector<std::pair<std::string, TorchValue>>;

// A call of an operator as an imported node: tensors, and numbers known only at run time, are inputs, whose names are
// in the attribute `inputs`, elements of lists as `name.index`. Everything else is an attribute. In a list of numbers
// kInInput stands for an element that is an input, kAbsent for one that is None.
inline constexpr char kInputNames[] = "inputs";
// The attribute with the inputs that are tensors but count as numbers in PyTorch; absent if there are none.
inline constexpr char kNumberNames[] = "numbers";
// The attribute with the complex inputs, whose last axis has the real and the imaginary part.
inline constexpr char kComplexNames[] = "complex";
inline constexpr int64_t kInInput = -(int64_t{1} << 62);
inline constexpr int64_t kAbsent = kInInput + 1;

class GraphBuilder {
 public:
  GraphBuilder(Graph& graph, const FindConversion& find);

  // ---- Values ----
  Handle AddInput(const GraphInput& input);
  Handle AddConstant(const std::string& name, Tensor tensor);
  const Type& TypeOf(Handle handle) const { return probe_.value(Get(handle).probe).type; }
  bool IsRanked(Handle handle) const { return TypeOf(handle).known() && TypeOf(handle).ranked; }
  // The value of a scalar that is known to be the same in every run.
  std::optional<double> KnownNumber(Handle handle) const;
  std::optional<int64_t> KnownInt(Handle handle) const;
  const Tensor* KnownTensor(Handle handle) const;
  const std::string& NameOf(Handle handle) const { return Get(handle).name; }

  // ---- Nodes ----
  // INVALID_ARGUMENT for arguments that no node can have (a dict).
  absl::StatusOr<std::vector<Handle>> AddCall(const std::string& domain, const std::string& op,
                                              const std::string& name,
                                              const TorchArguments& arguments, size_t outputs);
  // Adds an ONNX node.
  Handle AddPlain(const std::string& op, const std::string& name, const std::vector<Handle>& inputs,
                  Attributes attributes = {});

  // ---- Bodies ----
  struct Body;
  // Nodes are added to the new body until it is left; it may be entered again.
  std::shared_ptr<Body> EnterNew();
  void Enter(std::shared_ptr<Body> body);
  void Leave();
  size_t depth() const { return scopes_.size(); }
  // Whether nodes of the current body may use the value.
  bool IsVisible(Handle handle) const;
  // Whether the value is from outside of the current body.
  bool IsOuter(Handle handle) const;
  Handle AddBodyInput(const std::shared_ptr<Body>& body, const std::string& name, Handle like,
                      bool same_sizes);
  // Adds an output to the current body, as a separate value.
  void AddBodyOutput(Handle handle);
  std::vector<Handle> AddIf(const std::string& name, Handle condition,
                            const std::shared_ptr<Body>& then_body,
                            const std::shared_ptr<Body>& else_body,
                            const std::vector<std::pair<Handle, Handle>>& results);
  // `results`: the carried values after an iteration.
  std::vector<Handle> AddLoop(const std::string& name, Handle count, Handle condition,
                              const std::vector<Handle>& initial, const std::shared_ptr<Body>& body,
                              const std::vector<Handle>& results);

  // ---- The end ----
  void AddOutput(Handle handle, const std::string& name);
  // Stores the large constants that are in use; the graph's constants are usable afterwards.
  absl::Status StoreWeights(WeightWriter& weights);
  int64_t LargeBytes() const;

  const absl::Status& problem() const { return probe_.problem(); }
  Graph& graph() { return graph_; }
  TypeProbe& probe() { return probe_; }
  int64_t num_nodes() const { return num_nodes_; }

 private:
  struct Known {
    std::string name;
    std::shared_ptr<Body> scope;  // in which it is defined
    ValueId id = kNone;
    ValueId probe = kNone;
    std::shared_ptr<Constant> constant;
    bool is_used = false;
    bool is_captured = false;  // by a body, under its name
  };
  const Known& Get(Handle handle) const { return known_[static_cast<size_t>(handle)]; }
  Handle Register(Known known);
  ValueId Use(Handle handle);
  Graph& current();
  absl::Status AddArgument(const std::string& name, const TorchValue& value, Node& node,
                           std::vector<std::string>& names, std::vector<Handle>& inputs);
  absl::Status AddListArgument(const std::string& name, const TorchList& list, Node& node,
                               std::vector<std::string>& names, std::vector<Handle>& inputs);

  Graph& graph_;
  const FindConversion& find_;
  TypeProbe probe_;
  NameSet value_names_, node_names_;
  std::vector<Known> known_;
  std::vector<std::shared_ptr<Body>> scopes_;  // the first is the graph itself
  int64_t num_nodes_ = 0;
};

struct GraphBuilder::Body {
  std::shared_ptr<Graph> graph;                // null: the main graph
  std::unordered_map<Handle, ValueId> values;  // of this body
};

}  // namespace quench::importer
