// The backend of CPUs: LLVM.
#pragma once

#include "services/codegen/emit/backend.h"

namespace quench::codegen {

const Backend& LlvmBackend();

}  // namespace quench::codegen
