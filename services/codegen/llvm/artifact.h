// From a placed program to the machine code and tables of common/runtime/abi.h. LLVM-free header.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "services/codegen/llvm/module.h"
#include "services/codegen/program.h"

namespace quench::codegen {

// Adds plan and run functions and the hidden quench_variant `symbol`. weight_offsets[i] is where
// weight entry i begins in the weight section.
absl::Status EmitVariant(ModuleBuilder& module, const Program& program, const Target& target,
                         const std::vector<uint64_t>& weight_offsets, const std::string& symbol);

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

// Adds memcpy, memmove, memset and memcmp (and their names on Arm), hidden: LLVM may call them, so
// a library without dependencies must contain them.
absl::Status EmitMemoryFunctions(ModuleBuilder& module);

}  // namespace quench::codegen
