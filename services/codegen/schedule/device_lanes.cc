#include "services/codegen/schedule/device_lanes.h"

#include <algorithm>

#include "common/loops/analysis.h"
#include "services/codegen/schedule/lane_blocks.h"
#include "services/codegen/schedule/lane_widths.h"
#include "services/codegen/schedule/scratch.h"
#include "services/codegen/schedule/tasks.h"

namespace quench::codegen {
namespace {

using loops::Function;
using loops::StmtId;

// Lanes that each go through a window: more take so many registers that few threads fit.
constexpr int64_t kMostSums = 4;

bool HasScratch(const Function& f) {
  return std::any_of(f.buffers.begin(), f.buffers.end(), [](const loops::Buffer& buffer) {
    return buffer.role == loops::BufferRole::kScratch;
  });
}

bool HasLoops(const Function& f, StmtId loop) {
  const std::vector<StmtId> all = loops::StatementsUnder(f, At(f, loop).body);
  return std::any_of(all.begin(), all.end(),
                     [&](StmtId id) { return At(f, id).kind == loops::StmtKind::kFor; });
}

// Iterations of all loops, at most; kUnbounded where nothing bounds them.
int64_t Iterations(const Function& f, const std::vector<StmtId>& chain, SymbolTable& symbols) {
  int64_t product = 1;
  for (const StmtId loop : chain) {
    const auto extent = DimOf(f, At(f, loop).args[1], symbols);
    if (!extent.ok()) return 0;
    const int64_t most = extent->is_static() ? extent->value() : symbols.BoundsOf(*extent).max;
    if (most > kUnbounded / std::max<int64_t>(product, 1)) return kUnbounded;
    product *= most;
  }
  return product;
}

}  // namespace

void ChooseDeviceLanes(const Gpu& gpu, SymbolTable& symbols, Schedule& schedule) {
  Function& f = schedule.function;
  if (f.body.empty() || HasScratch(f)) return;
  const std::vector<StmtId> chain = ParallelChain(f, f.body.back());
  if (chain.empty()) return;
  int64_t lanes = WidestLanes(f, chain.back());
  if (HasLoops(f, chain.back())) lanes = std::min(lanes, kMostSums);
  const int64_t iterations = Iterations(f, chain, symbols);
  while (lanes > 1 && iterations / lanes < gpu.busy_threads) lanes /= 2;
  if (lanes < 2) return;
  schedule.lanes[CutLoop(f, chain.back(), lanes).inner] = static_cast<int>(lanes);
}

}  // namespace quench::codegen
