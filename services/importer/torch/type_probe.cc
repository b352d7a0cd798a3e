#include "services/importer/torch/type_probe.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "services/importer/graph/names.h"

namespace quench::importer {
namespace {

constexpr int64_t kMaxFolded = 512;  // elements: shapes, axes, sizes

bool IsSmallIndex(const Type& type) {
  if (!IsInteger(type.dtype) && type.dtype != DataType::kBool) return false;
  int64_t count = 1;
  for (const Dim dim : type.dims) {
    if (!dim.is_static() || dim.value() > kMaxFolded) return false;
    count *= dim.value();
    if (count > kMaxFolded) return false;
  }
  return true;
}

}  // namespace

// Emits into the probe's graph; what a node's outputs are is kept in `outputs`.
class ProbeConverter final : public Converter {
 public:
  ProbeConverter(TypeProbe& probe, const Node& node, std::vector<ValueId> inputs)
      : Converter(node, std::move(inputs)), outputs(node.outputs.size(), kNone), probe_(probe) {}

  std::vector<ValueId> outputs;

  bool IsUsed(int output) const override { return output < num_outputs(); }
  const Type& declared(int) const override { return Unknown(); }
  const Type& type(ValueId id) const override {
    return id == kNone ? Unknown() : probe_.graph_.value(id).type;
  }
  // The probed nodes may be a loop's body, whose other iterations have other types.
  bool types_are_final() const override { return false; }
  const Tensor* constant(ValueId id) const override {
    if (id == kNone || probe_.graph_.value(id).constant == nullptr) return nullptr;
    return &probe_.graph_.value(id).constant->tensor;
  }
  std::optional<std::vector<Dim>> elements(ValueId id) const override {
    return id == kNone ? std::nullopt : ops::KnownElements(probe_.graph_.value(id));
  }
  SymbolTable& symbols() override { return *probe_.graph_.symbols; }
  ValueId AddConstant(Tensor tensor) override {
    return probe_.AddConstant(
        std::make_shared<const Constant>(Constant{std::move(tensor), "", {}}));
  }
  ValueId Emit(const std::string& op, std::vector<ValueId> inputs, Attributes attributes) override {
    return EmitMany(op, std::move(inputs), 1, std::move(attributes))[0];
  }
  std::vector<ValueId> EmitMany(const std::string& op, std::vector<ValueId> inputs, int count,
                                Attributes attributes) override {
    while (!inputs.empty() && inputs.back() == kNone) inputs.pop_back();
    Node result;
    result.name = "n" + std::to_string(++probe_.names_);
    result.op = op;
    result.inputs = std::move(inputs);
    result.attributes = std::move(attributes);
    for (int i = 0; i < count; ++i) result.outputs.push_back(probe_.AddValue({}));
    std::vector<ValueId> ids = result.outputs;
    probe_.Infer(std::move(result));
    return ids;
  }
  absl::Status Final(const std::string& op, std::vector<ValueId> inputs,
                     Attributes attributes) override {
    outputs = EmitMany(op, std::move(inputs), num_outputs(), std::move(attributes));
    return absl::OkStatus();
  }
  absl::Status FinalValues(const std::vector<ValueId>& ids) override {
    for (size_t i = 0; i < std::min(ids.size(), outputs.size()); ++i) outputs[i] = ids[i];
    return absl::OkStatus();
  }
  absl::Status FinalConstant(Tensor tensor) override {
    return FinalValues({AddConstant(std::move(tensor))});
  }
  absl::Status FinalControl() override { return Unsupported("is control flow"); }
  void Warn(const std::string&) override {}

 private:
  static const Type& Unknown() {
    static const Type kUnknown;
    return kUnknown;
  }
  TypeProbe& probe_;
};

TypeProbe::TypeProbe() { graph_.stage = Stage::kCanonical; }

void TypeProbe::SetSymbols(const SymbolTable& symbols) {
  graph_.symbols = std::make_shared<SymbolTable>(symbols);
}

ValueId TypeProbe::AddValue(Type type) {
  return PushValue(graph_, "v" + std::to_string(++names_), std::move(type));
}

ValueId TypeProbe::AddConstant(std::shared_ptr<const Constant> constant) {
  return PushConstant(graph_, "c" + std::to_string(++names_), std::move(constant));
}

Dim TypeProbe::NewDim() {
  const std::string name = "q.any" + std::to_string(++names_);
  return Dim::OfSymbol(graph_.symbols->AddRuntime(name, name, std::nullopt));
}

ValueId TypeProbe::Join(ValueId a, ValueId b) {
  const Type first = value(a).type, second = value(b).type;
  if (first.dtype != second.dtype || first.ranked != second.ranked ||
      first.dims.size() != second.dims.size() || first.kind != second.kind)
    return AddValue({});
  Type joined = first;
  for (size_t i = 0; i < joined.dims.size(); ++i) {
    if (!(joined.dims[i] == second.dims[i])) joined.dims[i] = NewDim();
  }
  return AddValue(std::move(joined));
}

ValueId TypeProbe::Blur(ValueId a) {
  Type type = value(a).type;
  for (Dim& dim : type.dims) dim = NewDim();
  return AddValue(std::move(type));
}

void TypeProbe::Infer(Node node) {
  for (const ValueId id : node.inputs) {
    if (id != kNone && (!value(id).type.known() || !value(id).type.ranked)) return;
  }
  const absl::Status status = ops::InferNode(graph_, node);
  if (!status.ok()) {
    if (problem_.ok()) problem_ = status;
    return;
  }
  Fold(node);
}

bool TypeProbe::Fold(const Node& node) {
  const ops::OpDef* def = ops::FindOp(node.op);
  if (node.inputs.empty() || def == nullptr || def->kind == ops::OpKind::kControl) return false;
  std::vector<const Tensor*> inputs;
  for (const ValueId id : node.inputs) {
    if (id != kNone && (value(id).constant == nullptr || !IsSmallIndex(value(id).type)))
      return false;
    inputs.push_back(id == kNone ? nullptr : &value(id).constant->tensor);
  }
  for (const ValueId id : node.outputs) {
    if (!IsSmallIndex(value(id).type)) return false;
  }
  absl::StatusOr<std::vector<Tensor>> results = ops::EvaluateNode(node, inputs, {});
  if (!results.ok() || results->size() != node.outputs.size()) return false;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    graph_.value(node.outputs[i]).constant =
        std::make_shared<const Constant>(Constant{std::move((*results)[i]), "", {}});
  }
  return true;
}

std::vector<ValueId> TypeProbe::Convert(const Node& node, const std::vector<ValueId>& inputs,
                                        const Conversion& convert) {
  ProbeConverter converter(*this, node, inputs);
  bool known = convert != nullptr;
  for (const ValueId id : inputs)
    known = known && (id == kNone || (value(id).type.known() && value(id).type.ranked));
  if (known) {
    const absl::Status status = convert(converter);
    if (!status.ok() && problem_.ok()) problem_ = status;
  }
  for (ValueId& id : converter.outputs) {
    if (id == kNone) id = AddValue({});
  }
  return converter.outputs;
}

}  // namespace quench::importer
