// Names and strings as the text forms write them.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace quench {

// Letters, digits, `_` and `.`, not starting with a digit or a dot.
bool IsIdentifier(std::string_view text);

// "text" with \" \\ \n \t \r and \xNN escapes; any byte sequence survives.
std::string Quote(std::string_view text);

// Inverse of Quote, quotes included.
absl::StatusOr<std::string> Unquote(std::string_view quoted);

}  // namespace quench
