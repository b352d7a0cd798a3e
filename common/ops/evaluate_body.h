// Evaluation of a graph, or of a body within one, whose inputs are known to fit.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/ir/graph.h"

namespace quench::ops {

struct EvaluateOptions {
  // Called with (value name, tensor) after each node, outermost graph only. May be empty.
  std::function<void(const std::string&, const Tensor&)> on_value;
};

// The sizes that the symbols of a table have, as far as a run has come.
class RunSizes {
 public:
  // Without a table (null) every symbolic dim stays unknown. The table must outlive this.
  explicit RunSizes(const SymbolTable* symbols) : symbols_(symbols) {}
  // A value of this declared type has these dims.
  void Note(const Type& declared, std::span<const int64_t> dims);
  // The size of a declared dim; nullopt where nothing has told it.
  std::optional<int64_t> Of(Dim dim) const;
  const SymbolTable* symbols() const { return symbols_; }

 private:
  const SymbolTable* symbols_;
  std::vector<int64_t> slots_;  // -1: unknown; only inputs and runtime sizes have theirs
};

// Evaluate without checking the inputs against the declared types: sizes in a body differ from one
// iteration to the next. `around` has the sizes known outside the body.
absl::StatusOr<std::vector<Tensor>> EvaluateBody(const Graph& graph, std::span<const Tensor> inputs,
                                                 const RunSizes& around, const StepContext& context,
                                                 const EvaluateOptions& options = {});

}  // namespace quench::ops
