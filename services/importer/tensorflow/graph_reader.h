// The reader's internals, shared by its files: values (reader.cc), calls and conditionals (calls.cc),
// loops and arrays (loops.cc).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "services/importer/graph/names.h"
#include "services/importer/tensorflow/convert.h"
#include "services/importer/tensorflow/reader.h"

namespace quench::importer {

// An output of a node: a value, the name of a variable, or an array that has no contents yet.
struct TfItem {
  ValueId id = kNone;
  std::string resource;
  int array = -1;
};

// An array that is not yet a value: made but not written, or written once in an iteration of a loop.
struct TfArray {
  int written_from = -1;  // the array before the write
  ValueId index = kNone, value = kNone;
  ValueId size = kNone;  // a value of `maker`, the graph that made it
  const Graph* maker = nullptr;
};

// A graph under construction, or the body of an If or Loop.
struct TfTarget {
  Graph* graph = nullptr;
  NameSet values, nodes;
  TfTarget* outer = nullptr;
  std::map<ValueId, ValueId> captured;  // values of `outer`
};

// The conversion of a body into a target: one for each call, iteration and branch.
struct TfScope {
  const TfBody* body = nullptr;
  TfTarget* target = nullptr;
  std::string prefix;
  std::vector<TfItem> args;
  TfScope* outer = nullptr;                       // of a frame or branch: the scope around it
  std::string frame;                              // the loop of version 1 that this is in
  const std::pair<TfRef, int>* branch = nullptr;  // the branch of version 1 that this is
  int depth = 0;
  std::map<TfRef, TfItem> bound;  // values given from outside
  std::unordered_map<int, std::vector<TfItem>> done;
  std::map<std::string, std::vector<TfItem>> loops;  // results by frame, in the order of merges
};

class TensorflowReader {
 public:
  TensorflowReader(TfProgram& program, const TfEntry& entry, const ImportOptions& options,
                   WeightWriter& weights, const StepContext& context)
      : program_(program), entry_(entry), options_(options), weights_(weights), context_(context) {}

  absl::StatusOr<Graph> Read();

 private:
  using Items = std::vector<TfItem>;

  // ---- reader.cc ----
  void LoadConstants();
  std::string VariableKey(const std::string& name) const;
  void LoadVariable(const tf::NodeDef& node);
  void ReadInputs(TfScope& scope);
  void AddOutputs(TfScope& scope);
  TfItem Resolve(TfScope& scope, const TfRef& ref);
  void Ensure(TfScope& scope, int root);
  std::vector<TfRef> NeedsOf(const TfScope& scope, int node) const;
  void Evaluate(TfScope& scope, int node);
  bool EvaluateFlow(TfScope& scope, int node, Items& items);
  void AddNode(TfScope& scope, int node, Items& items);
  Items InputsOf(TfScope& scope, int node);
  ValueId ValueOf(const TfItem& item, const tf::NodeDef& user);
  ValueId AddOwn(TfTarget& target, const std::string& op, const std::string& name,
                 std::vector<ValueId> inputs, Attributes attributes = {});
  ValueId AddInts(TfTarget& target, const std::string& name, const Tensor& tensor);
  ValueId Fresh(TfTarget& target, ValueId id, std::set<ValueId>& taken);
  void Problem(const tf::NodeDef& node, const std::string& text, bool is_unsupported = false);
  void Dropout(TfScope& scope, int node, Items& items);
  TfItem ReadVariable(TfScope& scope, const std::string& name, const tf::NodeDef& user);

  // ---- calls.cc ----
  TfItem Capture(TfScope& scope, const TfItem& item);
  ValueId CaptureValue(TfTarget& target, ValueId outer);
  Items CallFunction(TfScope& scope, const TfBody& function, const Items& args, TfTarget& target,
                     const std::string& prefix);
  void ReadCall(TfScope& scope, int node, Items& items);
  void ReadIf(TfScope& scope, int node, Items& items);
  void ReadMerge(TfScope& scope, int node, Items& items);
  Items MakeIf(TfScope& scope, const std::string& name, ValueId condition, size_t outputs,
               const std::function<Items(TfTarget& inside, bool then)>& branch);
  ValueId Condition(TfScope& scope, const TfItem& item, const tf::NodeDef& node);

  // ---- loops.cc ----
  using ConditionIn =
      std::function<TfItem(TfTarget& target, const std::string& prefix, const Items& states)>;
  using BodyIn = std::function<Items(TfTarget& target, const Items& states)>;
  Items MakeLoop(TfScope& scope, const tf::NodeDef& node, const std::string& name,
                 const Items& initial, const ConditionIn& condition, const BodyIn& body);
  void ReadWhile(TfScope& scope, int node, Items& items);
  void ReadExit(TfScope& scope, int node, Items& items);
  Items ReadFrame(TfScope& scope, const TfFrame& frame, const tf::NodeDef& exit);
  bool ReadArray(TfScope& scope, int node, Items& items);
  TfItem WriteArray(TfScope& scope, const tf::NodeDef& node, const TfItem& array,
                    const TfItem& index, const TfItem& value);

  TfProgram& program_;
  const TfEntry& entry_;
  const ImportOptions& options_;
  WeightWriter& weights_;
  const StepContext& context_;
  StatusCollector problems_;
  std::map<const tf::NodeDef*, std::shared_ptr<const Constant>> constants_;
  std::map<std::string, std::shared_ptr<const Constant>> variables_;  // by name
  std::map<std::string, std::string> keys_;  // variable -> its key in the checkpoint
  std::vector<TfArray> arrays_;
  size_t node_count_ = 0;
};

// The greatest nesting of calls, branches and loops.
inline constexpr int kMaxFlowDepth = 32;
inline constexpr int kOwnVersion = 21;  // opset of the ONNX nodes that the reader makes

}  // namespace quench::importer
