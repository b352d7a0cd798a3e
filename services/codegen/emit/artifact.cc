#include "services/codegen/emit/artifact.h"

#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/runtime/abi.h"
#include "services/codegen/emit/run_emitter.h"
#include "services/codegen/emit/tables.h"

namespace quench::codegen {
namespace {

// int32_t plan(quench_plan*): the emitted slots function, then what it found out about memory.
absl::StatusOr<llvm::Function*> EmitPlan(ModuleState& state, const Program& program) {
  using Plan = AbiStruct<quench_plan>;
  llvm::IRBuilder<> b(state.context);
  Tables tables(state);
  llvm::Type *i32 = b.getInt32Ty(), *i64 = b.getInt64Ty();
  auto* ptr = llvm::PointerType::getUnqual(state.context);
  llvm::Function* function =
      CreateFunction(state, state.prefix + "_plan", llvm::FunctionType::get(i32, {ptr}, false));
  llvm::Value* plan = function->getArg(0);
  b.SetInsertPoint(llvm::BasicBlock::Create(state.context, "entry", function));
  auto field = [&](Plan::Field index) { return AbiFieldAddress<quench_plan>(b, plan, index); };
  llvm::Value* slots = b.CreateLoad(ptr, field(Plan::slots));
  QUENCH_ASSIGN_OR_RETURN(const EmittedKernel kernel, EmitKernel(state, program.plan));
  llvm::Function* compute = state.Kernel(kernel.symbol);
  llvm::Value* result = b.CreateCall(compute, {tables.Null(), slots, b.getInt64(0), b.getInt64(1)});
  if (!kernel.messages.empty()) {
    std::vector<llvm::Constant*> texts;
    for (const std::string& message : kernel.messages) texts.push_back(tables.Text(message));
    llvm::Constant* messages = tables.Pointers(texts, "messages");
    llvm::BasicBlock* failed = llvm::BasicBlock::Create(state.context, "failed", function);
    llvm::BasicBlock* fine = llvm::BasicBlock::Create(state.context, "fine", function);
    b.CreateCondBr(b.CreateICmpNE(result, b.getInt32(0)), failed, fine);
    b.SetInsertPoint(failed);
    llvm::Type* size = state.module->getDataLayout().getIntPtrType(state.context);
    llvm::Value* index = b.CreateSExtOrTrunc(b.CreateSub(result, b.getInt32(1)), size);
    b.CreateStore(b.CreateLoad(ptr, b.CreateGEP(ptr, messages, index)), field(Plan::error_message));
    b.CreateRet(b.getInt32(QUENCH_CODE_CHECK));
    b.SetInsertPoint(fine);
  }
  std::vector<std::pair<int32_t, Plan::Field>> known = {
      {program.arena_slot, Plan::arena_bytes},
      {program.scratch_slot, Plan::scratch_bytes},
      {program.lower_bound_slot, Plan::arena_lower_bound}};
  if (program.has_device()) {
    known.emplace_back(program.device_arena_slot, Plan::device_arena_bytes);
    known.emplace_back(program.device_scratch_slot, Plan::device_scratch_bytes);
    known.emplace_back(program.device_lower_bound_slot, Plan::device_arena_lower_bound);
  }
  for (const auto& [slot, to] : known) {
    b.CreateStore(b.CreateLoad(i64, b.CreateConstGEP1_32(i64, slots, static_cast<unsigned>(slot))),
                  field(to));
  }
  b.CreateRet(b.getInt32(QUENCH_CODE_OK));
  QUENCH_RETURN_IF_ERROR(Optimise(state, *function, Pipeline::kKernel));
  return function;
}

// The list of features that are not of the first family.
std::vector<llvm::Constant*> OtherFeatures(Tables& tables, const Target& target) {
  const CpuFeatures& features = target.required_features;
  std::vector<llvm::Constant*> others;
  for (uint32_t family = QUENCH_CPU_FAMILY_FIRST + 1; family < QUENCH_CPU_FAMILIES; ++family) {
    if (features.of(family) == 0) continue;
    others.push_back(tables.Struct<quench_cpu_features>(
        {tables.I32(family), tables.I32(0),
         tables.I64(static_cast<int64_t>(features.of(family)))}));
  }
  if (target.device) {
    others.push_back(tables.Struct<quench_cpu_features>(
        {tables.I32(QUENCH_GPU_FAMILY_CUDA), tables.I32(0),
         tables.I64(static_cast<int64_t>(target.device->gpu->features))}));
  }
  return others;
}

}  // namespace

absl::Status EmitVariant(ModuleBuilder& builder, const Program& program, const Target& target,
                         const std::vector<uint64_t>& weight_offsets, const std::string& symbol) {
  ModuleState& state = builder.state();
  QUENCH_ASSIGN_OR_RETURN(llvm::Function * plan, EmitPlan(state, program));
  std::unique_ptr<DeviceModule> device;
  if (target.device) {
    QUENCH_ASSIGN_OR_RETURN(device, DeviceModule::Create(state, *target.device));
  }
  RunEmitter emitter(state, program, weight_offsets, device.get());
  QUENCH_ASSIGN_OR_RETURN(llvm::Function * run, emitter.Emit());
  QUENCH_ASSIGN_OR_RETURN(llvm::Constant * device_code, emitter.DeviceCode());
  Tables tables(state);
  std::vector<llvm::Constant*> nodes, taps;
  for (const NodeEntry& node : program.nodes) {
    nodes.push_back(tables.Address(
        tables.Sized<quench_node_info>({tables.I32(0), tables.Text(node.name), tables.Text(node.op),
                                        tables.Text(node.kernel)}),
        "node"));
  }
  for (size_t i = 0; i < program.taps.size(); ++i) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(program.taps[i])];
    taps.push_back(tables.Tensor(program.tap_names[i], buffer.shape.dtype, buffer.shape.dims));
  }
  const std::vector<llvm::Constant*> others = OtherFeatures(tables, target);
  const uint64_t first = target.required_features.of(QUENCH_CPU_FAMILY_FIRST) |
                         (others.empty() ? 0 : QUENCH_CPU_OTHERS);
  llvm::Constant* info = tables.Sized<quench_variant>(
      {tables.I32(program.num_slots), tables.I64(static_cast<int64_t>(first)),
       tables.Text(target.name), tables.I32(static_cast<int64_t>(nodes.size())),
       tables.I32(static_cast<int64_t>(taps.size())), tables.Pointers(nodes, "nodes"),
       tables.Pointers(taps, "taps"), static_cast<llvm::Constant*>(plan),
       static_cast<llvm::Constant*>(run), tables.I32(static_cast<int64_t>(others.size())),
       tables.I32(0), tables.Array(others, "features"), device_code},
      others.empty() ? AbiStruct<quench_variant>::num_features
                     : AbiStruct<quench_variant>::kFields.size());
  auto* global = new llvm::GlobalVariable(*state.module, info->getType(), /*isConstant=*/true,
                                          llvm::GlobalValue::ExternalLinkage, info, symbol);
  global->setVisibility(llvm::GlobalValue::HiddenVisibility);
  return absl::OkStatus();
}

}  // namespace quench::codegen
