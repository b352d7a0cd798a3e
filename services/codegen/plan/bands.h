// Kernels in bands: the rows that one makes are read by the next before they leave the caches.
#pragma once

#include <vector>

#include "services/codegen/plan/program.h"
#include "services/codegen/plan/report.h"

namespace quench::codegen {

// Makes a BandsStep of calls that follow each other, where each reads the rows of the one before (RowOrder),
// what lies between them does not fit a part of L2, and reading it from further away is much of the call's
// time, as of depthwise convolutions. All that they use lives as long as they do, so none is formed where
// the program would need much more memory. `kernels`, by node, say so.
void FormBands(Program& program, std::vector<KernelReport>& kernels, const Target& target);

}  // namespace quench::codegen
