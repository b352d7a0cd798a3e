// Any text gives a program or an error that says what is wrong, and an accepted program prints and parses to
// itself.
#include <cstdlib>
#include <iostream>

#include "common/base/status.h"
#include "services/codegen/plan/program_parse.h"
#include "services/codegen/plan/program_text.h"
#include "services/codegen/plan/program_verify.h"

namespace {

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::cerr << what << "\n";
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using quench::codegen::Program;
  const std::string text(reinterpret_cast<const char*>(data), size);
  quench::SymbolTable symbols;
  const absl::StatusOr<Program> program = quench::codegen::ParseProgram(text, symbols);
  if (!program.ok()) {
    Require(!quench::MessageOf(program.status()).empty(), "an error says nothing");
    return 0;
  }
  quench::codegen::VerifyProgram(*program, 4).IgnoreError();
  const std::string printed = quench::codegen::ProgramText(*program, symbols);
  quench::SymbolTable symbols_again;
  const absl::StatusOr<Program> again = quench::codegen::ParseProgram(printed, symbols_again);
  Require(again.ok(), printed + "\n" + again.status().ToString());
  const std::string twice = quench::codegen::ProgramText(*again, symbols_again);
  Require(twice == printed, printed + "\n" + twice);
  return 0;
}
