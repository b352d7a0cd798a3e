// One LLVM module being filled: the machine code of a variant of an artifact. LLVM-free header.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "services/codegen/kernels/kernel.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

struct ModuleState;  // llvm/internal.h, for files of llvm/ only

// Emits kernels into one module and compiles it to a relocatable object. Kernels that compute the
// same thing over the same layouts share one function. Not thread-safe; distinct builders are
// independent.
class ModuleBuilder : public KernelEmitter {
 public:
  // Every symbol of the module starts with `prefix` (several variants are linked into one library),
  // and behind `link_prefix` (several libraries are linked into one program).
  // Fails when LLVM does not know the target's triple, CPU or features.
  static absl::StatusOr<std::unique_ptr<ModuleBuilder>> Create(const Target& target,
                                                               const std::string& prefix = "q",
                                                               const std::string& link_prefix = "");
  ~ModuleBuilder() override;

  void AllowFusion(bool allowed) override;
  absl::StatusOr<EmittedKernel> EmitLoops(const loops::Function& function,
                                          std::span<const Layout> layouts, SymbolTable& symbols,
                                          bool vectorise) override;
  absl::StatusOr<EmittedKernel> EmitVector(
      const std::string& name, const std::string& identity, Dim tasks, Dim scratch_bytes,
      SymbolTable& symbols, const std::function<absl::Status(VectorBuilder&)>& body) override;

  // Bytes of the relocatable object. Call once, last.
  absl::StatusOr<std::string> Finish();

  // Makes a kernel visible outside of its library, for tests and benchmarks that call it by name.
  void Export(const std::string& symbol);

  // The module as LLVM assembly, optimised so far: for dumps and tests.
  std::string Ir() const;

  ModuleState& state() { return *state_; }

 private:
  explicit ModuleBuilder(std::unique_ptr<ModuleState> state);
  std::unique_ptr<ModuleState> state_;
};

}  // namespace quench::codegen
