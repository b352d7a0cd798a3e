// The part of a derived UUID that options decide.
#pragma once

#include <string>

#include "services/codegen/options/options.h"

namespace quench::codegen {

// The same for equal options, and different where the library differs. `emit` must be the form that is made.
std::string UuidText(const CompileOptions& options);

}  // namespace quench::codegen
