// Completion of the program's command line in shells.
#pragma once

#include <string>
#include <vector>

#include "services/cli/description.h"

namespace quench::cli {

// Shells that there is a script for: bash, zsh, fish.
std::vector<std::string> CompletionShells();

// A script that the shell reads (bash: source, zsh: a file `_quench` in $fpath, fish: a file in its completions folder).
// It completes commands, options, and values of options that have a list of them; elsewhere files.
std::string CompletionScript(const CommandDescription& program, const std::string& shell);

}  // namespace quench::cli
