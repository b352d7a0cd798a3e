#include "services/codegen/object/formats.h"

#include "common/base/status.h"
#include "services/codegen/object/elf.h"

namespace quench::codegen {

std::span<const ObjectFormat> ObjectFormats() {
  static constexpr ObjectFormat kFormats[] = {kElf};
  return kFormats;
}

const ObjectFormat& FormatOf(const Target& target) {
  const ObjectFormat* found = nullptr;
  for (const ObjectFormat& format : ObjectFormats()) {
    if (target.object_format == format.name) found = &format;
  }
  QUENCH_CHECK(found != nullptr);  // derive.cc accepts only systems whose format is here
  return *found;
}

}  // namespace quench::codegen
