#include "services/codegen/targets/core_costs.h"

namespace quench::codegen {

std::span<const CoreRow> CoreRows() {
  static constexpr CoreRow kRows[] = {
#define QUENCH_CORE(name, ...) {name, {__VA_ARGS__}},
#include "services/codegen/targets/cores.def"
#undef QUENCH_CORE
  };
  return kRows;
}

const CoreCosts& CostsOf(const std::string& cpu, std::span<const CoreRow> rows) {
  for (const CoreRow& row : rows) {
    if (cpu == row.cpu) return row.costs;
  }
  return rows.front().costs;
}

}  // namespace quench::codegen
