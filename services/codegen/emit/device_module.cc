#include "services/codegen/emit/device_module.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/status.h"
#include "common/runtime/device/emulated.h"
#include "services/codegen/emit/device_alignment.h"
#include "services/codegen/emit/device_body.h"
#include "services/codegen/emit/device_ops.h"
#include "services/codegen/plan/place.h"
#include "services/codegen/schedule/schedule.h"

namespace quench::codegen {
namespace {

// Slots that a function reads, in order: its second argument is indexed by constants.
std::vector<int32_t> SlotsOf(const llvm::Function& function) {
  std::set<int32_t> slots;
  const llvm::DataLayout& layout = function.getParent()->getDataLayout();
  for (const llvm::Instruction& each : llvm::instructions(function)) {
    const auto* load = llvm::dyn_cast<llvm::LoadInst>(&each);
    if (load == nullptr) continue;
    llvm::APInt offset(64, 0);
    if (load->getPointerOperand()->stripAndAccumulateConstantOffsets(layout, offset, true) ==
        function.getArg(1))
      slots.insert(static_cast<int32_t>(offset.getZExtValue() / sizeof(int64_t)));
  }
  return {slots.begin(), slots.end()};
}

}  // namespace

DeviceModule::DeviceModule(ModuleState& host, std::unique_ptr<ModuleState> state)
    : host_(host), state_(std::move(state)), emulated_(state_->target.gpu->emulated) {}
DeviceModule::~DeviceModule() = default;

absl::StatusOr<std::unique_ptr<DeviceModule>> DeviceModule::Create(ModuleState& host,
                                                                   const Target& device) {
  auto state = std::make_unique<ModuleState>(&host.context);
  state->prefix = host.prefix + "d";
  state->link_prefix = host.link_prefix;
  QUENCH_RETURN_IF_ERROR(Prepare(*state, device, state->prefix));
  return std::unique_ptr<DeviceModule>(new DeviceModule(host, std::move(state)));
}

absl::StatusOr<DeviceKernel> DeviceModule::Emit(const KernelPlan& plan, size_t buffers) {
  state_->thread_buffer = emulated_ ? static_cast<int>(buffers) : -1;
  QUENCH_ASSIGN_OR_RETURN(const EmittedKernel emitted, EmitKernel(*state_, plan));
  Entry entry;
  entry.kernel.slots = SlotsOf(*state_->Kernel(emitted.symbol));
  entry.kernel.messages = emitted.messages;
  const int64_t threads = std::min<int64_t>(kDeviceBlock, DeviceThreads(plan));
  entry.kernel.threads = plan.block_threads > 0 ? plan.block_threads : static_cast<int>(threads);
  entry.shared_bytes = plan.shared_bytes;
  entry.cooperates = TaskThreads(plan) > 1;
  entry.pipeline = Pipeline::kNest;
  std::string key = fmt::format("{} {} {} {}", emitted.symbol, buffers, entry.kernel.threads,
                                plan.scratch_bytes.is_static() ? plan.scratch_bytes.value() : 0);
  for (const int32_t slot : entry.kernel.slots) key += fmt::format(" {}", slot);
  if (const auto found = known_.find(key); found != known_.end()) {
    DeviceKernel kernel = entries_[found->second].kernel;
    kernel.messages = emitted.messages;
    return kernel;
  }
  entry.kernel.number = static_cast<uint32_t>(entries_.size());
  entry.name = fmt::format("q{}{}", entries_.size(),
                           emitted.symbol.substr(emitted.symbol.find('_', state_->prefix.size())));
  const DeviceBody body = EmitDeviceBody(*state_, plan, entry.kernel, buffers, entry.name,
                                         state_->Kernel(emitted.symbol));
  entry.body = body.function;
  entry.inner = body.inner;
  known_[key] = entries_.size();
  entries_.push_back(std::move(entry));
  return entries_.back().kernel;
}

absl::StatusOr<DeviceModule::Image> DeviceModule::Finish() {
  std::set<llvm::Function*> inner;
  for (Entry& entry : entries_) {
    inner.insert(entry.inner->getCalledFunction());
    llvm::InlineFunctionInfo info;
    if (const llvm::InlineResult result = llvm::InlineFunction(*entry.inner, info);
        !result.isSuccess()) {
      return Internal("kernel `{}` cannot be inlined: {}", entry.name, result.getFailureReason());
    }
    entry.inner = nullptr;
    QUENCH_RETURN_IF_ERROR(Optimise(*state_, *entry.body, entry.pipeline));
    AlignAccesses(*entry.body, /*first=*/emulated_ ? 1 : 0);
  }
  state_->kernels.clear();
  state_->unoptimised.clear();
  for (llvm::Function* function : inner) function->eraseFromParent();
  return emulated_ ? FinishEmulated() : FinishPtx();
}

namespace {

llvm::Constant* KernelInfo(Tables& tables, const std::string& name, int threads,
                           int64_t shared_bytes) {
  return tables.Struct<quench_device_kernel>(
      {tables.Text(name), tables.I32(threads), tables.I32(shared_bytes)});
}

}  // namespace

namespace {

// Large blocks start only if each thread has few registers: the assembler is told. LLVM before 21 has it as
// metadata, later as an attribute.
void BoundThreads(llvm::Function& kernel, int threads) {
  constexpr int kWithAllRegisters = 256;
  if (threads <= kWithAllRegisters) return;
  llvm::LLVMContext& context = kernel.getContext();
  llvm::Constant* number =
      llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), static_cast<uint64_t>(threads));
  kernel.getParent()
      ->getOrInsertNamedMetadata("nvvm.annotations")
      ->addOperand(llvm::MDNode::get(
          context, {llvm::ValueAsMetadata::get(&kernel), llvm::MDString::get(context, "maxntidx"),
                    llvm::ConstantAsMetadata::get(number)}));
  kernel.addFnAttr("nvvm.maxntid", std::to_string(threads));
}

}  // namespace

absl::StatusOr<DeviceModule::Image> DeviceModule::FinishPtx() {
  Image image;
  Tables tables(host_);
  for (const Entry& entry : entries_) {
    entry.body->setCallingConv(llvm::CallingConv::PTX_Kernel);
    BoundThreads(*entry.body, entry.kernel.threads);
    image.kernels.push_back(
        KernelInfo(tables, entry.name, entry.kernel.threads, entry.shared_bytes));
  }
  QUENCH_ASSIGN_OR_RETURN(std::string text, EmitAssembly(*state_));
  image.address = tables.Text(text);
  image.bytes = static_cast<int64_t>(text.size()) + 1;
  return image;
}

// The kernels become functions of the host's module, in a table.
absl::StatusOr<DeviceModule::Image> DeviceModule::FinishEmulated() {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    CheckAccesses(*entry.body);
    names.push_back(EmitEntry(entry)->getName().str());
  }
  if (state_->probe != nullptr) state_->probe->eraseFromParent();
  state_->probe = nullptr;
  if (llvm::Linker::linkModules(*host_.module, std::move(state_->module)))
    return Internal("the emulated device's code cannot be linked");
  Image image;
  Tables tables(host_);
  std::vector<llvm::Constant*> rows;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    image.kernels.push_back(
        KernelInfo(tables, entry.name, entry.kernel.threads, entry.shared_bytes));
    std::vector<llvm::Constant*> bytes;
    const llvm::Function* body = host_.module->getFunction(state_->prefix + "_" + entry.name);
    for (size_t a = 1; a < body->arg_size(); ++a) {
      const bool word = body->getArg(static_cast<unsigned>(a))->getType()->isIntegerTy(32);
      bytes.push_back(tables.I64(word ? 4 : 8));
    }
    rows.push_back(tables.Struct<quench_emulated_entry>(
        {tables.Text(entry.name), host_.module->getFunction(names[i]),
         tables.Array(bytes, "argument_bytes"), tables.I32(static_cast<int64_t>(bytes.size())),
         tables.I32(entry.cooperates ? 1 : 0)}));
  }
  image.address = tables.Address(
      tables.Struct<quench_emulated_image>({tables.I32(QUENCH_EMULATED_MAGIC),
                                            tables.I32(static_cast<int64_t>(rows.size())),
                                            tables.Array(rows, "entries")}),
      "emulated_image");
  image.bytes = sizeof(quench_emulated_image);
  return image;
}

// void entry(thread, arguments): loads the arguments, whose addresses are given.
llvm::Function* DeviceModule::EmitEntry(const Entry& entry) {
  llvm::IRBuilder<> b(state_->context);
  llvm::Type* ptr = b.getPtrTy();
  llvm::Function* function =
      CreateFunction(*state_, state_->prefix + "_entry_" + entry.name,
                     llvm::FunctionType::get(b.getVoidTy(), {ptr, ptr}, false));
  b.SetInsertPoint(llvm::BasicBlock::Create(state_->context, "entry", function));
  std::vector<llvm::Value*> values = {function->getArg(0)};
  for (size_t i = 1; i < entry.body->arg_size(); ++i) {
    llvm::Value* place = b.CreateLoad(ptr, b.CreateConstGEP1_64(ptr, function->getArg(1), i - 1));
    values.push_back(b.CreateLoad(entry.body->getArg(static_cast<unsigned>(i))->getType(), place));
  }
  b.CreateCall(entry.body, values);
  b.CreateRetVoid();
  return function;
}

// Tells the emulation of every load and store but those of the thread's own variables and of the emulation itself.
void DeviceModule::CheckAccesses(llvm::Function& body) {
  const llvm::Value* thread = body.getArg(0);
  const llvm::DataLayout& layout = state_->module->getDataLayout();
  const auto is_ops = [&](const llvm::Value* base) {
    const auto* load = llvm::dyn_cast<llvm::LoadInst>(base);
    if (load == nullptr) return false;
    llvm::APInt offset(64, 0);
    return load->getPointerOperand()->stripAndAccumulateConstantOffsets(layout, offset, true) ==
               thread &&
           offset == offsetof(quench_emulated_thread, ops);
  };
  const auto is_own = [&](const llvm::Value* pointer) {
    const llvm::Value* base = llvm::getUnderlyingObject(pointer, 0);
    return base == thread || llvm::isa<llvm::AllocaInst>(base) ||
           llvm::isa<llvm::GlobalVariable>(base) || is_ops(base);
  };
  std::vector<llvm::Instruction*> accesses;
  for (llvm::Instruction& each : llvm::instructions(body)) {
    const llvm::Value* pointer = llvm::getLoadStorePointerOperand(&each);
    if (pointer != nullptr && !is_own(pointer)) accesses.push_back(&each);
  }
  for (llvm::Instruction* access : accesses) {
    llvm::IRBuilder<> b(access);
    const DeviceOps device(b, body.getArg(0), *state_->target.gpu);
    llvm::Type* type = llvm::getLoadStoreType(access);
    device.Access(llvm::getLoadStorePointerOperand(access), layout.getTypeStoreSize(type),
                  llvm::isa<llvm::StoreInst>(access));
  }
}

}  // namespace quench::codegen
