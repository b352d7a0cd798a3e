#include "common/ir/quoting.h"

#include <fmt/format.h>

#include "common/base/status.h"

namespace quench {

bool IsIdentifier(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool other = (c >= '0' && c <= '9') || c == '.';
    if (!letter && !(other && &c != text.data())) return false;
  }
  return true;
}

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '\r':
        quoted += "\\r";
        break;
      default:
        // Bytes from 0x80 are UTF-8 in practice and stay readable.
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + "\"";
}

absl::StatusOr<std::string> Unquote(std::string_view quoted) {
  if (quoted.size() < 2 || quoted.front() != '"' || quoted.back() != '"') {
    return InvalidArgument("a string stands between quotation marks");
  }
  const std::string_view inner = quoted.substr(1, quoted.size() - 2);
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string text;
  for (size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] != '\\') {
      text += inner[i];
      continue;
    }
    const char kind = ++i < inner.size() ? inner[i] : '\0';
    if (kind == '"' || kind == '\\') {
      text += kind;
    } else if (kind == 'n' || kind == 't' || kind == 'r') {
      text += kind == 'n' ? '\n' : kind == 't' ? '\t' : '\r';
    } else if (kind == 'x' && i + 2 < inner.size() && hex(inner[i + 1]) >= 0 &&
               hex(inner[i + 2]) >= 0) {
      text += static_cast<char>(hex(inner[i + 1]) * 16 + hex(inner[i + 2]));
      i += 2;
    } else {
      return InvalidArgument("unknown escape in a string: \\\" \\\\ \\n \\t \\r \\xNN are known");
    }
  }
  return text;
}

}  // namespace quench
