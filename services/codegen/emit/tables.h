// Constant structs laid out as a C compiler of the target lays them out.
#pragma once

#include <llvm/IR/Constants.h>

#include <optional>
#include <string>
#include <vector>

#include "services/codegen/emit/abi_structs.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/plan/boundary.h"

namespace quench::codegen {

// The members of a struct of abi.h but the first `kWithout`.
template <typename Type, size_t kWithout>
struct AbiMembers {
  template <typename... Members>
  AbiMembers(Members*... members) : values{members...} {  // NOLINT: from a list in braces
    static_assert(sizeof...(Members) == AbiStruct<Type>::kFields.size() - kWithout);
  }
  std::vector<llvm::Constant*> values;
};

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
  llvm::Constant* F32(float value) {
    return llvm::ConstantFP::get(llvm::Type::getFloatTy(context_), value);
  }
  llvm::Constant* Null() {
    return llvm::ConstantPointerNull::get(llvm::PointerType::getUnqual(context_));
  }
  // Address of a zero-terminated string.
  llvm::Constant* Text(const std::string& text);
  // A struct of abi.h with these members, in braces: those are evaluated in order, and the order in
  // which constants are made shows in the library's bytes.
  template <typename Type>
  llvm::Constant* Struct(const AbiMembers<Type, 0>& members) {
    return StructOf(LlvmType<Type>(context_), members.values);
  }
  // The same, for one whose first member is its own size: of the others. It may end after its first
  // `fields` fields, where readers look at its size.
  template <typename Type>
  llvm::Constant* Sized(const AbiMembers<Type, 1>& members,
                        size_t fields = AbiStruct<Type>::kFields.size()) {
    static_assert(AbiStruct<Type>::size == 0);
    llvm::StructType* type = LlvmType<Type>(context_, fields);
    std::vector<llvm::Constant*> all = {SizeOf(type)};
    all.insert(all.end(), members.values.begin(), members.values.end());
    all.resize(fields);
    return StructOf(type, all);
  }
  // Address of a constant, in a section of its own if one is named.
  llvm::Constant* Address(llvm::Constant* value, const std::string& name,
                          const std::string& section = "");
  // Address of an array of values of one type; null without any.
  llvm::Constant* Array(const std::vector<llvm::Constant*>& values, const std::string& name);
  // Address of an array of pointers to these constants; null without any.
  llvm::Constant* Pointers(const std::vector<llvm::Constant*>& values, const std::string& name);
  // Address of a quench_tensor_info, whose `in_place_of` is the last argument.
  llvm::Constant* Tensor(const std::string& name, DataType dtype, const std::vector<Dim>& dims,
                         const std::optional<BoundaryQuantization>& quantization = {},
                         int32_t in_place_of = 0);

 private:
  llvm::Constant* SizeOf(llvm::StructType* type);
  static llvm::Constant* StructOf(llvm::StructType* type,
                                  const std::vector<llvm::Constant*>& members);

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  std::string prefix_;
};

}  // namespace quench::codegen
