#include "services/importer/graph/wire_scanner.h"

#include <google/protobuf/wire_format_lite.h>

#include <cstring>
#include <iterator>

#include "common/base/status.h"

namespace quench::importer {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// Numbers from here on are Quench's own fields: the scanner writes them and never lets them in.
constexpr int kFirstOwnField = 100001;
// Lengths of messages are written before the contents are known: a varint padded to five bytes.
constexpr size_t kPaddedVarint = 5;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

// Contents of tensors are what a message that can name places in the file has beside its dims.
bool IsTensorData(const FieldDescriptor& field) {
  if (field.containing_type()->FindFieldByNumber(kFirstOwnField) == nullptr) return false;
  if (field.is_packable()) return field.name() != "dims";
  return field.type() == FieldDescriptor::TYPE_BYTES && !field.is_repeated();
}

std::string Describe(const FieldDescriptor& field) {
  return fmt::format("field `{}` of {}", field.name(), field.containing_type()->name());
}

class Scanner {
 public:
  Scanner(std::span<const std::byte> file, const ScanLimits& limits)
      : data_(reinterpret_cast<const uint8_t*>(file.data())), limits_(limits) {}

  absl::Status Message(const Descriptor& type, size_t begin, size_t end, int depth);
  std::string Take() { return std::move(out_); }

 private:
  absl::Status Field(const FieldDescriptor* field, uint32_t tag, size_t tag_at, size_t end,
                     int depth);
  absl::Status Delimited(const FieldDescriptor& field, uint32_t tag, size_t begin, size_t end,
                         int depth);
  absl::Status Number(const FieldDescriptor* field, uint32_t tag, size_t end);
  absl::Status SubMessage(const FieldDescriptor& field, uint32_t tag, size_t begin, size_t end,
                          int depth);
  absl::Status Packed(const FieldDescriptor& field, uint32_t tag, size_t begin, size_t end);
  void Stored(const FieldDescriptor& field, size_t begin, size_t end);
  size_t OpenMessage(uint32_t tag);
  void CloseMessage(size_t length_at);

  absl::StatusOr<uint64_t> ReadVarint(size_t end);
  absl::Status Count(int64_t& counter, int64_t amount, int64_t limit, const char* what);
  absl::Status Room(size_t bytes) const;
  void Append(const void* bytes, size_t size) {
    out_.append(static_cast<const char*>(bytes), size);
  }
  void AppendVarint(uint64_t value);

  const uint8_t* data_;
  const ScanLimits& limits_;
  size_t at_ = 0;
  int64_t messages_ = 0, strings_ = 0, scalars_ = 0;
  std::string out_;
};

absl::StatusOr<uint64_t> Scanner::ReadVarint(size_t end) {
  const size_t begin = at_;
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == end) return InvalidArgument("offset {}: the file ends inside a number", begin);
    const uint8_t byte = data_[at_++];
    if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return InvalidArgument("offset {}: a number of more than 10 bytes", begin);
}

void Scanner::AppendVarint(uint64_t value) {
  while (value >= 0x80) {
    out_.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out_.push_back(static_cast<char>(value));
}

absl::Status Scanner::Count(int64_t& counter, int64_t amount, int64_t limit, const char* what) {
  counter += amount;
  if (counter <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format("offset {}: more than {} {}", at_, limit, what));
}

absl::Status Scanner::Room(size_t bytes) const {
  if (bytes <= limits_.skeleton_bytes && out_.size() <= limits_.skeleton_bytes - bytes)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("offset {}: the model has more than {} bytes apart from its tensor data", at_,
                  limits_.skeleton_bytes));
}

absl::Status Scanner::Message(const Descriptor& type, size_t begin, size_t end, int depth) {
  at_ = begin;
  if (depth > limits_.depth) {
    return InvalidArgument("offset {}: messages are nested more than {} deep", begin,
                           limits_.depth);
  }
  QUENCH_RETURN_IF_ERROR(Count(messages_, 1, limits_.messages, "messages"));
  while (at_ < end) {
    const size_t tag_at = at_;
    QUENCH_ASSIGN_OR_RETURN(const uint64_t tag, ReadVarint(end));
    if (tag > UINT32_MAX || (tag >> 3) == 0) {
      return InvalidArgument("offset {}: {} is not a field of {}", tag_at, tag, type.name());
    }
    const int number = static_cast<int>(tag >> 3);
    const FieldDescriptor* field =
        number < kFirstOwnField ? type.FindFieldByNumber(number) : nullptr;
    QUENCH_RETURN_IF_ERROR(Field(field, static_cast<uint32_t>(tag), tag_at, end, depth));
  }
  return absl::OkStatus();
}

absl::Status Scanner::Field(const FieldDescriptor* field, uint32_t tag, size_t tag_at, size_t end,
                            int depth) {
  const uint32_t wire = tag & 7;
  if (wire != kDelimited) {
    if (wire != kVarint && wire != kFixed64 && wire != kFixed32) {
      return InvalidArgument("offset {}: wire type {}, known are 0, 1, 2 and 5", tag_at, wire);
    }
    if (field != nullptr) {
      const auto want = WireFormatLite::WireTypeForFieldType(
          static_cast<WireFormatLite::FieldType>(field->type()));
      if (static_cast<uint32_t>(want) != wire) {
        return InvalidArgument("offset {}: {} has wire type {}, it is {}", tag_at, Describe(*field),
                               wire, static_cast<uint32_t>(want));
      }
    }
    return Number(field, tag, end);
  }
  QUENCH_ASSIGN_OR_RETURN(const uint64_t size, ReadVarint(end));
  if (size > end - at_) {
    return InvalidArgument("offset {}: {} claims {} bytes, {} are left", tag_at,
                           field != nullptr ? Describe(*field) : "an unknown field", size,
                           end - at_);
  }
  const size_t begin = at_;
  const size_t stop = begin + static_cast<size_t>(size);
  if (field != nullptr) {
    if (!field->is_packable() && field->type() != FieldDescriptor::TYPE_MESSAGE &&
        field->type() != FieldDescriptor::TYPE_STRING &&
        field->type() != FieldDescriptor::TYPE_BYTES) {
      return InvalidArgument("offset {}: {} has wire type 2, it is a number", tag_at,
                             Describe(*field));
    }
    QUENCH_RETURN_IF_ERROR(Delimited(*field, tag, begin, stop, depth));
  }
  at_ = stop;
  return absl::OkStatus();
}

absl::Status Scanner::Number(const FieldDescriptor* field, uint32_t tag, size_t end) {
  const uint32_t wire = tag & 7;
  const size_t begin = at_;
  if (wire == kVarint) {
    QUENCH_RETURN_IF_ERROR(ReadVarint(end).status());
  } else {
    const size_t width = wire == kFixed64 ? 8 : 4;
    if (end - at_ < width)
      return InvalidArgument("offset {}: the file ends inside a number", begin);
    at_ += width;
  }
  if (field == nullptr) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(Count(scalars_, 1, limits_.scalars, "numbers outside of tensor data"));
  QUENCH_RETURN_IF_ERROR(Room(16));
  AppendVarint(tag);
  Append(data_ + begin, at_ - begin);
  return absl::OkStatus();
}

absl::Status Scanner::Delimited(const FieldDescriptor& field, uint32_t tag, size_t begin,
                                size_t end, int depth) {
  if (field.type() == FieldDescriptor::TYPE_MESSAGE)
    return SubMessage(field, tag, begin, end, depth);
  if (IsTensorData(field) && end - begin >= limits_.inline_bytes) {
    QUENCH_RETURN_IF_ERROR(Count(messages_, 1, limits_.messages, "messages"));
    Stored(field, begin, end);
    return absl::OkStatus();
  }
  if (field.is_packable()) return Packed(field, tag, begin, end);
  QUENCH_RETURN_IF_ERROR(Count(strings_, 1, limits_.strings, "strings"));
  QUENCH_RETURN_IF_ERROR(Room(end - begin + 16));
  AppendVarint(tag);
  AppendVarint(end - begin);
  Append(data_ + begin, end - begin);
  return absl::OkStatus();
}

// Where the length stands, which CloseMessage fills in.
size_t Scanner::OpenMessage(uint32_t tag) {
  AppendVarint(tag);
  const size_t length_at = out_.size();
  out_.append(kPaddedVarint, '\0');
  return length_at;
}

void Scanner::CloseMessage(size_t length_at) {
  uint64_t length = out_.size() - length_at - kPaddedVarint;
  for (size_t i = 0; i < kPaddedVarint; ++i, length >>= 7) {
    const uint8_t more = i + 1 < kPaddedVarint ? 0x80 : 0;
    out_[length_at + i] = static_cast<char>((length & 0x7f) | more);
  }
}

absl::Status Scanner::SubMessage(const FieldDescriptor& field, uint32_t tag, size_t begin,
                                 size_t end, int depth) {
  QUENCH_RETURN_IF_ERROR(Room(16));
  const size_t length_at = OpenMessage(tag);
  QUENCH_RETURN_IF_ERROR(Message(*field.message_type(), begin, end, depth + 1));
  CloseMessage(length_at);
  return absl::OkStatus();
}

// Repeated numbers in one piece. Checked here so that protobuf meets no surprise: every number ends
// inside the piece.
absl::Status Scanner::Packed(const FieldDescriptor& field, uint32_t tag, size_t begin, size_t end) {
  const size_t size = end - begin;
  const auto type = static_cast<WireFormatLite::FieldType>(field.type());
  int64_t count = 0;
  if (WireFormatLite::WireTypeForFieldType(type) == WireFormatLite::WIRETYPE_VARINT) {
    for (at_ = begin; at_ < end; ++count) QUENCH_RETURN_IF_ERROR(ReadVarint(end).status());
  } else {
    const size_t width = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ? 8 : 4;
    if (size % width != 0) {
      return InvalidArgument("offset {}: {} has {} bytes, not a multiple of {}", begin,
                             Describe(field), size, width);
    }
    count = static_cast<int64_t>(size / width);
  }
  QUENCH_RETURN_IF_ERROR(Count(scalars_, count, limits_.scalars, "numbers outside of tensor data"));
  QUENCH_RETURN_IF_ERROR(Room(size + 16));
  AppendVarint(tag);
  AppendVarint(size);
  Append(data_ + begin, size);
  return absl::OkStatus();
}

// A StoredChunk, which is the same message wherever it is declared: field, offset, size.
void Scanner::Stored(const FieldDescriptor& field, size_t begin, size_t end) {
  const size_t length_at = OpenMessage((uint32_t{kFirstOwnField} << 3) | kDelimited);
  const uint64_t numbers[] = {static_cast<uint64_t>(field.number()), begin, end - begin};
  for (uint64_t i = 0; i < std::size(numbers); ++i) {
    AppendVarint((i + 1) << 3);
    AppendVarint(numbers[i]);
  }
  CloseMessage(length_at);
}

}  // namespace

absl::StatusOr<std::string> ScanMessage(std::span<const std::byte> file, const Descriptor& root,
                                        const ScanLimits& limits) {
  Scanner scanner(file, limits);
  QUENCH_RETURN_IF_ERROR(scanner.Message(root, 0, file.size(), 0));
  return scanner.Take();
}

}  // namespace quench::importer
