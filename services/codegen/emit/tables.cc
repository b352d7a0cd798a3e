#include "services/codegen/emit/tables.h"

#include <llvm/IR/Module.h>

#include "common/base/status.h"
#include "common/runtime/abi.h"

namespace quench::codegen {

llvm::Constant* Tables::Address(llvm::Constant* value, const std::string& name,
                                const std::string& section) {
  auto* global =
      new llvm::GlobalVariable(module_, value->getType(), /*isConstant=*/true,
                               llvm::GlobalValue::InternalLinkage, value, prefix_ + "_" + name);
  if (!section.empty()) global->setSection(section);
  return global;
}

llvm::Constant* Tables::Text(const std::string& text) {
  auto* global = new llvm::GlobalVariable(
      module_, llvm::ArrayType::get(llvm::Type::getInt8Ty(context_), text.size() + 1),
      /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
      llvm::ConstantDataArray::getString(context_, text), prefix_ + "_text");
  global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  global->setAlignment(llvm::Align(1));
  return global;
}

llvm::Constant* Tables::SizeOf(llvm::StructType* type) {
  return I32(static_cast<int64_t>(module_.getDataLayout().getTypeAllocSize(type).getFixedValue()));
}

llvm::Constant* Tables::StructOf(llvm::StructType* type,
                                 const std::vector<llvm::Constant*>& members) {
  for (unsigned i = 0; i < type->getNumElements(); ++i)
    QUENCH_CHECK(members[i]->getType() == type->getElementType(i));  // else in the wrong order
  return llvm::ConstantStruct::get(type, members);
}

llvm::Constant* Tables::Pointers(const std::vector<llvm::Constant*>& values,
                                 const std::string& name) {
  return Array(values, name);
}

llvm::Constant* Tables::Array(const std::vector<llvm::Constant*>& values, const std::string& name) {
  if (values.empty()) return Null();
  auto* type = llvm::ArrayType::get(values[0]->getType(), values.size());
  return Address(llvm::ConstantArray::get(type, values), name);
}

llvm::Constant* Tables::Tensor(const std::string& name, DataType dtype,
                               const std::vector<Dim>& dims,
                               const std::optional<BoundaryQuantization>& quantization,
                               int32_t in_place_of) {
  std::vector<llvm::Constant*> values;
  for (const Dim dim : dims) {
    const bool fixed = dim.is_static();
    values.push_back(Struct<quench_dim>(
        {I64(fixed ? dim.value() : -1), I32(fixed ? -1 : dim.symbol()), I32(0)}));
  }
  llvm::Constant* array = Array(values, "dims");
  llvm::Constant* pairs = Null();
  if (quantization) {
    std::vector<llvm::Constant*> scales, zeros;
    for (const float scale : quantization->scales) scales.push_back(F32(scale));
    for (const int32_t zero : quantization->zero_points) zeros.push_back(I32(zero));
    llvm::Constant* scale_array = Array(scales, "scales");
    llvm::Constant* zero_array = Array(zeros, "zero_points");
    pairs = Address(Sized<quench_quantization>({I32(quantization->axis),
                                                I64(static_cast<int64_t>(scales.size())),
                                                scale_array, zero_array}),
                    "quantization");
  }
  return Address(Sized<quench_tensor_info>({I32(static_cast<int64_t>(dtype)),
                                            I32(static_cast<int64_t>(dims.size())),
                                            I32(in_place_of), Text(name), array, pairs}),
                 "tensor");
}

}  // namespace quench::codegen
