#include "services/importer/tensorflow/convert.h"

#include <algorithm>

#include "common/base/status.h"
#include "services/importer/tensorflow/converters.h"

namespace quench::importer {
namespace {

constexpr TensorflowOp kRows[] = {
#define QUENCH_TF_OP(name, canonical, converter, outputs) \
  {#name, canonical, &tensorflow_ops::converter, "", outputs},
#define QUENCH_TF_SAME(name, tflite, outputs) {#name, "", nullptr, #tflite, outputs},
#define QUENCH_TF_FLOW(name, canonical, outputs) {#name, canonical, nullptr, "", outputs},
#include "services/importer/tensorflow/tensorflow_ops.def"
#undef QUENCH_TF_FLOW
#undef QUENCH_TF_SAME
#undef QUENCH_TF_OP
};

const TfliteOp* FindTfliteRow(std::string_view name) {
  for (const TfliteOp& row : AllTfliteOps()) {
    if (row.domain == "tflite" && row.name == name) return &row;
  }
  return nullptr;
}

struct NodeHolder {
  Node held;
};

// A node as one of TensorFlow Lite: everything but its name, inputs and attributes is the node's own.
class AsTflite final : private NodeHolder, public Converter {
 public:
  AsTflite(Converter& inner, const Node& node, std::vector<ValueId> inputs)
      : NodeHolder{node}, Converter(held, std::move(inputs)), inner_(inner) {}

  bool IsUsed(int output) const override { return inner_.IsUsed(output); }
  const Type& declared(int output) const override { return inner_.declared(output); }
  const Type& type(ValueId id) const override { return inner_.type(id); }
  bool types_are_final() const override { return inner_.types_are_final(); }
  const Tensor* constant(ValueId id) const override { return inner_.constant(id); }
  std::optional<std::vector<Dim>> elements(ValueId id) const override {
    return inner_.elements(id);
  }
  SymbolTable& symbols() override { return inner_.symbols(); }
  ValueId AddConstant(Tensor tensor) override { return inner_.AddConstant(std::move(tensor)); }
  ValueId Emit(const std::string& op, std::vector<ValueId> ids, Attributes attributes) override {
    return inner_.Emit(op, std::move(ids), std::move(attributes));
  }
  std::vector<ValueId> EmitMany(const std::string& op, std::vector<ValueId> ids, int outputs,
                                Attributes attributes) override {
    return inner_.EmitMany(op, std::move(ids), outputs, std::move(attributes));
  }
  absl::Status Final(const std::string& op, std::vector<ValueId> ids,
                     Attributes attributes) override {
    return inner_.Final(op, std::move(ids), std::move(attributes));
  }
  absl::Status FinalValues(const std::vector<ValueId>& ids) override {
    return inner_.FinalValues(ids);
  }
  absl::Status FinalConstant(Tensor tensor) override {
    return inner_.FinalConstant(std::move(tensor));
  }
  absl::Status FinalControl() override { return inner_.FinalControl(); }
  void Warn(const std::string& text) override { inner_.Warn(text); }
  const std::string& shown_op() const override { return inner_.shown_op(); }

 private:
  Converter& inner_;
};

absl::Status ConvertSame(Converter& c) {
  const TensorflowOp* row = FindTensorflowRow(c.node().op);
  return ConvertAsTflite(c, row->same_as, c.inputs());
}

}  // namespace

std::span<const TensorflowOp> AllTensorflowOps() { return kRows; }

const TensorflowOp* FindTensorflowRow(std::string_view name) {
  const auto* found = std::lower_bound(
      std::begin(kRows), std::end(kRows), name,
      [](const TensorflowOp& row, std::string_view key) { return row.name < key; });
  return found != std::end(kRows) && found->name == name ? found : nullptr;
}

Conversion FindTensorflowConversion(std::string_view domain, std::string_view name) {
  if (domain.empty()) return FindTfliteConversion(domain, name);
  const TensorflowOp* row = domain == "tensorflow" ? FindTensorflowRow(name) : nullptr;
  if (row == nullptr) return {};
  if (!row->same_as.empty()) return &ConvertSame;
  return row->convert == nullptr ? Conversion() : Conversion(row->convert);
}

absl::Status ConvertAsTflite(Converter& c, std::string_view op, std::vector<ValueId> inputs,
                             Attributes attributes) {
  const TfliteOp* row = FindTfliteRow(op);
  QUENCH_CHECK(row != nullptr);  // a row of the table names it
  Node node = c.node();
  node.op = std::string(row->name);
  node.domain = std::string(row->domain);
  for (auto& [name, value] : attributes) node.attributes[name] = std::move(value);
  // TensorFlow has an activation in an operator of its own.
  node.attributes.erase("fused_activation_function");
  AsTflite inner(c, node, std::move(inputs));
  return row->convert(inner);
}

bool HasChannelsFirst(const Converter& c) {
  return c.node().String("data_format", "NHWC").substr(0, 2) == "NC";
}

ValueId ToFirst(TfNode& n, ValueId id, int spatial) {
  return HasChannelsFirst(n.c) ? id : n.Transpose(id, ToChannelsFirst(spatial));
}

ValueId FromFirst(TfNode& n, ValueId id, int spatial) {
  return HasChannelsFirst(n.c) ? id : n.Transpose(id, ToChannelsLast(spatial));
}

absl::Status RequireInputs(const Converter& c, int least) {
  for (int i = 0; i < least; ++i) {
    if (!c.has(i))
      return c.Error(fmt::format("has {} inputs, expected {}", c.inputs().size(), least));
  }
  return absl::OkStatus();
}

}  // namespace quench::importer
