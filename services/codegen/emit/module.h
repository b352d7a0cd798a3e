// One LLVM module being filled: the machine code of a variant of an artifact. LLVM-free header.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "services/codegen/emit/emitted.h"
#include "services/codegen/kernels/kernel.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

struct ModuleState;  // module_state.h, for files of emit/ only

// Emits kernels into one module and compiles it to a relocatable object. Kernels whose code is the
// same, instruction by instruction, share one function. Not thread-safe; distinct builders are
// independent.
class ModuleBuilder {
 public:
  // Every symbol of the module starts with `prefix` (several variants are linked into one library),
  // and behind `link_prefix` (several libraries are linked into one program).
  // Fails when LLVM does not know the target's triple, CPU or features.
  static absl::StatusOr<std::unique_ptr<ModuleBuilder>> Create(const Target& target,
                                                               const std::string& prefix = "q",
                                                               const std::string& link_prefix = "");
  ~ModuleBuilder();
  ModuleBuilder(const ModuleBuilder&) = delete;
  ModuleBuilder& operator=(const ModuleBuilder&) = delete;

  absl::StatusOr<EmittedKernel> Emit(const KernelPlan& plan);

  // Bytes of the relocatable object. Call once, last. `progress` is told of each function that is optimised, then of
  // each that is machine code.
  absl::StatusOr<std::string> Finish(const EmissionProgress& progress = nullptr);

  // Makes a kernel visible outside of its library, for tests and benchmarks that call it by name.
  void Export(const std::string& symbol);

  // The module as LLVM assembly, optimised: for dumps and tests.
  absl::StatusOr<std::string> Ir();

  ModuleState& state() { return *state_; }

 private:
  explicit ModuleBuilder(std::unique_ptr<ModuleState> state);
  std::unique_ptr<ModuleState> state_;
};

}  // namespace quench::codegen
