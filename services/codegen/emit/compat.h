// Differences between the LLVM versions that Quench builds with (19 to 22).
#pragma once

#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Triple.h>

#include <optional>
#include <string>

namespace quench::codegen::compat {

inline const llvm::Target* LookupTarget(const std::string& triple, std::string& error) {
#if LLVM_VERSION_MAJOR >= 22
  return llvm::TargetRegistry::lookupTarget(llvm::Triple(triple), error);
#else
  return llvm::TargetRegistry::lookupTarget(triple, error);
#endif
}

inline llvm::TargetMachine* CreateMachine(const llvm::Target& target, const std::string& triple,
                                          const std::string& cpu, const std::string& features,
                                          const llvm::TargetOptions& options) {
#if LLVM_VERSION_MAJOR >= 21
  const llvm::Triple name(triple);
#else
  const std::string& name = triple;
#endif
  return target.createTargetMachine(name, cpu, features, options, llvm::Reloc::PIC_,
                                    llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default);
}

// Owned by the caller; null where the back end has none.
inline llvm::MCSubtargetInfo* CreateSubtarget(const llvm::Target& target, const std::string& triple,
                                              const std::string& cpu, const std::string& features) {
#if LLVM_VERSION_MAJOR >= 22
  return target.createMCSubtargetInfo(llvm::Triple(triple), cpu, features);
#else
  return target.createMCSubtargetInfo(triple, cpu, features);
#endif
}

// Whether loads and stores of a vector under a mask are instructions, wherever it lies.
inline bool HasMaskedMemory(const llvm::TargetTransformInfo& info, llvm::Type* type) {
#if LLVM_VERSION_MAJOR >= 22
  constexpr unsigned kAddressSpace = 0;
  return info.isLegalMaskedLoad(type, llvm::Align(1), kAddressSpace) &&
         info.isLegalMaskedStore(type, llvm::Align(1), kAddressSpace);
#else
  return info.isLegalMaskedLoad(type, llvm::Align(1)) &&
         info.isLegalMaskedStore(type, llvm::Align(1));
#endif
}

inline void SetTriple(llvm::Module& module, const std::string& triple) {
#if LLVM_VERSION_MAJOR >= 21
  module.setTargetTriple(llvm::Triple(triple));
#else
  module.setTargetTriple(triple);
#endif
}

}  // namespace quench::codegen::compat
