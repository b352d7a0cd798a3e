// `quench inspect` on a file that claims to be a library: any bytes.
#include <cstdint>
#include <span>

#include "services/codegen/object/sections.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quench::codegen::ReadSections(std::as_bytes(std::span(data, size)), "fuzz")
      .status()
      .IgnoreError();
  return 0;
}
