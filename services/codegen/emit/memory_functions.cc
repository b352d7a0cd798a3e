// memcpy and friends as plain loops. Attribute "no-builtins" keeps LLVM from recognising them as
// calls of themselves.
#include "common/base/status.h"
#include "common/runtime/abi.h"
#include "services/codegen/emit/artifact.h"
#include "services/codegen/emit/module_state.h"

namespace quench::codegen {
namespace {

class MemoryFunctions {
 public:
  explicit MemoryFunctions(ModuleState& state)
      : state_(state),
        b_(state.context),
        ptr_(llvm::PointerType::getUnqual(state.context)),
        i8_(b_.getInt8Ty()),
        i32_(b_.getInt32Ty()),
        size_(state.module->getDataLayout().getIntPtrType(state.context)) {}

  absl::Status Emit() {
    Begin("memcpy", ptr_, {ptr_, ptr_, size_});
    CopyUp(Arg(0), Arg(1), Arg(2));
    QUENCH_RETURN_IF_ERROR(End(Arg(0)));
    QUENCH_RETURN_IF_ERROR(EmitMove());
    QUENCH_RETURN_IF_ERROR(EmitSet());
    QUENCH_RETURN_IF_ERROR(EmitCompare());
    return state_.target.machine == QUENCH_MACHINE_ARMV7 ? EmitArmNames() : absl::OkStatus();
  }

 private:
  static constexpr uint64_t kBlock = 32;  // bytes moved at once

  void Begin(const std::string& name, llvm::Type* result,
             const std::vector<llvm::Type*>& arguments) {
    function_ = CreateFunction(state_, name, llvm::FunctionType::get(result, arguments, false),
                               llvm::GlobalValue::WeakAnyLinkage);
    b_.SetInsertPoint(llvm::BasicBlock::Create(state_.context, "entry", function_));
  }
  llvm::Argument* Arg(unsigned i) { return function_->getArg(i); }
  absl::Status End(llvm::Value* result) {
    if (result == nullptr) {
      b_.CreateRetVoid();
    } else {
      b_.CreateRet(result);
    }
    return Optimise(state_, *function_, Pipeline::kKernel);
  }
  llvm::Value* Size(uint64_t value) { return llvm::ConstantInt::get(size_, value); }
  llvm::Value* At(llvm::Value* base, llvm::Value* offset) {
    return b_.CreateGEP(i8_, base, offset);
  }

  // for (i = begin; i + step <= end; i += step) body(i); returns the first i that does not fit.
  template <typename Body>
  llvm::Value* Up(llvm::Value* begin, llvm::Value* end, uint64_t step, Body body) {
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::BasicBlock* head = llvm::BasicBlock::Create(state_.context, "head", function_);
    llvm::BasicBlock* inside = llvm::BasicBlock::Create(state_.context, "body", function_);
    llvm::BasicBlock* after = llvm::BasicBlock::Create(state_.context, "after", function_);
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(size_, 2);
    i->addIncoming(begin, before);
    b_.CreateCondBr(b_.CreateICmpUGE(b_.CreateSub(end, i), Size(step)), inside, after);
    b_.SetInsertPoint(inside);
    body(i);
    i->addIncoming(b_.CreateAdd(i, Size(step)), b_.GetInsertBlock());
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
    return i;
  }

  void Move(llvm::Type* type, llvm::Value* to, llvm::Value* from, llvm::Value* offset) {
    llvm::Value* value = b_.CreateAlignedLoad(type, At(from, offset), llvm::Align(1));
    b_.CreateAlignedStore(value, At(to, offset), llvm::Align(1));
  }

  void CopyUp(llvm::Value* to, llvm::Value* from, llvm::Value* bytes) {
    llvm::Type* block = llvm::FixedVectorType::get(i8_, kBlock);
    llvm::Value* rest =
        Up(Size(0), bytes, kBlock, [&](llvm::Value* i) { Move(block, to, from, i); });
    Up(rest, bytes, 1, [&](llvm::Value* i) { Move(i8_, to, from, i); });
  }

  // Downwards, for a target above its source.
  void CopyDown(llvm::Value* to, llvm::Value* from, llvm::Value* bytes) {
    llvm::Type* block = llvm::FixedVectorType::get(i8_, kBlock);
    llvm::Value* done = Up(Size(0), bytes, kBlock, [&](llvm::Value* i) {
      Move(block, to, from, b_.CreateSub(b_.CreateSub(bytes, i), Size(kBlock)));
    });
    Up(done, bytes, 1,
       [&](llvm::Value* i) { Move(i8_, to, from, b_.CreateSub(b_.CreateSub(bytes, i), Size(1))); });
  }

  absl::Status EmitMove() {
    Begin("memmove", ptr_, {ptr_, ptr_, size_});
    llvm::BasicBlock* up = llvm::BasicBlock::Create(state_.context, "up", function_);
    llvm::BasicBlock* down = llvm::BasicBlock::Create(state_.context, "down", function_);
    // Upwards is right unless the target begins inside the source.
    llvm::Value* distance =
        b_.CreateSub(b_.CreatePtrToInt(Arg(0), size_), b_.CreatePtrToInt(Arg(1), size_));
    b_.CreateCondBr(b_.CreateICmpUGE(distance, Arg(2)), up, down);
    b_.SetInsertPoint(up);
    CopyUp(Arg(0), Arg(1), Arg(2));
    b_.CreateRet(Arg(0));
    b_.SetInsertPoint(down);
    CopyDown(Arg(0), Arg(1), Arg(2));
    return End(Arg(0));
  }

  void Fill(llvm::Value* to, llvm::Value* byte, llvm::Value* bytes) {
    llvm::Value* value = b_.CreateTrunc(byte, i8_);
    llvm::Value* block = b_.CreateVectorSplat(kBlock, value);
    llvm::Value* rest = Up(Size(0), bytes, kBlock, [&](llvm::Value* i) {
      b_.CreateAlignedStore(block, At(to, i), llvm::Align(1));
    });
    Up(rest, bytes, 1,
       [&](llvm::Value* i) { b_.CreateAlignedStore(value, At(to, i), llvm::Align(1)); });
  }

  absl::Status EmitSet() {
    Begin("memset", ptr_, {ptr_, i32_, size_});
    Fill(Arg(0), Arg(1), Arg(2));
    return End(Arg(0));
  }

  absl::Status EmitCompare() {
    Begin("memcmp", i32_, {ptr_, ptr_, size_});
    llvm::BasicBlock* differ = llvm::BasicBlock::Create(state_.context, "differ", function_);
    llvm::IRBuilder<> d(differ);
    llvm::PHINode* at = d.CreatePHI(size_, 1);
    auto load = [&](llvm::IRBuilder<>& b, unsigned arg, llvm::Value* i) {
      return b.CreateZExt(b.CreateLoad(i8_, b.CreateGEP(i8_, Arg(arg), i)), i32_);
    };
    d.CreateRet(d.CreateSub(load(d, 0, at), load(d, 1, at)));
    Up(Size(0), Arg(2), 1, [&](llvm::Value* i) {
      llvm::BasicBlock* same = llvm::BasicBlock::Create(state_.context, "same", function_);
      llvm::Value* equal = b_.CreateICmpEQ(load(b_, 0, i), load(b_, 1, i));
      at->addIncoming(i, b_.GetInsertBlock());
      b_.CreateCondBr(equal, same, differ);
      b_.SetInsertPoint(same);
    });
    return End(b_.getInt32(0));
  }

  // Run-time ABI for the Arm architecture, section 4.3.4: no result, and memset takes its size
  // second.
  absl::Status EmitArmNames() {
    for (const char* suffix : {"", "4", "8"}) {
      Begin(std::string("__aeabi_memcpy") + suffix, b_.getVoidTy(), {ptr_, ptr_, size_});
      CopyUp(Arg(0), Arg(1), Arg(2));
      QUENCH_RETURN_IF_ERROR(End(nullptr));
      Begin(std::string("__aeabi_memmove") + suffix, b_.getVoidTy(), {ptr_, ptr_, size_});
      b_.CreateCall(state_.module->getFunction("memmove"), {Arg(0), Arg(1), Arg(2)});
      QUENCH_RETURN_IF_ERROR(End(nullptr));
      Begin(std::string("__aeabi_memset") + suffix, b_.getVoidTy(), {ptr_, size_, i32_});
      Fill(Arg(0), Arg(2), Arg(1));
      QUENCH_RETURN_IF_ERROR(End(nullptr));
      Begin(std::string("__aeabi_memclr") + suffix, b_.getVoidTy(), {ptr_, size_});
      Fill(Arg(0), b_.getInt32(0), Arg(1));
      QUENCH_RETURN_IF_ERROR(End(nullptr));
    }
    return absl::OkStatus();
  }

  ModuleState& state_;
  llvm::IRBuilder<> b_;
  llvm::PointerType* ptr_;
  llvm::Type* i8_;
  llvm::Type* i32_;
  llvm::Type* size_;
  llvm::Function* function_ = nullptr;
};

}  // namespace

absl::Status EmitMemoryFunctions(ModuleBuilder& module) {
  return MemoryFunctions(module.state()).Emit();
}

}  // namespace quench::codegen
