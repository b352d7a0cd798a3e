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
  if (const auto found = known_.find(key); found != known_.end())
    return entries_[found->second].kernel;
  entry.kernel.number = static_cast<uint32_t>(entries_.size());
  entry.name = fmt::format("q{}{}", entries_.size(),
                           emitted.symbol.substr(emitted.symbol.find('_', state_->prefix.size())));
  entry.body = EmitBody(plan, state_->Kernel(emitted.symbol), buffers, entry);
  known_[key] = entries_.size();
  entries_.push_back(std::move(entry));
  return entries_.back().kernel;
}

// Tasks that threads do by themselves are dealt out to all threads of the launch in turn, so that neighbours do
// neighbouring tasks; blocks that do tasks together have one each.
llvm::Function* DeviceModule::EmitBody(const KernelPlan& plan, llvm::Function* inner,
                                       size_t buffers, Entry& entry) {
  llvm::LLVMContext& context = state_->context;
  llvm::IRBuilder<> b(context);
  llvm::Type *i32 = b.getInt32Ty(), *i64 = b.getInt64Ty(), *ptr = b.getPtrTy();
  llvm::Type* address = emulated_ ? ptr : llvm::PointerType::get(context, kGlobalSpace);
  std::vector<llvm::Type*> types;
  if (emulated_) types.push_back(ptr);
  const size_t first = types.size();
  types.insert(types.end(), buffers, address);
  types.insert(types.end(), entry.kernel.slots.size(), i64);
  types.push_back(i64);
  const bool checks = !entry.kernel.messages.empty();
  if (checks) types.insert(types.end(), {i32, address});
  auto* type = llvm::FunctionType::get(b.getVoidTy(), types, false);
  llvm::Function* body =
      CreateFunction(*state_, emulated_ ? state_->prefix + "_" + entry.name : entry.name, type);
  body->setVisibility(llvm::GlobalValue::DefaultVisibility);
  const auto argument = [&](size_t index) {
    return body->getArg(static_cast<unsigned>(first + index));
  };
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", body));
  const DeviceOps device(b, emulated_ ? body->getArg(0) : nullptr, *state_->target.gpu);
  llvm::Value* tasks = argument(buffers + entry.kernel.slots.size());
  const auto wide = [&](llvm::Value* value) { return b.CreateZExt(value, i64); };
  llvm::Value *thread = wide(device.Block()), *step = wide(device.Blocks());
  if (plan.block_threads == 0) {
    llvm::Value* threads = wide(device.BlockThreads());
    const auto together = static_cast<uint64_t>(TaskThreads(plan));
    thread = b.CreateAdd(b.CreateMul(thread, threads), wide(device.Thread()));
    thread = b.CreateUDiv(thread, b.getInt64(together));
    step = b.CreateUDiv(b.CreateMul(step, threads), b.getInt64(together));
  }
  llvm::Value* list = b.CreateAlloca(llvm::ArrayType::get(ptr, buffers + 1));
  if (emulated_) b.CreateStore(body->getArg(0), b.CreateConstGEP1_64(ptr, list, buffers));
  for (size_t i = 0; i < buffers; ++i) {
    llvm::Value* value = emulated_ ? argument(i) : b.CreateAddrSpaceCast(argument(i), ptr);
    if (i + 1 == buffers && !plan.scratch_bytes.is(0)) {
      const auto bytes = static_cast<uint64_t>(plan.scratch_bytes.value());
      value = b.CreateGEP(b.getInt8Ty(), value, b.CreateMul(thread, b.getInt64(bytes)));
    }
    b.CreateStore(value, b.CreateConstGEP1_64(ptr, list, i));
  }
  const int32_t slots = entry.kernel.slots.empty() ? 0 : entry.kernel.slots.back() + 1;
  llvm::Value* values =
      b.CreateAlloca(llvm::ArrayType::get(i64, static_cast<uint64_t>(std::max(slots, 1))));
  for (size_t i = 0; i < entry.kernel.slots.size(); ++i) {
    b.CreateStore(argument(buffers + i),
                  b.CreateConstGEP1_64(i64, values, static_cast<uint64_t>(entry.kernel.slots[i])));
  }
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto block = [&](const char* name) { return llvm::BasicBlock::Create(context, name, body); };
  llvm::BasicBlock *head = block("head"), *work = block("work"), *next = block("next"),
                   *done = block("done");
  b.CreateBr(head);
  b.SetInsertPoint(head);
  llvm::PHINode* task = b.CreatePHI(i64, 2);
  task->addIncoming(thread, before);
  b.CreateCondBr(b.CreateICmpSLT(task, tasks), work, done);
  b.SetInsertPoint(work);
  entry.inner = b.CreateCall(inner, {list, values, task, b.CreateAdd(task, b.getInt64(1))});
  if (checks) {
    llvm::BasicBlock* failed = block("failed");
    b.CreateCondBr(b.CreateICmpNE(entry.inner, b.getInt32(0)), failed, next);
    b.SetInsertPoint(failed);
    const size_t at = buffers + entry.kernel.slots.size() + 1;
    llvm::Value* number = b.CreateAdd(argument(at), b.CreateSub(entry.inner, b.getInt32(1)));
    b.CreateAtomicRMW(llvm::AtomicRMWInst::UMin, argument(at + 1), number, llvm::Align(4),
                      llvm::AtomicOrdering::Monotonic);
  }
  b.CreateBr(next);
  b.SetInsertPoint(next);
  task->addIncoming(b.CreateAdd(task, step), next);
  b.CreateBr(head);
  b.SetInsertPoint(done);
  b.CreateRetVoid();
  return body;
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

absl::StatusOr<DeviceModule::Image> DeviceModule::FinishPtx() {
  Image image;
  Tables tables(host_);
  for (const Entry& entry : entries_) {
    entry.body->setCallingConv(llvm::CallingConv::PTX_Kernel);
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
