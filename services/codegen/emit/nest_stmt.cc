// Statements. Invariant: code under a mask runs only when at least one lane is active.
#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/loops/long_sums.h"
#include "services/codegen/emit/nest_emitter.h"

namespace quench::codegen {

using loops::Stmt;
using loops::StmtKind;
using LaneShape = Lanes::Shape;

llvm::BasicBlock* NestEmitter::Block(const char* name) {
  return llvm::BasicBlock::Create(b_.getContext(), name, function_);
}

llvm::AllocaInst* NestEmitter::Alloca(llvm::Type* type) { return entry_.CreateAlloca(type); }

void NestEmitter::Branch(llvm::Value* condition, const std::function<void()>& then,
                         const std::function<void()>& otherwise) {
  llvm::BasicBlock* yes = Block("then");
  llvm::BasicBlock* no = otherwise ? Block("else") : nullptr;
  llvm::BasicBlock* after = Block("endif");
  b_.CreateCondBr(condition, yes, no == nullptr ? after : no);
  b_.SetInsertPoint(yes);
  then();
  b_.CreateBr(after);
  if (no != nullptr) {
    b_.SetInsertPoint(no);
    otherwise();
    b_.CreateBr(after);
  }
  b_.SetInsertPoint(after);
  Forget();
}

void NestEmitter::CountedLoop(llvm::Value* begin, llvm::Value* end, int64_t step, bool keep_rolled,
                              const std::function<void(llvm::Value*)>& body) {
  llvm::BasicBlock *before = b_.GetInsertBlock(), *loop = Block("loop"), *after = Block("loop.end");
  b_.CreateCondBr(b_.CreateICmpSLT(begin, end), loop, after);
  b_.SetInsertPoint(loop);
  llvm::PHINode* index = b_.CreatePHI(begin->getType(), 2);
  index->addIncoming(begin, before);
  Forget();
  body(index);
  llvm::Value* next =
      b_.CreateNSWAdd(index, llvm::ConstantInt::get(begin->getType(), static_cast<uint64_t>(step)));
  index->addIncoming(next, b_.GetInsertBlock());
  llvm::BranchInst* back = b_.CreateCondBr(b_.CreateICmpSLT(next, end), loop, after);
  if (keep_rolled) DisableUnroll(*back);
  b_.SetInsertPoint(after);
  Forget();
}

void NestEmitter::Body(std::span<const loops::StmtId> body) {
  for (const loops::StmtId id : body) Statement(id);
}

void NestEmitter::Statement(loops::StmtId id) {
  const Stmt& stmt = StmtAt(id);
  Forget();
  const int step = stmt.body.empty() ? row_step_ : std::exchange(row_step_, -1);
  Emit(id);
  row_step_ = step;
}

void NestEmitter::Emit(loops::StmtId id) {
  const Stmt& stmt = StmtAt(id);
  switch (stmt.kind) {
    case StmtKind::kFor:
      return For(id);
    case StmtKind::kWhile:
      return While(stmt);
    case StmtKind::kIf:
      return If(stmt);
    case StmtKind::kLet:
      ranges_.Define(stmt.id, ranges_.Of(stmt.args[0]));
      vars_[static_cast<size_t>(stmt.id)] = Value(stmt.args[0]);
      return;
    case StmtKind::kSet:
      return Set(stmt);
    case StmtKind::kStore:
      return IsShared() && !in_shared_loop_ ? StoreOnce(stmt) : Store(stmt);
    case StmtKind::kCheck:
      return Check(stmt);
    case StmtKind::kSetSlot: {
      llvm::Value* place = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), function_->getArg(1),
                                                         static_cast<uint64_t>(stmt.id));
      b_.CreateAlignedStore(Scalar(stmt.args[0]), place, llvm::Align(8));
      return;
    }
  }
}

void NestEmitter::For(loops::StmtId id) {
  const int64_t first = ranges_.Of(StmtAt(id).args[0]).lo;
  const int64_t after = ranges_.Of(StmtAt(id).args[1]).hi;
  ranges_.Define(StmtAt(id).id, {first, std::max(first, after == INT64_MIN ? after : after - 1)});
  if (schedule_.shared_loops.contains(id)) return SharedFor(id);
  if (const auto planned = schedule_.lanes.find(id);
      planned != schedule_.lanes.end() && lanes_ == 1) {
    return LanesFor(id, planned->second);
  }
  const Stmt& stmt = StmtAt(id);
  const Lanes begin = Value(stmt.args[0]);
  const Lanes end = Value(stmt.args[1]);
  if (begin.uniform() && end.uniform()) return UniformFor(id, begin.v, end.v);
  VaryingFor(id, begin, end);
}

void NestEmitter::UniformFor(loops::StmtId id, llvm::Value* begin, llvm::Value* end) {
  const Stmt& stmt = StmtAt(id);
  const auto iterate = [&](llvm::Value* from, llvm::Value* to) {
    CountedLoop(from, to, 1, false, [&](llvm::Value* index) {
      vars_[static_cast<size_t>(stmt.id)] = {index};
      Body(stmt.body);
    });
  };
  const int64_t block = loops::IterationsOfBlock(f_, id, ranges_);
  if (block == 0) return iterate(begin, end);
  InBlocks(stmt, begin, end, block, iterate);
}

void NestEmitter::InBlocks(const Stmt& stmt, llvm::Value* begin, llvm::Value* end, int64_t step,
                           const std::function<void(llvm::Value*, llvm::Value*)>& body) {
  struct LongSum {
    llvm::AllocaInst* sum;
    llvm::AllocaInst* total;  // in f64
  };
  std::vector<LongSum> sums;
  const auto load = [&](llvm::AllocaInst* memory) {
    return b_.CreateLoad(memory->getAllocatedType(), memory);
  };
  const auto widened = [&](const LongSum& sum) {
    return b_.CreateFPExt(load(sum.sum), sum.total->getAllocatedType());
  };
  for (const loops::Reduction& reduction : stmt.reductions) {
    if (!loops::IsLongSum(f_, reduction)) continue;
    const LocalSlot& slot = locals_[static_cast<size_t>(reduction.local)];
    llvm::Type* wide = b_.getDoubleTy();
    sums.push_back({slot.memory, Alloca(slot.varying ? VectorOf(wide) : wide)});
    b_.CreateStore(widened(sums.back()), sums.back().total);
  }
  CountedLoop(begin, end, step, true, [&](llvm::Value* index) {
    // -0 adds nothing to any number, 0 would to -0.
    for (const LongSum& sum : sums)
      b_.CreateStore(llvm::ConstantFP::getNegativeZero(sum.sum->getAllocatedType()), sum.sum);
    llvm::Value* last = b_.CreateNSWAdd(index, b_.getInt64(static_cast<uint64_t>(step)));
    body(index, b_.CreateSelect(b_.CreateICmpSLT(last, end), last, end));
    for (const LongSum& sum : sums)
      b_.CreateStore(b_.CreateFAdd(load(sum.total), widened(sum)), sum.total);
  });
  for (const LongSum& sum : sums)
    b_.CreateStore(b_.CreateFPTrunc(load(sum.total), sum.sum->getAllocatedType()), sum.sum);
}

// Windows at a border differ from lane to lane, inner ones do not: test which it is.
void NestEmitter::VaryingFor(loops::StmtId id, const Lanes& begin, const Lanes& end) {
  llvm::Value* begins = Vector(begin);
  llvm::Value* ends = Vector(end);
  llvm::Value* first = b_.CreateExtractElement(begins, uint64_t{0});
  llvm::Value* last = b_.CreateExtractElement(ends, uint64_t{0});
  llvm::Value* same =
      b_.CreateAnd(b_.CreateICmpEQ(begins, Splat(first)), b_.CreateICmpEQ(ends, Splat(last)));
  Branch(
      b_.CreateAndReduce(same), [&] { UniformFor(id, first, last); },
      [&] { MaskedFor(StmtAt(id), begins, ends); });
}

void NestEmitter::MaskedFor(const Stmt& stmt, llvm::Value* begin, llvm::Value* end) {
  if (mask_ != nullptr) {
    const auto limit = [&](int64_t value) {
      return Splat(b_.getInt64(static_cast<uint64_t>(value)));
    };
    begin = b_.CreateSelect(mask_, begin, limit(INT64_MAX));
    end = b_.CreateSelect(mask_, end, limit(INT64_MIN));
  }
  llvm::Value* first = b_.CreateIntMinReduce(begin, true);
  llvm::Value* last = b_.CreateIntMaxReduce(end, true);
  CountedLoop(first, last, 1, true, [&](llvm::Value* index) {
    vars_[static_cast<size_t>(stmt.id)] = {index};
    llvm::Value* splat = Splat(index);
    llvm::Value* inside =
        b_.CreateAnd(b_.CreateICmpSGE(splat, begin), b_.CreateICmpSLT(splat, end));
    UnderMask(AndMask(inside), stmt.body);
  });
}

void NestEmitter::UnderMask(llvm::Value* mask, std::span<const loops::StmtId> body) {
  Branch(
      AnyLane(mask),
      [&] {
        llvm::Value* outer = mask_;
        mask_ = mask;
        Forget();
        Body(body);
        mask_ = outer;
      },
      nullptr);
}

void NestEmitter::While(const Stmt& stmt) {
  llvm::BasicBlock *test = Block("while"), *body = Block("while.body"), *after = Block("while.end");
  b_.CreateBr(test);
  b_.SetInsertPoint(test);
  Forget();
  const Lanes condition = Value(stmt.args[0]);
  if (!condition.uniform()) {
    after->eraseFromParent();
    body->eraseFromParent();
    return VaryingWhile(stmt);
  }
  b_.CreateCondBr(condition.v, body, after);
  b_.SetInsertPoint(body);
  Body(stmt.body);
  b_.CreateBr(test);
  b_.SetInsertPoint(after);
  Forget();
}

// A lane that has left stays out.
void NestEmitter::VaryingWhile(const Stmt& stmt) {
  llvm::Type* mask_type = VectorOf(b_.getInt1Ty());
  llvm::AllocaInst* active = Alloca(mask_type);
  b_.CreateStore(mask_ == nullptr ? llvm::Constant::getAllOnesValue(mask_type) : mask_, active);
  llvm::BasicBlock *test = Block("lanes.while"), *body = Block("lanes.body"),
                   *after = Block("lanes.end");
  b_.CreateBr(test);
  b_.SetInsertPoint(test);
  llvm::Value* outer = mask_;
  mask_ = b_.CreateLoad(mask_type, active);
  Forget();
  llvm::Value* still = b_.CreateAnd(mask_, Vector(Value(stmt.args[0])));
  b_.CreateStore(still, active);
  b_.CreateCondBr(AnyLane(still), body, after);
  b_.SetInsertPoint(body);
  mask_ = still;
  Body(stmt.body);
  b_.CreateBr(test);
  b_.SetInsertPoint(after);
  mask_ = outer;
  Forget();
}

void NestEmitter::If(const Stmt& stmt) {
  const Lanes condition = Value(stmt.args[0]);
  if (!condition.uniform()) return VaryingIf(stmt, condition.v);
  std::function<void()> otherwise;
  if (!stmt.otherwise.empty()) otherwise = [&] { Body(stmt.otherwise); };
  Branch(condition.v, [&] { Body(stmt.body); }, otherwise);
}

void NestEmitter::VaryingIf(const Stmt& stmt, llvm::Value* condition) {
  llvm::Value* otherwise = AndMask(b_.CreateNot(condition));
  UnderMask(AndMask(condition), stmt.body);
  if (!stmt.otherwise.empty()) UnderMask(otherwise, stmt.otherwise);
}

// local + a * b in a sum of floats is one fused operation where the target has it.
Lanes NestEmitter::SetValue(const Stmt& stmt) {
  using loops::BinaryOp;
  using loops::ExprKind;
  const loops::Expr& sum = ExprAt(stmt.args[0]);
  const bool adds =
      sum.kind == ExprKind::kBinary && sum.binary == BinaryOp::kAdd && IsFloat(sum.type);
  if (!adds) return Value(stmt.args[0]);
  const loops::Expr& local = ExprAt(sum.args[0]);
  const loops::Expr& product = ExprAt(sum.args[1]);
  if (local.kind != ExprKind::kLocal || local.id != stmt.id || product.kind != ExprKind::kBinary ||
      product.binary != BinaryOp::kMul) {
    return Value(stmt.args[0]);
  }
  const Lanes a = Value(product.args[0]), b = Value(product.args[1]), c = Value(sum.args[0]);
  if (a.uniform() && b.uniform() && c.uniform()) return {arith_.MultiplyAdd(a.v, b.v, c.v)};
  return {arith_.MultiplyAdd(Vector(a), Vector(b), Vector(c)), LaneShape::kVarying};
}

void NestEmitter::Set(const Stmt& stmt) {
  const LocalSlot& slot = locals_[static_cast<size_t>(stmt.id)];
  const Lanes value = SetValue(stmt);
  if (!slot.varying) {
    QUENCH_CHECK(value.uniform());  // locals that a loop of lanes sets are varying in it
    b_.CreateStore(value.v, slot.memory);
    return;
  }
  llvm::Value* vector = Vector(value);
  if (mask_ != nullptr) {
    llvm::Value* old = b_.CreateLoad(slot.memory->getAllocatedType(), slot.memory);
    vector = b_.CreateSelect(mask_, vector, old);
  }
  b_.CreateStore(vector, slot.memory);
}

void NestEmitter::Check(const Stmt& stmt) {
  auto known = std::find(messages_.begin(), messages_.end(), stmt.message);
  if (known == messages_.end()) known = messages_.insert(known, stmt.message);
  const auto code = static_cast<uint32_t>(known - messages_.begin()) + 1;
  const Lanes condition = Value(stmt.args[0]);
  llvm::Value* fails = b_.CreateNot(condition.v);
  if (!condition.uniform()) fails = AnyLane(AndMask(fails));
  if (failed_ == nullptr) {
    failed_ = Block("failed");
    failure_ = llvm::PHINode::Create(b_.getInt32Ty(), 2, "code", failed_);
    llvm::ReturnInst::Create(b_.getContext(), failure_, failed_);
  }
  llvm::BasicBlock* after = Block("checked");
  failure_->addIncoming(b_.getInt32(code), b_.GetInsertBlock());
  b_.CreateCondBr(fails, failed_, after);
  b_.SetInsertPoint(after);
}

}  // namespace quench::codegen
