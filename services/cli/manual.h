// Manual pages, in the language of man(7).
#pragma once

#include <string>

#include "services/cli/description.h"

namespace quench::cli {

// The page of a command with its subcommands, or of the program itself. `version` stands in its footer.
std::string ManualPage(const CommandDescription& command, const std::string& version);

// "quench-compile.1"; "quench.1" for the program.
std::string ManualFile(const CommandDescription& command);

}  // namespace quench::cli
