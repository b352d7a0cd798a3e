// The description of a model in its library, and the symbol by which a runtime finds it. LLVM-free header.
#pragma once

#include <absl/status/status.h>

#include "services/codegen/emit/model_tables.h"
#include "services/codegen/emit/module.h"

namespace quench::codegen {

// Adds the model's description and the exported quench_model_query; of a module with a link prefix,
// instead of the latter, what registers the model before main.
absl::Status EmitModel(ModuleBuilder& module, const ModelTables& model);

}  // namespace quench::codegen
