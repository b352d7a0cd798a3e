#include "services/cli/command.h"

#include <absl/strings/cord.h>

namespace quench::cli {
namespace {

constexpr char kUsage[] = "quench.cli.usage";

}  // namespace

absl::Status UsageError(absl::Status status) {
  if (!status.ok()) status.SetPayload(kUsage, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsage).has_value(); }

}  // namespace quench::cli
