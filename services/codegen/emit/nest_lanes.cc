// The loop whose iterations are the lanes of vectors: whole vectors first, then the rest under a
// mask or one by one.
#include <limits>

#include "common/base/status.h"
#include "common/loops/analysis.h"
#include "common/loops/long_sums.h"
#include "services/codegen/emit/nest_emitter.h"

namespace quench::codegen {

using loops::BinaryOp;
using loops::LoopMark;
using loops::Stmt;
using loops::StmtKind;
using LaneShape = Lanes::Shape;

// A masked tail needs masked memory instructions for every element type it touches.
bool NestEmitter::MaskedTailPays(loops::StmtId id, int lanes) {
  for (const loops::Access& access : loops::Accesses(f_, StmtAt(id).body)) {
    llvm::Type* element = memory_[static_cast<size_t>(access.buffer)].element;
    llvm::Type* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
    if (!HasMaskedMemory(state_, type)) return false;
  }
  return true;
}

void NestEmitter::VectorBody(const Stmt& stmt, int lanes, llvm::Value* index, llvm::Value* mask) {
  lanes_ = lanes;
  mask_ = mask;
  Forget();
  vars_[static_cast<size_t>(stmt.id)] = {index, LaneShape::kLinear, 1};
  Body(stmt.body);
  lanes_ = 1;
  mask_ = nullptr;
  Forget();
}

void NestEmitter::ScalarTail(const Stmt& stmt, llvm::Value* begin, llvm::Value* end) {
  CountedLoop(begin, end, 1, true, [&](llvm::Value* index) {
    vars_[static_cast<size_t>(stmt.id)] = {index};
    Body(stmt.body);
  });
}

// The remainder uses a mask where the target has masked memory, else narrower vectors and then
// scalars.
void NestEmitter::LanesFor(loops::StmtId id, int lanes) {
  const Stmt& stmt = StmtAt(id);
  llvm::Value* begin = Scalar(stmt.args[0]);
  llvm::Value* end = Scalar(stmt.args[1]);
  llvm::Value* none = b_.getInt64(0);
  llvm::Value* count = b_.CreateNSWSub(end, begin);
  count = b_.CreateSelect(b_.CreateICmpSGT(count, none), count, none);
  end = b_.CreateNSWAdd(begin, count);
  const bool masked = MaskedTailPays(id, lanes);
  const int narrow = state_.target.f32_lanes();
  begin = WholeVectors(id, lanes, begin, end, masked);
  if (masked) return;
  // A lookup costs the same for few lanes, and its table would be kept for two loops.
  if (lanes >= 2 * narrow && tables_.empty()) begin = WholeVectors(id, narrow, begin, end, false);
  ScalarTail(stmt, begin, end);
}

// [begin, end) in whole vectors, and the rest under a mask if `masked`. The end of the whole vectors.
llvm::Value* NestEmitter::WholeVectors(loops::StmtId id, int lanes, llvm::Value* begin,
                                       llvm::Value* end, bool masked) {
  const Stmt& stmt = StmtAt(id);
  const std::vector<LocalSlot> outer = locals_;
  llvm::Value* rest =
      b_.CreateAnd(b_.CreateNSWSub(end, begin), b_.getInt64(static_cast<uint64_t>(lanes - 1)));
  llvm::Value* middle = b_.CreateNSWSub(end, rest);
  const auto vectors = [&](llvm::Value* from, llvm::Value* to) {
    CountedLoop(from, to, lanes, true,
                [&](llvm::Value* index) { VectorBody(stmt, lanes, index, nullptr); });
  };
  const auto tail = [&] {
    lanes_ = lanes;
    llvm::Value* mask = b_.CreateICmpULT(LaneNumbers(b_.getInt64Ty()), Splat(rest));
    VectorBody(stmt, lanes, middle, mask);
  };
  const auto summed = [&](const std::function<void()>& part) {
    OpenAccumulators(stmt, lanes);
    part();
    CloseAccumulators(stmt);
    locals_ = outer;
  };
  llvm::Value* has_tail = masked ? b_.CreateICmpNE(rest, b_.getInt64(0)) : nullptr;
  if (const int64_t block = loops::IterationsOfBlock(f_, id, ranges_, lanes); block > 0) {
    InBlocks(stmt, begin, middle, block * lanes,
             [&](llvm::Value* from, llvm::Value* to) { summed([&] { vectors(from, to); }); });
    if (masked) Branch(has_tail, [&] { summed(tail); }, nullptr);
    return middle;
  }
  summed([&] {
    vectors(begin, middle);
    if (masked) Branch(has_tail, tail, nullptr);
  });
  return middle;
}

// Locals that the loop sets are private to an iteration, thus varying, or reductions: those start
// from the identity.
void NestEmitter::OpenAccumulators(const Stmt& stmt, int lanes) {
  for (const loops::StmtId id : loops::StatementsUnder(f_, stmt.body)) {
    const Stmt& inner = StmtAt(id);
    if (inner.kind != StmtKind::kSet) continue;
    LocalSlot& slot = locals_[static_cast<size_t>(inner.id)];
    if (slot.varying) continue;
    llvm::Type* type = slot.memory->getAllocatedType();
    slot = {Alloca(llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes))), true};
  }
  if (stmt.mark != LoopMark::kReduce) return;
  for (const loops::Reduction& reduction : stmt.reductions) {
    const DataType type = f_.locals[static_cast<size_t>(reduction.local)].type;
    llvm::Value* identity = Identity(reduction.op, type);
    LocalSlot& slot = locals_[static_cast<size_t>(reduction.local)];
    QUENCH_CHECK(slot.varying);
    b_.CreateStore(b_.CreateVectorSplat(static_cast<unsigned>(lanes), identity), slot.memory);
  }
}

void NestEmitter::CloseAccumulators(const Stmt& stmt) {
  if (stmt.mark != LoopMark::kReduce) return;
  for (const loops::Reduction& reduction : stmt.reductions) {
    const DataType type = f_.locals[static_cast<size_t>(reduction.local)].type;
    const LocalSlot& slot = locals_[static_cast<size_t>(reduction.local)];
    llvm::Value* partial = b_.CreateLoad(slot.memory->getAllocatedType(), slot.memory);
    llvm::Value* sum = Horizontal(reduction.op, type, partial);
    llvm::AllocaInst* scalar = scalars_[static_cast<size_t>(reduction.local)];
    llvm::Value* before = b_.CreateLoad(scalar->getAllocatedType(), scalar);
    b_.CreateStore(arith_.Binary(reduction.op, type, before, sum), scalar);
  }
}

llvm::Value* NestEmitter::Identity(BinaryOp op, DataType type) {
  const double infinity = std::numeric_limits<double>::infinity();
  const int bits = DataTypeBits(type);
  const bool is_float = IsFloat(type);
  const auto constant = [&](double real, int64_t integer) {
    return is_float ? arith_.FloatConstant(type, real) : arith_.IntConstant(type, integer);
  };
  const bool with_sign = IsSigned(type);
  const int64_t lowest = with_sign ? static_cast<int64_t>(~uint64_t{0} << (bits - 1)) : 0;
  switch (op) {
    case BinaryOp::kMul:
      return constant(1, 1);
    case BinaryOp::kMin:
      return constant(infinity, with_sign ? ~lowest : -1);
    case BinaryOp::kMax:
      return constant(-infinity, lowest);
    case BinaryOp::kAnd:
      return constant(0, -1);
    default:
      return constant(0, 0);  // kAdd, kOr
  }
}

// Halves fold onto each other. Sums of integers are LLVM's own operation: where halves are narrower vectors,
// LLVM 19 takes a sum of products of bytes for VPDPBUSD (combineVPDPBUSDPattern in its X86ISelLowering) and
// leaves out the last additions.
llvm::Value* NestEmitter::Horizontal(BinaryOp op, DataType type, llvm::Value* vector) {
  if (op == BinaryOp::kAdd && !IsFloat(type)) return b_.CreateAddReduce(vector);
  auto width =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements());
  while (width > 1) {
    width /= 2;
    std::vector<int> low, high;
    for (int i = 0; i < width; ++i) low.push_back(i), high.push_back(width + i);
    vector = arith_.Binary(op, type, b_.CreateShuffleVector(vector, low),
                           b_.CreateShuffleVector(vector, high));
  }
  return b_.CreateExtractElement(vector, uint64_t{0});
}

}  // namespace quench::codegen
