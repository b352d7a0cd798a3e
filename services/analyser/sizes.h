// Sizes of values whose dims are symbolic.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/ir/graph.h"

namespace quench::analyser {

// Sizes at which symbolic dims are counted. Counts stop at 2^62.
class Sizes {
 public:
  // Dims that are not among `chosen` count at max(min, 1). INVALID_ARGUMENT for names that the graph
  // does not have.
  static absl::StatusOr<Sizes> Of(const Graph& graph, const std::map<std::string, int64_t>& chosen);

  // Counting makes new expressions; each is evaluated when it is first asked for.
  absl::StatusOr<int64_t> Of(Dim dim);
  int64_t Elements(const Type& type) const;
  int64_t Bytes(const Type& type) const;
  const std::map<std::string, int64_t>& used() const { return used_; }

 private:
  absl::Status Evaluate();

  std::shared_ptr<const SymbolTable> symbols_;
  std::vector<int64_t> base_;   // values of input and runtime sizes
  std::vector<int64_t> slots_;  // values of all symbols
  std::map<std::string, int64_t> used_;
};

}  // namespace quench::analyser
