// Loops whose iterations the threads of a GPU's warp or block share.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/loops/analysis.h"
#include "common/loops/long_sums.h"
#include "services/codegen/emit/nest_emitter.h"
#include "services/codegen/schedule/shared_loops.h"

namespace quench::codegen {

using loops::ExprKind;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtKind;
using LaneShape = Lanes::Shape;

namespace {

constexpr size_t kMostRepeated = 2;  // loads that are kept, of a row's elements each

}  // namespace

DeviceOps NestEmitter::Device() {
  llvm::Value* thread = nullptr;
  if (state_.thread_buffer >= 0) {
    llvm::Value* place = b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), function_->getArg(0),
                                                       static_cast<uint64_t>(state_.thread_buffer));
    thread = b_.CreateLoad(b_.getPtrTy(), place);
  }
  return {b_, thread, *state_.target.gpu};
}

// The thread's number among those that do the task together.
llvm::Value* NestEmitter::ThreadOfTask() {
  llvm::Value* thread = Device().Thread();
  if (schedule_.task_threads == kWarp) thread = b_.CreateURem(thread, b_.getInt32(kWarp));
  return b_.CreateZExt(thread, b_.getInt64Ty());
}

// Makes stores of the threads before it visible to the others of the task after it.
void NestEmitter::SyncTask() {
  if (schedule_.task_threads > kWarp) {
    Device().Barrier();
  } else {
    Device().SyncWarp();
  }
}

void NestEmitter::SharedFor(loops::StmtId id) {
  const Stmt& stmt = StmtAt(id);
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
  in_shared_loop_ = true;
  if (schedule_.row > 0) {
    ShareRow(id);
  } else {
    ShareSteps(id);
  }
  in_shared_loop_ = false;
  for (const Sum& sum : sums) {
    llvm::Value* own = b_.CreateLoad(sum.memory->getAllocatedType(), sum.memory);
    llvm::Value* all = OverTask(sum.op, sum.type, own);
    b_.CreateStore(arith_.Binary(sum.op, sum.type, sum.before, all), sum.memory);
  }
  if (stmt.mark == LoopMark::kParallel && exchanges_) SyncTask();
  Forget();
}

int NestEmitter::SharedLanes(loops::StmtId id) const {
  const auto planned = schedule_.lanes.find(id);
  return planned == schedule_.lanes.end() ? 1 : planned->second;
}

void NestEmitter::SharedBody(const Stmt& stmt, int lanes, llvm::Value* index) {
  if (lanes > 1) return VectorBody(stmt, lanes, index, nullptr);
  Forget();
  vars_[static_cast<size_t>(stmt.id)] = {index};
  Body(stmt.body);
}

// A row whose elements the threads keep: every step is code of its own.
void NestEmitter::ShareRow(loops::StmtId id) {
  const Stmt& stmt = StmtAt(id);
  const int lanes = SharedLanes(id);
  const int64_t elements = int64_t{schedule_.task_threads} * lanes;
  llvm::Value* first = b_.CreateNSWMul(ThreadOfTask(), b_.getInt64(static_cast<uint64_t>(lanes)));
  const std::vector<LocalSlot> outer = locals_;
  if (lanes > 1) OpenAccumulators(stmt, lanes);
  shared_var_ = stmt.id;
  int step = 0;
  for (int64_t begin = 0; begin < schedule_.row; begin += elements) {
    llvm::Value* index = b_.CreateNSWAdd(first, b_.getInt64(static_cast<uint64_t>(begin)));
    const auto body = [&] {
      row_step_ = step;
      SharedBody(stmt, lanes, index);
      row_step_ = -1;
    };
    if (begin + elements <= schedule_.row) {
      body();
    } else {
      llvm::Value* end = b_.getInt64(static_cast<uint64_t>(schedule_.row));
      Branch(b_.CreateICmpSLT(index, end), body, nullptr);
    }
    ++step;
  }
  if (lanes > 1) CloseAccumulators(stmt);
  locals_ = outer;
}

void NestEmitter::ShareSteps(loops::StmtId id) {
  const Stmt& stmt = StmtAt(id);
  const int lanes = SharedLanes(id);
  const int64_t elements = int64_t{schedule_.task_threads} * lanes;
  llvm::Value *begin = Scalar(stmt.args[0]), *end = Scalar(stmt.args[1]);
  llvm::Value* first = b_.CreateNSWMul(ThreadOfTask(), b_.getInt64(static_cast<uint64_t>(lanes)));
  const std::vector<LocalSlot> outer = locals_;
  const auto share = [&](llvm::Value* from, llvm::Value* to) {
    if (lanes > 1) OpenAccumulators(stmt, lanes);
    CountedLoop(b_.CreateNSWAdd(from, first), to, elements, true,
                [&](llvm::Value* index) { SharedBody(stmt, lanes, index); });
    if (lanes > 1) CloseAccumulators(stmt);
    locals_ = outer;
  };
  if (const int64_t block = loops::IterationsOfBlock(f_, id, ranges_, static_cast<int>(elements));
      block > 0) {
    InBlocks(stmt, begin, end, block * elements, share);
  } else {
    share(begin, end);
  }
}

// The same in all threads, for they combine the same two numbers at each step.
llvm::Value* NestEmitter::OverLanes(loops::BinaryOp op, DataType type, llvm::Value* value,
                                    int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2)
    value = arith_.Binary(op, type, value, FromLane(value, mask));
  return value;
}

// Over warps, and then over the warps' values, which shared memory has.
llvm::Value* NestEmitter::OverTask(loops::BinaryOp op, DataType type, llvm::Value* value) {
  value = OverLanes(op, type, value, kWarp);
  const int warps = schedule_.task_threads / kWarp;
  if (warps == 1) return value;
  llvm::Type* register_type = value->getType();
  const auto bits = static_cast<unsigned>(register_type->getPrimitiveSizeInBits().getFixedValue());
  llvm::Type* integer = b_.getIntNTy(bits);
  llvm::Value* thread = ThreadOfTask();
  const auto slot = [&](llvm::Value* warp) {
    return Device().Shared(b_.CreateNSWMul(warp, b_.getInt64(kWarpValueBytes)));
  };
  const llvm::Align align(kWarpValueBytes);
  SyncTask();  // others may still read the values before
  Branch(
      b_.CreateICmpEQ(b_.CreateURem(thread, b_.getInt64(kWarp)), b_.getInt64(0)),
      [&] {
        llvm::Value* word = b_.CreateZExt(b_.CreateBitCast(value, integer), b_.getInt64Ty());
        b_.CreateAlignedStore(word, slot(b_.CreateUDiv(thread, b_.getInt64(kWarp))), align);
      },
      nullptr);
  SyncTask();
  llvm::Value* warp = b_.CreateURem(thread, b_.getInt64(static_cast<uint64_t>(warps)));
  llvm::Value* word = b_.CreateAlignedLoad(b_.getInt64Ty(), slot(warp), align);
  value = b_.CreateBitCast(b_.CreateTrunc(word, integer), register_type);
  return OverLanes(op, type, value, warps);
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

// By the first thread.
void NestEmitter::StoreOnce(const Stmt& stmt) {
  SyncTask();  // others may still read what is there
  Branch(b_.CreateICmpEQ(ThreadOfTask(), b_.getInt64(0)), [&] { Store(stmt); }, nullptr);
  if (exchanges_) SyncTask();
}

// ---- what threads keep of a row ----

// Whether other threads read what some store, or store over it.
void NestEmitter::FindExchanges() {
  std::set<loops::BufferId> stored;
  const std::vector<loops::Access> all = loops::Accesses(f_, f_.body);
  for (const loops::Access& access : all) {
    if (access.is_store() && !schedule_.kept.contains(access.buffer))
      exchanges_ |= !stored.insert(access.buffer).second;
  }
  for (const loops::Access& access : all)
    exchanges_ |= !access.is_store() && stored.contains(access.buffer);
}

// Loads that several loops of the row have are done by the first.
void NestEmitter::FindRepeatedLoads() {
  for (const Stmt& stmt : f_.stmts) {
    if (stmt.kind == StmtKind::kLet) lets_[stmt.id] = stmt.args[0];
  }
  std::map<std::string, int> loops_with;
  std::vector<std::string> order;
  for (const loops::StmtId loop : schedule_.shared_loops) {
    shared_var_ = StmtAt(loop).id;
    std::set<std::string> here;
    for (const loops::Access& access : loops::Accesses(f_, StmtAt(loop).body)) {
      if (access.is_store() || !StmtAt(access.stmt).body.empty()) continue;
      const std::vector<loops::StmtId>& body = StmtAt(loop).body;
      if (std::find(body.begin(), body.end(), access.stmt) == body.end()) continue;
      if (const auto key = RowKey(ExprAt(access.load))) here.insert(*key);
    }
    for (const std::string& key : here) {
      if (++loops_with[key] == 2) order.push_back(key);
    }
  }
  order.resize(std::min(order.size(), kMostRepeated));
  repeated_.insert(order.begin(), order.end());
}

// The load of a parameter as text in which the loop's index is `i`: equal ones give equal values.
std::optional<std::string> NestEmitter::RowKey(const loops::Expr& load) const {
  if (f_.buffers[static_cast<size_t>(load.id)].role != loops::BufferRole::kInput)
    return std::nullopt;
  std::string key = fmt::format("b{}", load.id);
  for (const loops::ExprId index : load.args) {
    if (!AppendKey(index, key)) return std::nullopt;
  }
  return key;
}

bool NestEmitter::AppendKey(loops::ExprId id, std::string& key) const {
  const loops::Expr& e = ExprAt(id);
  switch (e.kind) {
    case ExprKind::kInt:
      key += fmt::format(" {}", e.i);
      return true;
    case ExprKind::kSlot:
      key += fmt::format(" s{}", e.id);
      return true;
    case ExprKind::kVar:
      if (const auto let = lets_.find(e.id); let != lets_.end()) return AppendKey(let->second, key);
      key += e.id == shared_var_ ? std::string(" i") : fmt::format(" v{}", e.id);
      return true;
    case ExprKind::kBinary:
      key += fmt::format(" ({}", static_cast<int>(e.binary));
      if (!AppendKey(e.args[0], key) || !AppendKey(e.args[1], key)) return false;
      key += ')';
      return true;
    default:
      return false;
  }
}

// The place of an element of scratch that stays with its thread.
llvm::AllocaInst* NestEmitter::KeptScratch(loops::BufferId buffer, llvm::Type* type) {
  QUENCH_CHECK(row_step_ >= 0);  // only statements of shared loops use it (shared_loops.cc)
  Kept& kept = kept_[fmt::format("b{}", buffer)][row_step_];
  if (kept.memory == nullptr) kept.memory = Alloca(type);
  return kept.memory;
}

std::optional<Lanes> NestEmitter::KeptLoad(const loops::Expr& e) {
  if (row_step_ < 0) return std::nullopt;
  const LaneShape shape = lanes_ > 1 ? LaneShape::kVarying : LaneShape::kUniform;
  if (schedule_.kept.contains(e.id)) {
    llvm::Type* element = memory_[static_cast<size_t>(e.id)].element;
    llvm::Type* type = lanes_ > 1 ? VectorOf(element) : element;
    return Lanes{FromMemory(e.type, b_.CreateLoad(type, KeptScratch(e.id, type))), shape};
  }
  const auto key = RowKey(e);
  if (!key || !repeated_.contains(*key)) return std::nullopt;
  Kept& kept = kept_[*key][row_step_];
  if (kept.memory == nullptr) {
    const Lanes value = LoadMemory(e);
    kept = {Alloca(value.v->getType()), value.shape};
    b_.CreateStore(value.v, kept.memory);
    return value;
  }
  return Lanes{b_.CreateLoad(kept.memory->getAllocatedType(), kept.memory), kept.shape};
}

}  // namespace quench::codegen
