// The parts of EnterSandbox.
#pragma once

#include "common/steps/sandbox.h"

namespace quench::steps {

// 0 if the kernel has none.
int LandlockVersion();
absl::Status RestrictFiles(const Sandbox& sandbox);
bool HasCallFilter();
absl::Status RestrictCalls(bool starts_processes, bool gpus);

}  // namespace quench::steps
