// The error about operators that Quench cannot import.
#pragma once

#include <absl/status/status.h>

#include <span>
#include <string_view>

#include "services/importer/importer.h"

namespace quench::importer {

// One error for all of them, OK for none. `version_word`: what the format calls versions of
// operators ("opset").
absl::Status UnsupportedError(std::span<const UnsupportedOp> ops, std::string_view version_word);

}  // namespace quench::importer
