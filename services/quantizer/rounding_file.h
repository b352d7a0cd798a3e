// Roundings as messages and in files.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>

#include "quench/quantizer/v1/rounding.pb.h"
#include "services/quantizer/rounding.h"

namespace quench::quantizer {

v1::Rounding ToProto(const Rounding& rounding);
Rounding FromProto(const v1::Rounding& message);

// A line that says what it is, then the message.
std::string RoundingBytes(const Rounding& rounding);
absl::StatusOr<Rounding> ReadRounding(const std::filesystem::path& path);

}  // namespace quench::quantizer
