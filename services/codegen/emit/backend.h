// The interface of a generator of machine code: all that codegen asks of one.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/codegen/emit/emitted.h"
#include "services/codegen/emit/model_tables.h"
#include "services/codegen/plan/program.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// One relocatable object being filled. Not thread-safe; distinct modules are independent.
class CodeModule {
 public:
  virtual ~CodeModule() = default;

  // Adds the machine code of a variant: its kernels, plan and run functions, and the hidden quench_variant
  // `symbol`. weight_offsets[i] is where weight entry i begins in the weight section.
  virtual absl::Status AddVariant(const Program& program,
                                  const std::vector<uint64_t>& weight_offsets,
                                  const std::string& symbol) = 0;
  // Adds the model's description and the exported quench_model_query; in a module with a link prefix,
  // instead of the latter, code that registers the model before main.
  virtual absl::Status AddModel(const ModelTables& model) = 0;
  // Adds functions that code may call and a library without dependencies must therefore contain. They are
  // hidden.
  virtual absl::Status AddHelpers() = 0;

  // Bytes of the object. Call once, last. `progress` is told of each function that is done.
  virtual absl::StatusOr<std::string> Finish(const EmissionProgress& progress) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // A module for `target`. Its symbols start with `prefix` (several variants are linked into one library),
  // and behind `link_prefix` (several libraries are linked into one program). INVALID_ARGUMENT if the
  // backend does not know the target's triple, CPU or features.
  virtual absl::StatusOr<std::unique_ptr<CodeModule>> NewModule(
      const Target& target, const std::string& prefix, const std::string& link_prefix) const = 0;
};

}  // namespace quench::codegen
