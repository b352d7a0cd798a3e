// Files of the quantizer: a line that names the kind, then a serialized message.
#pragma once

#include <google/protobuf/message.h>

#include <filesystem>
#include <string_view>

#include "absl/status/status.h"

namespace quench::quantizer {

// Reads the message behind the line `magic`. INVALID_ARGUMENT `... has no WHAT` if the file is
// anything else, or has more than 20 million fields; RESOURCE_EXHAUSTED above 1 GiB.
absl::Status ReadMessageFile(const std::filesystem::path& path, std::string_view magic,
                             std::string_view what, google::protobuf::Message& message);

}  // namespace quench::quantizer
