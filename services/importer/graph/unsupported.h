// The error about operators that Quench cannot import.
#pragma once

#include <absl/status/status.h>

#include <span>
#include <string_view>

#include "services/importer/importer.h"

namespace quench::importer {

// One error for all of them, OK if there is none. `version_word`: the format's word for versions of
// operators ("opset").
absl::Status UnsupportedError(std::span<const UnsupportedOp> ops, std::string_view version_word);

}  // namespace quench::importer
