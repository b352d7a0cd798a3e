// Kernels of plans, and which of them are one.
#include <llvm/Transforms/Utils/FunctionComparator.h>

#include <cctype>

#include "common/base/status.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/emit/nest.h"

namespace quench::codegen {
namespace {

// Keeps letters and digits of a kernel's name: symbols show up in profiles.
std::string SymbolFor(ModuleState& state, const std::string& name) {
  std::string symbol = fmt::format("{}_k{}_", state.prefix, state.next_kernel++);
  for (char c : name.substr(0, 40)) symbol += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return symbol;
}

// Hash of a function's operations in order (FNV-1a); functions with different hashes differ.
uint64_t HashOf(const llvm::Function& function) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const llvm::BasicBlock& block : function) {
    for (const llvm::Instruction& instruction : block)
      hash = (hash ^ instruction.getOpcode()) * 0x100000001b3;
    hash = (hash ^ block.size()) * 0x100000001b3;
  }
  return hash;
}

// A kernel with the very same instructions, operands, types and attributes, or null.
llvm::Function* FindEqual(ModuleState& state, llvm::Function& function, uint64_t hash) {
  llvm::GlobalNumberState numbers;
  const auto [first, last] = state.kernels.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (llvm::FunctionComparator(it->second, &function, &numbers).compare() == 0) return it->second;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<EmittedKernel> EmitKernel(ModuleState& state, const KernelPlan& plan) {
  QUENCH_CHECK(!plan.empty());
  EmittedKernel kernel{SymbolFor(state, plan.name), {}, plan.tasks, plan.scratch_bytes};
  llvm::Function* function = CreateFunction(state, kernel.symbol, KernelType(state.context));
  state.fuses = plan.fuses;
  if (plan.nest != nullptr) {
    absl::StatusOr<std::vector<std::string>> messages = FillNestFunction(state, *function, plan);
    if (!messages.ok()) return Annotate(messages.status(), fmt::format("loops `{}`", plan.name));
    kernel.messages = *std::move(messages);
  } else {
    QUENCH_RETURN_IF_ERROR(FillVectorFunction(state, *function, *plan.code));
  }
  state.fuses = true;
  const uint64_t hash = HashOf(*function);
  if (llvm::Function* const equal = FindEqual(state, *function, hash)) {
    function->eraseFromParent();
    --state.next_kernel;
    kernel.symbol = equal->getName().str();
    return kernel;
  }
  state.kernels.emplace(hash, function);
  state.unoptimised.emplace_back(function,
                                 plan.nest != nullptr ? Pipeline::kNest : Pipeline::kKernel);
  return kernel;
}

}  // namespace quench::codegen
