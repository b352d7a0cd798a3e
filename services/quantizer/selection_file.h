// Selections as messages and in files.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>

#include "quench/quantizer/v1/selection.pb.h"
#include "services/quantizer/select.h"

namespace quench::quantizer {

v1::Selection ToProto(const Selection& selection);
Selection FromProto(const v1::Selection& message);

// A line that says what it is, then the message.
std::string SelectionBytes(const Selection& selection);
absl::StatusOr<Selection> ReadSelection(const std::filesystem::path& path);

}  // namespace quench::quantizer
