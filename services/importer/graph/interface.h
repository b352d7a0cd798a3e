// The model's inputs: their types after the caller's overrides.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/importer/graph/names.h"
#include "services/importer/importer.h"

namespace quench::importer {

// A size as an expression of other sizes: `dim` is in `symbols`, whose inputs are named like these sizes. An
// expression with a runtime size is not known to follow from other sizes.
struct DimFormula {
  std::shared_ptr<const SymbolTable> symbols;
  Dim dim;
};

// A size that a model declares: a number, a name that means the same size wherever it occurs, or
// neither.
struct DeclaredDim {
  int64_t size = -1;  // -1: not a number
  std::string name;
  Bounds bounds{1, kUnbounded};  // range of a dim that is not a number, unless an option sets one
  // Set if the name stands for an expression.
  std::optional<DimFormula> formula = std::nullopt;
};

struct DeclaredInput {
  std::string name;
  bool is_tensor = true;
  // For a tensor only the element type, undefined if the model leaves it open; an error here is reported
  // unless an option gives the type. For anything else the whole type.
  absl::StatusOr<Type> type = Type{};
  std::optional<std::vector<DeclaredDim>> dims;  // of a tensor whose rank is declared
};

struct GraphInput {
  std::string name;
  Type type;
  // If the caller's layout differs from the model's: the axes of a Transpose to the model's.
  std::vector<int64_t> order;
  // Names of its sizes whose formulas depend on no other input: they became independent sizes.
  std::vector<std::string> untied = {};
};

// The inputs that the model's caller supplies, in order, with the shapes and data types of `options`; named and unknown
// dims become symbols in `symbols`, in the ranges of `options.dims`, and formulas become expressions over these. A name
// that occurs only in formulas follows from the first size whose formula is linear in it. `names`: every input that an
// option may name. `channels_last`: the model's layout of images, whereas shapes and types here have the layout of
// `options`. All problems are reported at once.
absl::StatusOr<std::vector<GraphInput>> ResolveInputs(std::vector<DeclaredInput> declared,
                                                      const std::set<std::string>& names,
                                                      bool channels_last,
                                                      const ImportOptions& options,
                                                      SymbolTable& symbols);

// Adds the input to an imported graph, with the Transpose that its layout needs. Returns the value that
// the model's nodes read.
ValueId PushInput(Graph& graph, NameSet& value_names, NameSet& node_names, const GraphInput& input);

// Moves the channels of outputs of rank 4 and 5 to the last axis, or from there to the second. Names
// stay. The graph must have types.
absl::Status MoveOutputs(Graph& graph, bool last);

}  // namespace quench::importer
