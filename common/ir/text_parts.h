// Parts of the text form, for languages that have them in their own texts. Each begins at `offset` of
// `text`, errors read "line:column: problem" of the whole of it, and sizes are in the symbols of
// `graph`.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/ir/graph.h"

namespace quench {

// Constants and nodes in braces, appended to `graph` (topological order is the caller's to restore). They may use its values by name,
// but for the results of the nodes `replaced`: names of these and of their results are free.
absl::Status ParseBlockInto(const std::string& text, size_t offset,
                            const std::set<NodeId>& replaced, Graph& graph);

// `{axis = 1}`.
absl::StatusOr<std::map<std::string, Attribute>> ParseAttributesAt(const std::string& text,
                                                                   size_t offset,
                                                                   const Graph& graph);
// `f32[n, 3]`.
absl::StatusOr<Type> ParseTypeAt(const std::string& text, size_t offset, const Graph& graph);
// `f32[2] = [1.0, 2.0]`.
absl::StatusOr<Tensor> ParseTensorAt(const std::string& text, size_t offset, const Graph& graph);

// The line that defines a symbol: `symbol n = input(0, 0) in 1..64`, `let $3 = (2*n + 1)`.
std::string SymbolText(const SymbolTable& table, SymbolId id);

// The definitions of a whole table, by SymbolText in order of the symbols, read into `symbols`, which
// is empty: ids stay what they were. Returns the offset of what follows.
absl::StatusOr<size_t> ParseSymbolsAt(const std::string& text, size_t offset,
                                      const std::shared_ptr<SymbolTable>& symbols);

}  // namespace quench
