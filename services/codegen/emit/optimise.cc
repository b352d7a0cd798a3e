// The only file that sees LLVM's pass builder (5 s of compile time).
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "services/codegen/emit/module_state.h"

namespace quench::codegen {
namespace {

// Nests: explicit vectors come in, so neither of LLVM's vectorisers runs. Full unrolling pays for
// small windows.
constexpr const char* kNestPasses =
    "sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>,loop-mssa(licm),"
    "loop(loop-unroll-full),sroa,instcombine<no-verify-fixpoint>,gvn,simplifycfg,"
    "loop-mssa(licm),adce,simplifycfg";
constexpr const char* kKernelPasses = "sroa";

absl::Status VerifyFunction(const llvm::Function& function) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (!llvm::verifyFunction(function, &stream)) return absl::OkStatus();
  return Internal("function `{}` is not valid LLVM code: {}", function.getName().str(), text);
}

absl::Status TakeDiagnostics(ModuleState& state) {
  if (state.diagnostics.empty()) return absl::OkStatus();
  StatusCollector problems;
  for (const std::string& text : state.diagnostics) problems.Add(Internal("LLVM: {}", text));
  state.diagnostics.clear();
  return problems.Finish();
}

// Runs behind the passes that emit machine code, once for each function.
class CountFunctions : public llvm::FunctionPass {
 public:
  CountFunctions(const EmissionProgress& progress, int64_t total)
      : FunctionPass(id_), progress_(progress), total_(total) {}
  bool runOnFunction(llvm::Function& /*function*/) override {
    progress_("machine code", ++done_, total_);
    return false;
  }
  void getAnalysisUsage(llvm::AnalysisUsage& usage) const override { usage.setPreservesAll(); }

 private:
  static inline char id_ = 0;
  const EmissionProgress& progress_;
  int64_t done_ = 0, total_;
};

int64_t CountDefinitions(const llvm::Module& module) {
  return std::count_if(module.begin(), module.end(),
                       [](const llvm::Function& each) { return !each.isDeclaration(); });
}

}  // namespace

absl::Status Optimise(ModuleState& state, llvm::Function& function, Pipeline pipeline) {
  QUENCH_RETURN_IF_ERROR(VerifyFunction(function));
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(state.machine.get());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::FunctionPassManager passes;
  const char* text = pipeline == Pipeline::kNest ? kNestPasses : kKernelPasses;
  if (llvm::Error error = builder.parsePassPipeline(passes, text)) {
    return Internal("LLVM pass pipeline: {}", llvm::toString(std::move(error)));
  }
  passes.run(function, functions);
  return TakeDiagnostics(state);
}

absl::Status OptimiseAll(ModuleState& state, const EmissionProgress& progress) {
  state.kernels.clear();  // what comes later is compared with what is as it was emitted
  const auto waiting = std::exchange(state.unoptimised, {});
  int64_t done = 0;
  for (const auto& [function, pipeline] : waiting) {
    if (progress) progress("optimise", done++, static_cast<int64_t>(waiting.size()));
    QUENCH_RETURN_IF_ERROR(Optimise(state, *function, pipeline));
  }
  return absl::OkStatus();
}

namespace {

absl::StatusOr<std::string> EmitFile(ModuleState& state, llvm::CodeGenFileType file,
                                     const EmissionProgress& progress) {
  if (state.probe != nullptr) state.probe->eraseFromParent();
  state.probe = nullptr;
  std::string text;
  llvm::raw_string_ostream problems(text);
  if (llvm::verifyModule(*state.module, &problems)) return Internal("LLVM module: {}", text);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (state.machine->addPassesToEmitFile(passes, stream, nullptr, file)) {
    return Internal("target `{}`: LLVM writes no such files for it", state.target.name);
  }
  if (progress) passes.add(new CountFunctions(progress, CountDefinitions(*state.module)));
  passes.run(*state.module);
  QUENCH_RETURN_IF_ERROR(TakeDiagnostics(state));
  return std::string(bytes.data(), bytes.size());
}

}  // namespace

absl::StatusOr<std::string> EmitObject(ModuleState& state, const EmissionProgress& progress) {
  QUENCH_RETURN_IF_ERROR(OptimiseAll(state, progress));
  return EmitFile(state, llvm::CodeGenFileType::ObjectFile, progress);
}

absl::StatusOr<std::string> EmitAssembly(ModuleState& state) {
  return EmitFile(state, llvm::CodeGenFileType::AssemblyFile, nullptr);
}

void DisableUnroll(llvm::BranchInst& back_edge) {
  llvm::LLVMContext& context = back_edge.getContext();
  llvm::MDNode* disable =
      llvm::MDNode::get(context, llvm::MDString::get(context, "llvm.loop.unroll.disable"));
  llvm::MDNode* loop = llvm::MDNode::getDistinct(context, {nullptr, disable});
  loop->replaceOperandWith(0, loop);
  back_edge.setMetadata(llvm::LLVMContext::MD_loop, loop);
}

}  // namespace quench::codegen
