#include "services/codegen/emit/backends.h"

#include "common/base/status.h"
#include "services/codegen/emit/llvm_backend.h"

namespace quench::codegen {

const Backend& BackendOf(const std::string& kind) {
  QUENCH_CHECK(kind == "llvm");  // CheckKind (targets/derive.h) refuses kinds without a backend
  return LlvmBackend();
}

}  // namespace quench::codegen
