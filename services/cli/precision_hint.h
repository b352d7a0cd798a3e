// A hint at a precision that is faster on a target.
#pragma once

#include <string>

#include "services/codegen/report.h"
#include "services/codegen/targets/target.h"

namespace quench::cli {

// One line, without a full stop, where the report's layers compute in a precision that is much slower on the target
// than another one; else empty.
std::string PrecisionHint(const codegen::Target& target, const codegen::CompileReport& report);

}  // namespace quench::cli
