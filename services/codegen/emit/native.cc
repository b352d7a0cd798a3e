#include "services/codegen/emit/native.h"

#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/CodeGen/ISDOpcodes.h>
#include <llvm/CodeGen/TargetLowering.h>
#include <llvm/CodeGen/TargetSubtargetInfo.h>

#include "services/codegen/emit/compat.h"

namespace quench::codegen {
namespace {

unsigned Opcode(NativeOp op) {
  switch (op) {
    case NativeOp::kFma:
      return llvm::ISD::FMA;
    case NativeOp::kRoundEven:
      return llvm::ISD::FROUNDEVEN;
    case NativeOp::kFloor:
      return llvm::ISD::FFLOOR;
    case NativeOp::kCeil:
      return llvm::ISD::FCEIL;
    case NativeOp::kTrunc:
      return llvm::ISD::FTRUNC;
    case NativeOp::kSqrt:
      return llvm::ISD::FSQRT;
    case NativeOp::kMaximum:
      return llvm::ISD::FMAXIMUM;
    case NativeOp::kDivide32:
    case NativeOp::kDivide64:
      return llvm::ISD::UDIV;
  }
  return llvm::ISD::FMA;
}

// Target questions are asked about a function, because features are attributes of functions.
const llvm::Function& Probe(ModuleState& state) {
  if (state.probe == nullptr) {
    state.probe = CreateFunction(state, state.prefix + "_probe", KernelType(state.context));
  }
  return *state.probe;
}

// The type that registers hold after the type is split, scalarized or promoted.
llvm::EVT LegalType(ModuleState& state, const llvm::TargetLowering& lowering, llvm::Type* type) {
  llvm::EVT value = lowering.getValueType(state.module->getDataLayout(), type);
  while (true) {
    const auto [action, next] = lowering.getTypeConversion(state.context, value);
    if (action == llvm::TargetLowering::TypeLegal || next == value) return value;
    value = next;
  }
}

}  // namespace

bool IsNative(ModuleState& state, NativeOp op, llvm::Type* type) {
  const llvm::TargetLowering& lowering =
      *state.machine->getSubtargetImpl(Probe(state))->getTargetLowering();
  if (op == NativeOp::kDivide32) {
    return state.target.divides_words;  // back ends without a divider "custom" lower to calls
  }
  if (op == NativeOp::kDivide64) return state.target.pointer_bits == 64;
  const llvm::EVT legal = LegalType(state, lowering, type);
  // Back ends that lack a rounding may claim "to even" by default; they do say so of the older
  // FRINT.
  if (op == NativeOp::kRoundEven && !lowering.isOperationLegal(llvm::ISD::FRINT, legal))
    return false;
  return lowering.isOperationLegal(Opcode(op), legal);
}

bool HasMaskedMemory(ModuleState& state, llvm::Type* type) {
  return compat::HasMaskedMemory(state.machine->getTargetTransformInfo(Probe(state)), type);
}

}  // namespace quench::codegen
