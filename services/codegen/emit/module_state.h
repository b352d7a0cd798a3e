// The inside of ModuleBuilder, for the files of emit/ only.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "services/codegen/emit/emitted.h"
#include "services/codegen/kernels/kernel.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// kNest: the pass pipeline of generated nests. kKernel: sroa only, what hand-written kernels want.
enum class Pipeline { kNest, kKernel };

struct ModuleState {
  // `shared`: another module's context, which outlives this one.
  explicit ModuleState(llvm::LLVMContext* shared = nullptr)
      : own_context(shared == nullptr ? std::make_unique<llvm::LLVMContext>() : nullptr),
        context(shared == nullptr ? *own_context : *shared) {}

  Target target;
  std::string prefix;       // of every symbol of the module
  std::string link_prefix;  // of every symbol of the library that other objects see
  std::unique_ptr<llvm::LLVMContext> own_context;
  llvm::LLVMContext& context;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::Module> module;
  // Functions that are not optimised yet, and of these kernels by a hash of their instructions.
  std::vector<std::pair<llvm::Function*, Pipeline>> unoptimised;
  std::multimap<uint64_t, llvm::Function*> kernels;
  std::vector<std::string> diagnostics;  // errors that LLVM reported
  int next_kernel = 0;
  bool fuses = true;  // KernelPlan::fuses of what is being emitted
  // The buffer behind a device kernel's own, of what is being emitted: the emulated thread.
  int thread_buffer = -1;
  llvm::Function* probe =
      nullptr;  // carries the target's features for questions about it; erased before emission

  llvm::Function* Kernel(const std::string& symbol) const { return module->getFunction(symbol); }
};

// Types of the kernel ABI (kernels/kernel.h): i32 (ptr buffers, ptr slots, i64 begin, i64 end).
llvm::FunctionType* KernelType(llvm::LLVMContext& context);

// A function with hidden visibility (or internal linkage) and every attribute that code of this
// target carries: target-cpu, target-features, nounwind, no frame pointer, no builtins. Functions
// made elsewhere pass through Attribute().
llvm::Function* CreateFunction(
    ModuleState& state, const std::string& name, llvm::FunctionType* type,
    llvm::GlobalValue::LinkageTypes linkage = llvm::GlobalValue::ExternalLinkage);
void Attribute(const ModuleState& state, llvm::Function& function);

// Verifies `function`, then optimises it. A function that does not verify is INTERNAL with LLVM's
// text.
absl::Status Optimise(ModuleState& state, llvm::Function& function, Pipeline pipeline);
// All that waits for it.
absl::Status OptimiseAll(ModuleState& state, const EmissionProgress& progress = nullptr);

// ModuleBuilder::Emit.
absl::StatusOr<EmittedKernel> EmitKernel(ModuleState& state, const KernelPlan& plan);

// Makes the state's machine and its empty module for `target`.
absl::Status Prepare(ModuleState& state, const Target& target, const std::string& name);

// Assembly of the module, which is optimised already: what stands for an object where there are none.
absl::StatusOr<std::string> EmitAssembly(ModuleState& state);
// Object bytes of the module. Reports every error that LLVM raised meanwhile.
absl::StatusOr<std::string> EmitObject(ModuleState& state, const EmissionProgress& progress);

// Value of a scalar function on operands that are all scalars or all vectors of equal lanes (types:
// common/loops/loops.h; bool is i1, f16, bf16 and f8 are integers of their width). May add blocks:
// `builder` ends in the last one.
absl::StatusOr<llvm::Value*> EmitScalarFunction(ModuleState& state, llvm::IRBuilder<>& builder,
                                                const loops::ScalarFunction& function,
                                                std::span<llvm::Value* const> operands);

// Adds `llvm.loop.unroll.disable` to a loop's back edge.
void DisableUnroll(llvm::BranchInst& back_edge);

// Emits the code of a plan into an empty kernel function. Defined in llvm_vector_builder.cc.
absl::Status FillVectorFunction(ModuleState& state, llvm::Function& function,
                                const VectorCode& code);

}  // namespace quench::codegen
