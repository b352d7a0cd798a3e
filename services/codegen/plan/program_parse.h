// Reads the text of programs that program_text.h writes.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "services/codegen/plan/program.h"

namespace quench::codegen {

// The inverse of ProgramText; `symbols`, which is empty, gets the symbols of the text. Plans of kernels are
// checked and kept as they are, but kernels have no code: emitting one is FAILED_PRECONDITION. Any text
// gives a program or an INVALID_ARGUMENT that reads "line:column: problem"; the program may be illegal:
// program_verify.h.
absl::StatusOr<Program> ParseProgram(const std::string& text, SymbolTable& symbols);

}  // namespace quench::codegen
