#include "services/quantizer/statistics_file.h"

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/quantizer/message_file.h"
#include "services/quantizer/statistics_proto.h"

namespace quench::quantizer {
namespace {

// Before the message, as serialised modules have theirs.
constexpr std::string_view kMagic = "QUENCHSTATISTICS1\n";

}  // namespace

bool IsStatistics(std::string_view head) { return head.starts_with(kMagic); }

std::string StatisticsBytes(const Statistics& statistics) {
  return std::string(kMagic) + ToProto(statistics).SerializeAsString();
}

absl::Status WriteStatistics(const Statistics& statistics, const std::filesystem::path& path) {
  return WriteFileAtomically(path, StatisticsBytes(statistics));
}

absl::StatusOr<Statistics> ReadStatistics(const std::filesystem::path& path) {
  v1::Statistics message;
  QUENCH_RETURN_IF_ERROR(ReadMessageFile(path, kMagic, "statistics of calibration", message));
  absl::StatusOr<Statistics> statistics = FromProto(message);
  if (!statistics.ok()) return Annotate(statistics.status(), fmt::format("`{}`", path.string()));
  return statistics;
}

}  // namespace quench::quantizer
