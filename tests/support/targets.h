// Targets for tests that run what they compile.
#pragma once

#include <optional>

#include "common/base/status.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {

// A kind of code that this machine has no instructions for (AVX-512 on most), in those it has: the
// same widths, registers and tiles, so that all but the choice of instructions is what runs there.
inline std::optional<Target> ForeignShape() {
  const Target host = ResolveTarget("host")->back();
  for (const char* name : {"x86-64", "aarch64", "armv7"}) {
    Target target = ResolveTarget(name)->back();
    if (target.machine != host.machine || target.name == host.name) continue;
    target.name += " in " + host.name;
    target.baseline = host.baseline;
    target.cpu = host.cpu;
    target.features = host.features;
    target.required_features = host.required_features;
    return target;
  }
  return std::nullopt;
}

}  // namespace quench::codegen
