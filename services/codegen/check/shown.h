// Inner values of a run, read from its memory: they are those of the very code that is shipped, without
// taps.
#pragma once

#include <optional>
#include <vector>

#include "common/runner/runner.h"
#include "services/codegen/plan/program.h"

namespace quench::codegen {

struct ReadableValue {
  ShownValue shown;
  int ready = 0;  // the node at whose beginning it is complete; the number of nodes: the end
};

// Values that are still in memory when the next node begins. Values that have been overwritten by
// then, and those whose memory is allocated during the run, are left out.
std::vector<ReadableValue> ReadableValues(const Program& program);

// The buffer as a row-major tensor, without the padding of its layout; nothing if its size is not yet
// known, or if elements share a byte.
std::optional<Tensor> ReadBuffer(const Program& program, int buffer, const RunMemory& memory);

}  // namespace quench::codegen
