// Statistics in files.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "services/quantizer/statistics.h"

namespace quench::quantizer {

// Whether a file that begins so was written by WriteStatistics.
bool IsStatistics(std::string_view head);
// The bytes that WriteStatistics writes.
std::string StatisticsBytes(const Statistics& statistics);
// Replaces the file; whole or not at all.
absl::Status WriteStatistics(const Statistics& statistics, const std::filesystem::path& path);
absl::StatusOr<Statistics> ReadStatistics(const std::filesystem::path& path);

}  // namespace quench::quantizer
