// Values inside of a run, read from its memory: of the very code that is shipped, which needs no taps for
// that.
#pragma once

#include <optional>
#include <vector>

#include "common/runner/runner.h"
#include "services/codegen/program.h"

namespace quench::codegen {

struct ReadableValue {
  ShownValue shown;
  int ready = 0;  // the node whose beginning finds it whole; the number of nodes after the last one
};

// Values that are still in memory when the next node begins. Values that have been overwritten by
// then, and those whose memory is allocated during the run, are left out.
std::vector<ReadableValue> ReadableValues(const Program& program);

// A buffer, row-major, without the padding of its layout; none where its size is not known yet, or where
// elements share a byte.
std::optional<Tensor> ReadBuffer(const Program& program, int buffer, const RunMemory& memory);

}  // namespace quench::codegen
