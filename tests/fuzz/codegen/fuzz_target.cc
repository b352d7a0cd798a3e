// Any text is a target or an error; one that is accepted, printed and read again is the same.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "services/codegen/targets/resolve.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto resolved = quench::codegen::Resolve(text, "", std::nullopt);
  if (!resolved.ok()) return 0;
  const std::string printed = ToString(resolved->spec);
  const auto again = quench::codegen::Resolve(printed, "", std::nullopt);
  if (!again.ok() || ToString(again->spec) != printed ||
      again->variants.back().features != resolved->variants.back().features) {
    std::cerr << "`" << text << "` became `" << printed << "`, which is not the same target\n";
    std::abort();
  }
  return 0;
}
