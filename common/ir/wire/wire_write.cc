#include "common/base/overloaded.h"
#include "common/base/status.h"
#include "common/ir/constants.h"
#include "common/ir/wire/wire.h"
#include "common/ir/wire/wire_scan.h"
#include "quench/ir/v1/module.pb.h"

namespace quench {
namespace {

namespace pb = quench::ir::v1;

class Writer {
 public:
  Writer(const Graph& graph, const WeightPlaces& places) : root_(graph), places_(places) {}

  pb::Module Write();
  // Names that protobuf would refuse on reading.
  absl::Status Problems() const { return problems_.Finish(); }

 private:
  std::string Text(const std::string& text) {
    if (!wire::IsUtf8(text)) problems_.Add(InvalidArgument("the name `{}` is not UTF-8", text));
    return text;
  }
  void Write(const Graph& graph, pb::Graph* out);
  void Write(const Node& node, pb::Node* out);
  void Write(const Attribute& attribute, pb::Attribute* out);
  void Write(const Type& type, pb::Type* out);
  void Write(const Tensor& tensor, const Constant* constant, pb::Tensor* out);
  void Write(const Symbol& symbol, pb::Symbol* out);
  void Write(Dim dim, pb::Dim* out) {
    if (dim.is_static()) {
      out->set_value(dim.value());
    } else {
      out->set_symbol(Renumbered(dim.symbol()));
    }
  }
  uint32_t Renumbered(SymbolId id) const {
    return static_cast<uint32_t>(new_ids_[static_cast<size_t>(id)]);
  }

  const Graph& root_;
  const WeightPlaces& places_;
  std::vector<SymbolId> new_ids_;  // of used symbols
  StatusCollector problems_;
};

pb::Module Writer::Write() {
  pb::Module module;
  module.set_format_version(1);
  module.set_stage(static_cast<pb::Stage>(static_cast<int>(root_.stage) + 1));
  const std::vector<bool> used = UsedSymbols(root_);
  new_ids_.assign(used.size(), -1);
  SymbolId next = 0;
  for (size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) continue;
    new_ids_[id] = next++;
    Write(root_.symbols->at(static_cast<SymbolId>(id)), module.add_symbols());
  }
  Write(root_, module.mutable_graph());
  return module;
}

void Writer::Write(const Symbol& symbol, pb::Symbol* out) {
  if (!symbol.is_expression()) out->set_name(Text(symbol.name));
  std::visit(Overloaded{[&](const InputAxis& axis) {
                          out->mutable_input()->set_input(static_cast<uint32_t>(axis.input));
                          out->mutable_input()->set_axis(static_cast<uint32_t>(axis.axis));
                          out->set_min(symbol.min);
                          if (symbol.max != kUnbounded) out->set_max(symbol.max);
                          out->set_multiple_of(symbol.multiple_of);
                        },
                        [&](const RuntimeSize& runtime) {
                          out->mutable_runtime()->set_node(Text(runtime.node));
                          if (runtime.upper)
                            Write(*runtime.upper, out->mutable_runtime()->mutable_upper());
                        },
                        [&](const Polynomial& polynomial) {
                          out->mutable_polynomial()->set_constant(polynomial.constant);
                          for (const Monomial& monomial : polynomial.terms) {
                            pb::Symbol::Term* term = out->mutable_polynomial()->add_terms();
                            term->set_coefficient(monomial.coefficient);
                            for (SymbolId factor : monomial.factors)
                              term->add_factors(Renumbered(factor));
                          }
                        },
                        [&](const DimBinary& binary) {
                          out->mutable_binary()->set_operation(
                              static_cast<pb::Symbol::Operation>(static_cast<int>(binary.op) + 1));
                          Write(binary.lhs, out->mutable_binary()->mutable_lhs());
                          Write(binary.rhs, out->mutable_binary()->mutable_rhs());
                        }},
             symbol.definition);
}

void Writer::Write(const Type& type, pb::Type* out) {
  out->set_kind(static_cast<pb::ValueKind>(static_cast<int>(type.kind) + 1));
  out->set_element_type(static_cast<pb::ElementType>(type.dtype));
  if (type.ranked) {
    out->mutable_shape();
    for (Dim dim : type.dims) Write(dim, out->mutable_shape()->add_dims());
  }
  if (!type.element.empty()) Write(type.element[0], out->mutable_element());
}

void Writer::Write(const Tensor& tensor, const Constant* constant, pb::Tensor* out) {
  out->set_element_type(static_cast<pb::ElementType>(tensor.dtype()));
  for (int64_t dim : tensor.dims()) out->add_dims(dim);
  for (const std::string& text : tensor.strings()) out->add_strings(text);
  if (!WeightPlaces::IsLarge(tensor)) {
    out->set_data(tensor.bytes().data(), tensor.bytes().size());
    if (constant != nullptr) out->set_digest(constant->digest);
    return;
  }
  const WeightPlaces::Place& place = places_.Of(tensor);
  out->set_digest(place.digest);
  for (const BlobRange& range : place.location) {
    pb::BlobRange* blob = out->add_location();
    blob->set_blob(range.blob);
    blob->set_offset(range.offset);
    blob->set_size(range.size);
  }
}

void Writer::Write(const Attribute& attribute, pb::Attribute* out) {
  std::visit(
      Overloaded{[&](int64_t value) { out->set_int_value(value); },
                 [&](double value) { out->set_float_value(value); },
                 [&](const std::string& value) { out->set_string_value(value); },
                 [&](const std::vector<int64_t>& values) {
                   out->mutable_ints_value()->mutable_values()->Add(values.begin(), values.end());
                 },
                 [&](const std::vector<double>& values) {
                   out->mutable_floats_value()->mutable_values()->Add(values.begin(), values.end());
                 },
                 [&](const std::vector<std::string>& values) {
                   out->mutable_strings_value();
                   for (const std::string& value : values)
                     out->mutable_strings_value()->add_values(value);
                 },
                 [&](const Tensor& tensor) { Write(tensor, nullptr, out->mutable_tensor_value()); },
                 [&](const GraphPtr& body) { Write(*body, out->mutable_graph_value()); },
                 [&](const Type& type) { Write(type, out->mutable_type_value()); }},
      attribute);
}

void Writer::Write(const Node& node, pb::Node* out) {
  out->set_name(Text(node.name));
  out->set_op(Text(node.op));
  out->set_domain(Text(node.domain));
  out->set_version(node.version);
  out->set_origin(Text(node.origin));
  out->mutable_inputs()->Add(node.inputs.begin(), node.inputs.end());
  out->mutable_outputs()->Add(node.outputs.begin(), node.outputs.end());
  for (const auto& [name, attribute] : node.attributes) {
    pb::Attribute* entry = out->add_attributes();
    entry->set_name(Text(name));
    Write(attribute, entry);
  }
}

void Writer::Write(const Graph& graph, pb::Graph* out) {
  out->set_name(Text(graph.name));
  for (const Value& value : graph.values) {
    pb::Value* entry = out->add_values();
    entry->set_name(Text(value.name));
    if (value.type != Type{}) Write(value.type, entry->mutable_type());
    if (value.constant != nullptr)
      Write(value.constant->tensor, value.constant.get(), entry->mutable_constant());
    if (!value.elements) continue;
    entry->mutable_elements();
    for (Dim dim : *value.elements) Write(dim, entry->mutable_elements()->add_dims());
  }
  for (const Node& node : graph.nodes) Write(node, out->add_nodes());
  out->mutable_inputs()->Add(graph.inputs.begin(), graph.inputs.end());
  out->mutable_outputs()->Add(graph.outputs.begin(), graph.outputs.end());
  for (const auto& [key, value] : graph.metadata) {
    pb::Metadata* entry = out->add_metadata();
    entry->set_key(Text(key));
    entry->set_value(Text(value));
  }
}

}  // namespace

absl::StatusOr<std::string> SerializeModule(const Graph& graph, BlobStore& store) {
  WeightPlaces places(store);
  QUENCH_RETURN_IF_ERROR(places.Add(graph));
  Writer writer(graph, places);
  const pb::Module module = writer.Write();
  QUENCH_RETURN_IF_ERROR(writer.Problems());
  const size_t size = module.ByteSizeLong();
  if (size > kMaxModuleBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("the module takes {} bytes without its weights, at most {} are sent", size,
                    kMaxModuleBytes));
  }
  return module.SerializeAsString();
}

bool IsSerializedModule(std::string_view head) {
  // Field 1 (varint, 1), then field 2 (varint): an ONNX model's second field is a string.
  return head.starts_with("\x08\x01\x10");
}

}  // namespace quench
