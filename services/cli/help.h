// The help of a command as text.
#pragma once

#include <string>

#include "services/cli/description.h"

namespace quench::cli {

// Columns of the terminal that stdout is, at least 60 and at most 120; 100 where it is none.
int HelpWidth();

// Options by group, wrapped to `width` columns; `all`: the rare ones too. Examples are as they were written.
std::string HelpText(const CommandDescription& command, bool all, int width);

// `text` in lines of at most `width` columns, each begun with `indent` spaces. A word that is longer has a line of its own.
std::string Wrapped(const std::string& text, int width, int indent);

}  // namespace quench::cli
