#include "services/codegen/emit/device_body.h"

#include <algorithm>
#include <vector>

#include "services/codegen/emit/device_ops.h"
#include "services/codegen/plan/place.h"

namespace quench::codegen {
namespace {

class BodyEmitter {
 public:
  BodyEmitter(ModuleState& state, const KernelPlan& plan, const DeviceKernel& kernel,
              size_t buffers)
      : state_(state),
        plan_(plan),
        kernel_(kernel),
        buffers_(buffers),
        emulated_(state.target.gpu->emulated),
        b_(state.context) {}

  DeviceBody Emit(const std::string& name, llvm::Function* inner) {
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), ArgumentTypes(), false);
    body_ = CreateFunction(state_, emulated_ ? state_.prefix + "_" + name : name, type);
    body_->setVisibility(llvm::GlobalValue::DefaultVisibility);
    if (!emulated_ && inner->hasFnAttribute(kRegistersAttribute)) LimitRegisters(inner);
    b_.SetInsertPoint(Block("entry"));
    const Turns turns = TurnsOfThread();
    llvm::Value *list = BufferList(turns.first), *values = SlotValues();
    return {body_, Loop(turns, inner, list, values)};
  }

 private:
  // As attribute and as LLVM 19 has it.
  void LimitRegisters(llvm::Function* inner) {
    const llvm::Attribute limit = inner->getFnAttribute(kRegistersAttribute);
    body_->addFnAttr(limit);
    llvm::Constant* most =
        b_.getInt32(static_cast<uint32_t>(std::stoi(limit.getValueAsString().str())));
    llvm::LLVMContext& context = state_.context;
    state_.module->getOrInsertNamedMetadata("nvvm.annotations")
        ->addOperand(llvm::MDNode::get(
            context, {llvm::ValueAsMetadata::get(body_), llvm::MDString::get(context, "maxnreg"),
                      llvm::ValueAsMetadata::get(most)}));
  }

  // A thread's tasks: the first, and how many there are from one to the next.
  struct Turns {
    llvm::Value *first, *step;
  };

  bool checks() const { return !kernel_.messages.empty(); }
  llvm::BasicBlock* Block(const char* name) {
    return llvm::BasicBlock::Create(state_.context, name, body_);
  }
  llvm::Value* Argument(size_t index) {
    return body_->getArg(static_cast<unsigned>(index + (emulated_ ? 1 : 0)));
  }
  DeviceOps Device() { return {b_, emulated_ ? body_->getArg(0) : nullptr, *state_.target.gpu}; }
  llvm::Value* Wide(llvm::Value* value) { return b_.CreateZExt(value, b_.getInt64Ty()); }

  std::vector<llvm::Type*> ArgumentTypes() {
    llvm::Type *i64 = b_.getInt64Ty(), *ptr = b_.getPtrTy();
    llvm::Type* address = emulated_ ? ptr : llvm::PointerType::get(state_.context, kGlobalSpace);
    std::vector<llvm::Type*> types;
    if (emulated_) types.push_back(ptr);
    types.insert(types.end(), buffers_, address);
    types.insert(types.end(), kernel_.slots.size(), i64);
    types.push_back(i64);
    if (checks()) types.insert(types.end(), {b_.getInt32Ty(), address});
    return types;
  }

  Turns TurnsOfThread() {
    const DeviceOps device = Device();
    llvm::Value *first = Wide(device.Block()), *step = Wide(device.Blocks());
    if (plan_.block_threads > 0) return {first, step};
    llvm::Value* threads = Wide(device.BlockThreads());
    llvm::Value* together = b_.getInt64(static_cast<uint64_t>(TaskThreads(plan_)));
    first = b_.CreateAdd(b_.CreateMul(first, threads), Wide(device.Thread()));
    return {b_.CreateUDiv(first, together), b_.CreateUDiv(b_.CreateMul(step, threads), together)};
  }

  // The first argument of the plan's function. Scratch is that of the thread's tasks alone.
  llvm::Value* BufferList(llvm::Value* first_task) {
    llvm::Type* ptr = b_.getPtrTy();
    llvm::Value* list = b_.CreateAlloca(llvm::ArrayType::get(ptr, buffers_ + 1));
    if (emulated_) b_.CreateStore(body_->getArg(0), b_.CreateConstGEP1_64(ptr, list, buffers_));
    for (size_t i = 0; i < buffers_; ++i) {
      llvm::Value* value = emulated_ ? Argument(i) : b_.CreateAddrSpaceCast(Argument(i), ptr);
      if (i + 1 == buffers_ && !plan_.scratch_bytes.is(0)) {
        const auto bytes = static_cast<uint64_t>(plan_.scratch_bytes.value());
        value = b_.CreateGEP(b_.getInt8Ty(), value, b_.CreateMul(first_task, b_.getInt64(bytes)));
      }
      b_.CreateStore(value, b_.CreateConstGEP1_64(ptr, list, i));
    }
    return list;
  }

  // The second argument: an array that slots index.
  llvm::Value* SlotValues() {
    llvm::Type* i64 = b_.getInt64Ty();
    const int32_t slots = kernel_.slots.empty() ? 0 : kernel_.slots.back() + 1;
    llvm::Value* values =
        b_.CreateAlloca(llvm::ArrayType::get(i64, static_cast<uint64_t>(std::max(slots, 1))));
    for (size_t i = 0; i < kernel_.slots.size(); ++i) {
      b_.CreateStore(Argument(buffers_ + i),
                     b_.CreateConstGEP1_64(i64, values, static_cast<uint64_t>(kernel_.slots[i])));
    }
    return values;
  }

  llvm::CallInst* Loop(const Turns& turns, llvm::Function* inner, llvm::Value* list,
                       llvm::Value* values) {
    llvm::Type* i64 = b_.getInt64Ty();
    llvm::BasicBlock *before = b_.GetInsertBlock(), *head = Block("head"), *work = Block("work"),
                     *next = Block("next"), *done = Block("done");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* task = b_.CreatePHI(i64, 2);
    task->addIncoming(turns.first, before);
    llvm::Value* tasks = Argument(buffers_ + kernel_.slots.size());
    b_.CreateCondBr(b_.CreateICmpSLT(task, tasks), work, done);
    b_.SetInsertPoint(work);
    llvm::CallInst* call =
        b_.CreateCall(inner, {list, values, task, b_.CreateAdd(task, b_.getInt64(1))});
    if (checks()) Report(call, next);
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
    task->addIncoming(b_.CreateAdd(task, turns.step), next);
    b_.CreateBr(head);
    b_.SetInsertPoint(done);
    b_.CreateRetVoid();
    return call;
  }

  // The first check that failed, of all threads, goes into the status. Otherwise goes on at `next`.
  void Report(llvm::Value* result, llvm::BasicBlock* next) {
    llvm::BasicBlock* failed = Block("failed");
    b_.CreateCondBr(b_.CreateICmpNE(result, b_.getInt32(0)), failed, next);
    b_.SetInsertPoint(failed);
    const size_t at = buffers_ + kernel_.slots.size() + 1;
    llvm::Value* number = b_.CreateAdd(Argument(at), b_.CreateSub(result, b_.getInt32(1)));
    b_.CreateAtomicRMW(llvm::AtomicRMWInst::UMin, Argument(at + 1), number, llvm::Align(4),
                       llvm::AtomicOrdering::Monotonic);
  }

  ModuleState& state_;
  const KernelPlan& plan_;
  const DeviceKernel& kernel_;
  const size_t buffers_;
  const bool emulated_;
  llvm::IRBuilder<> b_;
  llvm::Function* body_ = nullptr;
};

}  // namespace

DeviceBody EmitDeviceBody(ModuleState& state, const KernelPlan& plan, const DeviceKernel& kernel,
                          size_t buffers, const std::string& name, llvm::Function* inner) {
  return BodyEmitter(state, plan, kernel, buffers).Emit(name, inner);
}

}  // namespace quench::codegen
