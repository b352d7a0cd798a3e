#include "services/codegen/package.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "common/base/status.h"

namespace quench::codegen {
namespace {

constexpr std::string_view kUuidDefine = "_UUID \"";  // behind the prefix; comments have no quotes
constexpr size_t kUuidChars = 36;

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

absl::StatusOr<std::string> NormalUuid(const std::string& text) {
  std::string digits;
  for (const char c : text) {
    if (c == '-') continue;
    if (!std::isxdigit(static_cast<unsigned char>(c))) digits.clear();
    if (!std::isxdigit(static_cast<unsigned char>(c))) break;
    digits += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (digits.size() != 32) {
    return InvalidArgument(
        "uuid is `{}`, it must be 32 hex digits like 123e4567-e89b-12d3-a456-426614174000",
        text.substr(0, 64));
  }
  for (const size_t at : {20, 16, 12, 8}) digits.insert(at, "-");
  return digits;
}

absl::StatusOr<Stamped> StampUuid(std::span<const std::byte> library,
                                  std::span<const std::byte> header, const std::string& uuid) {
  Stamped stamped;
  QUENCH_ASSIGN_OR_RETURN(stamped.uuid, NormalUuid(uuid));
  stamped.header = TextOf(header);
  const size_t define = stamped.header.find(kUuidDefine);
  if (define == std::string::npos ||
      stamped.header.size() < define + kUuidDefine.size() + kUuidChars) {
    return InvalidArgument("the header was not written by Quench: it names no UUID");
  }
  const size_t in_header = define + kUuidDefine.size();
  // With its end: a longer text that begins so is another one.
  const std::string present = stamped.header.substr(in_header, kUuidChars) + '\0';
  const std::string_view text = TextOf(library);
  stamped.offset = text.find(present);
  if (stamped.offset == std::string::npos ||
      text.find(present, stamped.offset + 1) != std::string::npos) {
    return InvalidArgument("the library does not have the UUID `{}` that its header names",
                           present.substr(0, kUuidChars));
  }
  stamped.header.replace(in_header, kUuidChars, stamped.uuid);
  return stamped;
}

}  // namespace quench::codegen
