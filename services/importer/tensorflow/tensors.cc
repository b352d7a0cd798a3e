#include "services/importer/tensorflow/tensors.h"

#include <algorithm>
#include <cstring>

#include "common/base/status.h"

namespace quench::importer {
namespace {

constexpr int kReference = 100;  // DT_X_REF is DT_X and this

// `count` elements of `values`, of which the last stands for all that are missing.
template <typename T, typename Values>
absl::StatusOr<Tensor> Repeated(const TensorHeader& header, const Values& values) {
  const auto given = static_cast<int64_t>(values.size());
  if (given > header.count)
    return InvalidArgument("has {} elements, its shape has {}", given, header.count);
  if (given != header.count && header.bytes > kMaxRepeatedBytes)
    return absl::ResourceExhaustedError(fmt::format(
        "repeats an element to {} bytes, at most {} are read", header.bytes, kMaxRepeatedBytes));
  std::vector<T> elements(static_cast<size_t>(header.count));
  const T last = given == 0 ? T{} : static_cast<T>(values.Get(static_cast<int>(given) - 1));
  for (size_t i = 0; i < elements.size(); ++i)
    elements[i] =
        static_cast<int64_t>(i) < given ? static_cast<T>(values.Get(static_cast<int>(i))) : last;
  return Tensor::Of(header.dtype, header.dims, elements);
}

absl::StatusOr<Tensor> StringsOf(const tf::TensorProto& proto, const TensorHeader& header) {
  const auto given = static_cast<int64_t>(proto.string_val_size());
  constexpr int64_t kMaxStrings = 1 << 20;
  if (given > header.count || header.count > kMaxStrings)
    return InvalidArgument("has {} strings, its shape has {}", given, header.count);
  std::vector<std::string> values(proto.string_val().begin(), proto.string_val().end());
  values.resize(static_cast<size_t>(header.count), given == 0 ? "" : values.back());
  return Tensor::Strings(header.dims, std::move(values));
}

absl::StatusOr<Tensor> ValuesOf(const tf::TensorProto& proto, const TensorHeader& header) {
  switch (header.dtype) {
    case DataType::kF32:
      return Repeated<float>(header, proto.float_val());
    case DataType::kF64:
      return Repeated<double>(header, proto.double_val());
    case DataType::kF16:
    case DataType::kBF16:
      return Repeated<uint16_t>(header, proto.half_val());
    case DataType::kI64:
      return Repeated<int64_t>(header, proto.int64_val());
    case DataType::kU64:
      return Repeated<uint64_t>(header, proto.uint64_val());
    case DataType::kU32:
      return Repeated<uint32_t>(header, proto.uint32_val());
    case DataType::kI32:
      return Repeated<int32_t>(header, proto.int_val());
    case DataType::kI16:
      return Repeated<int16_t>(header, proto.int_val());
    case DataType::kU16:
      return Repeated<uint16_t>(header, proto.int_val());
    case DataType::kI8:
      return Repeated<int8_t>(header, proto.int_val());
    case DataType::kU8:
      return Repeated<uint8_t>(header, proto.int_val());
    case DataType::kBool:
      return Repeated<uint8_t>(header, proto.bool_val());
    case DataType::kString:
      return StringsOf(proto, header);
    default:
      return Unsupported("is of type {}", DataTypeName(header.dtype));
  }
}

// Lists of numbers that the scanner left in the file, as the message that they were.
absl::StatusOr<tf::TensorProto> WithStoredLists(const tf::TensorProto& proto,
                                                std::span<const std::byte> file) {
  tf::TensorProto whole = proto;
  whole.clear_stored();
  for (const tf::TensorProto::StoredChunk& chunk : proto.stored()) {
    std::string message;
    for (uint64_t value : {(uint64_t{chunk.field()} << 3) | 2, chunk.size()}) {
      for (; value >= 0x80; value >>= 7) message.push_back(static_cast<char>(value | 0x80));
      message.push_back(static_cast<char>(value));
    }
    message.append(reinterpret_cast<const char*>(file.data()) + chunk.offset(), chunk.size());
    if (!whole.MergeFromString(message)) return InvalidArgument("its contents do not parse");
  }
  return whole;
}

}  // namespace

absl::StatusOr<DataType> DataTypeOf(tf::ElementType type) {
  const int number = type > kReference ? type - kReference : type;
  switch (number) {
    case tf::DT_FLOAT:
      return DataType::kF32;
    case tf::DT_DOUBLE:
      return DataType::kF64;
    case tf::DT_HALF:
      return DataType::kF16;
    case tf::DT_BFLOAT16:
      return DataType::kBF16;
    case tf::DT_INT64:
      return DataType::kI64;
    case tf::DT_UINT64:
      return DataType::kU64;
    case tf::DT_INT32:
    case tf::DT_QINT32:
      return DataType::kI32;
    case tf::DT_UINT32:
      return DataType::kU32;
    case tf::DT_INT16:
    case tf::DT_QINT16:
      return DataType::kI16;
    case tf::DT_UINT16:
    case tf::DT_QUINT16:
      return DataType::kU16;
    case tf::DT_INT8:
    case tf::DT_QINT8:
      return DataType::kI8;
    case tf::DT_UINT8:
    case tf::DT_QUINT8:
      return DataType::kU8;
    case tf::DT_BOOL:
      return DataType::kBool;
    case tf::DT_STRING:
      return DataType::kString;
    default:
      return Unsupported("is of type {}, which is not read", tf::ElementType_Name(type));
  }
}

std::optional<std::vector<int64_t>> DimsOf(const tf::TensorShapeProto& shape) {
  if (shape.unknown_rank()) return std::nullopt;
  std::vector<int64_t> dims;
  for (const auto& dim : shape.dim()) dims.push_back(std::max<int64_t>(dim.size(), -1));
  return dims;
}

absl::StatusOr<TensorHeader> HeaderOf(tf::ElementType type, const tf::TensorShapeProto& shape) {
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, DataTypeOf(type));
  const std::optional<std::vector<int64_t>> dims = DimsOf(shape);
  if (!dims) return InvalidArgument("has contents, but no rank");
  return HeaderOf(dtype, *dims);
}

absl::StatusOr<std::shared_ptr<const Constant>> AddTensor(const tf::TensorProto& proto,
                                                          std::span<const std::byte> file,
                                                          const std::string& name,
                                                          WeightWriter& weights) {
  QUENCH_ASSIGN_OR_RETURN(const TensorHeader header, HeaderOf(proto.dtype(), proto.tensor_shape()));
  std::span<const std::byte> content(
      reinterpret_cast<const std::byte*>(proto.tensor_content().data()),
      proto.tensor_content().size());
  bool lists = false;
  for (const tf::TensorProto::StoredChunk& chunk : proto.stored()) {
    if (chunk.offset() > file.size() || chunk.size() > file.size() - chunk.offset())
      return InvalidArgument("its contents lie outside of the file");
    if (chunk.field() == tf::TensorProto::kTensorContentFieldNumber) {
      content = file.subspan(chunk.offset(), chunk.size());
    } else {
      lists = true;
    }
  }
  if (content.empty() || header.dtype == DataType::kString) {
    if (!lists) {
      QUENCH_ASSIGN_OR_RETURN(const Tensor tensor, ValuesOf(proto, header));
      return weights.Add(name, tensor);
    }
    QUENCH_ASSIGN_OR_RETURN(const tf::TensorProto whole, WithStoredLists(proto, file));
    QUENCH_ASSIGN_OR_RETURN(const Tensor tensor, ValuesOf(whole, header));
    return weights.Add(name, tensor);
  }
  if (static_cast<int64_t>(content.size()) != header.bytes)
    return InvalidArgument("has {} bytes, its shape has {}", content.size(), header.bytes);
  if (header.bytes >= kBlobTensorBytes)
    return weights.AddLarge(name, header, [&](const ByteSink& sink) { return sink(content); });
  Tensor tensor = Tensor::Zeros(header.dtype, header.dims);
  if (!content.empty()) std::memcpy(tensor.mutable_bytes(), content.data(), content.size());
  return weights.Add(name, tensor);
}

}  // namespace quench::importer
