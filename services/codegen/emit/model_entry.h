// The description of a model in its library, and the symbol by which a runtime finds it. LLVM-free header.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/emit/module.h"

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
// Adds the model's description and the exported quench_model_query; of a module with a link prefix,
// instead of the latter, what registers the model before main.
absl::Status EmitModel(ModuleBuilder& module, const ModelTables& model);

// The symbol by which a linker finds an archive's object: QUENCH_MODEL_QUERY_NAME without a prefix.
std::string ModelSymbol(const std::string& link_prefix);

}  // namespace quench::codegen
