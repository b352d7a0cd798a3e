// Windows that are clipped at the borders of a tensor.
#pragma once

#include "common/loops/loops.h"

namespace quench::codegen {

// A parallel loop over i whose body clips with `min(a i + b, c)` or `max(a i + b, c)` becomes three
// loops: a border, an interior in which every clip provably gives c, and the other border. The
// interior then has constant windows and affine indices.
void SplitWindows(loops::Function& function);

}  // namespace quench::codegen
