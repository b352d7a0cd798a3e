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

// A size in terms of others: `dim` is of `symbols`, whose inputs have the names of these sizes. Whatever depends
// on a runtime size there is not known to follow from others.
struct DimFormula {
  std::shared_ptr<const SymbolTable> symbols;
  Dim dim;
};

// A size that a model declares: a number, a name that is the same size wherever it stands, or
// neither.
struct DeclaredDim {
  int64_t size = -1;  // -1: not a number
  std::string name;
  Bounds bounds{1, kUnbounded};  // range of a dim that is not a number, unless an option sets one
  // Set for a name that stands for an expression.
  std::optional<DimFormula> formula = std::nullopt;
};

struct DeclaredInput {
  std::string name;
  bool is_tensor = true;
  // A tensor's element type only, undefined where the model leaves it open; an error counts unless an
  // option gives the type. For anything else the whole type.
  absl::StatusOr<Type> type = Type{};
  std::optional<std::vector<DeclaredDim>> dims;  // of a tensor, where its rank is declared
};

struct GraphInput {
  std::string name;
  Type type;
  // Where the caller's layout is not the model's: the order of a Transpose that makes it so.
  std::vector<int64_t> order;
  // Names of its sizes whose formulas tie them to no other input: they became sizes of their own.
  std::vector<std::string> untied = {};
};

// The inputs that the caller of the model gives, in order, with the shapes and data types of
// `options`; named and unknown dims become symbols in `symbols`, in the ranges of `options.dims`, formulas expressions
// over these. A name that only formulas have follows from the first size with one that is linear in it.
// `names`: every input that an option may name. `channels_last`: how the model has images, whereas
// shapes and types here are in the layout of `options`. All problems are reported at once.
absl::StatusOr<std::vector<GraphInput>> ResolveInputs(std::vector<DeclaredInput> declared,
                                                      const std::set<std::string>& names,
                                                      bool channels_last,
                                                      const ImportOptions& options,
                                                      SymbolTable& symbols);

// Adds the input to an imported graph, and the Transpose that its layout needs; the value that the
// model's nodes read.
ValueId PushInput(Graph& graph, NameSet& value_names, NameSet& node_names, const GraphInput& input);

// Outputs of rank 4 and 5 get their channels, which are at the other end, first or last. Names stay.
// The graph has types.
absl::Status MoveOutputs(Graph& graph, bool last);

}  // namespace quench::importer
