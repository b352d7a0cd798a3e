// The description of a model in its library, for backends to write.
#pragma once

#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "common/runtime/abi.h"

namespace quench::codegen {

struct ModelTables {
  const Graph* graph =
      nullptr;  // inputs, outputs, symbols (those of the graph itself: codegen's own stay inside)
  int num_symbols = 0;
  std::string uuid;
  std::string fingerprint;
  std::string producer;
  std::vector<std::string> variants;  // symbols, weakest first
  int num_cores = 0;
  std::vector<std::string> labels;
  std::string preprocessing;
  std::string target;
  std::string producer_revision;
  std::string source_digest;
  std::string description;  // all of this but the UUID, as JSON (description.h)
};

// The symbol by which a linker finds an archive's object: QUENCH_MODEL_QUERY_NAME without a prefix.
inline std::string ModelSymbol(const std::string& link_prefix) {
  return link_prefix.empty() ? QUENCH_MODEL_QUERY_NAME : link_prefix + "model";
}

}  // namespace quench::codegen
