#include "services/codegen/emit/backends.h"

#include "common/base/status.h"
#include "services/codegen/emit/llvm_backend.h"

namespace quench::codegen {

const Backend& BackendOf(const std::string& kind) {
  // CheckKind (targets/derive.h) refuses kinds without a backend. GPUs' code is LLVM's as well.
  QUENCH_CHECK(kind == "llvm" || kind == "cuda");
  return LlvmBackend();
}

}  // namespace quench::codegen
