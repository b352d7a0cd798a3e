#include "services/codegen/plan/arena_buffers.h"

#include <algorithm>

namespace quench::codegen {
namespace {

// The kernel that runs at each position: the one before if there is none, or the first.
std::vector<int> KernelsOf(const Program& program) {
  std::vector<int> kernel_at(static_cast<size_t>(program.num_positions) + 1, -1);
  ForEachStep(program.steps, [&](const Step& step) {
    if (step.node >= 0) kernel_at[static_cast<size_t>(step.position)] = step.node;
  });
  int last = 0;
  for (int& kernel : kernel_at) last = kernel = kernel < 0 ? last : kernel;
  return kernel_at;
}

}  // namespace

std::vector<ArenaBuffer> ArenaBuffersOf(const Program& program) {
  const std::vector<int> kernel_at = KernelsOf(program);
  std::vector<std::vector<std::string>> values(program.storages.size());
  for (const Buffer& buffer : program.buffers) {
    if (buffer.storage < 0) continue;
    std::vector<std::string>& names = values[static_cast<size_t>(buffer.storage)];
    if (std::find(names.begin(), names.end(), buffer.name) == names.end())
      names.push_back(buffer.name);
  }
  std::vector<ArenaBuffer> list;
  for (const PlacedStorage& place : program.typical_places) {
    const Storage& storage = program.storages[static_cast<size_t>(place.storage)];
    ArenaBuffer buffer;
    buffer.values = std::move(values[static_cast<size_t>(place.storage)]);
    buffer.offset = place.offset;
    buffer.bytes = place.bytes;
    const auto kernel = [&](int position) {
      return kernel_at[static_cast<size_t>(std::clamp(position, 0, program.num_positions))];
    };
    buffer.first = kernel(storage.begin);
    buffer.last = std::max(buffer.first, kernel(storage.end));
    list.push_back(std::move(buffer));
  }
  return list;
}

void AddArenaUse(const Program& program, std::vector<KernelReport>& kernels) {
  const auto positions = static_cast<size_t>(program.num_positions) + 1;
  std::vector<int64_t> change(positions + 1);
  for (const PlacedStorage& place : program.typical_places) {
    const Storage& storage = program.storages[static_cast<size_t>(place.storage)];
    change[static_cast<size_t>(std::clamp(storage.begin, 0, program.num_positions))] += place.bytes;
    change[static_cast<size_t>(std::clamp(storage.end, 0, program.num_positions)) + 1] -=
        place.bytes;
  }
  const std::vector<int> kernel_at = KernelsOf(program);
  int64_t used = 0;
  for (size_t i = 0; i < positions; ++i) {
    used += change[i];
    if (static_cast<size_t>(kernel_at[i]) >= kernels.size()) continue;
    KernelReport& kernel = kernels[static_cast<size_t>(kernel_at[i])];
    kernel.arena_bytes = std::max(kernel.arena_bytes, used);
  }
}

}  // namespace quench::codegen
