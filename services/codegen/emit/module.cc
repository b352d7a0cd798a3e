#include "services/codegen/emit/module.h"

#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>
#include <utility>

#include "common/base/status.h"
#include "services/codegen/emit/compat.h"
#include "services/codegen/emit/module_state.h"

namespace quench::codegen {
namespace {

void InitialiseLlvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers();
  });
}

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeMachine(const Target& target) {
  std::string error;
  const llvm::Target* backend = compat::LookupTarget(target.triple, error);
  if (backend == nullptr) {
    return InvalidArgument("target `{}`: triple `{}` is unknown to LLVM", target.name,
                           target.triple);
  }
  llvm::TargetOptions options;
  options.NoNaNsFPMath = false;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(
      compat::CreateMachine(*backend, target.triple, target.baseline, target.features, options));
  if (machine == nullptr) {
    return InvalidArgument("target `{}`: LLVM makes no machine for cpu `{}`", target.name,
                           target.baseline);
  }
  return machine;
}

void CollectDiagnostic(const llvm::DiagnosticInfo* info, void* state) {
  if (info->getSeverity() != llvm::DS_Error) return;
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::DiagnosticPrinterRawOStream printer(stream);
  info->print(printer);
  static_cast<ModuleState*>(state)->diagnostics.push_back(text);
}

}  // namespace

llvm::FunctionType* KernelType(llvm::LLVMContext& context) {
  llvm::Type* ptr = llvm::PointerType::getUnqual(context);
  llvm::Type* i64 = llvm::Type::getInt64Ty(context);
  return llvm::FunctionType::get(llvm::Type::getInt32Ty(context), {ptr, ptr, i64, i64}, false);
}

void Attribute(const ModuleState& state, llvm::Function& function) {
  if (!function.hasLocalLinkage()) function.setVisibility(llvm::GlobalValue::HiddenVisibility);
  function.addFnAttr(llvm::Attribute::NoUnwind);
  function.addFnAttr("target-cpu", state.target.baseline);
  function.addFnAttr("tune-cpu", state.target.cpu);
  function.addFnAttr("target-features", state.target.features);
  function.addFnAttr("frame-pointer", "none");
  function.addFnAttr("no-builtins");
  function.addFnAttr("no-trapping-math", "true");
}

llvm::Function* CreateFunction(ModuleState& state, const std::string& name,
                               llvm::FunctionType* type, llvm::GlobalValue::LinkageTypes linkage) {
  llvm::Function* function = llvm::Function::Create(type, linkage, name, *state.module);
  Attribute(state, *function);
  return function;
}

absl::Status Prepare(ModuleState& state, const Target& target, const std::string& name) {
  InitialiseLlvm();
  state.target = target;
  QUENCH_ASSIGN_OR_RETURN(state.machine, MakeMachine(target));
  if (state.own_context) state.context.setDiagnosticHandlerCallBack(CollectDiagnostic, &state);
  state.module = std::make_unique<llvm::Module>(name, state.context);
  compat::SetTriple(*state.module, target.triple);
  state.module->setDataLayout(state.machine->createDataLayout());
  state.module->setPICLevel(llvm::PICLevel::BigPIC);
  return absl::OkStatus();
}

ModuleBuilder::ModuleBuilder(std::unique_ptr<ModuleState> state) : state_(std::move(state)) {}
ModuleBuilder::~ModuleBuilder() = default;

absl::StatusOr<std::unique_ptr<ModuleBuilder>> ModuleBuilder::Create(
    const Target& target, const std::string& prefix, const std::string& link_prefix) {
  auto state = std::make_unique<ModuleState>();
  state->prefix = link_prefix + prefix;
  state->link_prefix = link_prefix;
  QUENCH_RETURN_IF_ERROR(Prepare(*state, target, prefix));
  return std::unique_ptr<ModuleBuilder>(new ModuleBuilder(std::move(state)));
}

absl::StatusOr<EmittedKernel> ModuleBuilder::Emit(const KernelPlan& plan) {
  return EmitKernel(*state_, plan);
}

absl::StatusOr<std::string> ModuleBuilder::Finish(const EmissionProgress& progress) {
  return EmitObject(*state_, progress);
}

void ModuleBuilder::Export(const std::string& symbol) {
  state_->Kernel(symbol)->setVisibility(llvm::GlobalValue::DefaultVisibility);
}

absl::StatusOr<std::string> ModuleBuilder::Ir() {
  QUENCH_RETURN_IF_ERROR(OptimiseAll(*state_));
  std::string text;
  llvm::raw_string_ostream stream(text);
  state_->module->print(stream, nullptr);
  return text;
}

}  // namespace quench::codegen
