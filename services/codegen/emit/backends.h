// The backends, by kind of target.
#pragma once

#include <string>

#include "services/codegen/emit/backend.h"

namespace quench::codegen {

// `kind` is that of a target that was resolved (TargetSpec::kind).
const Backend& BackendOf(const std::string& kind);

}  // namespace quench::codegen
