// Peak speeds of targets.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

namespace quench::codegen {

struct TargetCeilings {
  std::string name;  // of TagNames()
  int cores = 1;
  double ghz = 0;
  double operations_per_cycle = 0;  // on f32, of one core
  double gbytes = 0;                // 1e9 bytes a second from memory, for all cores
  std::string source;
  double gflops() const { return cores * ghz * operations_per_cycle; }
};
const std::vector<TargetCeilings>& CeilingsTable();

// INVALID_ARGUMENT for names of no target, with near ones; UNIMPLEMENTED for targets whose ceilings
// are not known, with those that are.
absl::StatusOr<TargetCeilings> CeilingsOf(const std::string& name);

}  // namespace quench::codegen
