// Messages in files that people write: protobuf text or JSON.
#pragma once

#include <absl/status/status.h>
#include <google/protobuf/message.h>

#include <filesystem>

namespace quench::steps {

// Reads a .txtpb or .json file of at most 1 MiB. Unknown fields are errors; INVALID_ARGUMENT names
// file, line and column of every mistake.
absl::Status ReadConfig(const std::filesystem::path& path, google::protobuf::Message* config);

}  // namespace quench::steps
