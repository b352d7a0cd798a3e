#include "services/codegen/llvm/tables.h"

#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <set>

#include "common/base/status.h"
#include "common/ir/states.h"
#include "common/ir/symbols_spelling.h"
#include "common/runtime/abi.h"
#include "services/codegen/boundary.h"
#include "services/codegen/llvm/artifact.h"

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

namespace {

// Sizes of inputs and outputs that others determine ("2*n") have their text, which tells what is wanted or comes.
std::set<SymbolId> DeterminedSizes(const Graph& graph) {
  std::set<SymbolId> ids;
  for (const std::vector<ValueId>* values : {&graph.inputs, &graph.outputs}) {
    for (const ValueId id : *values) {
      for (const Dim dim : graph.value(id).type.dims) {
        if (!dim.is_static() && graph.symbols->at(dim.symbol()).is_expression())
          ids.insert(dim.symbol());
      }
    }
  }
  return ids;
}

llvm::Constant* SymbolInfo(Tables& tables, const Symbol& symbol, const std::string& name) {
  int kind = QUENCH_SYMBOL_EXPRESSION;
  InputAxis from{-1, -1};
  if (const auto* input = std::get_if<InputAxis>(&symbol.definition)) {
    kind = QUENCH_SYMBOL_INPUT;
    from = *input;
  } else if (symbol.is_runtime()) {
    kind = QUENCH_SYMBOL_RUNTIME;
  }
  return tables.Address(
      tables.Sized<quench_symbol_info>({tables.I32(kind), tables.Text(name), tables.I64(symbol.min),
                                        tables.I64(symbol.max), tables.I64(symbol.multiple_of),
                                        tables.I32(from.input), tables.I32(from.axis)}),
      "symbol");
}

llvm::Constant* StateInfo(Tables& tables, llvm::LLVMContext& context, const StatePair& state) {
  llvm::Constant* initial = tables.Null();
  if (const std::span<const std::byte> bytes = state.initial.bytes(); !bytes.empty()) {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    initial = tables.Address(llvm::ConstantDataArray::getString(context, text, /*AddNull=*/false),
                             "initial");
  }
  return tables.Address(
      tables.Sized<quench_state_info>({tables.I32(static_cast<int64_t>(state.input)),
                                       tables.I32(static_cast<int64_t>(state.output)),
                                       tables.I32(0), initial}),
      "state");
}

// A constructor that hands an entry over to the runtime.
absl::Status EmitRegistration(ModuleState& state, llvm::Constant* model) {
  Tables tables(state);
  llvm::Module& module = *state.module;
  llvm::Type* ptr = llvm::PointerType::getUnqual(state.context);
  llvm::Type* nothing = llvm::Type::getVoidTy(state.context);
  llvm::Constant* entry = tables.Struct<quench_registration>({model, tables.Null()});
  auto* global = new llvm::GlobalVariable(module, entry->getType(), /*isConstant=*/false,
                                          llvm::GlobalValue::ExternalLinkage, entry,
                                          ModelSymbol(state.link_prefix));
  const llvm::FunctionCallee registers = module.getOrInsertFunction(
      "quench_rt_register", llvm::FunctionType::get(nothing, {ptr}, /*isVarArg=*/false));
  llvm::Function* constructor = CreateFunction(
      state, state.prefix + "_register", llvm::FunctionType::get(nothing, {}, /*isVarArg=*/false),
      llvm::GlobalValue::InternalLinkage);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(state.context, "entry", constructor));
  b.CreateCall(registers, {global});
  b.CreateRetVoid();
  llvm::appendToGlobalCtors(module, constructor, /*Priority=*/65535);
  return Optimise(state, *constructor, Pipeline::kKernel);
}

}  // namespace

std::string ModelSymbol(const std::string& link_prefix) {
  return link_prefix.empty() ? QUENCH_MODEL_QUERY_NAME : link_prefix + "model";
}

absl::Status EmitModel(ModuleBuilder& builder, const ModelTables& model) {
  ModuleState& state = builder.state();
  Tables tables(state);
  llvm::Module& module = *state.module;
  const Graph& graph = *model.graph;
  auto tensors = [&](const std::vector<ValueId>& ids, const auto& quantization_of) {
    std::vector<llvm::Constant*> all;
    for (const ValueId id : ids) {
      const Value& value = graph.value(id);
      const std::optional<size_t> place = InputInPlaceOf(graph, id);
      all.push_back(tables.Tensor(value.name, value.type.dtype, value.type.dims,
                                  quantization_of(graph, id),
                                  place ? static_cast<int32_t>(*place) + 1 : 0));
    }
    return tables.Pointers(all, "tensors");
  };
  std::vector<llvm::Constant*> symbols, variants, states;
  for (const StatePair& pair : StatesOf(graph))
    states.push_back(StateInfo(tables, module.getContext(), pair));
  const std::set<SymbolId> determined = DeterminedSizes(graph);
  for (SymbolId id = 0; id < model.num_symbols; ++id) {
    const Symbol& symbol = graph.symbols->at(id);
    const bool text = determined.contains(id);
    symbols.push_back(SymbolInfo(
        tables, symbol, text ? SpelledOut(*graph.symbols, Dim::OfSymbol(id)) : symbol.name));
  }
  for (const std::string& name : model.variants) {
    llvm::Constant* variant = module.getOrInsertGlobal(name, llvm::Type::getInt8Ty(state.context));
    llvm::cast<llvm::GlobalVariable>(variant)->setVisibility(llvm::GlobalValue::HiddenVisibility);
    variants.push_back(variant);
  }
  std::vector<llvm::Constant*> labels;
  for (const std::string& label : model.labels) labels.push_back(tables.Text(label));
  auto count = [&](size_t n) { return tables.I32(static_cast<int64_t>(n)); };
  // By itself, not among strings that a linker merges and sorts: StampUuid replaces it.
  auto section = [&](const std::string& text, const std::string& name) {
    return tables.Address(llvm::ConstantDataArray::getString(state.context, text), name,
                          ".quench." + name);
  };
  llvm::Constant* uuid = section(model.uuid, "uuid");
  llvm::Constant* description = section(model.description, "description");
  llvm::Constant* info = tables.Address(
      tables.Sized<quench_model>(
          {tables.I32(QUENCH_MODEL_MAGIC),
           tables.I32(QUENCH_ABI_VERSION),
           tables.I32(state.target.machine),
           tables.Text(graph.name),
           uuid,
           tables.Text(model.fingerprint),
           tables.Text(model.producer),
           count(graph.inputs.size()),
           count(graph.outputs.size()),
           count(symbols.size()),
           count(variants.size()),
           tensors(graph.inputs, InputQuantization),
           tensors(graph.outputs, OutputQuantization),
           tables.Pointers(symbols, "symbols"),
           tables.Pointers(variants, "variants"),
           tables.I32(model.num_cores),
           count(labels.size()),
           tables.Pointers(labels, "labels"),
           model.preprocessing.empty() ? tables.Null() : tables.Text(model.preprocessing),
           tables.Text(model.target),
           tables.Text(model.producer_revision),
           tables.Text(model.source_digest),
           description,
           count(states.size()),
           tables.I32(0),
           tables.Pointers(states, "states")}),
      "model");
  if (!state.link_prefix.empty()) return EmitRegistration(state, info);

  llvm::Type* ptr = llvm::PointerType::getUnqual(state.context);
  llvm::Type* i32 = llvm::Type::getInt32Ty(state.context);
  llvm::Function* query =
      CreateFunction(state, QUENCH_MODEL_QUERY_NAME, llvm::FunctionType::get(ptr, {i32}, false));
  query->setVisibility(llvm::GlobalValue::DefaultVisibility);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(state.context, "entry", query));
  llvm::Value* known = b.CreateICmpUGE(query->getArg(0), tables.I32(QUENCH_ABI_VERSION));
  b.CreateRet(b.CreateSelect(known, info, tables.Null()));
  return Optimise(state, *query, Pipeline::kKernel);
}

}  // namespace quench::codegen
