// Text from files as text that can be shown.
#pragma once

#include <string>

namespace quench {

// `text` as valid UTF-8 without control characters; each byte that is neither becomes `_`.
std::string Printable(const std::string& text);

}  // namespace quench
