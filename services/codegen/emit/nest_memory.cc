// Addresses, loads and stores over lanes. Memory is dense and row-major; every access is aligned to
// its element only.
#include "common/base/status.h"
#include "services/codegen/emit/nest_emitter.h"

namespace quench::codegen {

using loops::Expr;
using LaneShape = Lanes::Shape;

namespace {

constexpr int64_t kMaxShuffledStep =
    4;  // strided loads up to this step are whole loads and shuffles

llvm::Align ElementAlign(uint64_t bytes) { return llvm::Align(bytes); }

}  // namespace

llvm::Type* NestEmitter::VectorOf(llvm::Type* element) const {
  return llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes_));
}

NestEmitter::Address NestEmitter::AddressOf(loops::BufferId buffer,
                                            std::span<const loops::ExprId> indices) {
  const Memory& memory = memory_[static_cast<size_t>(buffer)];
  Address address;
  address.base = llvm::ConstantInt::get(index_type_, 0);
  const auto add = [&](llvm::Value* a, llvm::Value* b) {
    return a == nullptr ? b : b_.CreateAdd(a, b);
  };
  for (size_t d = 0; d < indices.size(); ++d) {
    const Lanes index = Value(indices[d]);
    llvm::Value* stride = memory.strides[d];
    if (index.shape == LaneShape::kVarying) {
      llvm::Value* narrow = b_.CreateTrunc(index.v, VectorOf(index_type_));
      address.offsets = add(address.offsets, b_.CreateMul(narrow, Splat(stride)));
      continue;
    }
    llvm::Value* narrow = b_.CreateTrunc(index.v, index_type_);
    address.base = b_.CreateAdd(address.base, b_.CreateMul(narrow, stride));
    if (index.uniform()) continue;
    if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(stride)) {
      address.step += index.step * known->getSExtValue();
    } else {
      llvm::Value* step =
          llvm::ConstantInt::get(index_type_, static_cast<uint64_t>(index.step), true);
      address.symbolic_step = add(address.symbolic_step, b_.CreateMul(stride, step));
    }
  }
  return address;
}

llvm::Value* NestEmitter::Pointer(const Memory& memory, llvm::Value* offset) {
  return b_.CreateInBoundsGEP(memory.element, memory.base, offset);
}

// Element offset of one lane.
llvm::Value* NestEmitter::LaneOffset(const Address& address, int lane) {
  const auto number = static_cast<uint64_t>(lane);
  llvm::Value* offset = b_.CreateAdd(
      address.base,
      llvm::ConstantInt::get(index_type_, number * static_cast<uint64_t>(address.step), true));
  if (address.symbolic_step != nullptr) {
    offset = b_.CreateAdd(
        offset, b_.CreateMul(address.symbolic_step, llvm::ConstantInt::get(index_type_, number)));
  }
  if (address.offsets != nullptr) {
    offset = b_.CreateAdd(offset, b_.CreateExtractElement(address.offsets, number));
  }
  return offset;
}

llvm::Value* NestEmitter::LanePointers(const Memory& memory, const Address& address) {
  llvm::Value* step =
      llvm::ConstantInt::get(index_type_, static_cast<uint64_t>(address.step), true);
  if (address.symbolic_step != nullptr) step = b_.CreateAdd(step, address.symbolic_step);
  llvm::Value* offsets =
      b_.CreateAdd(Splat(address.base), b_.CreateMul(LaneNumbers(index_type_), Splat(step)));
  if (address.offsets != nullptr) offsets = b_.CreateAdd(offsets, address.offsets);
  return b_.CreateGEP(memory.element, memory.base, offsets);
}

llvm::Value* NestEmitter::FromMemory(DataType type, llvm::Value* value) {
  if (type != DataType::kBool) return value;
  return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
}

llvm::Value* NestEmitter::ToMemory(DataType type, llvm::Value* value) {
  if (type != DataType::kBool) return value;
  llvm::Type* byte = b_.getInt8Ty();
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType())) {
    return b_.CreateZExt(value, llvm::FixedVectorType::get(byte, vector->getNumElements()));
  }
  return b_.CreateZExt(value, byte);
}

Lanes NestEmitter::Load(const Expr& e) {
  if (const std::optional<Lanes> kept = KeptLoad(e)) return *kept;
  return LoadMemory(e);
}

Lanes NestEmitter::LoadMemory(const Expr& e) {
  if (const std::optional<Lanes> entries = LookUp(e)) return *entries;
  const Memory& memory = memory_[static_cast<size_t>(e.id)];
  const Address address = AddressOf(e.id, e.args);
  const llvm::Align align = ElementAlign(memory.bytes);
  if (address.same()) {
    llvm::Value* value = b_.CreateAlignedLoad(memory.element, Pointer(memory, address.base), align);
    return {FromMemory(e.type, value)};
  }
  llvm::Value* value = nullptr;
  if (address.contiguous() && mask_ == nullptr) {
    value = b_.CreateAlignedLoad(VectorOf(memory.element), Pointer(memory, address.base), align);
  } else if (address.contiguous()) {
    llvm::Type* type = VectorOf(memory.element);
    value = b_.CreateMaskedLoad(type, Pointer(memory, address.base), align, mask_,
                                llvm::Constant::getNullValue(type));
  } else {
    value = LoadStrided(memory, address);
  }
  return {FromMemory(e.type, value), LaneShape::kVarying};
}

// Elements base, base + step, ...: `step` loads that together span exactly the elements between the
// first and the last lane, and a shuffle. Nothing beyond the last lane's element is touched.
llvm::Value* NestEmitter::LoadStrided(const Memory& memory, const Address& address) {
  const bool constant =
      address.symbolic_step == nullptr && address.offsets == nullptr && mask_ == nullptr;
  const int64_t span = address.step < 0 ? -address.step : address.step;
  if (!constant || span > kMaxShuffledStep || span * (lanes_ - 1) + 1 < lanes_)
    return Gather(memory, address);
  const int64_t elements = span * (lanes_ - 1) + 1;
  const int64_t low = address.step < 0 ? -(elements - 1) : 0;  // from base to the lowest address
  llvm::Value* all = nullptr;  // lanes of the loads so far, in address order, with repeats
  std::vector<int> position(static_cast<size_t>(elements), 0);
  int count = 0;
  for (int64_t start = 0; start < elements; start += lanes_) {
    const int64_t first = std::min(start, elements - lanes_);
    llvm::Value* offset =
        b_.CreateAdd(address.base,
                     llvm::ConstantInt::get(index_type_, static_cast<uint64_t>(low + first), true));
    llvm::Value* part = b_.CreateAlignedLoad(VectorOf(memory.element), Pointer(memory, offset),
                                             ElementAlign(memory.bytes));
    for (int i = 0; i < lanes_; ++i) position[static_cast<size_t>(first + i)] = count + i;
    if (all == nullptr) {
      all = part;
    } else {
      // Shuffles take operands of one width.
      std::vector<int> widen(static_cast<size_t>(count), -1);
      for (int i = 0; i < lanes_; ++i) widen[static_cast<size_t>(i)] = i;
      llvm::Value* wide = b_.CreateShuffleVector(part, widen);
      std::vector<int> join;
      for (int i = 0; i < count; ++i) join.push_back(i);
      for (int i = 0; i < lanes_; ++i) join.push_back(count + i);
      all = b_.CreateShuffleVector(all, wide, join);
    }
    count += lanes_;
  }
  QUENCH_CHECK(all != nullptr);  // elements >= lanes_ >= 1
  std::vector<int> pick;
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    pick.push_back(position[static_cast<size_t>(lane * address.step - low)]);
  }
  return b_.CreateShuffleVector(all, pick);
}

llvm::Value* NestEmitter::Gather(const Memory& memory, const Address& address) {
  llvm::Type* type = VectorOf(memory.element);
  const llvm::Align align = ElementAlign(memory.bytes);
  if (mask_ != nullptr) {
    return b_.CreateMaskedGather(type, LanePointers(memory, address), align, mask_,
                                 llvm::Constant::getNullValue(type));
  }
  llvm::Value* result = llvm::PoisonValue::get(type);
  for (int lane = 0; lane < lanes_; ++lane) {
    llvm::Value* place = Pointer(memory, LaneOffset(address, lane));
    llvm::Value* one = b_.CreateAlignedLoad(memory.element, place, align);
    result = b_.CreateInsertElement(result, one, static_cast<uint64_t>(lane));
  }
  return result;
}

void NestEmitter::Store(const loops::Stmt& stmt) {
  const Memory& memory = memory_[static_cast<size_t>(stmt.id)];
  const DataType type = f_.buffers[static_cast<size_t>(stmt.id)].dtype;
  const Lanes value = Value(stmt.args[0]);
  if (schedule_.kept.contains(stmt.id)) {
    llvm::Value* element = ToMemory(type, lanes_ > 1 ? Vector(value) : value.v);
    b_.CreateStore(element, KeptScratch(stmt.id, element->getType()));
    return;
  }
  const Address address = AddressOf(stmt.id, std::span(stmt.args).subspan(1));
  const llvm::Align align = ElementAlign(memory.bytes);
  if (address.same() && value.uniform()) {
    b_.CreateAlignedStore(ToMemory(type, value.v), Pointer(memory, address.base), align);
    return;
  }
  llvm::Value* vector = ToMemory(type, Vector(value));
  if (!address.contiguous()) return Scatter(memory, address, vector);
  llvm::Value* place = Pointer(memory, address.base);
  if (mask_ == nullptr) {
    b_.CreateAlignedStore(vector, place, align);
  } else {
    b_.CreateMaskedStore(vector, place, align, mask_);
  }
}

void NestEmitter::Scatter(const Memory& memory, const Address& address, llvm::Value* vector) {
  const llvm::Align align = ElementAlign(memory.bytes);
  if (mask_ != nullptr) {
    b_.CreateMaskedScatter(vector, LanePointers(memory, address), align, mask_);
    return;
  }
  for (int lane = 0; lane < lanes_; ++lane) {
    llvm::Value* one = b_.CreateExtractElement(vector, static_cast<uint64_t>(lane));
    b_.CreateAlignedStore(one, Pointer(memory, LaneOffset(address, lane)), align);
  }
}

}  // namespace quench::codegen
