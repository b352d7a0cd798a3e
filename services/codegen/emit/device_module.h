// The device code of a variant: kernels for a GPU, in a module of their own beside that of the host's code.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/codegen/emit/device_body.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/emit/tables.h"

namespace quench::codegen {

class DeviceModule {
 public:
  // Kernels for `device`; what of them belongs in the host's module goes into that of `host`, which outlives it.
  static absl::StatusOr<std::unique_ptr<DeviceModule>> Create(ModuleState& host,
                                                              const Target& device);
  ~DeviceModule();
  const std::string& arch() const { return state_->target.gpu->arch; }

  // The kernel of a plan, with this number of buffers. Equal code is one kernel, with the messages of each plan.
  absl::StatusOr<DeviceKernel> Emit(const KernelPlan& plan, size_t buffers);

  struct Image {
    llvm::Constant* address = nullptr;
    int64_t bytes = 0;
    std::vector<llvm::Constant*> kernels;  // quench_device_kernel
  };
  // The code of all kernels, as constants of the host's module. Call once, last.
  absl::StatusOr<Image> Finish();

 private:
  struct Entry {
    DeviceKernel kernel;
    std::string name;
    llvm::Function* body = nullptr;   // without a calling convention of its own
    llvm::CallInst* inner = nullptr;  // the call of the plan's function
    Pipeline pipeline = Pipeline::kNest;
    int64_t shared_bytes = 0;
    bool cooperates = false;
  };

  DeviceModule(ModuleState& host, std::unique_ptr<ModuleState> state);
  absl::StatusOr<Image> FinishPtx();
  absl::StatusOr<Image> FinishEmulated();
  llvm::Function* EmitEntry(const Entry& entry);
  void CheckAccesses(llvm::Function& body);

  ModuleState& host_;
  std::unique_ptr<ModuleState> state_;
  const bool emulated_;
  std::vector<Entry> entries_;
  std::map<std::string, size_t> known_;  // by the plan's function and the arguments
};

}  // namespace quench::codegen
