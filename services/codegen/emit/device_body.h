// The function of a kernel that the driver starts, around that of a plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/codegen/emit/module_state.h"

namespace quench::codegen {

// A kernel as the run function launches it. Its arguments: an address for each buffer in the order of kernel.h's ABI,
// the slots as i64, the number of tasks as i64, and, if there are messages, the number of its first check as i32 and
// the address of the status.
struct DeviceKernel {
  uint32_t number = 0;
  int threads = 0;                    // of a block
  std::vector<int32_t> slots;         // whose values it takes, in order
  std::vector<std::string> messages;  // of its checks
};

struct DeviceBody {
  llvm::Function* function = nullptr;  // without a calling convention of its own
  llvm::CallInst* inner = nullptr;     // the call of the plan's function
};

// Its arguments are those of `kernel`, for a plan with this number of buffers; on an emulated device, the thread comes
// first. Tasks that threads do by themselves are dealt out to all threads of the launch in turn, so that neighbours do
// neighbouring tasks; blocks that do tasks together have one each.
DeviceBody EmitDeviceBody(ModuleState& state, const KernelPlan& plan, const DeviceKernel& kernel,
                          size_t buffers, const std::string& name, llvm::Function* inner);

}  // namespace quench::codegen
