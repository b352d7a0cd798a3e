// Lookups in tables of 256 bytes by instructions that pick bytes of a register: no memory is read for
// each lane.
#include "common/base/status.h"
#include "services/codegen/emit/nest_emitter.h"

namespace quench::codegen {

using loops::Expr;
using LaneShape = Lanes::Shape;

namespace {

constexpr int kEntries = 256, kPicked = 16;  // of the table, of a register of it

// The index if it is a byte that is widened; else kNone.
loops::ExprId ByteIndex(const loops::Function& f, const Expr& load) {
  const loops::Buffer& table = f.buffers[static_cast<size_t>(load.id)];
  const bool bytes = table.dtype == DataType::kI8 || table.dtype == DataType::kU8;
  if (!bytes || table.role != loops::BufferRole::kInput || table.dims.size() != 1)
    return loops::kNone;
  const Expr& size = f.exprs[static_cast<size_t>(table.dims[0])];
  const Expr& index = f.exprs[static_cast<size_t>(load.args[0])];
  if (size.kind != loops::ExprKind::kInt || size.i != kEntries ||
      index.kind != loops::ExprKind::kCast)
    return loops::kNone;
  const bool byte = f.exprs[static_cast<size_t>(index.args[0])].type == DataType::kU8;
  return byte ? index.args[0] : loops::kNone;
}

}  // namespace

std::optional<Lanes> NestEmitter::LookUp(const Expr& e) {
  const Target& target = state_.target;
  const loops::ExprId index = ByteIndex(f_, e);
  if (index == loops::kNone || (target.pick_of_16.empty() && target.pick_of_64.empty()))
    return std::nullopt;
  const Lanes byte = Value(index);
  if (byte.shape != LaneShape::kVarying) return std::nullopt;
  const std::vector<llvm::Value*>& table = TableOf(e.id);
  const int width = target.vector_bits / 8;
  llvm::Value* result = nullptr;
  for (int begin = 0; begin < lanes_; begin += width) {
    std::vector<int> part;  // lanes of one register; those beyond the last repeat it
    for (int i = 0; i < width; ++i) part.push_back(std::min(begin + i, lanes_ - 1));
    llvm::Value* indices = b_.CreateShuffleVector(byte.v, part);
    llvm::Value* entries =
        target.pick_of_64.empty() ? PickOf16(table, indices) : PickOf64(table, indices);
    std::vector<int> place(static_cast<size_t>(lanes_), -1);
    for (int i = 0; i < std::min(width, lanes_ - begin); ++i)
      place[static_cast<size_t>(begin + i)] = i;
    entries = b_.CreateShuffleVector(entries, place);  // in its lanes of the result
    if (result == nullptr) {
      result = entries;
      continue;
    }
    std::vector<int> join;
    for (int i = 0; i < lanes_; ++i) join.push_back(i < begin ? i : lanes_ + i);
    result = b_.CreateShuffleVector(result, entries, join);
  }
  return Lanes{result, LaneShape::kVarying};
}

// The entry of a half of the table is the exclusive or of all sixteens up to its own, as each of them
// says how it differs from the one before. Taking 16 off again and again, with saturation, sets the
// top bit of an index once its own sixteen is past: nothing is picked from there on, and nothing at
// all in the other half.
llvm::Value* NestEmitter::PickOf16(std::span<llvm::Value* const> table, llvm::Value* indices) {
  llvm::Type* type = indices->getType();
  const llvm::FunctionCallee pick = state_.module->getOrInsertFunction(
      state_.target.pick_of_16, llvm::FunctionType::get(type, {type, type}, /*isVarArg=*/false));
  llvm::Value* result = nullptr;
  for (const size_t half : {size_t{0}, table.size() / 2}) {
    llvm::Value* left =
        half == 0 ? indices : b_.CreateXor(indices, llvm::ConstantInt::get(type, 0x80));
    for (size_t i = 0; i < table.size() / 2; ++i) {
      llvm::Value* part = b_.CreateCall(pick, {table[half + i], left});
      result = result == nullptr ? part : b_.CreateXor(result, part);
      left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ssub_sat, left,
                                      llvm::ConstantInt::get(type, kPicked));
    }
  }
  return result;
}

llvm::Value* NestEmitter::PickOf64(std::span<llvm::Value* const> table, llvm::Value* indices) {
  llvm::Type* type = indices->getType();
  const llvm::FunctionCallee pick = state_.module->getOrInsertFunction(
      state_.target.pick_of_64,
      llvm::FunctionType::get(type, {type, type, type, type, type}, /*isVarArg=*/false));
  llvm::Value* result = nullptr;
  for (size_t i = 0; i < table.size(); i += 4) {
    llvm::Value* left = b_.CreateSub(indices, llvm::ConstantInt::get(type, i * kPicked));
    llvm::Value* part =
        b_.CreateCall(pick, {table[i], table[i + 1], table[i + 2], table[i + 3], left});
    result = result == nullptr ? part : b_.CreateOr(result, part);
  }
  return result;
}

const std::vector<llvm::Value*>& NestEmitter::TableOf(loops::BufferId buffer) {
  std::vector<llvm::Value*>& table = tables_[buffer];
  if (!table.empty()) return table;
  const llvm::Align align(static_cast<uint64_t>(state_.target.pointer_bits / 8));
  llvm::Value* place = entry_.CreateConstInBoundsGEP1_64(entry_.getPtrTy(), function_->getArg(0),
                                                         static_cast<uint64_t>(buffer));
  llvm::Value* base = entry_.CreateAlignedLoad(entry_.getPtrTy(), place, align);
  std::vector<int> repeated;
  for (int i = 0; i < state_.target.vector_bits / 8; ++i) repeated.push_back(i % kPicked);
  llvm::Type* type = llvm::FixedVectorType::get(entry_.getInt8Ty(), kPicked);
  llvm::Value* before = nullptr;
  for (int i = 0; i < kEntries / kPicked; ++i) {
    llvm::Value* at = entry_.CreateConstInBoundsGEP1_64(entry_.getInt8Ty(), base,
                                                        static_cast<uint64_t>(i * kPicked));
    llvm::Value* part = entry_.CreateAlignedLoad(type, at, llvm::Align(1));
    const bool first = i % (kEntries / kPicked / 2) == 0 || !state_.target.pick_of_64.empty();
    llvm::Value* entries = first ? part : entry_.CreateXor(part, before);
    table.push_back(entry_.CreateShuffleVector(entries, repeated));
    before = part;
  }
  return table;
}

}  // namespace quench::codegen
