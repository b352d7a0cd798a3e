// Graph -> ONNX file. An imported graph goes out as it came in, renamed nodes included; a canonical
// one at the oldest opset that means the same, operators of Quench's own in domain `quench`,
// captures of bodies by name again.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <charconv>
#include <set>

#include "common/base/atomic_file.h"
#include "common/base/status.h"
#include "common/passes/pass.h"
#include "services/importer/graph/names.h"
#include "services/importer/importer.h"
#include "services/importer/onnx/export_dims.h"
#include "services/importer/onnx/model_file.h"
#include "services/importer/onnx/oldest_opset.h"
#include "services/importer/onnx/shared_constants.h"
#include "services/importer/onnx/tensor_proto.h"

namespace quench::importer {
namespace {

using onnx::v1::AttributeProto;
using onnx::v1::GraphProto;
using onnx::v1::ModelProto;
using onnx::v1::NodeProto;
using onnx::v1::TensorProto;
using onnx::v1::TypeProto;

constexpr int64_t kInlineLimit = int64_t{1} << 30;  // weights of a model whose weights stay in it
constexpr size_t kExternalBytes = 1024;             // smaller tensors stay inline in any case
constexpr size_t kPieceBytes = size_t{16} << 20;    // between two looks at the context
constexpr size_t kLargeBytes = size_t{64} << 10;    // of a tensor that is written by itself

class Exporter {
 public:
  Exporter(const Graph& graph, std::filesystem::path path, const StepContext& context)
      : graph_(graph),
        path_(std::move(path)),
        context_(context),
        imported_(graph.stage == Stage::kImported),
        version_(imported_ ? OnnxVersion{kNewestOpset, kNewestIrVersion} : OldestOpset(graph)) {}

  absl::Status Run();

 private:
  using ExportNames = std::vector<std::string>;  // per value

  absl::Status FillGraph(const Graph& graph, const ExportNames& names, GraphProto& proto);
  absl::Status FillNode(const ExportNames& names, const Node& node, NodeProto& proto);
  absl::Status FillAttribute(const Attribute& value, AttributeProto& proto);
  absl::Status FillBody(const ExportNames& outer_names, const Node& node, const Graph& body,
                        GraphProto& proto);
  absl::Status FillTensor(const Tensor& tensor, TensorProto& proto);
  absl::Status FillInitializer(const Graph& graph, const std::string& name, const Tensor& tensor,
                               GraphProto& proto);
  absl::Status AppendTo(AtomicFile& file, const Tensor& tensor);
  absl::Status Write(const ModelProto& model, const GraphProto& graph);
  void FillType(const Type& type, TypeProto& proto) const;
  ExportNames NamesOf(const Graph& graph);
  // The name that a value has as a constant of several graphs, or null.
  const std::string* SharedName(const Value& value) const;
  void NameShared(const ExportNames& names);
  absl::Status FillOpsets(ModelProto& model) const;

  const Graph& graph_;
  const std::filesystem::path path_;
  const StepContext& context_;
  const bool imported_;
  const OnnxVersion version_;
  NameSet taken_;
  std::unique_ptr<AtomicFile> data_;
  std::string data_name_;
  // Initializers of the main graph that stay in the file and are too large to be in memory together.
  struct Large {
    TensorProto header;  // without its bytes
    const Tensor* tensor;
  };
  std::vector<Large> large_;
  SharedConstants shared_;                 // of a canonical graph: ONNX lets bodies see them
  std::vector<std::string> shared_names_;  // of each
  int64_t written_ = 0, total_ = 0;        // bytes of weights
};

int64_t WeightBytes(const Graph& graph) {
  int64_t bytes = 0;
  ForEachGraph(graph, [&](const Graph& each) {
    for (const Value& value : each.values) {
      if (value.constant != nullptr)
        bytes += static_cast<int64_t>(value.constant->tensor.bytes().size());
    }
    for (const Node& node : each.nodes) {
      for (const auto& [name, attribute] : node.attributes) {
        if (const Tensor* tensor = std::get_if<Tensor>(&attribute))
          bytes += static_cast<int64_t>(tensor->bytes().size());
      }
    }
  });
  return bytes;
}

// Captures of a node: its trailing inputs from here on go to the trailing inputs of its bodies.
size_t FirstCapture(const Node& node) {
  if (node.op == "If") return 1;
  const auto captures = static_cast<size_t>(std::max<int64_t>(0, node.Int("q.captures", 0)));
  return node.inputs.size() - std::min(captures, node.inputs.size());
}

bool HasBody(const Node& node) {
  for (const auto& [name, attribute] : node.attributes) {
    if (std::holds_alternative<GraphPtr>(attribute)) return true;
  }
  return false;
}

// Names in the file. An imported graph has the model's; in a canonical graph, ONNX requires the
// names in bodies to differ from everything outside.
Exporter::ExportNames Exporter::NamesOf(const Graph& graph) {
  ExportNames names;
  for (const Value& value : graph.values)
    names.push_back(imported_ ? value.name : taken_.Take(value.name));
  return names;
}

const std::string* Exporter::SharedName(const Value& value) const {
  const auto found = shared_.index.find(value.constant.get());
  return found == shared_.index.end() ? nullptr : &shared_names_[found->second];
}

// `names` are those of the main graph.
void Exporter::NameShared(const ExportNames& names) {
  if (imported_) return;
  shared_ = FindSharedConstants(graph_);
  for (const SharedConstant& constant : shared_.all) {
    shared_names_.push_back(constant.main != kNone ? names[static_cast<size_t>(constant.main)]
                                                   : taken_.Take(constant.wanted_name));
  }
}

absl::Status Exporter::AppendTo(AtomicFile& file, const Tensor& tensor) {
  for (std::span<const std::byte> rest = tensor.bytes(); !rest.empty();) {
    QUENCH_RETURN_IF_ERROR(context_.Check());
    const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
    QUENCH_RETURN_IF_ERROR(file.Append(piece));
    written_ += static_cast<int64_t>(piece.size());
    context_.Report({"export", "", written_, total_});
    rest = rest.subspan(piece.size());
  }
  return absl::OkStatus();
}

absl::Status Exporter::FillTensor(const Tensor& tensor, TensorProto& proto) {
  if (data_ == nullptr || tensor.bytes().size() < kExternalBytes) {
    FillTensorProto(tensor, proto);
    return absl::OkStatus();
  }
  static constexpr std::byte kZeros[64] = {};
  QUENCH_RETURN_IF_ERROR(data_->Append(std::span(kZeros).first((64 - data_->size() % 64) % 64)));
  FillTensorHeader(tensor, proto);
  proto.set_data_location(TensorProto::EXTERNAL);
  const auto entry = [&](const char* key, std::string value) {
    auto* pair = proto.add_external_data();
    pair->set_key(key);
    pair->set_value(std::move(value));
  };
  entry("location", data_name_);
  entry("offset", std::to_string(data_->size()));
  entry("length", std::to_string(tensor.bytes().size()));
  return AppendTo(*data_, tensor);
}

absl::Status Exporter::FillInitializer(const Graph& graph, const std::string& name,
                                       const Tensor& tensor, GraphProto& proto) {
  if (data_ == nullptr && &graph == &graph_ && tensor.bytes().size() >= kLargeBytes) {
    TensorProto header;
    header.set_name(name);
    FillTensorHeader(tensor, header);
    large_.push_back({std::move(header), &tensor});
    return absl::OkStatus();
  }
  TensorProto* initializer = proto.add_initializer();
  initializer->set_name(name);
  return FillTensor(tensor, *initializer);
}

void Exporter::FillType(const Type& type, TypeProto& proto) const {
  switch (type.kind) {
    case ValueKind::kTensor: {
      TypeProto::Tensor* tensor = proto.mutable_tensor_type();
      tensor->set_elem_type(static_cast<int>(type.dtype));
      if (!type.ranked) return;
      auto* shape = tensor->mutable_shape();
      for (const Dim dim : type.dims) {
        if (dim.is_static()) {
          shape->add_dim()->set_dim_value(dim.value());
        } else {
          shape->add_dim()->set_dim_param(graph_.symbols->ToString(dim));
        }
      }
      return;
    }
    case ValueKind::kSequence:
      return FillType(type.element[0], *proto.mutable_sequence_type()->mutable_elem_type());
    case ValueKind::kOptional:
      return FillType(type.element[0], *proto.mutable_optional_type()->mutable_elem_type());
    case ValueKind::kMap:
      proto.mutable_map_type()->set_key_type(static_cast<int>(type.dtype));
      return FillType(type.element[0], *proto.mutable_map_type()->mutable_value_type());
  }
}

absl::Status Exporter::FillAttribute(const Attribute& value, AttributeProto& proto) {
  if (const auto* i = std::get_if<int64_t>(&value)) {
    proto.set_type(AttributeProto::INT);
    proto.set_i(*i);
  } else if (const auto* f = std::get_if<double>(&value)) {
    proto.set_type(AttributeProto::FLOAT);
    proto.set_f(static_cast<float>(*f));
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    proto.set_type(AttributeProto::STRING);
    proto.set_s(*s);
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    proto.set_type(AttributeProto::INTS);
    for (const int64_t each : *ints) proto.add_ints(each);
  } else if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    proto.set_type(AttributeProto::FLOATS);
    for (const double each : *floats) proto.add_floats(static_cast<float>(each));
  } else if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
    proto.set_type(AttributeProto::STRINGS);
    for (const std::string& each : *strings) proto.add_strings(each);
  } else if (const auto* type = std::get_if<Type>(&value)) {
    proto.set_type(AttributeProto::TYPE_PROTO);
    FillType(*type, *proto.mutable_tp());
  } else if (const auto* tensor = std::get_if<Tensor>(&value)) {
    proto.set_type(AttributeProto::TENSOR);
    return FillTensor(*tensor, *proto.mutable_t());
  }
  return absl::OkStatus();
}

absl::Status Exporter::FillBody(const ExportNames& outer_names, const Node& node, const Graph& body,
                                GraphProto& proto) {
  ExportNames names = NamesOf(body);
  if (imported_) return FillGraph(body, names, proto);
  const size_t first = FirstCapture(node);
  const size_t captures = node.inputs.size() - first;
  if (captures > body.inputs.size()) {
    return InvalidArgument("node `{}`: its body has {} inputs, {} captures go to them", node.name,
                           body.inputs.size(), captures);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (const std::string* shared = SharedName(body.values[i])) names[i] = *shared;
  }
  Graph own = body;
  for (size_t i = 0; i < captures; ++i) {
    const ValueId inside = own.inputs[own.inputs.size() - captures + i];
    names[static_cast<size_t>(inside)] = outer_names[static_cast<size_t>(node.inputs[first + i])];
  }
  own.inputs.resize(own.inputs.size() - captures);
  return FillGraph(own, names, proto);
}

absl::Status Exporter::FillNode(const ExportNames& names, const Node& node, NodeProto& proto) {
  const bool own = node.op.starts_with("q.");
  proto.set_name(node.name);
  proto.set_op_type(own ? node.op.substr(2) : node.op);
  if (own) proto.set_domain("quench");
  if (!node.domain.empty()) proto.set_domain(node.domain);
  const auto name_of = [&](ValueId id) {
    return id == kNone ? std::string() : names[static_cast<size_t>(id)];
  };
  const size_t inputs = !imported_ && HasBody(node) ? FirstCapture(node) : node.inputs.size();
  for (size_t i = 0; i < inputs; ++i) proto.add_input(name_of(node.inputs[i]));
  for (const ValueId id : node.outputs) proto.add_output(name_of(id));
  for (const auto& [name, attribute] : node.attributes) {
    if (name == "q.captures" || (!imported_ && IsNewerAttribute(node, name, version_.opset)))
      continue;
    AttributeProto* out = proto.add_attribute();
    out->set_name(name);
    if (const GraphPtr* body = std::get_if<GraphPtr>(&attribute)) {
      out->set_type(AttributeProto::GRAPH);
      QUENCH_RETURN_IF_ERROR(FillBody(names, node, **body, *out->mutable_g()));
    } else {
      QUENCH_RETURN_IF_ERROR(FillAttribute(attribute, *out));
    }
  }
  return absl::OkStatus();
}

absl::Status Exporter::FillGraph(const Graph& graph, const ExportNames& names, GraphProto& proto) {
  const bool is_main = &graph == &graph_;
  proto.set_name(graph.name.empty() ? "graph" : graph.name);
  const auto info = [&](ValueId id, onnx::v1::ValueInfoProto& out) {
    out.set_name(names[static_cast<size_t>(id)]);
    if (graph.value(id).type.known()) FillType(graph.value(id).type, *out.mutable_type());
  };
  std::set<ValueId> interface(graph.outputs.begin(), graph.outputs.end());
  for (const ValueId id : graph.inputs) info(id, *proto.add_input());
  for (const ValueId id : graph.outputs) info(id, *proto.add_output());
  const std::vector<int> uses = graph.UseCounts();
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    const auto id = static_cast<ValueId>(i);
    if (value.constant != nullptr) {
      if (uses[i] == 0 || (!is_main && SharedName(value) != nullptr)) continue;
      QUENCH_RETURN_IF_ERROR(FillInitializer(graph, names[i], value.constant->tensor, proto));
    } else if (value.producer != kNone && value.type.known() && value.type.ranked &&
               !interface.contains(id)) {
      info(id, *proto.add_value_info());
    }
  }
  for (size_t i = 0; is_main && i < shared_.all.size(); ++i) {
    if (shared_.all[i].main != kNone) continue;
    QUENCH_RETURN_IF_ERROR(FillInitializer(graph, shared_names_[i], *shared_.all[i].tensor, proto));
  }
  for (const Node& node : graph.nodes)
    QUENCH_RETURN_IF_ERROR(FillNode(names, node, *proto.add_node()));
  return absl::OkStatus();
}

absl::Status Exporter::FillOpsets(ModelProto& model) const {
  std::map<std::string, int64_t> opsets;
  StatusCollector problems;
  ForEachGraph(graph_, [&](const Graph& graph) {
    for (const Node& node : graph.nodes) {
      const std::string domain = node.op.starts_with("q.") ? "quench" : node.domain;
      const int64_t version = imported_ ? node.version : domain.empty() ? version_.opset : 1;
      const auto [known, fresh] = opsets.emplace(domain, version);
      if (!fresh && known->second != version) {
        problems.Add(InvalidArgument(
            "node `{}` is of opset {} of domain `{}`, others are of {}: one file has one",
            node.name, version, domain.empty() ? "ai.onnx" : domain, known->second));
      }
    }
  });
  opsets.emplace("", version_.opset);
  for (const auto& [domain, version] : opsets) {
    auto* entry = model.add_opset_import();
    entry->set_domain(domain);
    entry->set_version(version);
  }
  return problems.Finish();
}

absl::Status Exporter::Run() {
  ModelProto model;
  model.set_ir_version(version_.ir_version);
  if (const auto version = graph_.metadata.find("ir_version");
      imported_ && version != graph_.metadata.end()) {
    int64_t number = 0;
    std::from_chars(version->second.data(), version->second.data() + version->second.size(),
                    number);
    // Inlined functions and initializers that are not inputs need version 4 at least.
    model.set_ir_version(std::clamp<int64_t>(number, 4, kNewestIrVersion));
  }
  model.set_producer_name("quench");
  constexpr std::string_view kModelKeys = "model.";  // metadata_props of the imported file
  for (const auto& [key, value] : graph_.metadata) {
    if (!key.starts_with(kModelKeys)) continue;
    auto* entry = model.add_metadata_props();
    entry->set_key(key.substr(kModelKeys.size()));
    entry->set_value(value);
  }
  QUENCH_RETURN_IF_ERROR(FillOpsets(model));
  const std::filesystem::path data_path = path_.string() + ".data";
  total_ = WeightBytes(graph_);
  if (total_ > kInlineLimit) {
    data_name_ = data_path.filename().string();
    QUENCH_ASSIGN_OR_RETURN(data_, AtomicFile::Create(data_path));
  }
  GraphProto graph;
  const ExportNames names = NamesOf(graph_);
  NameShared(names);
  QUENCH_RETURN_IF_ERROR(FillGraph(graph_, names, graph));
  if (data_ != nullptr) QUENCH_RETURN_IF_ERROR(data_->Commit());
  const absl::Status status = Write(model, graph);
  std::error_code ignored;
  if (!status.ok() && data_ != nullptr) std::filesystem::remove(data_path, ignored);
  return status;
}

// The bytes before the contents of a length-delimited field.
std::string FieldHead(int field, uint64_t length) {
  std::string head;
  google::protobuf::io::StringOutputStream stream(&head);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(static_cast<uint32_t>(field) << 3 | 2);  // wire type 2: length-delimited
  out.WriteVarint64(length);
  out.Trim();
  return head;
}

// `model` without its graph, then the graph: its large initializers one by one after its other
// fields, whose order is free.
absl::Status Exporter::Write(const ModelProto& model, const GraphProto& graph) {
  const std::string small = graph.SerializeAsString();
  std::vector<std::string> heads;  // of each large initializer: all but its bytes
  uint64_t graph_bytes = small.size();
  for (const Large& large : large_) {
    const size_t bytes = large.tensor->bytes().size();
    const std::string fields =
        large.header.SerializeAsString() + FieldHead(TensorProto::kRawDataFieldNumber, bytes);
    heads.push_back(FieldHead(GraphProto::kInitializerFieldNumber, fields.size() + bytes) + fields);
    graph_bytes += heads.back().size() + bytes;
  }
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path_));
  const auto append = [&](std::string_view text) {
    return file->Append(std::as_bytes(std::span(text)));
  };
  QUENCH_RETURN_IF_ERROR(append(model.SerializeAsString()));
  QUENCH_RETURN_IF_ERROR(append(FieldHead(ModelProto::kGraphFieldNumber, graph_bytes)));
  QUENCH_RETURN_IF_ERROR(append(small));
  for (size_t i = 0; i < large_.size(); ++i) {
    QUENCH_RETURN_IF_ERROR(append(heads[i]));
    QUENCH_RETURN_IF_ERROR(AppendTo(*file, *large_[i].tensor));
  }
  return file->Commit();
}

}  // namespace

absl::Status ExportOnnx(const Graph& graph, const std::filesystem::path& path,
                        const StepContext& context) {
  if (graph.stage == Stage::kImported) return Exporter(graph, path, context).Run();
  if (!passes::PartitionsOf(graph).empty())
    QUENCH_RETURN_IF_ERROR(ExportParts(graph, PartsFolder(path), context));
  QUENCH_ASSIGN_OR_RETURN(Graph plain, passes::InlinePartitions(graph));
  WriteDimsAsConstants(plain);
  return Exporter(plain, path, context).Run();
}

}  // namespace quench::importer
