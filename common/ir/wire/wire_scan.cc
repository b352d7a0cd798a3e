#include "common/ir/wire/wire_scan.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "common/base/status.h"

namespace quench::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

class Scanner {
 public:
  Scanner(const std::string& bytes, size_t max_parts, int max_depth)
      : input_(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int>(bytes.size())),
        left_(max_parts),
        max_depth_(max_depth) {}

  absl::Status Scan(const Descriptor& type, int depth);
  bool AtEnd() { return input_.ExpectAtEnd() || input_.BytesUntilLimit() == 0; }

 private:
  std::string Wrong(std::string_view what) {
    return fmt::format("the module {}: byte {} of it", what, input_.CurrentPosition());
  }
  absl::Status Malformed() {
    return absl::InvalidArgumentError(Wrong("is not a protobuf message"));
  }
  absl::Status ScanField(const Descriptor& type, uint32_t tag, int depth);

  google::protobuf::io::CodedInputStream input_;
  size_t left_;
  const int max_depth_;
};

absl::Status Scanner::ScanField(const Descriptor& type, uint32_t tag, int depth) {
  const int number = WireFormatLite::GetTagFieldNumber(tag);
  if (number == 0) return Malformed();
  if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
    // Groups do not occur in our messages, and as unknown fields they could nest.
    const bool group = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_START_GROUP;
    return !group && WireFormatLite::SkipField(&input_, tag) ? absl::OkStatus() : Malformed();
  }
  uint32_t size = 0;
  if (!input_.ReadVarint32(&size) || static_cast<int>(size) < 0) return Malformed();
  const FieldDescriptor* field = type.FindFieldByNumber(number);
  const bool message = field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE;
  const bool text = field == nullptr || field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (message || text) {
    if (left_ == 0) return absl::ResourceExhaustedError(Wrong("has too many parts"));
    --left_;
  }
  if (!message) {
    const void* data = nullptr;
    int available = 0;
    const bool present =
        input_.GetDirectBufferPointer(&data, &available) && available >= static_cast<int>(size);
    if (size > 0 && !present) return Malformed();
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_STRING &&
        !IsUtf8({static_cast<const char*>(data), size})) {
      return absl::InvalidArgumentError(Wrong("has a name that is not UTF-8"));
    }
    return input_.Skip(static_cast<int>(size)) ? absl::OkStatus() : Malformed();
  }
  if (depth == max_depth_) return absl::InvalidArgumentError(Wrong("nests too deeply"));
  const auto limit = input_.PushLimit(static_cast<int>(size));
  if (input_.BytesUntilLimit() != static_cast<int>(size)) return Malformed();
  QUENCH_RETURN_IF_ERROR(Scan(*field->message_type(), depth + 1));
  if (input_.BytesUntilLimit() != 0) return Malformed();
  input_.PopLimit(limit);
  return absl::OkStatus();
}

absl::Status Scanner::Scan(const Descriptor& type, int depth) {
  while (const uint32_t tag = input_.ReadTag()) QUENCH_RETURN_IF_ERROR(ScanField(type, tag, depth));
  return absl::OkStatus();
}

}  // namespace

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    const auto second = length > 1 ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
    const bool surrogate = lead == 0xed && second > 0x9f;
    if (overlong || surrogate || (lead == 0xf4 && second > 0x8f)) return false;
    i += length;
  }
  return true;
}

absl::Status ScanMessage(const std::string& bytes, const Descriptor& type, size_t max_parts,
                         int max_depth) {
  Scanner scanner(bytes, max_parts, max_depth);
  QUENCH_RETURN_IF_ERROR(scanner.Scan(type, 0));
  return absl::OkStatus();
}

}  // namespace quench::wire
