// The function of a kernel that the driver starts, around that of a plan.
#pragma once

#include <string>

#include "services/codegen/emit/device_module.h"

namespace quench::codegen {

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
