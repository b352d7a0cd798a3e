// Loops whose iterations the threads of a warp share.
#include "common/loops/long_sums.h"
#include "services/codegen/emit/nest_emitter.h"
#include "services/codegen/schedule/warps.h"

namespace quench::codegen {

using loops::LoopMark;
using loops::Stmt;

DeviceOps NestEmitter::Device() {
  llvm::Value* thread = nullptr;
  if (state_.thread_buffer >= 0) {
    llvm::Value* place = b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), function_->getArg(0),
                                                       static_cast<uint64_t>(state_.thread_buffer));
    thread = b_.CreateLoad(b_.getPtrTy(), place);
  }
  return {b_, thread, *state_.target.gpu};
}

llvm::Value* NestEmitter::WarpLane() {
  return b_.CreateZExt(b_.CreateURem(Device().Thread(), b_.getInt32(kWarp)), b_.getInt64Ty());
}

// Makes stores of the threads before it visible to the others of the warp after it.
void NestEmitter::SyncWarp() { Device().SyncWarp(); }

void NestEmitter::WarpFor(loops::StmtId id) {
  const Stmt& stmt = StmtAt(id);
  llvm::Value *begin = Scalar(stmt.args[0]), *end = Scalar(stmt.args[1]);
  llvm::Value* lane = WarpLane();
  struct Sum {
    loops::BinaryOp op;
    DataType type;
    llvm::AllocaInst* memory;
    llvm::Value* before;
  };
  std::vector<Sum> sums;
  if (stmt.mark == LoopMark::kReduce) {
    for (const loops::Reduction& reduction : stmt.reductions) {
      const auto local = static_cast<size_t>(reduction.local);
      llvm::AllocaInst* memory = locals_[local].memory;
      sums.push_back({reduction.op, f_.locals[local].type, memory,
                      b_.CreateLoad(memory->getAllocatedType(), memory)});
      b_.CreateStore(Identity(reduction.op, sums.back().type), memory);
    }
  }
  in_warp_loop_ = true;
  const auto share = [&](llvm::Value* from, llvm::Value* to) {
    CountedLoop(b_.CreateNSWAdd(from, lane), to, kWarp, true, [&](llvm::Value* index) {
      vars_[static_cast<size_t>(stmt.id)] = {index};
      Body(stmt.body);
    });
  };
  const int64_t block = loops::IterationsOfBlock(f_, id, ranges_, kWarp);
  if (block > 0) {
    InBlocks(stmt, begin, end, block * kWarp, share);
  } else {
    share(begin, end);
  }
  in_warp_loop_ = false;
  for (const Sum& sum : sums) {
    llvm::Value* own = b_.CreateLoad(sum.memory->getAllocatedType(), sum.memory);
    llvm::Value* all = OverWarp(sum.op, sum.type, own);
    b_.CreateStore(arith_.Binary(sum.op, sum.type, sum.before, all), sum.memory);
  }
  if (stmt.mark == LoopMark::kParallel) SyncWarp();
  Forget();
}

// The same in all threads, for they add the same two numbers at each step.
llvm::Value* NestEmitter::OverWarp(loops::BinaryOp op, DataType type, llvm::Value* value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    value = arith_.Binary(op, type, value, FromLane(value, mask));
  return value;
}

// The value of the thread whose lane differs in this bit, a word at a time.
llvm::Value* NestEmitter::FromLane(llvm::Value* value, int mask) {
  llvm::Type* type = value->getType();
  const auto bits = static_cast<unsigned>(type->getPrimitiveSizeInBits().getFixedValue());
  llvm::Type *i32 = b_.getInt32Ty(), *i64 = b_.getInt64Ty();
  llvm::Value* integer = b_.CreateBitCast(value, b_.getIntNTy(bits));
  const DeviceOps device = Device();
  llvm::Value* result = nullptr;
  if (bits <= 32) {
    result =
        b_.CreateTrunc(device.ShuffleXor(b_.CreateZExt(integer, i32), mask), integer->getType());
  } else {
    llvm::Value* low = device.ShuffleXor(b_.CreateTrunc(integer, i32), mask);
    llvm::Value* high = device.ShuffleXor(b_.CreateTrunc(b_.CreateLShr(integer, 32), i32), mask);
    result = b_.CreateOr(b_.CreateZExt(low, i64), b_.CreateShl(b_.CreateZExt(high, i64), 32));
  }
  return b_.CreateBitCast(result, type);
}

void NestEmitter::StoreOnce(const Stmt& stmt) {
  SyncWarp();  // others may still read what is there
  Branch(b_.CreateICmpEQ(WarpLane(), b_.getInt64(0)), [&] { Store(stmt); }, nullptr);
  SyncWarp();
}

}  // namespace quench::codegen
