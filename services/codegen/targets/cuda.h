// Targets of GPUs: from an architecture's name to the target of its code.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <vector>

#include "services/codegen/targets/target.h"

namespace quench::codegen {

// The architecture that is compiled for this machine's CPU, for tests without a GPU.
inline constexpr char kEmulatedArch[] = "emulated";

// The architectures of cuda_archs.def, weakest first.
std::vector<std::string> CudaArchs();

// An architecture that --target takes, and one line about the code for it.
struct CudaArchNote {
  std::string arch, note;
};
// All of CudaArchs, then newer ones.
std::vector<CudaArchNote> CudaArchNotes();

// "PTX of sm_90" for cards that run the code of an older architecture, else "".
std::string OlderCodeOf(const std::string& arch);

// The target of device code for `arch`, beside code for `host`. Cards that LLVM knows no PTX of get that of the newest
// architecture below them. INVALID_ARGUMENT, with near names, for what is no architecture.
absl::StatusOr<std::shared_ptr<const Target>> CudaTarget(const std::string& arch,
                                                         const Target& host);

// `host` with device code: variant "cuda-sm_86".
absl::StatusOr<Target> WithDevice(const Target& host, const std::string& arch);

// The architecture that code runs on wherever there is a GPU that this compiler has tensor products for.
inline constexpr char kCommonArch[] = "sm_75";

}  // namespace quench::codegen
