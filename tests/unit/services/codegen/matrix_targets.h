// Targets whose kernels multiply matrices (Target::matrices), for tests.
#pragma once

#include <string>
#include <vector>

#include "services/codegen/report.h"

namespace quench::codegen {

// The ones that run here: matrices in memory with vectors of 4, 8 and 16 floats, and registers.
std::vector<std::string> MatrixTargets();

// Whether a kernel of the library multiplies matrices.
bool InMatrices(const CompileReport& report);

}  // namespace quench::codegen
