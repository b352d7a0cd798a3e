// Messages in files that people write: protobuf text or JSON.
#pragma once

#include <absl/status/status.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <filesystem>

namespace quench::steps {

// Lines of a message's fields in a text; none for JSON.
using FieldLines = google::protobuf::TextFormat::ParseInfoTree;

// Reads a .txtpb or .json file of at most 1 MiB. Unknown fields are errors; INVALID_ARGUMENT names
// file, line, field and similar names of every mistake (in JSON, of the first). `lines` may be null.
absl::Status ReadConfig(const std::filesystem::path& path, google::protobuf::Message* config,
                        FieldLines* lines = nullptr);

}  // namespace quench::steps
