// The formats of object files (object_format.h) that code is generated in.
#pragma once

#include <span>

#include "services/codegen/object/object_format.h"

namespace quench::codegen {

std::span<const ObjectFormat> ObjectFormats();
// The format that `target` names.
const ObjectFormat& FormatOf(const Target& target);

}  // namespace quench::codegen
