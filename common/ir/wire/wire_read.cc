#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cstring>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/constants.h"
#include "common/ir/verify.h"
#include "common/ir/wire/walk.h"
#include "common/ir/wire/wire.h"
#include "common/ir/wire/wire_scan.h"
#include "quench/ir/v1/module.pb.h"

namespace quench {
namespace {

namespace pb = quench::ir::v1;

constexpr size_t kMaxParts = size_t{2} << 20;
// A body is three messages deep (attribute, graph, node), a type one.
constexpr int kMaxDepth = 4 * kMaxBodyNesting + 16;
constexpr int kMaxIndex = 1 << 30;
constexpr int kMaxFactors = 256;

class Reader {
 public:
  explicit Reader(BlobStore& store)
      : constants_(store), symbols_(std::make_shared<SymbolTable>()) {}

  absl::StatusOr<Graph> Read(const pb::Module& module);

 private:
  absl::Status ReadSymbol(const pb::Symbol& in);
  absl::StatusOr<Dim> ReadInputAxis(const pb::Symbol& in);
  absl::StatusOr<Dim> ReadPolynomial(const pb::Symbol::Polynomial& in);
  absl::StatusOr<Dim> ReadBinary(const pb::Symbol::Binary& in);
  absl::StatusOr<Dim> ReadDim(const pb::Dim& in) const;
  absl::StatusOr<std::vector<Dim>> ReadSizes(const pb::Sizes& in) const;
  absl::StatusOr<DataType> ReadElementType(int in) const;
  absl::StatusOr<Type> ReadType(const pb::Type& in, int depth) const;
  absl::StatusOr<Constant> ReadTensor(const pb::Tensor& in);
  absl::StatusOr<Tensor> ReadInline(const pb::Tensor& in, DataType dtype,
                                    std::vector<int64_t> dims);
  absl::StatusOr<Attribute> ReadAttribute(const pb::Attribute& in, int depth);
  absl::StatusOr<Node> ReadNode(const pb::Node& in, int depth);
  absl::StatusOr<Value> ReadValue(const pb::Value& in);
  absl::StatusOr<Graph> ReadGraph(const pb::Graph& in, int depth);

  ConstantReader constants_;
  std::shared_ptr<SymbolTable> symbols_;
  std::vector<Dim> dims_;  // per symbol of the message
  Stage stage_ = Stage::kCanonical;
};

absl::StatusOr<Graph> Reader::Read(const pb::Module& module) {
  if (module.format_version() != 1) {
    return InvalidArgument("module format {}, this reads format 1", module.format_version());
  }
  if (module.stage() < pb::STAGE_IMPORTED || module.stage() > pb::STAGE_QUANTIZED) {
    return InvalidArgument("the module has no known stage");
  }
  stage_ = static_cast<Stage>(module.stage() - 1);
  for (const pb::Symbol& symbol : module.symbols()) {
    const absl::Status status = ReadSymbol(symbol);
    if (!status.ok()) return Annotate(status, fmt::format("symbol {}", dims_.size()));
  }
  return ReadGraph(module.graph(), 0);
}

absl::Status Reader::ReadSymbol(const pb::Symbol& in) {
  absl::StatusOr<Dim> dim;
  switch (in.definition_case()) {
    case pb::Symbol::kInput:
      dim = ReadInputAxis(in);
      break;
    case pb::Symbol::kRuntime: {
      if (in.name().empty() || symbols_->Find(in.name()))
        return InvalidArgument("its name is empty or taken");
      std::optional<Dim> upper;
      if (in.runtime().has_upper()) {
        QUENCH_ASSIGN_OR_RETURN(upper, ReadDim(in.runtime().upper()));
      }
      dim = Dim::OfSymbol(symbols_->AddRuntime(in.name(), in.runtime().node(), upper));
      break;
    }
    case pb::Symbol::kPolynomial:
      dim = ReadPolynomial(in.polynomial());
      break;
    case pb::Symbol::kBinary:
      dim = ReadBinary(in.binary());
      break;
    case pb::Symbol::DEFINITION_NOT_SET:
      return InvalidArgument("it has no definition");
  }
  QUENCH_RETURN_IF_ERROR(dim.status());
  dims_.push_back(*dim);
  return absl::OkStatus();
}

absl::StatusOr<Dim> Reader::ReadInputAxis(const pb::Symbol& in) {
  if (in.name().empty() || symbols_->Find(in.name()))
    return InvalidArgument("its name is empty or taken");
  const int64_t max = in.has_max() ? in.max() : kUnbounded;
  if (in.min() < 0 || max < in.min() || in.multiple_of() < 0) {
    return InvalidArgument("its range {}..{} or multiple {} is not valid", in.min(), max,
                           in.multiple_of());
  }
  if (in.input().input() > kMaxIndex || in.input().axis() > kMaxIndex) {
    return InvalidArgument("it is a size of input {}, axis {}", in.input().input(),
                           in.input().axis());
  }
  const InputAxis axis{static_cast<int>(in.input().input()), static_cast<int>(in.input().axis())};
  return Dim::OfSymbol(
      symbols_->AddInput(in.name(), axis, {in.min(), max}, std::max<int64_t>(in.multiple_of(), 1)));
}

absl::StatusOr<Dim> Reader::ReadPolynomial(const pb::Symbol::Polynomial& in) {
  Polynomial polynomial;
  polynomial.constant = in.constant();
  for (const pb::Symbol::Term& term : in.terms()) {
    Monomial monomial{term.coefficient(), {}};
    if (term.factors_size() > kMaxFactors)
      return InvalidArgument("a product of more than {} sizes", kMaxFactors);
    for (uint32_t factor : term.factors()) {
      if (factor >= dims_.size())
        return InvalidArgument("it refers to symbol {}, which is not before it", factor);
      monomial.factors.push_back(static_cast<SymbolId>(factor));
    }
    polynomial.terms.push_back(std::move(monomial));
  }
  return symbols_->Combine(polynomial, [&](SymbolId id) { return dims_[static_cast<size_t>(id)]; });
}

absl::StatusOr<Dim> Reader::ReadBinary(const pb::Symbol::Binary& in) {
  if (in.operation() < pb::Symbol::OPERATION_FLOOR_DIV ||
      in.operation() > pb::Symbol::OPERATION_MAX) {
    return InvalidArgument("it has no known operation");
  }
  DimBinary binary;
  binary.op = static_cast<DimOp>(in.operation() - 1);
  QUENCH_ASSIGN_OR_RETURN(binary.lhs, ReadDim(in.lhs()));
  QUENCH_ASSIGN_OR_RETURN(binary.rhs, ReadDim(in.rhs()));
  // The operands are dims of the table already.
  return symbols_->Combine(binary, [](SymbolId id) { return Dim::OfSymbol(id); });
}

absl::StatusOr<Dim> Reader::ReadDim(const pb::Dim& in) const {
  if (in.dim_case() == pb::Dim::kValue) return Dim(in.value());
  if (in.dim_case() == pb::Dim::DIM_NOT_SET)
    return InvalidArgument("a size is neither a number nor a symbol");
  if (in.symbol() >= dims_.size())
    return InvalidArgument("a size is symbol {} of {}", in.symbol(), dims_.size());
  return dims_[in.symbol()];
}

absl::StatusOr<std::vector<Dim>> Reader::ReadSizes(const pb::Sizes& in) const {
  std::vector<Dim> dims;
  for (const pb::Dim& entry : in.dims()) {
    QUENCH_ASSIGN_OR_RETURN(const Dim dim, ReadDim(entry));
    dims.push_back(dim);
  }
  return dims;
}

absl::StatusOr<DataType> Reader::ReadElementType(int in) const {
  if (in < 0 || in >= kDataTypeCount) return InvalidArgument("element type {} is not known", in);
  return static_cast<DataType>(in);
}

absl::StatusOr<Type> Reader::ReadType(const pb::Type& in, int depth) const {
  if (depth > kMaxBodyNesting) return InvalidArgument("types nest deeper than {}", kMaxBodyNesting);
  if (in.kind() < pb::VALUE_KIND_TENSOR || in.kind() > pb::VALUE_KIND_MAP) {
    return InvalidArgument("value kind {} is not known", static_cast<int>(in.kind()));
  }
  Type type;
  type.kind = static_cast<ValueKind>(in.kind() - 1);
  QUENCH_ASSIGN_OR_RETURN(type.dtype, ReadElementType(in.element_type()));
  type.ranked = in.has_shape();
  QUENCH_ASSIGN_OR_RETURN(type.dims, ReadSizes(in.shape()));
  if (in.has_element()) {
    QUENCH_ASSIGN_OR_RETURN(Type element, ReadType(in.element(), depth + 1));
    type.element.push_back(std::move(element));
  }
  return type;
}

absl::StatusOr<Tensor> Reader::ReadInline(const pb::Tensor& in, DataType dtype,
                                          std::vector<int64_t> dims) {
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count) return InvalidArgument("the shape of a tensor is not valid");
  if (dtype == DataType::kString) {
    if (*count != in.strings_size()) {
      return InvalidArgument("a tensor has {} strings, its shape {}", in.strings_size(), *count);
    }
    return Tensor::Strings(std::move(dims), {in.strings().begin(), in.strings().end()});
  }
  const int64_t bits = DataTypeBits(dtype);
  const bool fits = bits > 0 && *count <= (INT64_MAX - 7) / bits;
  if (!fits || DataTypeBytes(dtype, *count) != static_cast<int64_t>(in.data().size())) {
    return InvalidArgument("a tensor has {} bytes, which is not what its type takes",
                           in.data().size());
  }
  Tensor tensor = Tensor::Zeros(dtype, std::move(dims));
  if (!in.data().empty()) std::memcpy(tensor.mutable_bytes(), in.data().data(), in.data().size());
  return tensor;
}

absl::StatusOr<Constant> Reader::ReadTensor(const pb::Tensor& in) {
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, ReadElementType(in.element_type()));
  std::vector<int64_t> dims(in.dims().begin(), in.dims().end());
  Constant constant;
  constant.digest = in.digest();
  if (in.location().empty()) {
    QUENCH_ASSIGN_OR_RETURN(constant.tensor, ReadInline(in, dtype, std::move(dims)));
    return constant;
  }
  if (!IsDigest(in.digest())) return InvalidArgument("a tensor in blobs comes without its digest");
  for (const pb::BlobRange& range : in.location()) {
    constant.location.push_back({range.blob(), range.offset(), range.size()});
  }
  if (std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; })) {
    return InvalidArgument("the shape of a tensor is not valid");
  }
  QUENCH_ASSIGN_OR_RETURN(
      constant.tensor,
      constants_.Read(Type::Tensor(dtype, {dims.begin(), dims.end()}), constant.location));
  return constant;
}

absl::StatusOr<Attribute> Reader::ReadAttribute(const pb::Attribute& in, int depth) {
  switch (in.value_case()) {
    case pb::Attribute::kIntValue:
      return in.int_value();
    case pb::Attribute::kFloatValue:
      return in.float_value();
    case pb::Attribute::kStringValue:
      return in.string_value();
    case pb::Attribute::kIntsValue:
      return std::vector<int64_t>(in.ints_value().values().begin(), in.ints_value().values().end());
    case pb::Attribute::kFloatsValue:
      return std::vector<double>(in.floats_value().values().begin(),
                                 in.floats_value().values().end());
    case pb::Attribute::kStringsValue:
      return std::vector<std::string>(in.strings_value().values().begin(),
                                      in.strings_value().values().end());
    case pb::Attribute::kTensorValue: {
      QUENCH_ASSIGN_OR_RETURN(Constant constant, ReadTensor(in.tensor_value()));
      return std::move(constant.tensor);
    }
    case pb::Attribute::kGraphValue: {
      if (depth == kMaxBodyNesting)
        return InvalidArgument("bodies nest deeper than {}", kMaxBodyNesting);
      QUENCH_ASSIGN_OR_RETURN(Graph body, ReadGraph(in.graph_value(), depth + 1));
      return std::make_shared<const Graph>(std::move(body));
    }
    case pb::Attribute::kTypeValue:
      return ReadType(in.type_value(), 0);
    case pb::Attribute::VALUE_NOT_SET:
      break;
  }
  return InvalidArgument("it has no value");
}

absl::StatusOr<Node> Reader::ReadNode(const pb::Node& in, int depth) {
  Node node;
  node.name = in.name();
  node.op = in.op();
  node.domain = in.domain();
  node.version = in.version();
  node.origin = in.origin();
  node.inputs.assign(in.inputs().begin(), in.inputs().end());
  node.outputs.assign(in.outputs().begin(), in.outputs().end());
  for (const pb::Attribute& entry : in.attributes()) {
    absl::StatusOr<Attribute> attribute = ReadAttribute(entry, depth);
    if (!attribute.ok()) return Annotate(attribute.status(), "attribute `" + entry.name() + "`");
    if (!node.attributes.emplace(entry.name(), *std::move(attribute)).second) {
      return InvalidArgument("attribute `{}` is given twice", entry.name());
    }
  }
  return node;
}

absl::StatusOr<Value> Reader::ReadValue(const pb::Value& in) {
  Value value;
  value.name = in.name();
  if (in.has_type()) {
    QUENCH_ASSIGN_OR_RETURN(value.type, ReadType(in.type(), 0));
  }
  if (in.has_constant()) {
    QUENCH_ASSIGN_OR_RETURN(Constant constant, ReadTensor(in.constant()));
    value.constant = std::make_shared<const Constant>(std::move(constant));
  }
  if (in.has_elements()) {
    QUENCH_ASSIGN_OR_RETURN(value.elements, ReadSizes(in.elements()));
  }
  return value;
}

absl::StatusOr<Graph> Reader::ReadGraph(const pb::Graph& in, int depth) {
  Graph graph;
  graph.name = in.name();
  graph.stage = stage_;
  graph.symbols = symbols_;
  for (const pb::Value& entry : in.values()) {
    absl::StatusOr<Value> value = ReadValue(entry);
    if (!value.ok()) return Annotate(value.status(), "value `" + entry.name() + "`");
    graph.values.push_back(*std::move(value));
  }
  for (const pb::Node& entry : in.nodes()) {
    absl::StatusOr<Node> node = ReadNode(entry, depth);
    if (!node.ok()) return Annotate(node.status(), "node `" + entry.name() + "`");
    for (ValueId output : node->outputs) {
      const bool known = output >= 0 && static_cast<size_t>(output) < graph.values.size();
      if (known) graph.value(output).producer = static_cast<NodeId>(graph.nodes.size());
    }
    graph.nodes.push_back(*std::move(node));
  }
  graph.inputs.assign(in.inputs().begin(), in.inputs().end());
  graph.outputs.assign(in.outputs().begin(), in.outputs().end());
  for (const pb::Metadata& entry : in.metadata()) graph.metadata[entry.key()] = entry.value();
  return graph;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ModuleBlobs(const std::string& bytes) {
  pb::Module module;
  if (!module.ParseFromString(bytes)) return InvalidArgument("not a serialised module");
  std::set<std::string> blobs;
  wire::ForEachMessage<pb::BlobRange>(
      module, [&](const pb::BlobRange& range, const std::string&) { blobs.insert(range.blob()); });
  return std::vector<std::string>(blobs.begin(), blobs.end());
}

absl::StatusOr<Graph> ParseModule(const std::string& bytes, BlobStore& store) {
  if (bytes.size() > kMaxModuleBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("the module has {} bytes, at most {} are read", bytes.size(), kMaxModuleBytes));
  }
  QUENCH_RETURN_IF_ERROR(wire::ScanMessage(bytes, *pb::Module::descriptor(), kMaxParts, kMaxDepth));
  google::protobuf::Arena arena;
  auto* module = google::protobuf::Arena::CreateMessage<pb::Module>(&arena);
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  input.SetRecursionLimit(kMaxDepth + 1);
  if (!module->ParseFromCodedStream(&input) || !input.ConsumedEntireMessage()) {
    return InvalidArgument("the module is not a quench.ir.v1.Module message");
  }
  absl::StatusOr<Graph> graph = Reader(store).Read(*module);
  if (!graph.ok()) return graph.status();
  QUENCH_RETURN_IF_ERROR(VerifyGraph(*graph));
  return graph;
}

}  // namespace quench
