// Words of program texts that are left out because they are usual.
#pragma once

#include <vector>

#include "services/codegen/plan/laid_out_sizes.h"
#include "services/codegen/plan/memory_plan.h"
#include "services/codegen/plan/program.h"

namespace quench::codegen {

// By Home.
inline constexpr const char* kHomeNames[] = {"arena", "input", "output", "weights", "heap"};

// Before it, of storages in the GPU's memory.
inline constexpr char kDeviceWord[] = "device ";
// By QUENCH_SIDE_*.
inline constexpr const char* kSideNames[] = {"neither", "host", "device", "both"};

// A storage that no buffer lies in any more.
inline bool IsGivenUp(const Storage& storage) { return storage.begin == 1 && storage.end == 0; }

// The node that bands belong to: that of their last step, `usual` without any.
inline int NodeOf(const BandsStep& bands, int usual) {
  return bands.body.empty() ? usual : bands.body.back().node;
}

// For each storage, the shape of the first buffer in it; null where there is none.
inline std::vector<const Shape*> UsualShapes(const Program& program) {
  std::vector<const Shape*> shapes(program.storages.size());
  for (const Buffer& buffer : program.buffers) {
    if (buffer.storage < 0 || static_cast<size_t>(buffer.storage) >= shapes.size()) continue;
    const Shape*& shape = shapes[static_cast<size_t>(buffer.storage)];
    if (shape == nullptr) shape = &buffer.shape;
  }
  return shapes;
}

// Where a storage of fixed size lies that has a fixed offset.
inline PlacedStorage UsualPlace(const Storage& storage, int id) {
  if (storage.offset < 0 || !IsFixed(storage.shape)) return {};
  const int64_t bytes = BytesAt(storage.shape, {});
  return {id, storage.offset, (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment};
}

}  // namespace quench::codegen
