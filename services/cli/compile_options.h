// The options of `quench compile` that are rows of services/codegen/options/options.def.
#pragma once

#include <string>

#include "services/cli/options.h"
#include "services/codegen/options/options.h"

namespace quench::cli {

// Declares those of one group ("Common", "Code", "Output"), except the ones that are read from files
// (--class-names, --preprocess). `compile` must live until the command has run.
void AddCompileOptions(const Options& options, const std::string& group,
                       codegen::CompileOptions& compile);
// Names of all rows' options, in the table's order: "--opt-level".
std::vector<std::string> CompileOptionNames();

}  // namespace quench::cli
