#include "services/importer/onnx/tensor_data.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/wire/walk.h"
#include "services/importer/graph/names.h"

namespace quench::importer {
namespace {

using onnx::v1::TensorProto;

constexpr size_t kPiece = 1 << 20;
constexpr int64_t kMaxDenseBytes = int64_t{256} << 20;

// Data field in which elements of a type lie when they are not raw.
int DataFieldOf(DataType type) {
  switch (type) {
    case DataType::kF32:
    case DataType::kC64:
      return TensorProto::kFloatDataFieldNumber;
    case DataType::kF64:
    case DataType::kC128:
      return TensorProto::kDoubleDataFieldNumber;
    case DataType::kI64:
      return TensorProto::kInt64DataFieldNumber;
    case DataType::kU32:
    case DataType::kU64:
      return TensorProto::kUint64DataFieldNumber;
    default:
      return TensorProto::kInt32DataFieldNumber;
  }
}

// Bytes that one number of the data field becomes: numbers of sub-byte types hold a packed byte
// each.
int UnitBytes(DataType type) {
  if (type == DataType::kC64) return 4;
  if (type == DataType::kC128) return 8;
  return std::max(1, DataTypeBits(type) / 8);
}

int64_t InlineNumbers(const TensorProto& proto, int field) {
  switch (field) {
    case TensorProto::kFloatDataFieldNumber:
      return proto.float_data_size();
    case TensorProto::kDoubleDataFieldNumber:
      return proto.double_data_size();
    case TensorProto::kInt64DataFieldNumber:
      return proto.int64_data_size();
    case TensorProto::kUint64DataFieldNumber:
      return proto.uint64_data_size();
    default:
      return proto.int32_data_size();
  }
}

absl::Status SizeError(const TensorHeader& header, int64_t found, const char* unit, int64_t want) {
  return InvalidArgument("has {} {} of data, {} of {} element{} takes {}", found, unit,
                         DataTypeName(header.dtype), header.count, header.count == 1 ? "" : "s",
                         want);
}

// Collects small writes into pieces and makes bools 0 or 1.
class PieceWriter {
 public:
  PieceWriter(const ByteSink& sink, bool normalise) : sink_(sink), normalise_(normalise) {}

  absl::Status Put(uint64_t value, int width) {
    if (buffer_.size() + 8 > kPiece) QUENCH_RETURN_IF_ERROR(Flush());
    const size_t at = buffer_.size();
    buffer_.resize(at + static_cast<size_t>(width));
    std::memcpy(buffer_.data() + at, &value, static_cast<size_t>(width));
    return absl::OkStatus();
  }
  absl::Status PutBytes(std::span<const std::byte> bytes) {
    QUENCH_RETURN_IF_ERROR(Flush());
    while (!bytes.empty()) {
      const std::span<const std::byte> piece = bytes.first(std::min(kPiece, bytes.size()));
      bytes = bytes.subspan(piece.size());
      if (normalise_) {
        buffer_.assign(piece.begin(), piece.end());
        QUENCH_RETURN_IF_ERROR(Flush());
      } else {
        QUENCH_RETURN_IF_ERROR(sink_(piece));
      }
    }
    return absl::OkStatus();
  }
  absl::Status Flush() {
    if (buffer_.empty()) return absl::OkStatus();
    if (normalise_) {
      for (std::byte& byte : buffer_) byte = byte == std::byte{0} ? std::byte{0} : std::byte{1};
    }
    QUENCH_RETURN_IF_ERROR(sink_(buffer_));
    buffer_.clear();
    return absl::OkStatus();
  }

 private:
  const ByteSink& sink_;
  bool normalise_;
  std::vector<std::byte> buffer_;
};

absl::StatusOr<uint64_t> ParseNumber(const std::string& key, const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return InvalidArgument("external data has {} `{}`, expected a non-negative number", key, text);
  }
  return value;
}

struct ExternalRange {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

absl::StatusOr<ExternalRange> ExternalRangeOf(const TensorProto& proto) {
  ExternalRange range;
  for (const onnx::v1::StringStringEntryProto& entry : proto.external_data()) {
    if (entry.key() == "location") range.location = entry.value();
    if (entry.key() == "offset") {
      QUENCH_ASSIGN_OR_RETURN(range.offset, ParseNumber("offset", entry.value()));
    }
    if (entry.key() == "length") {
      QUENCH_ASSIGN_OR_RETURN(const uint64_t length, ParseNumber("length", entry.value()));
      range.length = length;
    }
  }
  return range;
}

absl::Status CopyExternal(const TensorProto& proto, const TensorHeader& header,
                          const TensorSources& sources, PieceWriter& writer) {
  if (sources.external == nullptr)
    return InvalidArgument("has external data, which a single file may not");
  QUENCH_ASSIGN_OR_RETURN(const ExternalRange range, ExternalRangeOf(proto));
  QUENCH_ASSIGN_OR_RETURN(const ExternalFiles::File file, sources.external->Open(range.location));
  const uint64_t want = static_cast<uint64_t>(header.bytes);
  if (range.length && *range.length != want) {
    return SizeError(header, static_cast<int64_t>(std::min<uint64_t>(*range.length, INT64_MAX)),
                     "bytes", header.bytes);
  }
  if (range.offset > file.size || want > file.size - range.offset) {
    return InvalidArgument(
        "external data at offset {} of {} bytes does not fit into `{}` of {} bytes", range.offset,
        want, range.location, file.size);
  }
  std::vector<std::byte> buffer(std::min<uint64_t>(kPiece, want));
  for (uint64_t done = 0; done < want;) {
    const size_t size = std::min<uint64_t>(buffer.size(), want - done);
    const ssize_t got =
        ::pread(file.fd, buffer.data(), size, static_cast<off_t>(range.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read external data", range.location);
    if (got == 0)
      return InvalidArgument("external data `{}` became shorter while it was read", range.location);
    QUENCH_RETURN_IF_ERROR(writer.PutBytes(std::span(buffer).first(static_cast<size_t>(got))));
    done += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

// Numbers of a packed field as they lie in the file.
absl::Status CopyPacked(std::span<const std::byte> data, const TensorHeader& header, int field,
                        int64_t numbers, PieceWriter& writer) {
  if (field == TensorProto::kFloatDataFieldNumber || field == TensorProto::kDoubleDataFieldNumber) {
    if (static_cast<int64_t>(data.size()) != header.bytes) {
      return SizeError(header, static_cast<int64_t>(data.size()), "bytes", header.bytes);
    }
    return writer.PutBytes(data);
  }
  if (numbers > static_cast<int64_t>(data.size())) {
    return SizeError(header, static_cast<int64_t>(data.size()), "packed bytes at most", numbers);
  }
  const int width = UnitBytes(header.dtype);
  size_t at = 0;
  int64_t count = 0;
  while (at < data.size()) {
    uint64_t value = 0;
    bool more = true;
    for (int shift = 0; more && shift < 70; shift += 7) {
      if (at == data.size()) return InvalidArgument("has packed data that ends inside a number");
      const auto byte = std::to_integer<uint8_t>(data[at++]);
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      more = (byte & 0x80) != 0;
    }
    if (more) return InvalidArgument("has packed data with a number of more than 10 bytes");
    if (++count > numbers) break;
    QUENCH_RETURN_IF_ERROR(writer.Put(value, width));
  }
  if (count != numbers) return SizeError(header, count, "numbers or more", numbers);
  return absl::OkStatus();
}

absl::Status CopyStored(const TensorProto& proto, const TensorHeader& header,
                        const TensorSources& sources, int64_t numbers, PieceWriter& writer) {
  const TensorProto::StoredChunk& chunk = proto.stored(0);
  QUENCH_CHECK(chunk.offset() + chunk.size() <= sources.file.size());  // the scanner's own entry
  const std::span<const std::byte> data = sources.file.subspan(chunk.offset(), chunk.size());
  const int field = static_cast<int>(chunk.field());
  if (field == TensorProto::kRawDataFieldNumber) {
    if (static_cast<int64_t>(data.size()) != header.bytes) {
      return SizeError(header, static_cast<int64_t>(data.size()), "bytes", header.bytes);
    }
    return writer.PutBytes(data);
  }
  if (field != DataFieldOf(header.dtype)) {
    return InvalidArgument("is {}, its data is in field {} rather than {}",
                           DataTypeName(header.dtype), field, DataFieldOf(header.dtype));
  }
  return CopyPacked(data, header, field, numbers, writer);
}

absl::Status CopyInline(const TensorProto& proto, const TensorHeader& header, int64_t numbers,
                        PieceWriter& writer) {
  if (proto.has_raw_data()) {
    const std::string& raw = proto.raw_data();
    if (static_cast<int64_t>(raw.size()) != header.bytes) {
      return SizeError(header, static_cast<int64_t>(raw.size()), "bytes", header.bytes);
    }
    return writer.PutBytes(std::as_bytes(std::span(raw)));
  }
  const int field = DataFieldOf(header.dtype);
  if (InlineNumbers(proto, field) != numbers) {
    return SizeError(header, InlineNumbers(proto, field), "numbers", numbers);
  }
  const int width = UnitBytes(header.dtype);
  for (int i = 0; i < static_cast<int>(numbers); ++i) {
    uint64_t bits = 0;
    switch (field) {
      case TensorProto::kFloatDataFieldNumber: {
        const float value = proto.float_data(i);
        std::memcpy(&bits, &value, sizeof value);
        break;
      }
      case TensorProto::kDoubleDataFieldNumber: {
        const double value = proto.double_data(i);
        std::memcpy(&bits, &value, sizeof value);
        break;
      }
      case TensorProto::kInt64DataFieldNumber:
        bits = static_cast<uint64_t>(proto.int64_data(i));
        break;
      case TensorProto::kUint64DataFieldNumber:
        bits = proto.uint64_data(i);
        break;
      default:
        bits = static_cast<uint64_t>(proto.int32_data(i));
        break;
    }
    QUENCH_RETURN_IF_ERROR(writer.Put(bits, width));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReadStrings(const TensorProto& proto, const TensorHeader& header) {
  if (proto.has_raw_data() || proto.stored_size() > 0 ||
      proto.data_location() == TensorProto::EXTERNAL) {
    return InvalidArgument("is a string tensor, its data can only be in `string_data`");
  }
  if (proto.string_data_size() != header.count) {
    return SizeError(header, proto.string_data_size(), "strings", header.count);
  }
  return Tensor::Strings(header.dims, {proto.string_data().begin(), proto.string_data().end()});
}

}  // namespace

std::vector<std::string> ExternalLocationsIn(const google::protobuf::Message& message) {
  std::set<std::string> found;
  wire::ForEachMessage<TensorProto>(message, [&](const TensorProto& tensor, const std::string&) {
    if (tensor.data_location() != TensorProto::EXTERNAL) return;
    for (const onnx::v1::StringStringEntryProto& entry : tensor.external_data()) {
      if (entry.key() == "location") found.insert(entry.value());
    }
  });
  return {found.begin(), found.end()};
}

absl::StatusOr<DataType> DataTypeOf(int32_t number) {
  if (number >= 0 && number < kDataTypeCount) return static_cast<DataType>(number);
  if (number == TensorProto::FLOAT6E2M3 || number == TensorProto::FLOAT6E3M2) {
    return Unsupported("data type {} (6-bit float)", number);
  }
  return InvalidArgument("data type {}, ONNX has 1 to {}", number,
                         static_cast<int>(TensorProto::FLOAT6E3M2));
}

absl::StatusOr<TensorHeader> HeaderOf(const TensorProto& proto) {
  absl::StatusOr<DataType> dtype = DataTypeOf(proto.data_type());
  if (!dtype.ok()) return Annotate(dtype.status(), "has an unknown type");
  if (*dtype == DataType::kUndefined) return InvalidArgument("has no data type");
  if (proto.has_segment()) return Unsupported("is a segment of a tensor");
  return HeaderOf(*dtype, {proto.dims().begin(), proto.dims().end()});
}

absl::Status CopyTensorData(const TensorProto& proto, const TensorHeader& header,
                            const TensorSources& sources, const ByteSink& sink) {
  QUENCH_CHECK(header.dtype != DataType::kString);
  if (header.count == 0) return absl::OkStatus();
  PieceWriter writer(sink, header.dtype == DataType::kBool);
  const int64_t numbers = header.bytes / UnitBytes(header.dtype);
  if (proto.data_location() == TensorProto::EXTERNAL) {
    QUENCH_RETURN_IF_ERROR(CopyExternal(proto, header, sources, writer));
  } else if (proto.stored_size() > 0) {
    if (proto.stored_size() > 1 || proto.has_raw_data() ||
        InlineNumbers(proto, DataFieldOf(header.dtype)) > 0) {
      return InvalidArgument("has its data in several pieces, one is read");
    }
    QUENCH_RETURN_IF_ERROR(CopyStored(proto, header, sources, numbers, writer));
  } else {
    QUENCH_RETURN_IF_ERROR(CopyInline(proto, header, numbers, writer));
  }
  return writer.Flush();
}

absl::StatusOr<Tensor> ReadTensor(const TensorProto& proto, const TensorSources& sources) {
  QUENCH_ASSIGN_OR_RETURN(const TensorHeader header, HeaderOf(proto));
  if (header.dtype == DataType::kString) return ReadStrings(proto, header);
  // Grows with what the source really has, so that a claimed size costs nothing.
  std::vector<std::byte> bytes;
  QUENCH_RETURN_IF_ERROR(
      CopyTensorData(proto, header, sources, [&](std::span<const std::byte> piece) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
        return absl::OkStatus();
      }));
  Tensor tensor = Tensor::Zeros(header.dtype, header.dims);
  if (!bytes.empty()) std::memcpy(tensor.mutable_bytes(), bytes.data(), bytes.size());
  return tensor;
}

absl::StatusOr<Tensor> ReadSparseTensor(const onnx::v1::SparseTensorProto& proto,
                                        const TensorSources& sources) {
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  QUENCH_ASSIGN_OR_RETURN(const Tensor values, ReadTensor(proto.values(), sources));
  QUENCH_ASSIGN_OR_RETURN(const Tensor indices, ReadTensor(proto.indices(), sources));
  const std::optional<int64_t> count = ElementCount(dims);
  const int width = DataTypeBits(values.dtype()) / 8;
  if (width == 0 || values.rank() != 1)
    return Unsupported("sparse values of type {}", DataTypeName(values.dtype()));
  if (!count || dims.size() > kMaxRank || *count > kMaxDenseBytes / width) {
    return absl::ResourceExhaustedError(
        fmt::format("a sparse tensor of dims [{}] takes more than {} MiB when dense",
                    fmt::join(dims, ", "), kMaxDenseBytes >> 20));
  }
  const int64_t entries = values.size();
  const bool flat = indices.rank() == 1;
  const int64_t rank = static_cast<int64_t>(dims.size());
  if (indices.dtype() != DataType::kI64 || indices.size() != entries * (flat ? 1 : rank)) {
    return InvalidArgument("sparse indices are {} of {} elements, expected i64 [{}] or [{}, {}]",
                           DataTypeName(indices.dtype()), indices.size(), entries, entries, rank);
  }
  Tensor dense = Tensor::Zeros(values.dtype(), dims);
  std::byte* out = dense.mutable_bytes();
  for (int64_t i = 0; i < entries; ++i) {
    int64_t at = 0;
    for (int64_t axis = 0; axis < (flat ? 1 : rank); ++axis) {
      const int64_t extent = flat ? *count : dims[static_cast<size_t>(axis)];
      const int64_t index = indices.IntAt(flat ? i : i * rank + axis);
      if (index < 0 || index >= extent)
        return InvalidArgument("sparse index {} is outside of [0, {})", index, extent);
      at = at * extent + index;
    }
    std::memcpy(out + at * width, values.bytes().data() + i * width, static_cast<size_t>(width));
  }
  return dense;
}

absl::StatusOr<std::shared_ptr<const Constant>> AddTensor(const TensorProto& proto,
                                                          const TensorSources& sources,
                                                          WeightWriter& weights) {
  const std::string where = fmt::format("tensor `{}`", Printable(proto.name()));
  absl::StatusOr<TensorHeader> header = HeaderOf(proto);
  if (!header.ok()) return Annotate(header.status(), where);
  if (header->dtype != DataType::kString && header->bytes >= kBlobTensorBytes) {
    absl::StatusOr<std::shared_ptr<const Constant>> constant = weights.AddLarge(
        proto.name(), *header,
        [&](const ByteSink& sink) { return CopyTensorData(proto, *header, sources, sink); });
    if (!constant.ok()) return Annotate(constant.status(), where);
    return constant;
  }
  absl::StatusOr<Tensor> tensor = ReadTensor(proto, sources);
  if (!tensor.ok()) return Annotate(tensor.status(), where);
  return std::make_shared<const Constant>(Constant{*std::move(tensor), "", {}});
}

}  // namespace quench::importer
