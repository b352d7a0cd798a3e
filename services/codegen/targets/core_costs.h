// Costs of the micro-kernel on a core: cores.def, read.
#pragma once

#include <span>
#include <string>

namespace quench::codegen {

// A tile of p pixels by v vectors over s steps takes
//   s * (max(p * v / multiply_adds, (p + v) / loads, latency) + p * pixel_load + v * vector_load)
//     + tile_start + p * v * sum_end
// cycles of the core's clock.
struct CoreCosts {
  double multiply_adds = 0;  // of vectors, that begin in a cycle
  double latency = 0;        // of one, after which the next one may add to the same sum
  double loads = 0;          // that begin in a cycle
  // Loads cost a little even under multiply-adds, because they miss the nearest cache.
  double pixel_load = 0, vector_load = 0;
  double tile_start = 0, sum_end = 0;
  double gflops = 0, gbytes = 0;  // Target's; 0: as derived from features
  friend bool operator==(const CoreCosts&, const CoreCosts&) = default;
};

struct CoreRow {
  const char* cpu;  // LLVM's name; "" in the first row
  CoreCosts costs;
};
std::span<const CoreRow> CoreRows();

// `cpu` is LLVM's name. A CPU that no row names has the costs of the first.
const CoreCosts& CostsOf(const std::string& cpu, std::span<const CoreRow> rows = CoreRows());

}  // namespace quench::codegen
