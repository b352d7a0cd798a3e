// The parts of a compilation's report that planning writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quench::codegen {

// One kernel call of the compiled model, in execution order, for the compile report.
struct KernelReport {
  std::string node;  // root node's origin name
  std::string op;
  std::string kernel;     // chosen candidate
  std::string runner_up;  // next best, "" if none
  std::string reason;
  double cost = 0;  // predicted, in cost-model units
  // Why it is slower than a reader might expect: integers that make nothing faster, or many
  // multiplications without a micro-kernel. Empty if it is not.
  std::string slow;
  double multiplications = 0;  // at typical sizes
  int64_t arena_bytes = 0;     // of the arena in use while it runs, at most, at typical sizes
  int64_t bytes = 0;  // of inputs, constants and outputs as the model has them, at typical sizes
  std::string candidate = {};  // name of the kernel and plan among this node's competitors
  double performed = 0;        // of `multiplications`; fewer with Winograd's minimal filtering
  std::string dtype = {};      // of its first operand, "" if there is none
};

// The values at one place of the arena, at typical sizes. Kernels are those of CompileReport.
struct ArenaBuffer {
  std::vector<std::string> values;  // several if they replace each other in place
  int64_t offset = 0, bytes = 0;    // rounded up to the alignment
  int first = 0, last = 0;          // kernels that use it
};

}  // namespace quench::codegen
