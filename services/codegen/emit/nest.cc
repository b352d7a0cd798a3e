// The frame of a nest's function: pointers, sizes, scratch, and the loop over tasks.
#include "services/codegen/emit/nest.h"

#include "common/base/status.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/emit/nest_emitter.h"
#include "services/codegen/schedule/schedule.h"
#include "services/codegen/schedule/scratch.h"

namespace quench::codegen {

using loops::BufferRole;
using loops::Stmt;
using loops::StmtKind;

NestEmitter::NestEmitter(ModuleState& state, const Schedule& schedule, llvm::Function* function)
    : state_(state),
      schedule_(schedule),
      f_(schedule.function),
      function_(function),
      entry_(llvm::BasicBlock::Create(state.context, "entry", function)),
      b_(state.context),
      arith_(state, b_),
      index_type_(
          llvm::IntegerType::get(state.context, static_cast<unsigned>(state.target.pointer_bits))),
      vars_(f_.vars.size()),
      ranges_(f_, {}),
      locals_(f_.locals.size()),
      scalars_(f_.locals.size()),
      memo_(f_.exprs.size()),
      memo_epoch_(f_.exprs.size(), 0) {}

absl::Status NestEmitter::Run() {
  llvm::BasicBlock* setup = Block("setup");
  b_.SetInsertPoint(setup);
  for (const Stmt& stmt : f_.stmts) writes_slots_ |= stmt.kind == StmtKind::kSetSlot;
  for (size_t i = 0; i < locals_.size(); ++i) {
    scalars_[i] = Alloca(RegisterType(state_.context, f_.locals[i].type));
    locals_[i] = {scalars_[i], false};
    // A local is set before it is read; on paths where it is not, nothing depends on it.
    entry_.CreateStore(llvm::Constant::getNullValue(scalars_[i]->getAllocatedType()), scalars_[i]);
  }
  DeclareMemory();
  if (IsShared()) FindExchanges();
  if (schedule_.row > 0) FindRepeatedLoads();
  EmitTasks();
  b_.CreateRet(b_.getInt32(0));
  entry_.CreateBr(setup);
  return absl::OkStatus();
}

// Row-major strides from the dims, innermost last.
void NestEmitter::DeclareMemory() {
  memory_.resize(f_.buffers.size());
  llvm::Value* used = nullptr;  // bytes of the scratch buffer given out
  for (size_t i = 0; i < f_.buffers.size(); ++i) {
    const loops::Buffer& buffer = f_.buffers[i];
    Memory& memory = memory_[i];
    memory.bytes = static_cast<uint64_t>(DataTypeBits(buffer.dtype) / 8);
    memory.element = buffer.dtype == DataType::kBool ? b_.getInt8Ty()
                                                     : RegisterType(state_.context, buffer.dtype);
    memory.strides.assign(buffer.dims.size(), nullptr);
    llvm::Value* stride = llvm::ConstantInt::get(index_type_, 1);
    for (size_t d = buffer.dims.size(); d-- > 0;) {
      memory.strides[d] = stride;
      if (d > 0) stride = b_.CreateMul(stride, b_.CreateTrunc(Scalar(buffer.dims[d]), index_type_));
    }
    if (schedule_.kept.contains(static_cast<loops::BufferId>(i))) continue;
    if (buffer.role == BufferRole::kScratch) {
      memory.base = ScratchBase(buffer, used);
    } else {
      llvm::Value* place = b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), function_->getArg(0), i);
      memory.base = b_.CreateAlignedLoad(
          b_.getPtrTy(), place, llvm::Align(static_cast<uint64_t>(state_.target.pointer_bits / 8)));
    }
  }
}

// On the stack, or the next part of the buffer that follows the parameters. `used`: bytes handed
// out so far.
llvm::Value* NestEmitter::ScratchBase(const loops::Buffer& buffer, llvm::Value*& used) {
  llvm::Value* bytes =
      llvm::ConstantInt::get(index_type_, static_cast<uint64_t>(DataTypeBits(buffer.dtype) / 8));
  for (loops::ExprId dim : buffer.dims)
    bytes = b_.CreateMul(bytes, b_.CreateTrunc(Scalar(dim), index_type_));
  const uint64_t mask = kScratchAlignment - 1;
  bytes = b_.CreateAnd(b_.CreateAdd(bytes, llvm::ConstantInt::get(index_type_, mask)),
                       llvm::ConstantInt::get(index_type_, ~mask));
  if (stack_scratch_) {
    const auto size = llvm::cast<llvm::ConstantInt>(bytes)->getZExtValue();
    llvm::AllocaInst* memory = Alloca(llvm::ArrayType::get(b_.getInt8Ty(), size));
    memory->setAlignment(llvm::Align(kScratchAlignment));
    return memory;
  }
  size_t parameters = 0;
  for (const loops::Buffer& other : f_.buffers) parameters += other.role != BufferRole::kScratch;
  if (used == nullptr) used = llvm::ConstantInt::get(index_type_, 0);
  llvm::Value* place =
      b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), function_->getArg(0), parameters);
  llvm::Value* scratch = b_.CreateAlignedLoad(
      b_.getPtrTy(), place, llvm::Align(static_cast<uint64_t>(state_.target.pointer_bits / 8)));
  llvm::Value* base = b_.CreateInBoundsGEP(b_.getInt8Ty(), scratch, used);
  used = b_.CreateAdd(used, bytes);
  return base;
}

bool NestEmitter::IsTaskLoop(loops::StmtId id) const {
  return !schedule_.task_loops.empty() && schedule_.task_loops.front() == id;
}

// The statements before the task loops are cheap and run for every range of tasks.
void NestEmitter::EmitTasks() {
  llvm::Value *begin = function_->getArg(2), *end = function_->getArg(3);
  llvm::BasicBlock *work = Block("work"), *done = Block("done");
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), work, done);
  b_.SetInsertPoint(work);
  if (!schedule_.fill.empty()) {
    Branch(b_.CreateICmpEQ(begin, b_.getInt64(0)), [&] { Body(schedule_.fill); }, nullptr);
  }
  for (loops::StmtId id : f_.body) {
    if (!IsTaskLoop(id)) {
      Statement(id);
      continue;
    }
    Forget();
    std::vector<llvm::Value*> extents;
    for (loops::StmtId loop : schedule_.task_loops) extents.push_back(Scalar(StmtAt(loop).args[1]));
    CountedLoop(begin, end, 1, true, [&](llvm::Value* task) {
      TaskIndices(task, extents);
      Body(StmtAt(schedule_.task_loops.back()).body);
    });
  }
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

// Task number = row-major position in the task loops' iteration space; each of them starts at 0.
void NestEmitter::TaskIndices(llvm::Value* task, std::span<llvm::Value* const> extents) {
  for (size_t i = extents.size(); i-- > 0;) {
    const auto var = static_cast<size_t>(StmtAt(schedule_.task_loops[i]).id);
    if (i == 0) {
      vars_[var] = {task};
      return;
    }
    vars_[var] = {arith_.Binary(loops::BinaryOp::kRem, DataType::kI64, task, extents[i])};
    task = arith_.Binary(loops::BinaryOp::kDiv, DataType::kI64, task, extents[i]);
  }
}

namespace {

absl::Status CheckTypes(const loops::Function& function) {
  const auto check = [](DataType type) {
    if (IsSupported(type)) return absl::OkStatus();
    return Unsupported("element type {} in generated code", DataTypeName(type));
  };
  for (const loops::Buffer& buffer : function.buffers) QUENCH_RETURN_IF_ERROR(check(buffer.dtype));
  for (const loops::Local& local : function.locals) QUENCH_RETURN_IF_ERROR(check(local.type));
  for (const loops::Expr& e : function.exprs) QUENCH_RETURN_IF_ERROR(check(e.type));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FillNestFunction(ModuleState& state,
                                                          llvm::Function& function,
                                                          const KernelPlan& plan) {
  const Schedule& schedule = *plan.nest;
  QUENCH_RETURN_IF_ERROR(CheckTypes(schedule.function));
  NestEmitter emitter(state, schedule, &function);
  emitter.set_stack_scratch(plan.scratch_bytes == Dim(0));
  QUENCH_RETURN_IF_ERROR(emitter.Run());
  return emitter.messages();
}

}  // namespace quench::codegen
