#include "services/codegen/emit/model_entry.h"

#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <optional>
#include <set>
#include <span>
#include <variant>

#include "common/ir/states.h"
#include "common/ir/symbols_spelling.h"
#include "common/runtime/abi.h"
#include "services/codegen/emit/module_state.h"
#include "services/codegen/emit/tables.h"
#include "services/codegen/object/sections.h"
#include "services/codegen/plan/boundary.h"

namespace quench::codegen {

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

using QuantizationOf = std::optional<BoundaryQuantization>(const Graph&, ValueId);

// Address of an array of pointers to the infos of inputs or outputs.
llvm::Constant* TensorInfos(Tables& tables, const Graph& graph, const std::vector<ValueId>& ids,
                            QuantizationOf& quantization_of) {
  std::vector<llvm::Constant*> all;
  for (const ValueId id : ids) {
    const Value& value = graph.value(id);
    const std::optional<size_t> place = InputInPlaceOf(graph, id);
    all.push_back(tables.Tensor(value.name, value.type.dtype, value.type.dims,
                                quantization_of(graph, id),
                                place ? static_cast<int32_t>(*place) + 1 : 0));
  }
  return tables.Pointers(all, "tensors");
}

std::vector<llvm::Constant*> SymbolInfos(Tables& tables, const ModelTables& model) {
  const Graph& graph = *model.graph;
  const std::set<SymbolId> determined = DeterminedSizes(graph);
  std::vector<llvm::Constant*> symbols;
  for (SymbolId id = 0; id < model.num_symbols; ++id) {
    const Symbol& symbol = graph.symbols->at(id);
    const bool text = determined.contains(id);
    symbols.push_back(SymbolInfo(
        tables, symbol, text ? SpelledOut(*graph.symbols, Dim::OfSymbol(id)) : symbol.name));
  }
  return symbols;
}

// Declarations of the variants' tables, which their own modules define.
std::vector<llvm::Constant*> Variants(ModuleState& state, const ModelTables& model) {
  std::vector<llvm::Constant*> variants;
  for (const std::string& name : model.variants) {
    llvm::Constant* variant =
        state.module->getOrInsertGlobal(name, llvm::Type::getInt8Ty(state.context));
    llvm::cast<llvm::GlobalVariable>(variant)->setVisibility(llvm::GlobalValue::HiddenVisibility);
    variants.push_back(variant);
  }
  return variants;
}

// Address of the quench_model.
llvm::Constant* Description(ModuleState& state, const ModelTables& model) {
  Tables tables(state);
  const Graph& graph = *model.graph;
  std::vector<llvm::Constant*> states, labels;
  for (const StatePair& pair : StatesOf(graph))
    states.push_back(StateInfo(tables, state.context, pair));
  const std::vector<llvm::Constant*> symbols = SymbolInfos(tables, model);
  const std::vector<llvm::Constant*> variants = Variants(state, model);
  for (const std::string& label : model.labels) labels.push_back(tables.Text(label));
  auto count = [&](size_t n) { return tables.I32(static_cast<int64_t>(n)); };
  // By itself, not among strings that a linker merges and sorts: StampUuid replaces it.
  auto alone = [&](const std::string& text, const std::string& name, const std::string& section) {
    return tables.Address(llvm::ConstantDataArray::getString(state.context, text), name, section);
  };
  llvm::Constant* uuid = alone(model.uuid, "uuid", kUuidSection);
  llvm::Constant* description = alone(model.description, "description", kDescriptionSection);
  return tables.Address(
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
           TensorInfos(tables, graph, graph.inputs, InputQuantization),
           TensorInfos(tables, graph, graph.outputs, OutputQuantization),
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
}

// The exported function that returns `model`.
absl::Status EmitQuery(ModuleState& state, llvm::Constant* model) {
  Tables tables(state);
  llvm::Type* ptr = llvm::PointerType::getUnqual(state.context);
  llvm::Type* i32 = llvm::Type::getInt32Ty(state.context);
  llvm::Function* query =
      CreateFunction(state, QUENCH_MODEL_QUERY_NAME, llvm::FunctionType::get(ptr, {i32}, false));
  query->setVisibility(llvm::GlobalValue::DefaultVisibility);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(state.context, "entry", query));
  llvm::Value* known = b.CreateICmpUGE(query->getArg(0), tables.I32(QUENCH_ABI_VERSION));
  b.CreateRet(b.CreateSelect(known, model, tables.Null()));
  return Optimise(state, *query, Pipeline::kKernel);
}

}  // namespace

absl::Status EmitModel(ModuleBuilder& builder, const ModelTables& model) {
  ModuleState& state = builder.state();
  llvm::Constant* description = Description(state, model);
  return state.link_prefix.empty() ? EmitQuery(state, description)
                                   : EmitRegistration(state, description);
}

}  // namespace quench::codegen
