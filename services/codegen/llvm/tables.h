// Constant structs laid out as a C compiler of the target lays them out.
#pragma once

#include <llvm/IR/Constants.h>

#include <string>
#include <vector>

#include "services/codegen/llvm/abi_structs.h"
#include "services/codegen/llvm/internal.h"

namespace quench::codegen {

class Tables {
 public:
  explicit Tables(ModuleState& state)
      : module_(*state.module), context_(state.context), prefix_(state.prefix) {}

  llvm::Constant* I32(int64_t value) {
    return llvm::ConstantInt::getSigned(llvm::Type::getInt32Ty(context_), value);
  }
  llvm::Constant* I64(int64_t value) {
    return llvm::ConstantInt::getSigned(llvm::Type::getInt64Ty(context_), value);
  }
  llvm::Constant* Null() {
    return llvm::ConstantPointerNull::get(llvm::PointerType::getUnqual(context_));
  }
  // Address of a zero-terminated string.
  llvm::Constant* Text(const std::string& text);
  // A struct of abi.h with these members.
  template <typename Type, typename... Members>
  llvm::Constant* Struct(Members*... members) {
    static_assert(sizeof...(Members) == AbiStruct<Type>::kFields.size());
    return StructOf(LlvmType<Type>(context_), {members...});
  }
  // The same, for one whose first member is its own size: of the others.
  template <typename Type, typename... Members>
  llvm::Constant* Sized(Members*... members) {
    static_assert(AbiStruct<Type>::size == 0);
    return Struct<Type>(SizeOf(LlvmType<Type>(context_)), members...);
  }
  // Address of a constant.
  llvm::Constant* Address(llvm::Constant* value, const std::string& name);
  // Address of an array of pointers to these constants; null without any.
  llvm::Constant* Pointers(const std::vector<llvm::Constant*>& values, const std::string& name);
  // Address of a quench_tensor_info.
  llvm::Constant* Tensor(const std::string& name, DataType dtype, const std::vector<Dim>& dims);

 private:
  llvm::Constant* SizeOf(llvm::StructType* type);
  static llvm::Constant* StructOf(llvm::StructType* type,
                                  const std::vector<llvm::Constant*>& members);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  std::string prefix_;
};

}  // namespace quench::codegen
