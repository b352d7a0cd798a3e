#include "services/codegen/targets/core_costs.h"

namespace quench::codegen {

const CoreCosts& CostsOf(const std::string& cpu) {
  struct Row {
    const char* name;
    CoreCosts costs;
  };
  static constexpr Row kRows[] = {
#define QUENCH_CORE(name, ...) {name, {__VA_ARGS__}},
#include "services/codegen/targets/cores.def"
#undef QUENCH_CORE
  };
  for (const Row& row : kRows) {
    if (cpu == row.name) return row.costs;
  }
  return kRows[0].costs;
}

}  // namespace quench::codegen
