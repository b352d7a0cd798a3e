// The run function of a variant: a program's steps as machine code. See common/runtime/abi.h for
// what it is given. Long lists of steps are functions of their own, for LLVM's time grows with the
// square of a function.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "services/codegen/emit/device_module.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/emit/tables.h"
#include "services/codegen/emit/weight_ranges.h"
#include "services/codegen/plan/program.h"

namespace quench::codegen {

class RunEmitter {
 public:
  // `device` gets the kernels of calls on the GPU; null: there are none.
  RunEmitter(ModuleState& state, const Program& program,
             const std::vector<uint64_t>& weight_offsets, DeviceModule* device);
  // Emits the function and returns it.
  absl::StatusOr<llvm::Function*> Emit();
  // The address of the variant's quench_device_code; null without a device. Call once, after Emit.
  absl::StatusOr<llvm::Constant*> DeviceCode();

 private:
  struct Callbacks {
    llvm::Value *host, *threads, *parallel_for, *alloc, *free, *on_tensor, *on_node, *cancelled,
        *launch, *transfer;
  };

  // State shared by the run function and its parts.
  struct Shared {
    std::map<const CallStep*, EmittedKernel> kernels;
    std::map<const CallStep*, DeviceKernel> launches;
    std::map<const CallStep*, int64_t> first_checks;  // of launches, in `checks`
    std::vector<std::pair<std::string, int>> checks;  // messages, and the nodes of their calls
    std::optional<WeightRanges> weight_ranges;
    llvm::Function* thunks[2] = {nullptr, nullptr};  // of tasks, of shares
    llvm::Function* begin = nullptr;
    llvm::GlobalVariable* weights = nullptr;  // points to them
    int parts = 0;
    absl::Status status;
  };

  // For a part of `whole`.
  explicit RunEmitter(const RunEmitter& whole);
  absl::Status EmitKernels();
  void LoadCallbacks();
  void LoadArguments();
  llvm::Function* BeginFunction();
  void EmitBegin();
  void LeaveWith(llvm::Value* code);
  llvm::GlobalVariable* WeightsPointer();
  void EmitSteps(const Steps& steps);
  void EmitEach(std::span<const Step> steps);
  void CallPart(std::span<const Step> steps);
  // int32_t part(quench_run*, pointers of the run)
  llvm::Function* EmitPart(const std::string& name, std::span<const Step> steps);
  // One for each kind of step; `node` is the one that it belongs to.
  void Emit(int node, const BeginStep& begin);
  void Emit(int node, const CallStep& call);
  void Emit(int node, const AllocateStep& allocate);
  void Emit(int node, const FreeStep& free);
  void Emit(int node, const MoveStep& move);
  void Emit(int node, const TransferStep& transfer);
  void Emit(int node, const CopyStep& copy);
  void Emit(int node, const AppendStep& append);
  void Emit(int node, const TapStep& tap);
  void Emit(int node, const IfStep& branches);
  void Emit(int node, const LoopStep& loop);
  void Emit(int node, const BandsStep& bands);
  // Addresses of the call's buffers, where its kernel finds them. Returns how many.
  unsigned PassBuffers(const CallStep& call);
  llvm::Value* CallKernel(const CallStep& call, llvm::Value* begin, llvm::Value* end);
  llvm::Value* CallParallel(const CallStep& call, llvm::Function* kernel, llvm::Value* tasks,
                            size_t buffers);
  void CheckResult(int node, const EmittedKernel& kernel, llvm::Value* result);
  void Free(int storage);

  // run_device.cc
  absl::Status EmitLaunches();
  void Launch(const CallStep& call);
  void Transfer(llvm::Value* to, llvm::Value* from, llvm::Value* bytes, uint32_t direction);
  bool IsOnDevice(int buffer) const;
  llvm::Value* DeviceField(unsigned field);  // a pointer of quench_run
  llvm::Value* DeviceWeight(int entry);
  llvm::Value* DeviceAddress(const Storage& storage);
  llvm::Value* ShapeBytes(const Shape& shape);

  llvm::Function* Thunk(bool shares);

  llvm::Value* Address(int buffer);
  llvm::Value* StorageAddress(int storage);
  llvm::Value* Pointer(int storage);  // address of a heap storage's pointer variable
  llvm::Value* DimValue(Dim dim);
  llvm::Value* Bytes(const ByteCount& bytes);
  llvm::Value* Slot(int32_t slot);
  llvm::Value* SlotAddress(int32_t slot);
  llvm::Value* LoadScalarBool(int buffer);
  llvm::Value* Allocate(llvm::Value* bytes, int output);  // leaves the run when there is no memory
  void CopyBytes(llvm::Value* to, llvm::Value* from, llvm::Value* bytes);
  llvm::BasicBlock* NewBlock(const std::string& name) {
    return llvm::BasicBlock::Create(state_.context, name, function_);
  }
  // Branches to a block that runs when `condition` holds; goes on in a new one.
  void ReturnIf(llvm::Value* condition, int code);
  template <typename Then>
  void When(llvm::Value* condition, Then then) {
    llvm::BasicBlock* yes = NewBlock("then");
    llvm::BasicBlock* after = NewBlock("after");
    b_.CreateCondBr(condition, yes, after);
    b_.SetInsertPoint(yes);
    then();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  ModuleState& state_;
  const Program& program_;
  const std::vector<uint64_t>& weight_offsets_;
  DeviceModule* const device_;
  llvm::IRBuilder<> b_;
  Tables tables_;
  llvm::PointerType* ptr_;
  llvm::Type *i8_, *i32_, *i64_, *size_;
  llvm::StructType* arg_type_;
  llvm::Function* function_ = nullptr;
  size_t most_buffers_ = 1;
  Callbacks host_{};
  llvm::Value* watched_ = nullptr;  // something is to be done when a node begins
  llvm::Value *run_ = nullptr, *slots_ = nullptr, *arena_ = nullptr, *scratch_ = nullptr,
              *outputs_ = nullptr, *weights_ = nullptr, *buffers_ = nullptr, *values_ = nullptr,
              *pointers_ = nullptr, *arg_ = nullptr;
  std::shared_ptr<Shared> shared_;
  std::vector<llvm::Value*> inputs_, fixed_outputs_;
};

}  // namespace quench::codegen
