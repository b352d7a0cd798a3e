// Code shared by both readers of PyTorch's files: calls of operators with the arguments of their schemas, tensors that
// are written to in place, branches and loops.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "services/importer/importer.h"
#include "services/importer/torch/convert.h"
#include "services/importer/torch/graph_builder.h"

namespace quench::importer {

// For example `a/seq/1/conv2d` in the module `a.seq.1`: such names let layers be listed as a tree.
std::string NodeNameIn(const std::string& module, const std::string& node);

class TorchProgram {
 public:
  TorchProgram(GraphBuilder& builder, const StepContext& context) : b(builder), context_(context) {}

  GraphBuilder& b;

  // Adds a call of `op` as in `aten::op`, with or without an overload. `outputs`: their number, if the caller knows it.
  // The result is a tensor, or a list if the operator has several or a variable number of results. An operator without
  // a row is noted in `unsupported`, and its results have an unknown type.
  absl::StatusOr<TorchValue> Call(const std::string& domain, const std::string& op,
                                  const std::string& name, std::vector<TorchValue> positional,
                                  TorchArguments named = {}, size_t outputs = 0);
  bool Knows(const std::string& domain, const std::string& op) const;

  // ---- Tensors ----
  CellPtr NewCell(Handle handle) const;
  // A cell for a weight; for a complex one, the real and imaginary parts.
  CellPtr NewConstant(const std::string& name, const Tensor& tensor);
  // The tensor's present value, after all writes to it or to the tensor of which it is a part.
  absl::StatusOr<Handle> Read(const CellPtr& cell);
  absl::Status Assign(const CellPtr& cell, Handle handle, const std::string& name);
  absl::StatusOr<int> RankOf(const CellPtr& cell);
  absl::StatusOr<Type> TypeOf(const CellPtr& cell);
  // UNIMPLEMENTED for a complex tensor.
  absl::Status RequireReal(const CellPtr& cell) const;
  // A number or real tensor as a value of the graph.
  absl::StatusOr<Handle> HandleOf(const TorchValue& value);
  // Turns a number that is the same in every run into a constant.
  TorchValue Settle(RuntimeNumber number);
  // The number in a tensor with one element.
  absl::StatusOr<TorchValue> NumberOf(const CellPtr& cell, RuntimeNumber::Kind kind);
  // The error for a program that needs `what`, which is not known, with the first reason why.
  absl::Status UnknownError(const std::string& what) const;

  // ---- Control flow ----
  using Branch = std::function<absl::StatusOr<std::vector<TorchValue>>()>;
  absl::StatusOr<std::vector<TorchValue>> If(const std::string& name, const TorchValue& condition,
                                             const Branch& then_branch, const Branch& else_branch);
  // Takes the iteration's index and the carried values; returns the condition, then the carried values.
  using Iteration = std::function<absl::StatusOr<std::vector<TorchValue>>(
      const TorchValue& index, const std::vector<TorchValue>& carried)>;
  // Without `count` the number of iterations is unlimited; without `condition` it is true.
  absl::StatusOr<std::vector<TorchValue>> Loop(const std::string& name, const TorchValue& count,
                                               const TorchValue& condition,
                                               const std::vector<TorchValue>& initial,
                                               const Iteration& iteration);

  std::map<std::pair<std::string, std::string>, UnsupportedOp> unsupported;
  // Whether a body is being built: lists and objects from outside must not change within it.
  bool in_body() const { return b.depth() > 1; }
  const StepContext& context() const { return context_; }

 private:
  struct Written {
    CellPtr cell;
    Handle before = -1;
  };
  absl::Status Sync(const CellPtr& cell);
  absl::Status SyncAll(TorchArguments& arguments);
  absl::StatusOr<TorchValue> CallRow(const TorchRow& row, const std::string& name,
                                     TorchArguments arguments, size_t outputs);
  absl::StatusOr<TorchValue> CallInPlace(const std::string& domain, const std::string& base,
                                         const std::string& name,
                                         std::vector<TorchValue> positional, TorchArguments named);
  absl::StatusOr<size_t> CountOutputs(const TorchRow& row, const TorchArguments& arguments);
  absl::StatusOr<Handle> WriteBack(const TensorCell& view, Handle base, Handle value,
                                   const std::string& name);
  // Notes the results of the call that are parts of its first tensor.
  absl::Status NoteViews(std::string_view op, const TorchArguments& arguments,
                         const std::vector<TorchValue>& results);
  TorchValue CallUnknown(const std::string& domain, const std::string& op, const std::string& name,
                         size_t outputs);
  std::vector<Written> TakeWritten(size_t from);
  absl::Status Merge(const TorchValue& first, const TorchValue& second,
                     std::vector<std::pair<TorchValue, TorchValue>>& leaves) const;

  const StepContext& context_;
  std::vector<Written> written_;  // in bodies, to be undone
};

// The letter of aten_ops.def for such an argument; '?' if there is none.
char KindOf(const TorchValue& value);
// The items of a list; null for anything else.
const std::vector<TorchValue>* ItemsOf(const TorchValue& value);
// The value of an argument, or null.
const TorchValue* FindArgument(const TorchArguments& arguments, std::string_view name);

// Limit for the nodes of a model, including those of unrolled loops.
inline constexpr int64_t kMaxTorchNodes = 250'000;

}  // namespace quench::importer
