#include "services/codegen/emit/device_alignment.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/GetElementPtrTypeIterator.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/KnownBits.h>

#include <algorithm>

#include "services/codegen/plan/place.h"

namespace quench::codegen {
namespace {

constexpr unsigned kMostZeros = 4;  // of an address's low bits that matter

// Low bits of what the instruction adds to its base that are zero.
unsigned ZerosOf(const llvm::GEPOperator& place, const llvm::DataLayout& layout) {
  unsigned zeros = kMostZeros;
  for (auto index = llvm::gep_type_begin(place), end = llvm::gep_type_end(place); index != end;
       ++index) {
    if (index.isStruct()) return 0;
    const uint64_t size = index.getSequentialElementStride(layout).getFixedValue();
    const llvm::KnownBits known = llvm::computeKnownBits(index.getOperand(), layout);
    const auto of_size = static_cast<unsigned>(llvm::countr_zero(size));
    zeros = std::min(zeros, known.countMinTrailingZeros() + of_size);
  }
  return zeros;
}

// Low zero bits of an address in a buffer of the kernel, 0 for others.
unsigned ZerosOf(const llvm::Value* pointer, const llvm::Function& body, unsigned first,
                 const llvm::DataLayout& layout) {
  unsigned zeros = kMostZeros;
  while (true) {
    if (const auto* cast = llvm::dyn_cast<llvm::AddrSpaceCastOperator>(pointer)) {
      pointer = cast->getPointerOperand();
    } else if (const auto* place = llvm::dyn_cast<llvm::GEPOperator>(pointer)) {
      zeros = std::min(zeros, ZerosOf(*place, layout));
      pointer = place->getPointerOperand();
    } else {
      break;
    }
  }
  const auto* argument = llvm::dyn_cast<llvm::Argument>(pointer);
  const bool buffer =
      argument != nullptr && argument->getParent() == &body && argument->getArgNo() >= first;
  return buffer ? zeros : 0;
}

}  // namespace

void AlignAccesses(llvm::Function& body, unsigned first) {
  static_assert(kDeviceAlignment == 1 << kMostZeros);
  const llvm::DataLayout& layout = body.getParent()->getDataLayout();
  for (llvm::Instruction& each : llvm::instructions(body)) {
    const llvm::Value* pointer = llvm::getLoadStorePointerOperand(&each);
    if (pointer == nullptr || !llvm::getLoadStoreType(&each)->isVectorTy()) continue;
    const llvm::Align known(uint64_t{1} << ZerosOf(pointer, body, first, layout));
    if (known <= llvm::getLoadStoreAlignment(&each)) continue;
    if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&each)) load->setAlignment(known);
    if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&each)) store->setAlignment(known);
  }
}

}  // namespace quench::codegen
