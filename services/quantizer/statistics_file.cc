#include "services/quantizer/statistics_file.h"

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/wire/wire_scan.h"
#include "services/quantizer/statistics_proto.h"

namespace quench::quantizer {
namespace {

// Before the message, as serialised modules have theirs.
constexpr std::string_view kMagic = "QUENCHSTATISTICS1\n";
constexpr size_t kMaxBytes = size_t{1} << 30;
constexpr size_t kMaxParts = 20'000'000;  // values, histograms and channels

}  // namespace

bool IsStatistics(std::string_view head) { return head.starts_with(kMagic); }

std::string StatisticsBytes(const Statistics& statistics) {
  return std::string(kMagic) + ToProto(statistics).SerializeAsString();
}

absl::Status WriteStatistics(const Statistics& statistics, const std::filesystem::path& path) {
  return WriteFileAtomically(path, StatisticsBytes(statistics));
}

absl::StatusOr<Statistics> ReadStatistics(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxBytes));
  v1::Statistics message;
  const std::string serialised = IsStatistics(bytes) ? bytes.substr(kMagic.size()) : "";
  if (!IsStatistics(bytes) ||
      !wire::ScanMessage(serialised, *v1::Statistics::descriptor(), kMaxParts, 8).ok() ||
      !message.ParseFromString(serialised)) {
    return InvalidArgument("`{}` has no statistics of calibration", path.string());
  }
  absl::StatusOr<Statistics> statistics = FromProto(message);
  if (!statistics.ok()) return Annotate(statistics.status(), fmt::format("`{}`", path.string()));
  return statistics;
}

}  // namespace quench::quantizer
