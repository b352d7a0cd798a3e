#include "services/codegen/emit/run_emitter.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/runtime/abi.h"
#include "services/codegen/emit/arith.h"
#include "services/codegen/object/formats.h"
#include "services/codegen/object/weight_section.h"

namespace quench::codegen {
namespace {

// Steps of one function: those of a model of some hundred nodes.
constexpr size_t kStepsOfPart = 1000;

using Run = AbiStruct<quench_run>;
using Host = AbiStruct<quench_host>;

// Members of the argument that parallel_for hands to the thunk; of type arg_type_.
enum ArgField : unsigned {
  kKernel,
  kArgBuffers,
  kArgSlots,
  kArgCount,  // of buffers before scratch
  kArgScratch,
  kArgStride,
  kArgTasks,
  kArgShares  // of all tasks, where these are handed out
};

}  // namespace

RunEmitter::RunEmitter(ModuleState& state, const Program& program,
                       const std::vector<uint64_t>& weight_offsets, DeviceModule* device)
    : state_(state),
      program_(program),
      weight_offsets_(weight_offsets),
      device_(device),
      b_(state.context),
      tables_(state),
      ptr_(llvm::PointerType::getUnqual(state.context)),
      i8_(b_.getInt8Ty()),
      i32_(b_.getInt32Ty()),
      i64_(b_.getInt64Ty()),
      size_(state.module->getDataLayout().getIntPtrType(state.context)),
      shared_(std::make_shared<Shared>()) {
  arg_type_ =
      llvm::StructType::get(state.context, {ptr_, ptr_, ptr_, i64_, ptr_, i64_, i64_, i64_});
  ForEachStep(program.steps, [this](const Step& step) {
    if (const auto* call = step.As<CallStep>(); call != nullptr)
      most_buffers_ = std::max(most_buffers_, call->buffers.size() + call->packs.size() + 1);
  });
}

RunEmitter::RunEmitter(const RunEmitter& whole)
    : state_(whole.state_),
      program_(whole.program_),
      weight_offsets_(whole.weight_offsets_),
      device_(whole.device_),
      b_(state_.context),
      tables_(state_),
      ptr_(whole.ptr_),
      i8_(whole.i8_),
      i32_(whole.i32_),
      i64_(whole.i64_),
      size_(whole.size_),
      arg_type_(whole.arg_type_),
      most_buffers_(whole.most_buffers_),
      shared_(whole.shared_) {}

absl::Status RunEmitter::EmitKernels() {
  absl::Status status;
  ForEachStep(program_.steps, [&](const Step& step) {
    const auto* call = step.As<CallStep>();
    if (call == nullptr || call->on_device || call->kernel.empty() || !status.ok()) return;
    absl::StatusOr<EmittedKernel> kernel = EmitKernel(state_, call->kernel);
    status = kernel.status();
    if (kernel.ok()) shared_->kernels[call] = *std::move(kernel);
  });
  return status;
}

absl::StatusOr<llvm::Function*> RunEmitter::Emit() {
  QUENCH_RETURN_IF_ERROR(EmitKernels());
  if (device_ != nullptr) {
    shared_->weight_ranges.emplace(program_, weight_offsets_);
    QUENCH_RETURN_IF_ERROR(EmitLaunches());
  }
  function_ =
      CreateFunction(state_, state_.prefix + "_run", llvm::FunctionType::get(i32_, {ptr_}, false));
  b_.SetInsertPoint(NewBlock("entry"));
  if (program_.num_pointers > 0) {
    auto* type = llvm::ArrayType::get(ptr_, static_cast<uint64_t>(program_.num_pointers));
    pointers_ = b_.CreateAlloca(type, nullptr, "pointers");
    for (int i = 0; i < program_.num_pointers; ++i) {
      b_.CreateStore(tables_.Null(),
                     b_.CreateConstGEP1_32(ptr_, pointers_, static_cast<unsigned>(i)));
    }
  }
  LoadArguments();
  EmitSteps(program_.steps);
  When(b_.CreateIsNotNull(host_.on_node), [&] {
    b_.CreateCall(llvm::FunctionType::get(b_.getVoidTy(), {ptr_, i32_}, false), host_.on_node,
                  {host_.host, b_.getInt32(static_cast<uint32_t>(program_.nodes.size()))});
  });
  b_.CreateRet(b_.getInt32(QUENCH_CODE_OK));
  QUENCH_RETURN_IF_ERROR(shared_->status);
  QUENCH_RETURN_IF_ERROR(Optimise(state_, *function_, Pipeline::kKernel));
  return function_;
}

llvm::Function* RunEmitter::EmitPart(const std::string& name, std::span<const Step> steps) {
  function_ = CreateFunction(state_, name, llvm::FunctionType::get(i32_, {ptr_, ptr_}, false));
  b_.SetInsertPoint(NewBlock("entry"));
  pointers_ = function_->getArg(1);
  LoadArguments();
  EmitEach(steps);
  b_.CreateRet(b_.getInt32(QUENCH_CODE_OK));
  shared_->status.Update(Optimise(state_, *function_, Pipeline::kKernel));
  return function_;
}

void RunEmitter::CallPart(std::span<const Step> steps) {
  const std::string name = fmt::format("{}_run_{}", state_.prefix, ++shared_->parts);
  llvm::Function* part = RunEmitter(*this).EmitPart(name, steps);
  llvm::Value* pointers = pointers_ == nullptr ? tables_.Null() : pointers_;
  LeaveWith(b_.CreateCall(part, {run_, pointers}));
}

// Leaves the run with `code` unless that is 0.
void RunEmitter::LeaveWith(llvm::Value* code) {
  llvm::BasicBlock* leave = NewBlock("leave");
  llvm::BasicBlock* go_on = NewBlock("go_on");
  b_.CreateCondBr(b_.CreateICmpNE(code, b_.getInt32(QUENCH_CODE_OK)), leave, go_on);
  b_.SetInsertPoint(leave);
  b_.CreateRet(code);
  b_.SetInsertPoint(go_on);
}

llvm::GlobalVariable* RunEmitter::WeightsPointer() {
  if (shared_->weights != nullptr) return shared_->weights;
  // Through a pointer rather than from the instruction: large weights may be out of its reach.
  llvm::Constant* section =
      state_.module->getOrInsertGlobal(state_.link_prefix + kWeightsSymbol, i8_);
  llvm::cast<llvm::GlobalVariable>(section)->setVisibility(llvm::GlobalValue::HiddenVisibility);
  shared_->weights = new llvm::GlobalVariable(*state_.module, ptr_, /*isConstant=*/false,
                                              llvm::GlobalValue::InternalLinkage, section,
                                              state_.prefix + "_weights");
  shared_->weights->setSection(FormatOf(state_.target).address_section);
  return shared_->weights;
}

void RunEmitter::LoadCallbacks() {
  llvm::Value* host = LoadAbiField<quench_run>(b_, run_, Run::host);
  host_.host = LoadAbiField<quench_host>(b_, host, Host::host);
  host_.threads = LoadAbiField<quench_host>(b_, host, Host::num_threads);
  host_.parallel_for = LoadAbiField<quench_host>(b_, host, Host::parallel_for);
  host_.alloc = LoadAbiField<quench_host>(b_, host, Host::alloc);
  host_.free = LoadAbiField<quench_host>(b_, host, Host::free);
  host_.on_tensor = LoadAbiField<quench_host>(b_, host, Host::on_tensor);
  host_.on_node = LoadAbiField<quench_host>(b_, host, Host::on_node);
  host_.cancelled = LoadAbiField<quench_host>(b_, host, Host::cancelled);
  if (device_ == nullptr) return;
  host_.launch = LoadAbiField<quench_host>(b_, host, Host::launch);
  host_.transfer = LoadAbiField<quench_host>(b_, host, Host::transfer);
}

void RunEmitter::LoadArguments() {
  run_ = function_->getArg(0);
  buffers_ = b_.CreateAlloca(llvm::ArrayType::get(ptr_, most_buffers_), nullptr, "buffers");
  arg_ = b_.CreateAlloca(arg_type_, nullptr, "arg");
  if (device_ != nullptr)
    values_ = b_.CreateAlloca(llvm::ArrayType::get(i64_, most_buffers_), nullptr, "values");
  LoadCallbacks();
  watched_ = b_.CreateOr(b_.CreateIsNotNull(host_.on_node), b_.CreateIsNotNull(host_.cancelled));
  slots_ = LoadAbiField<quench_run>(b_, run_, Run::slots);
  arena_ = LoadAbiField<quench_run>(b_, run_, Run::arena);
  scratch_ = LoadAbiField<quench_run>(b_, run_, Run::scratch);
  outputs_ = LoadAbiField<quench_run>(b_, run_, Run::outputs);
  llvm::Value* inputs = LoadAbiField<quench_run>(b_, run_, Run::inputs);
  auto load_all = [&](Home home, llvm::Value* array, std::vector<llvm::Value*>& values) {
    for (const Storage& storage : program_.storages) {
      if (storage.home != home) continue;
      const auto index = static_cast<size_t>(storage.index);
      if (values.size() <= index) values.resize(index + 1, nullptr);
      if (values[index] != nullptr) continue;
      values[index] =
          b_.CreateLoad(ptr_, b_.CreateConstGEP1_32(ptr_, array, static_cast<unsigned>(index)));
    }
  };
  load_all(Home::kInput, inputs, inputs_);
  load_all(Home::kOutput, outputs_, fixed_outputs_);
  weights_ = b_.CreateLoad(ptr_, WeightsPointer());
}

// ---- values ----

llvm::Value* RunEmitter::SlotAddress(int32_t slot) {
  return b_.CreateConstGEP1_32(i64_, slots_, static_cast<unsigned>(slot));
}

llvm::Value* RunEmitter::Slot(int32_t slot) { return b_.CreateLoad(i64_, SlotAddress(slot)); }

llvm::Value* RunEmitter::DimValue(Dim dim) {
  return dim.is_static() ? b_.getInt64(static_cast<uint64_t>(dim.value())) : Slot(dim.symbol());
}

llvm::Value* RunEmitter::Bytes(const ByteCount& bytes) {
  return bytes.slot < 0 ? b_.getInt64(static_cast<uint64_t>(bytes.fixed)) : Slot(bytes.slot);
}

llvm::Value* RunEmitter::Pointer(int storage) {
  const Storage& heap = program_.storages[static_cast<size_t>(storage)];
  return b_.CreateConstGEP1_32(ptr_, pointers_, static_cast<unsigned>(heap.index));
}

llvm::Value* RunEmitter::StorageAddress(int id) {
  const Storage& storage = program_.storages[static_cast<size_t>(id)];
  if (storage.device) return DeviceAddress(storage);
  const auto index = static_cast<size_t>(storage.index);
  switch (storage.home) {
    case Home::kInput:
      return inputs_[index];
    case Home::kOutput:
      return fixed_outputs_[index];
    case Home::kHeap:
      return b_.CreateLoad(ptr_, Pointer(id));
    case Home::kWeights:
      return b_.CreateGEP(i8_, weights_, llvm::ConstantInt::get(size_, weight_offsets_[index]));
    case Home::kArena:
      break;
  }
  if (storage.offset_slot < 0) {
    return b_.CreateGEP(i8_, arena_,
                        llvm::ConstantInt::get(size_, static_cast<uint64_t>(storage.offset)));
  }
  return b_.CreateGEP(i8_, arena_, b_.CreateTrunc(Slot(storage.offset_slot), size_));
}

llvm::Value* RunEmitter::Address(int buffer) {
  const Buffer& at = program_.buffers[static_cast<size_t>(buffer)];
  llvm::Value* storage = StorageAddress(at.storage);
  if (at.offset == 0) return storage;
  return b_.CreateGEP(i8_, storage,
                      llvm::ConstantInt::get(size_, static_cast<uint64_t>(at.offset)));
}

llvm::Value* RunEmitter::LoadScalarBool(int buffer) {
  return b_.CreateICmpNE(b_.CreateLoad(i8_, Address(buffer)), b_.getInt8(0));
}

void RunEmitter::ReturnIf(llvm::Value* condition, int code) {
  llvm::BasicBlock* leave = NewBlock("leave");
  llvm::BasicBlock* go_on = NewBlock("go_on");
  b_.CreateCondBr(condition, leave, go_on);
  b_.SetInsertPoint(leave);
  b_.CreateRet(b_.getInt32(static_cast<uint32_t>(code)));
  b_.SetInsertPoint(go_on);
}

void RunEmitter::CopyBytes(llvm::Value* to, llvm::Value* from, llvm::Value* bytes) {
  b_.CreateMemCpy(to, llvm::MaybeAlign(1), from, llvm::MaybeAlign(1), b_.CreateTrunc(bytes, size_));
}

llvm::Value* RunEmitter::Allocate(llvm::Value* bytes, int output) {
  auto* type = llvm::FunctionType::get(ptr_, {ptr_, i64_, i32_}, false);
  llvm::Value* memory = b_.CreateCall(type, host_.alloc, {host_.host, bytes, tables_.I32(output)});
  ReturnIf(b_.CreateIsNull(memory), QUENCH_CODE_MEMORY);
  return memory;
}

// ---- steps ----

void RunEmitter::EmitSteps(const Steps& steps) {
  std::span<const Step> rest = steps;
  if (rest.size() <= kStepsOfPart) return EmitEach(rest);
  while (!rest.empty()) {
    const size_t count = std::min(rest.size(), kStepsOfPart);
    CallPart(rest.first(count));
    rest = rest.subspan(count);
  }
}

void RunEmitter::EmitEach(std::span<const Step> steps) {
  for (const Step& step : steps)
    std::visit([&](const auto& action) { Emit(step.node, action); }, step.action);
}

void RunEmitter::Emit(int node, const BeginStep&) {
  When(watched_, [&] {
    llvm::Function* begin = BeginFunction();
    LeaveWith(b_.CreateCall(begin, {run_, b_.getInt32(static_cast<uint32_t>(node))}));
  });
}

// Tells whoever watches that the node begins, and asks whether it should.
llvm::Function* RunEmitter::BeginFunction() {
  if (shared_->begin != nullptr) return shared_->begin;
  RunEmitter own(*this);
  own.function_ = CreateFunction(state_, state_.prefix + "_begin",
                                 llvm::FunctionType::get(i32_, {ptr_, i32_}, false));
  own.EmitBegin();
  shared_->begin = own.function_;
  return shared_->begin;
}

void RunEmitter::EmitBegin() {
  b_.SetInsertPoint(NewBlock("entry"));
  run_ = function_->getArg(0);
  LoadCallbacks();
  When(b_.CreateIsNotNull(host_.on_node), [&] {
    b_.CreateCall(llvm::FunctionType::get(b_.getVoidTy(), {ptr_, i32_}, false), host_.on_node,
                  {host_.host, function_->getArg(1)});
  });
  When(b_.CreateIsNotNull(host_.cancelled), [&] {
    llvm::Value* stop =
        b_.CreateCall(llvm::FunctionType::get(i32_, {ptr_}, false), host_.cancelled, {host_.host});
    ReturnIf(b_.CreateICmpNE(stop, b_.getInt32(0)), QUENCH_CODE_CANCELLED);
  });
  b_.CreateRet(b_.getInt32(QUENCH_CODE_OK));
}

unsigned RunEmitter::PassBuffers(const CallStep& call) {
  unsigned count = 0;
  auto pass = [&](llvm::Value* address) {
    b_.CreateStore(address, b_.CreateConstGEP1_32(ptr_, buffers_, count++));
  };
  for (const int buffer : call.buffers) pass(Address(buffer));
  for (const int entry : call.packs) {
    pass(b_.CreateGEP(i8_, weights_,
                      llvm::ConstantInt::get(size_, weight_offsets_[static_cast<size_t>(entry)])));
  }
  if (!call.kernel.scratch_bytes.is(0))
    pass(call.scratch_storage >= 0 ? StorageAddress(call.scratch_storage) : scratch_);
  return count;
}

llvm::Value* RunEmitter::CallKernel(const CallStep& call, llvm::Value* begin, llvm::Value* end) {
  llvm::Function* kernel = state_.Kernel(shared_->kernels.at(&call).symbol);
  return b_.CreateCall(kernel, {buffers_, slots_, begin, end});
}

void RunEmitter::Emit(int node, const CallStep& call) {
  if (call.on_device) return Launch(call);
  if (call.kernel.empty()) return;  // nothing follows from those symbols
  const EmittedKernel& emitted = shared_->kernels.at(&call);
  const unsigned count = PassBuffers(call);
  llvm::Value* tasks = DimValue(call.kernel.tasks);
  auto run = [&] { return CallKernel(call, b_.getInt64(0), tasks); };
  if (!call.parallel) {
    llvm::Value* result = run();
    CheckResult(node, emitted, result);
    return;
  }
  llvm::BasicBlock* alone = NewBlock("alone");
  llvm::BasicBlock* shared = NewBlock("shared");
  llvm::BasicBlock* done = NewBlock("done");
  b_.CreateCondBr(b_.CreateICmpUGT(host_.threads, b_.getInt32(1)), shared, alone);
  b_.SetInsertPoint(alone);
  llvm::Value* result_alone = run();
  b_.CreateBr(done);
  b_.SetInsertPoint(shared);
  llvm::Value* result_shared = CallParallel(call, state_.Kernel(emitted.symbol), tasks, count);
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  llvm::PHINode* result = b_.CreatePHI(i32_, 2);
  result->addIncoming(result_alone, alone);
  result->addIncoming(result_shared, shared);
  CheckResult(node, emitted, result);
}

llvm::Value* RunEmitter::CallParallel(const CallStep& call, llvm::Function* kernel,
                                      llvm::Value* tasks, size_t buffers) {
  auto set = [&](ArgField field, llvm::Value* value) {
    b_.CreateStore(value, b_.CreateStructGEP(arg_type_, arg_, field));
  };
  const bool scratch = !call.kernel.scratch_bytes.is(0);
  set(kKernel, kernel);
  set(kArgBuffers, buffers_);
  set(kArgSlots, slots_);
  set(kArgCount, b_.getInt64(scratch ? buffers - 1 : 0));  // 0: the buffers as they are
  set(kArgScratch, scratch_);
  set(kArgStride, Slot(program_.scratch_slot));
  auto* type = llvm::FunctionType::get(i32_, {ptr_, ptr_, ptr_, i64_, i64_}, false);
  const auto parallel_for = [&](llvm::Value* count, int64_t grain) {
    return b_.CreateCall(type, host_.parallel_for,
                         {host_.host, Thunk(call.one_range), arg_, count,
                          b_.getInt64(static_cast<uint64_t>(grain))});
  };
  if (!call.one_range) return parallel_for(tasks, call.grain);
  llvm::Value* threads = b_.CreateZExt(host_.threads, i64_);
  llvm::Value* shares = b_.CreateSelect(b_.CreateICmpULT(threads, tasks), threads, tasks);
  set(kArgTasks, tasks);
  set(kArgShares, shares);
  return parallel_for(shares, 1);
}

// Calls the kernel for a range of tasks, or for those of a range of shares; a kernel with scratch gets
// the worker's own, so its buffers are copied.
llvm::Function* RunEmitter::Thunk(bool shares) {
  llvm::Function*& thunk = shared_->thunks[shares ? 1 : 0];
  if (thunk != nullptr) return thunk;
  auto* type = llvm::FunctionType::get(i32_, {ptr_, i64_, i64_, i32_}, false);
  thunk = CreateFunction(state_, state_.prefix + (shares ? "_shares" : "_task"), type);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(state_.context, "entry", thunk));
  auto field = [&](ArgField index, llvm::Type* load) {
    return b.CreateLoad(load, b.CreateStructGEP(arg_type_, thunk->getArg(0), index));
  };
  auto task = [&](llvm::Value* at) -> llvm::Value* {
    if (!shares) return at;
    llvm::Value* all = b.CreateMul(at, field(kArgTasks, i64_));
    return Arith(state_, b).Quotient(/*is_signed=*/false, all, field(kArgShares, i64_));
  };
  llvm::Value* begin = task(thunk->getArg(1));
  llvm::Value* end = task(thunk->getArg(2));
  llvm::Value* copy = b.CreateAlloca(llvm::ArrayType::get(ptr_, most_buffers_));
  llvm::Value* buffers = field(kArgBuffers, ptr_);
  llvm::Value* count = field(kArgCount, i64_);
  llvm::BasicBlock* own = llvm::BasicBlock::Create(state_.context, "own", thunk);
  llvm::BasicBlock* go = llvm::BasicBlock::Create(state_.context, "go", thunk);
  llvm::BasicBlock* entry = b.GetInsertBlock();
  b.CreateCondBr(b.CreateICmpEQ(count, b.getInt64(0)), go, own);
  b.SetInsertPoint(own);
  for (size_t i = 0; i + 1 < most_buffers_; ++i) {
    const auto at = static_cast<unsigned>(i);
    b.CreateStore(b.CreateLoad(ptr_, b.CreateConstGEP1_32(ptr_, buffers, at)),
                  b.CreateConstGEP1_32(ptr_, copy, at));
  }
  llvm::Value* offset = b.CreateMul(b.CreateZExt(thunk->getArg(3), i64_), field(kArgStride, i64_));
  llvm::Value* scratch = b.CreateGEP(i8_, field(kArgScratch, ptr_), b.CreateTrunc(offset, size_));
  b.CreateStore(scratch, b.CreateGEP(ptr_, copy, b.CreateTrunc(count, size_)));
  b.CreateBr(go);
  b.SetInsertPoint(go);
  llvm::PHINode* passed = b.CreatePHI(ptr_, 2);
  passed->addIncoming(buffers, entry);
  passed->addIncoming(copy, own);
  b.CreateRet(b.CreateCall(KernelType(state_.context), field(kKernel, ptr_),
                           {passed, field(kArgSlots, ptr_), begin, end}));
  return thunk;
}

// A kernel's result is 0 or one more than the number of the message.
void RunEmitter::CheckResult(int node, const EmittedKernel& kernel, llvm::Value* result) {
  if (kernel.messages.empty()) return;
  std::vector<llvm::Constant*> texts;
  for (const std::string& message : kernel.messages) texts.push_back(tables_.Text(message));
  llvm::Constant* messages = tables_.Pointers(texts, "messages");
  llvm::BasicBlock* failed = NewBlock("failed");
  llvm::BasicBlock* fine = NewBlock("fine");
  b_.CreateCondBr(b_.CreateICmpNE(result, b_.getInt32(0)), failed, fine);
  b_.SetInsertPoint(failed);
  llvm::Value* index = b_.CreateSExtOrTrunc(b_.CreateSub(result, b_.getInt32(1)), size_);
  llvm::Value* message = b_.CreateLoad(ptr_, b_.CreateGEP(ptr_, messages, index));
  b_.CreateStore(tables_.I32(node), AbiFieldAddress<quench_run>(b_, run_, Run::error_node));
  b_.CreateStore(message, AbiFieldAddress<quench_run>(b_, run_, Run::error_message));
  b_.CreateRet(b_.getInt32(QUENCH_CODE_CHECK));
  b_.SetInsertPoint(fine);
}

void RunEmitter::Emit(int, const AllocateStep& allocate) {
  const int output = program_.storages[static_cast<size_t>(allocate.storage)].output;
  llvm::Value* memory = Allocate(Bytes(allocate.bytes), output);
  b_.CreateStore(memory, Pointer(allocate.storage));
  if (output >= 0)
    b_.CreateStore(memory, b_.CreateConstGEP1_32(ptr_, outputs_, static_cast<unsigned>(output)));
}

void RunEmitter::Emit(int, const FreeStep& free) { Free(free.storage); }

// Nothing happens when the pointer is null: memory made in a branch that was not taken.
void RunEmitter::Free(int storage) {
  llvm::Value* memory = b_.CreateLoad(ptr_, Pointer(storage));
  When(b_.CreateIsNotNull(memory), [&] {
    b_.CreateCall(llvm::FunctionType::get(b_.getVoidTy(), {ptr_, ptr_}, false), host_.free,
                  {host_.host, memory});
    b_.CreateStore(tables_.Null(), Pointer(storage));
  });
}

void RunEmitter::Emit(int, const MoveStep& move) {
  Free(move.to);
  b_.CreateStore(b_.CreateLoad(ptr_, Pointer(move.from)), Pointer(move.to));
  b_.CreateStore(tables_.Null(), Pointer(move.from));
}

void RunEmitter::Emit(int, const CopyStep& copy) {
  llvm::Value* to = Address(copy.to);
  llvm::Value* from = Address(copy.from);
  When(b_.CreateICmpNE(to, from), [&] {
    if (IsOnDevice(copy.to)) {
      Transfer(to, from, Bytes(copy.bytes), QUENCH_TRANSFER_WITHIN_DEVICE);
    } else {
      CopyBytes(to, from, Bytes(copy.bytes));
    }
  });
}

// Grows by doubling, so that n appends copy O(n).
void RunEmitter::Emit(int, const AppendStep& append) {
  llvm::Value* bytes = Bytes(append.bytes);
  llvm::Value* length = Slot(append.length_slot);
  llvm::Value* capacity = Slot(append.capacity_slot);
  llvm::Value* used = b_.CreateMul(length, bytes);
  llvm::Value* needed = b_.CreateAdd(used, bytes);
  llvm::Value* missing = b_.CreateIsNull(b_.CreateLoad(ptr_, Pointer(append.storage)));
  When(b_.CreateOr(missing, b_.CreateICmpUGT(needed, capacity)), [&] {
    llvm::Value* twice = b_.CreateAdd(capacity, capacity);
    llvm::Value* larger = b_.CreateSelect(b_.CreateICmpUGT(needed, twice), needed, twice);
    llvm::Value* memory = Allocate(larger, -1);
    llvm::Value* old = b_.CreateLoad(ptr_, Pointer(append.storage));
    When(b_.CreateIsNotNull(old), [&] { CopyBytes(memory, old, used); });
    Free(append.storage);
    b_.CreateStore(memory, Pointer(append.storage));
    b_.CreateStore(larger, SlotAddress(append.capacity_slot));
  });
  llvm::Value* end =
      b_.CreateGEP(i8_, b_.CreateLoad(ptr_, Pointer(append.storage)), b_.CreateTrunc(used, size_));
  CopyBytes(end, Address(append.from), bytes);
  b_.CreateStore(b_.CreateAdd(length, b_.getInt64(1)), SlotAddress(append.length_slot));
}

void RunEmitter::Emit(int, const TapStep& tap) {
  When(b_.CreateIsNotNull(host_.on_tensor), [&] {
    b_.CreateCall(llvm::FunctionType::get(b_.getVoidTy(), {ptr_, i32_, ptr_}, false),
                  host_.on_tensor, {host_.host, tables_.I32(tap.tap), Address(tap.buffer)});
  });
}

void RunEmitter::Emit(int, const IfStep& branches) {
  llvm::BasicBlock* yes = NewBlock("yes");
  llvm::BasicBlock* no = NewBlock("no");
  llvm::BasicBlock* after = NewBlock("after");
  b_.CreateCondBr(LoadScalarBool(branches.condition), yes, no);
  b_.SetInsertPoint(yes);
  EmitSteps(branches.then_steps);
  b_.CreateBr(after);
  b_.SetInsertPoint(no);
  EmitSteps(branches.else_steps);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

void RunEmitter::Emit(int node, const LoopStep& loop) {
  llvm::Value* trips = b_.getInt64(INT64_MAX);
  if (loop.fixed_trips) trips = DimValue(loop.trips);
  if (loop.trip_count >= 0)
    trips = b_.CreateAlignedLoad(i64_, Address(loop.trip_count), llvm::Align(1));
  llvm::Value* condition = loop.condition >= 0 ? LoadScalarBool(loop.condition) : b_.getTrue();
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* head = NewBlock("loop");
  llvm::BasicBlock* body = NewBlock("iteration");
  llvm::BasicBlock* after = NewBlock("after");
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* i = b_.CreatePHI(i64_, 2);
  llvm::PHINode* going = b_.CreatePHI(b_.getInt1Ty(), 2);
  i->addIncoming(b_.getInt64(0), before);
  going->addIncoming(condition, before);
  b_.CreateCondBr(b_.CreateAnd(going, b_.CreateICmpSLT(i, trips)), body, after);
  b_.SetInsertPoint(body);
  b_.CreateStore(i, SlotAddress(loop.iteration_slot));
  if (loop.iteration >= 0) b_.CreateStore(i, Address(loop.iteration));
  if (loop.condition_in >= 0) b_.CreateStore(b_.CreateZExt(going, i8_), Address(loop.condition_in));
  // A body may have no nodes: an endless loop must still be stopped.
  Emit(node, BeginStep{});
  EmitSteps(loop.body);
  llvm::Value* next = loop.condition_out >= 0 ? LoadScalarBool(loop.condition_out) : b_.getTrue();
  i->addIncoming(b_.CreateAdd(i, b_.getInt64(1)), b_.GetInsertBlock());
  going->addIncoming(next, b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
}

void RunEmitter::Emit(int, const BandsStep& bands) {
  llvm::BasicBlock* alone = NewBlock("in_bands");
  llvm::BasicBlock* shared = NewBlock("one_by_one");
  llvm::BasicBlock* after = NewBlock("after");
  b_.CreateCondBr(b_.CreateICmpUGT(host_.threads, b_.getInt32(1)), shared, alone);
  b_.SetInsertPoint(shared);
  EmitSteps(bands.body);
  b_.CreateBr(after);
  b_.SetInsertPoint(alone);
  for (const BandsStep::Range& range : bands.order) {
    const Step& step = bands.body[static_cast<size_t>(range.call)];
    const auto& call = *step.As<CallStep>();
    Emit(step.node, BeginStep{});
    PassBuffers(call);
    CheckResult(step.node, shared_->kernels.at(&call),
                CallKernel(call, b_.getInt64(static_cast<uint64_t>(range.begin)),
                           b_.getInt64(static_cast<uint64_t>(range.end))));
  }
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

}  // namespace quench::codegen
