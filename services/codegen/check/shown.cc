#include "services/codegen/check/shown.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "services/codegen/plan/laid_out_sizes.h"

namespace quench::codegen {
namespace {

// Beginnings of nodes of the outermost graph, in order: positions of steps, and nodes. Nodes that
// run in turn with others are left out.
std::vector<std::pair<int, int>> Beginnings(const Program& program) {
  std::vector<std::pair<int, int>> result;
  for (const Step& step : program.steps) {
    if (step.As<BeginStep>() != nullptr) result.emplace_back(step.position, step.node);
  }
  result.emplace_back(program.num_positions, static_cast<int>(program.nodes.size()));
  return result;
}

// How the elements of a buffer lie in its memory.
struct Strides {
  std::vector<int64_t> step;  // of each axis, in elements
  int blocked = -1;
  int64_t block = 1;

  int64_t At(const std::vector<int64_t>& index) const {
    int64_t at = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      const int64_t i = index[axis];
      const bool lanes = static_cast<int>(axis) == blocked;
      at += lanes ? i / block * step[axis] + i % block : i * step[axis];
    }
    return at;
  }
};

Strides StridesOf(const Layout& layout, const std::vector<int64_t>& dims) {
  const size_t rank = dims.size();
  Strides strides{std::vector<int64_t>(rank, 0), layout.blocked_axis,
                  layout.blocked_axis >= 0 ? layout.block : 1};
  std::vector<int> order = layout.order;
  if (order.empty()) {
    order.resize(rank);
    std::iota(order.begin(), order.end(), 0);
  }
  int64_t step = strides.block;
  for (size_t i = order.size(); i-- > 0;) {
    const auto axis = static_cast<size_t>(order[i]);
    int64_t extent = dims[axis];
    if (static_cast<int>(axis) == layout.blocked_axis)
      extent = (extent + layout.block - 1) / layout.block;
    strides.step[axis] = step;
    step *= extent;
  }
  return strides;
}

const std::byte* AddressOf(const Program& program, const Buffer& buffer, const RunMemory& memory) {
  const Storage& storage = program.storages[static_cast<size_t>(buffer.storage)];
  const bool device = storage.device;
  const auto index = static_cast<size_t>(storage.index);
  const std::byte* base = nullptr;
  if (storage.home == Home::kArena) {
    const int64_t offset = storage.offset_slot < 0
                               ? storage.offset
                               : memory.slots[static_cast<size_t>(storage.offset_slot)];
    base = offset < 0 ? nullptr : (device ? memory.device_arena : memory.arena) + offset;
  } else if (storage.home == Home::kInput) {
    base = static_cast<const std::byte*>((device ? memory.device_inputs : memory.inputs)[index]);
  } else if (storage.home == Home::kOutput) {
    base = static_cast<const std::byte*>((device ? memory.device_outputs : memory.outputs)[index]);
  }
  return base == nullptr ? nullptr : base + buffer.offset;
}

}  // namespace

std::vector<ReadableValue> ReadableValues(const Program& program) {
  const std::vector<std::pair<int, int>> beginnings = Beginnings(program);
  std::array<std::vector<int>, 2>
      starts_in;  // of what lies in the arena, the host's and the device's
  for (const Storage& storage : program.storages) {
    if (storage.home == Home::kArena && storage.begin <= storage.end)
      starts_in[storage.device ? 1 : 0].push_back(storage.begin);
  }
  for (std::vector<int>& starts : starts_in) std::sort(starts.begin(), starts.end());
  std::vector<ReadableValue> result;
  for (const ShownValue& shown : program.shown) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(shown.buffer)];
    const Storage& storage = program.storages[static_cast<size_t>(buffer.storage)];
    if (storage.home == Home::kHeap || storage.home == Home::kWeights) continue;
    const auto ready =
        std::lower_bound(beginnings.begin(), beginnings.end(), std::pair(shown.position, -1));
    const std::vector<int>& starts = starts_in[storage.device ? 1 : 0];
    // Whatever begins to live after it has died may take its place.
    const auto next = std::upper_bound(starts.begin(), starts.end(), storage.end);
    const bool replaced = next != starts.end() && *next < ready->first;
    if (storage.home == Home::kArena && replaced) continue;
    result.push_back({shown, ready->second});
  }
  return result;
}

std::optional<Tensor> ReadBuffer(const Program& program, int id, const RunMemory& memory) {
  const Buffer& buffer = program.buffers[static_cast<size_t>(id)];
  std::vector<int64_t> dims;
  for (const Dim dim : buffer.shape.dims) {
    dims.push_back(SymbolTable::ValueOf(dim, memory.slots));
    if (dims.back() < 0) return std::nullopt;
  }
  const int bits = DataTypeBits(buffer.shape.dtype);
  const std::byte* from = AddressOf(program, buffer, memory);
  if (bits == 0 || bits % 8 != 0 || from == nullptr) return std::nullopt;
  std::vector<std::byte> copy;
  if (program.storages[static_cast<size_t>(buffer.storage)].device) {
    copy.resize(static_cast<size_t>(BytesAt(buffer.shape, memory.slots)));
    if (!memory.read(copy.data(), from, copy.size())) return std::nullopt;
    from = copy.data();
  }
  Tensor tensor = Tensor::Zeros(buffer.shape.dtype, dims);
  const auto width = static_cast<size_t>(bits / 8);
  std::byte* to = tensor.mutable_bytes();
  if (buffer.shape.layout.row_major()) {
    if (tensor.size() > 0) std::memcpy(to, from, tensor.bytes().size());
    return tensor;
  }
  const Strides strides = StridesOf(buffer.shape.layout, dims);
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t n = tensor.size(); n > 0; --n, to += width) {
    std::memcpy(to, from + static_cast<size_t>(strides.At(index)) * width, width);
    for (size_t axis = dims.size(); axis-- > 0;) {
      if (++index[axis] < dims[axis]) break;
      index[axis] = 0;
    }
  }
  return tensor;
}

}  // namespace quench::codegen
