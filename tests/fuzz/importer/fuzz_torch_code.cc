// Any text as TorchScript's code: a tree, or an error that names a line.
#include "common/base/status.h"
#include "services/importer/torch/script_ast.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = quench::importer::ParseScript(text, "fuzz.py");
  QUENCH_CHECK(file.ok() || quench::MessageOf(file.status()).find("line ") != std::string::npos);
  return 0;
}
