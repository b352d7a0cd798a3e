// Graph -> ONNX file. An imported graph goes out as it came in, renamed nodes included; a canonical
// one at the newest opset, operators of Quench's own in domain `quench`, captures of bodies by name
// again.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <set>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/importer/importer.h"
#include "services/importer/onnx/model_file.h"
#include "services/importer/onnx/names.h"
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

// A file that appears whole or not at all, written piece by piece.
class StreamedFile {
 public:
  static absl::StatusOr<std::unique_ptr<StreamedFile>> Create(const std::filesystem::path& path) {
    std::string temporary = path.string() + ".XXXXXX";
    const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "create", path);
    return std::unique_ptr<StreamedFile>(new StreamedFile(fd, path, temporary));
  }
  ~StreamedFile() {
    ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  StreamedFile(const StreamedFile&) = delete;
  StreamedFile& operator=(const StreamedFile&) = delete;

  uint64_t size() const { return size_; }
  absl::Status Append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return ErrnoStatus(errno, "write", path_);
      bytes = bytes.subspan(static_cast<size_t>(written));
      size_ += static_cast<uint64_t>(written);
    }
    return absl::OkStatus();
  }
  absl::Status Commit() {
    ::fchmod(fd_, 0644);
    if (::fsync(fd_) != 0) return ErrnoStatus(errno, "flush", path_);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
      return ErrnoStatus(errno, "rename to", path_);
    temporary_.clear();
    return absl::OkStatus();
  }

 private:
  StreamedFile(int fd, std::filesystem::path path, std::string temporary)
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}
  int fd_;
  std::filesystem::path path_;
  std::string temporary_;
  uint64_t size_ = 0;
};

class Exporter {
 public:
  Exporter(const Graph& graph, std::filesystem::path path, const StepContext& context)
      : graph_(graph),
        path_(std::move(path)),
        context_(context),
        imported_(graph.stage == Stage::kImported) {}

  absl::Status Run();

 private:
  using ExportNames = std::vector<std::string>;  // per value

  absl::Status FillGraph(const Graph& graph, const ExportNames& names, GraphProto& proto);
  absl::Status FillNode(const ExportNames& names, const Node& node, NodeProto& proto);
  absl::Status FillAttribute(const Attribute& value, AttributeProto& proto);
  absl::Status FillBody(const ExportNames& outer_names, const Node& node, const Graph& body,
                        GraphProto& proto);
  absl::Status FillTensor(const Tensor& tensor, TensorProto& proto);
  void FillType(const Type& type, TypeProto& proto) const;
  ExportNames NamesOf(const Graph& graph);
  absl::Status FillOpsets(ModelProto& model) const;

  const Graph& graph_;
  const std::filesystem::path path_;
  const StepContext& context_;
  const bool imported_;
  NameSet taken_;
  std::unique_ptr<StreamedFile> data_;
  std::string data_name_;
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

// Names in the file. Those of an imported graph are the model's; ONNX wants those of canonical
// bodies to differ from everything outside.
Exporter::ExportNames Exporter::NamesOf(const Graph& graph) {
  ExportNames names;
  for (const Value& value : graph.values)
    names.push_back(imported_ ? value.name : taken_.Take(value.name));
  return names;
}

absl::Status Exporter::FillTensor(const Tensor& tensor, TensorProto& proto) {
  QUENCH_RETURN_IF_ERROR(context_.Check());
  if (data_ == nullptr || tensor.bytes().size() < kExternalBytes) {
    FillTensorProto(tensor, proto);
    return absl::OkStatus();
  }
  static constexpr std::byte kZeros[64] = {};
  QUENCH_RETURN_IF_ERROR(data_->Append(std::span(kZeros).first((64 - data_->size() % 64) % 64)));
  proto.set_data_type(static_cast<int>(tensor.dtype()));
  for (const int64_t dim : tensor.dims()) proto.add_dims(dim);
  proto.set_data_location(TensorProto::EXTERNAL);
  const auto entry = [&](const char* key, std::string value) {
    auto* pair = proto.add_external_data();
    pair->set_key(key);
    pair->set_value(std::move(value));
  };
  entry("location", data_name_);
  entry("offset", std::to_string(data_->size()));
  entry("length", std::to_string(tensor.bytes().size()));
  return data_->Append(tensor.bytes());
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
    if (name == "q.captures") continue;
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
      if (uses[i] == 0) continue;
      TensorProto* tensor = proto.add_initializer();
      tensor->set_name(names[i]);
      QUENCH_RETURN_IF_ERROR(FillTensor(value.constant->tensor, *tensor));
    } else if (value.producer != kNone && value.type.known() && value.type.ranked &&
               !interface.contains(id)) {
      info(id, *proto.add_value_info());
    }
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
      const int64_t version = imported_ ? node.version : domain.empty() ? kNewestOpset : 1;
      const auto [known, fresh] = opsets.emplace(domain, version);
      if (!fresh && known->second != version) {
        problems.Add(InvalidArgument(
            "node `{}` is of opset {} of domain `{}`, others are of {}: one file has one",
            node.name, version, domain.empty() ? "ai.onnx" : domain, known->second));
      }
    }
  });
  opsets.emplace("", kNewestOpset);
  for (const auto& [domain, version] : opsets) {
    auto* entry = model.add_opset_import();
    entry->set_domain(domain);
    entry->set_version(version);
  }
  return problems.Finish();
}

absl::Status Exporter::Run() {
  if (graph_.stage != Stage::kImported && graph_.stage != Stage::kCanonical) {
    return InvalidArgument("a graph at stage `{}` does not export, `imported` and `canonical` do",
                           StageName(graph_.stage));
  }
  ModelProto model;
  model.set_ir_version(kNewestIrVersion);
  if (const auto version = graph_.metadata.find("ir_version");
      imported_ && version != graph_.metadata.end()) {
    int64_t number = 0;
    std::from_chars(version->second.data(), version->second.data() + version->second.size(),
                    number);
    // Inlined functions and initializers that are no inputs need version 4 at least.
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
  if (WeightBytes(graph_) > kInlineLimit) {
    data_name_ = data_path.filename().string();
    QUENCH_ASSIGN_OR_RETURN(data_, StreamedFile::Create(data_path));
  }
  QUENCH_RETURN_IF_ERROR(FillGraph(graph_, NamesOf(graph_), *model.mutable_graph()));
  if (data_ != nullptr) QUENCH_RETURN_IF_ERROR(data_->Commit());
  const absl::Status status = WriteFileAtomically(path_, model.SerializeAsString());
  if (!status.ok() && data_ != nullptr) ::unlink(data_path.c_str());
  return status;
}

}  // namespace

absl::Status ExportOnnx(const Graph& graph, const std::filesystem::path& path,
                        const StepContext& context) {
  return Exporter(graph, path, context).Run();
}

}  // namespace quench::importer
