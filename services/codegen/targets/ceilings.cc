#include "services/codegen/targets/ceilings.h"

#include <fmt/ranges.h>

#include "common/base/near_names.h"
#include "common/base/status.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {

const std::vector<TargetCeilings>& CeilingsTable() {
  static const auto* const rows = new std::vector<TargetCeilings>{
#define QUENCH_CEILINGS(tag, cores, ghz, operations, gbytes, source) \
  {tag, cores, ghz, operations, gbytes, source},
#include "services/codegen/targets/ceilings.def"
#undef QUENCH_CEILINGS
  };
  return *rows;
}

absl::StatusOr<TargetCeilings> CeilingsOf(const std::string& name) {
  std::vector<std::string> known;
  for (const TargetCeilings& row : CeilingsTable()) {
    if (row.name == name) return row;
    known.push_back(row.name);
  }
  if (IsTargetName(name)) {
    return Unsupported(
        "ceilings of `{}` are not known: it stands for parts with different clocks and memories, "
        "or its maker publishes none; they are of {}",
        name, fmt::join(known, ", "));
  }
  return InvalidArgument("`{}` is not a target with ceilings, similar ones are `{}`",
                         name.substr(0, kShown), fmt::join(NearNames(name, known, 3), "`, `"));
}

}  // namespace quench::codegen
