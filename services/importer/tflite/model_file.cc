#include "services/importer/tflite/model_file.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/importer/graph/names.h"
#include "services/importer/tflite/sparse.h"

namespace quench::importer {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr size_t kIdentifierOffset = 4;
constexpr std::string_view kIdentifier = "TFL3";
// Offsets within a FlatBuffer have 31 bits; data of larger files lies behind that.
constexpr size_t kMaxFlatBuffer = (size_t{1} << 31) - 2;
// Tables that a file may have: 250,000 operators and their tensors, several tables each.
constexpr uint32_t kMaxTables = 4'000'000;

// Finds every reference of a model that points at nothing.
class Checker {
 public:
  Checker(const tflite::Model& model, std::span<const std::byte> file)
      : model_(model), file_(file) {}

  absl::Status Check() {
    if (model_.version() != 3)
      problems_.Add(Unsupported("schema version {}, version 3 is read", model_.version()));
    if (SizeOf(model_.subgraphs()) == 0) problems_.Add(InvalidArgument("has no subgraph"));
    for (uint32_t i = 0; i < SizeOf(model_.buffers()); ++i) CheckBuffer(i);
    for (uint32_t i = 0; i < SizeOf(model_.subgraphs()); ++i) CheckSubgraph(i);
    for (uint32_t i = 0; i < SizeOf(model_.signature_defs()); ++i) CheckSignature(i);
    return problems_.Finish();
  }

 private:
  void CheckBuffer(uint32_t index) {
    const tflite::Buffer& buffer = *model_.buffers()->Get(index);
    if (buffer.offset() <= 1) return;  // 0 and 1: the bytes are inline
    if (buffer.size() > file_.size() || buffer.offset() > file_.size() - buffer.size()) {
      problems_.Add(InvalidArgument("buffer {} has {} bytes from offset {}, the file has {} bytes",
                                    index, buffer.size(), buffer.offset(), file_.size()));
    }
  }

  void CheckTensors(const std::string& where, const flatbuffers::Vector<int32_t>* list,
                    uint32_t tensors, bool optional) {
    for (uint32_t i = 0; i < SizeOf(list); ++i) {
      const int32_t index = list->Get(i);
      if (index == -1 && optional) continue;
      if (index < 0 || static_cast<uint32_t>(index) >= tensors)
        problems_.Add(
            InvalidArgument("{} {} is tensor {}, the subgraph has {}", where, i, index, tensors));
    }
  }

  void CheckSubgraph(uint32_t number) {
    const tflite::SubGraph& graph = *model_.subgraphs()->Get(number);
    const std::string name = fmt::format("subgraph {}", number);
    const uint32_t tensors = SizeOf(graph.tensors());
    for (uint32_t i = 0; i < tensors; ++i) {
      const uint32_t buffer = graph.tensors()->Get(i)->buffer();
      if (buffer >= SizeOf(model_.buffers()) && buffer != 0)
        problems_.Add(InvalidArgument("{}: tensor {} lies in buffer {}, the file has {}", name, i,
                                      buffer, SizeOf(model_.buffers())));
    }
    CheckTensors(name + ": input", graph.inputs(), tensors, false);
    CheckTensors(name + ": output", graph.outputs(), tensors, false);
    for (uint32_t i = 0; i < SizeOf(graph.operators()); ++i) {
      const tflite::Operator& op = *graph.operators()->Get(i);
      const std::string where = fmt::format("{}, operator {}", name, i);
      if (op.opcode_index() >= SizeOf(model_.operator_codes()))
        problems_.Add(InvalidArgument("{}: has operator code {}, the file has {}", where,
                                      op.opcode_index(), SizeOf(model_.operator_codes())));
      CheckTensors(where + ": input", op.inputs(), tensors, true);
      CheckTensors(where + ": output", op.outputs(), tensors, true);
      CheckSubgraphsOf(where, op);
    }
  }

  void CheckSubgraphsOf(const std::string& where, const tflite::Operator& op) {
    for (const int64_t index : SubgraphsOf(op)) {
      if (index < 0 || index >= int64_t{SizeOf(model_.subgraphs())})
        problems_.Add(InvalidArgument("{}: calls subgraph {}, the file has {}", where, index,
                                      SizeOf(model_.subgraphs())));
    }
  }

  void CheckSignature(uint32_t number) {
    const tflite::SignatureDef& signature = *model_.signature_defs()->Get(number);
    const std::string name = fmt::format("signature {}", number);
    if (signature.subgraph_index() >= SizeOf(model_.subgraphs())) {
      problems_.Add(InvalidArgument("{}: is of subgraph {}, the file has {}", name,
                                    signature.subgraph_index(), SizeOf(model_.subgraphs())));
      return;
    }
    const uint32_t tensors = SizeOf(model_.subgraphs()->Get(signature.subgraph_index())->tensors());
    for (const auto* list : {signature.inputs(), signature.outputs()}) {
      for (uint32_t i = 0; i < SizeOf(list); ++i) {
        if (list->Get(i)->tensor_index() >= tensors)
          problems_.Add(InvalidArgument("{}: names tensor {}, the subgraph has {}", name,
                                        list->Get(i)->tensor_index(), tensors));
      }
    }
  }

  const tflite::Model& model_;
  std::span<const std::byte> file_;
  StatusCollector problems_;
};

// The code of a builtin operator; old files have it in a byte.
tflite::BuiltinOperator BuiltinOf(const tflite::OperatorCode& code) {
  return std::max(code.builtin_code(),
                  static_cast<tflite::BuiltinOperator>(code.deprecated_builtin_code()));
}

const tflite::OperatorCode& CodeOf(const tflite::Model& model, const tflite::Operator& op) {
  return *model.operator_codes()->Get(op.opcode_index());
}

// The numbers of a type that may be a zero point.
std::pair<int64_t, int64_t> RangeOf(tflite::TensorType type) {
  switch (type) {
    case tflite::TensorType_INT4:
      return {-8, 7};
    case tflite::TensorType_INT8:
      return {-128, 127};
    case tflite::TensorType_UINT8:
      return {0, 255};
    case tflite::TensorType_INT16:
      return {-32768, 32767};
    case tflite::TensorType_UINT16:
      return {0, 65535};
    default:
      return {INT32_MIN, INT32_MAX};
  }
}

// The bytes of a tensor, in the file; empty for a tensor of the run.
std::span<const std::byte> BytesOf(const tflite::Model& model, const tflite::Tensor& tensor,
                                   std::span<const std::byte> file) {
  if (tensor.buffer() == 0 || tensor.buffer() >= SizeOf(model.buffers())) return {};
  const tflite::Buffer& buffer = *model.buffers()->Get(tensor.buffer());
  if (buffer.offset() > 1) return file.subspan(buffer.offset(), buffer.size());
  if (SizeOf(buffer.data()) == 0) return {};
  return std::as_bytes(std::span(buffer.data()->data(), buffer.data()->size()));
}

}  // namespace

bool LooksLikeTflite(std::span<const std::byte> bytes) {
  if (bytes.size() < kIdentifierOffset + kIdentifier.size()) return false;
  const auto* text = reinterpret_cast<const char*>(bytes.data() + kIdentifierOffset);
  return std::string_view(text, kIdentifier.size()) == kIdentifier;
}

absl::StatusOr<TfliteFile> OpenTfliteFile(const std::filesystem::path& path) {
  TfliteFile file;
  QUENCH_ASSIGN_OR_RETURN(file.mapping, FileMapping::Open(path));
  const std::span<const std::byte> bytes = file.mapping->bytes();
  if (!LooksLikeTflite(bytes)) {
    return InvalidArgument("not a TensorFlow Lite model: `{}` is missing at offset {}", kIdentifier,
                           kIdentifierOffset);
  }
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()),
                                 std::min(bytes.size(), kMaxFlatBuffer), 64, kMaxTables);
  if (!tflite::VerifyModelBuffer(verifier)) {
    return InvalidArgument(
        "not a TensorFlow Lite model: its {} bytes are damaged or cut short (the FlatBuffer's "
        "tables point outside)",
        bytes.size());
  }
  file.model = tflite::GetModel(bytes.data());
  QUENCH_RETURN_IF_ERROR(Checker(*file.model, bytes).Check());
  return file;
}

std::string OperatorName(const tflite::Model& model, const tflite::Operator& op) {
  const tflite::OperatorCode& code = CodeOf(model, op);
  const tflite::BuiltinOperator builtin = BuiltinOf(code);
  if (builtin == tflite::BuiltinOperator_CUSTOM)
    return code.custom_code() == nullptr ? "custom" : Printable(code.custom_code()->str());
  const char* name = tflite::EnumNameBuiltinOperator(builtin);
  return name == nullptr || *name == '\0' ? fmt::format("builtin_{}", static_cast<int>(builtin))
                                          : name;
}

std::string_view OperatorDomain(const tflite::Model& model, const tflite::Operator& op) {
  return BuiltinOf(CodeOf(model, op)) == tflite::BuiltinOperator_CUSTOM ? "tflite.custom"
                                                                        : "tflite";
}

int OperatorVersion(const tflite::Model& model, const tflite::Operator& op) {
  return std::max(CodeOf(model, op).version(), 0);
}

std::vector<int64_t> SubgraphsOf(const tflite::Operator& op) {
  std::vector<int64_t> called;
  if (const auto* options = op.builtin_options_as_IfOptions()) {
    called = {options->then_subgraph_index(), options->else_subgraph_index()};
  } else if (const auto* loop = op.builtin_options_as_WhileOptions()) {
    called = {loop->cond_subgraph_index(), loop->body_subgraph_index()};
  } else if (const auto* once = op.builtin_options_as_CallOnceOptions()) {
    called = {once->init_subgraph_index()};
  } else if (const auto* call = op.builtin_options_as_CallOptions()) {
    called = {static_cast<int64_t>(call->subgraph())};
  } else if (const auto* composite = op.builtin_options_2_as_StableHLOCompositeOptions()) {
    called = {composite->decomposition_subgraph_index()};
  }
  return called;
}

absl::StatusOr<DataType> DataTypeOf(tflite::TensorType type) {
  switch (type) {
    case tflite::TensorType_FLOAT32:
      return DataType::kF32;
    case tflite::TensorType_FLOAT16:
      return DataType::kF16;
    case tflite::TensorType_BFLOAT16:
      return DataType::kBF16;
    case tflite::TensorType_FLOAT64:
      return DataType::kF64;
    case tflite::TensorType_INT64:
      return DataType::kI64;
    case tflite::TensorType_INT32:
      return DataType::kI32;
    case tflite::TensorType_INT16:
      return DataType::kI16;
    case tflite::TensorType_INT8:
      return DataType::kI8;
    case tflite::TensorType_INT4:
      return DataType::kI4;
    case tflite::TensorType_UINT64:
      return DataType::kU64;
    case tflite::TensorType_UINT32:
      return DataType::kU32;
    case tflite::TensorType_UINT16:
      return DataType::kU16;
    case tflite::TensorType_UINT8:
      return DataType::kU8;
    case tflite::TensorType_BOOL:
      return DataType::kBool;
    case tflite::TensorType_COMPLEX64:
      return DataType::kC64;
    case tflite::TensorType_COMPLEX128:
      return DataType::kC128;
    default:
      break;
  }
  const char* name = tflite::EnumNameTensorType(type);
  return Unsupported("is of type {}", name == nullptr || *name == '\0'
                                          ? std::to_string(static_cast<int>(type))
                                          : std::string(name));
}

bool IsConstant(const tflite::Model& model, const tflite::Tensor& tensor) {
  if (tensor.buffer() == 0 || tensor.buffer() >= SizeOf(model.buffers()) || tensor.is_variable())
    return false;
  const tflite::Buffer& buffer = *model.buffers()->Get(tensor.buffer());
  return buffer.offset() > 1 ? buffer.size() > 0 : SizeOf(buffer.data()) > 0;
}

std::vector<int64_t> DeclaredDims(const tflite::Tensor& tensor) {
  const auto* dims =
      SizeOf(tensor.shape_signature()) > 0 ? tensor.shape_signature() : tensor.shape();
  return dims == nullptr ? std::vector<int64_t>()
                         : std::vector<int64_t>(dims->begin(), dims->end());
}

absl::StatusOr<std::shared_ptr<const Constant>> AddConstant(const TfliteFile& file,
                                                            const tflite::Tensor& tensor,
                                                            WeightWriter& weights) {
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, DataTypeOf(tensor.type()));
  std::vector<int64_t> dims;
  if (tensor.shape() != nullptr) dims.assign(tensor.shape()->begin(), tensor.shape()->end());
  QUENCH_ASSIGN_OR_RETURN(const TensorHeader header, HeaderOf(dtype, dims));
  const std::span<const std::byte> bytes = BytesOf(*file.model, tensor, file.mapping->bytes());
  const std::string name = tensor.name() == nullptr ? "" : Printable(tensor.name()->str());
  if (tensor.sparsity() != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(const Tensor dense, MakeDense(*tensor.sparsity(), header, bytes));
    return weights.Add(name, dense);
  }
  if (static_cast<int64_t>(bytes.size()) != header.bytes) {
    return InvalidArgument("has {} bytes of data, {} of [{}] takes {}", bytes.size(),
                           DataTypeName(dtype), fmt::join(dims, ", "), header.bytes);
  }
  if (header.bytes >= kBlobTensorBytes && dtype != DataType::kBool) {
    return weights.AddLarge(name, header, [&](const ByteSink& sink) -> absl::Status {
      for (size_t at = 0; at < bytes.size(); at += kPiece)
        QUENCH_RETURN_IF_ERROR(sink(bytes.subspan(at, std::min(kPiece, bytes.size() - at))));
      return absl::OkStatus();
    });
  }
  Tensor copy = Tensor::Zeros(dtype, header.dims);
  std::transform(bytes.begin(), bytes.end(), copy.mutable_bytes(), [&](std::byte byte) {
    return dtype == DataType::kBool && byte != std::byte{0} ? std::byte{1} : byte;
  });
  return weights.Add(name, copy);
}

namespace {

// The format's verifier looks at the alignment of tables, not at that of elements.
int64_t ElementAt(const flatbuffers::Vector<int64_t>& vector, uint32_t index) {
  int64_t value = 0;
  std::memcpy(&value, vector.Data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

absl::StatusOr<TensorScale> ScaleOf(const tflite::Tensor& tensor) {
  TensorScale result;
  const tflite::QuantizationParameters* quantization = tensor.quantization();
  // Other types are what they are, whatever a converter has left beside them.
  constexpr tflite::TensorType kSteps[] = {tflite::TensorType_INT4,   tflite::TensorType_INT8,
                                           tflite::TensorType_UINT8,  tflite::TensorType_INT16,
                                           tflite::TensorType_UINT16, tflite::TensorType_INT32,
                                           tflite::TensorType_INT64};
  const bool integer = std::ranges::find(kSteps, tensor.type()) != std::end(kSteps);
  if (quantization != nullptr && integer &&
      quantization->details_type() != tflite::QuantizationDetails_NONE)
    return Unsupported("is quantized in blocks");
  if (quantization == nullptr || !integer || SizeOf(quantization->scale()) == 0) return result;
  const auto& scale = *quantization->scale();
  result.scale.assign(scale.begin(), scale.end());
  for (const double value : result.scale) {
    if (!(value > 0) || value > 3.5e38)
      return InvalidArgument("has the scale {}, which is not a positive number", value);
  }
  const uint32_t zeros = SizeOf(quantization->zero_point());
  if (zeros > 1 && zeros != scale.size())
    return InvalidArgument("has {} scales and {} zero points", scale.size(), zeros);
  const auto [low, high] = RangeOf(tensor.type());
  for (uint32_t i = 0; i < scale.size(); ++i) {
    result.zero.push_back(zeros == 0 ? 0
                                     : ElementAt(*quantization->zero_point(), zeros == 1 ? 0 : i));
    if (result.zero.back() < low || result.zero.back() > high)
      return InvalidArgument("has the zero point {}, its type has {} to {}", result.zero.back(),
                             low, high);
  }
  if (scale.size() == 1) return result;
  result.axis = quantization->quantized_dimension();
  const auto rank = static_cast<int64_t>(SizeOf(tensor.shape()));
  if (rank == 1) result.axis = 0;  // converters give a bias the axis of its weights
  std::vector<int32_t> shape;
  if (tensor.shape() != nullptr) shape.assign(tensor.shape()->begin(), tensor.shape()->end());
  if (result.axis < 0 || result.axis >= rank ||
      shape[static_cast<size_t>(result.axis)] != static_cast<int32_t>(scale.size()))
    return InvalidArgument("has {} scales along axis {}, its shape is [{}]", scale.size(),
                           result.axis, fmt::join(shape, ", "));
  return result;
}

}  // namespace quench::importer
