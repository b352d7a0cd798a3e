// Colour where a terminal shows it.
#pragma once

#include <cstdio>
#include <string>

namespace quench::cli {

// Whether text on `stream` may be coloured: it is a terminal, and neither NO_COLOR (https://no-color.org) nor
// TERM=dumb speaks against it. CLICOLOR_FORCE other than 0 colours what is no terminal too.
bool Coloured(std::FILE* stream);

// The text as it appears on `stream`: in colour, or as it is.
std::string Heading(const std::string& text, std::FILE* stream);
std::string Name(const std::string& text, std::FILE* stream);

// Lines on stderr: "quench: error: ...", "quench: warning: ...", "quench: note: ...".
void PrintError(const std::string& message);
void PrintWarning(const std::string& message);
void PrintNote(const std::string& message);

}  // namespace quench::cli
