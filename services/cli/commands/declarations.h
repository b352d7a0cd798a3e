// The commands, declared from their table: a file without a row does not compile, a row without a
// file does not link.
#pragma once

#include "services/cli/command.h"

namespace quench::cli {

#define QUENCH_COMMAND(function, name, summary) Action Declare##function(const Options& options);
#include "services/cli/commands/commands.def"
#undef QUENCH_COMMAND

}  // namespace quench::cli
