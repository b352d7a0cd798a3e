// Concat and Split without a copy. A Concat's operands are computed where they belong in its result: each
// is copied there, and a copy whose ends are one place is not a step (AssignMemory): storages of operands
// become parts of the result's where that is possible and the arena stays small. A Split's results are
// views of its operand.
#include <algorithm>

#include "common/base/status.h"
#include "services/codegen/plan/builder.h"

namespace quench::codegen {
namespace {

// Where the operands of a Concat lie in its result, or the results of a Split in its operand: bytes before
// each. Empty where one of them is not in one piece there, or does not begin at a multiple of `alignment`.
std::vector<int64_t> OffsetsIn(const Shape& result, std::span<const Shape> operands, int64_t axis,
                               int64_t alignment) {
  const Layout& layout = result.layout;
  if (!layout.row_major() && (layout.blocked_axis != axis || !layout.order.empty())) return {};
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const Shape& operand : operands) {
    if (!IsFixed(operand) || !(operand.layout == layout) || end % alignment != 0) return {};
    for (int64_t before = 0; before < axis; ++before) {
      if (!operand.dims[static_cast<size_t>(before)].is(1)) return {};
    }
    offsets.push_back(end);
    end += BytesAt(operand, {});
    const bool last = &operand == &operands.back();
    if (!last && operand.dims[static_cast<size_t>(axis)].value() % layout.block != 0) return {};
  }
  return IsFixed(result) && BytesAt(result, {}) == end ? offsets : std::vector<int64_t>();
}

}  // namespace

// Whether nothing else decides about the buffer's storage, and the buffer fills it.
bool Builder::CanBecomePart(int id) const {
  const Buffer& buffer = program_.buffers[static_cast<size_t>(id)];
  const Storage& storage = program_.storages[static_cast<size_t>(buffer.storage)];
  return storage.home == Home::kArena && !storage.shared && buffer.offset == 0 &&
         storage_block_[static_cast<size_t>(buffer.storage)] == 1 && IsFixed(storage.shape) &&
         BytesAt(storage.shape, {}) == BytesAt(buffer.shape, {});
}

Builder::Place Builder::OutermostOf(int storage, const std::map<int, Place>& parts) {
  Place place{storage, 0};
  for (auto found = parts.find(storage); found != parts.end(); found = parts.find(place.storage))
    place = {found->second.storage, place.offset + found->second.offset};
  return place;
}

// The storage that can be put at operand `first`: its own, or the result of earlier joins when the
// operands from `first` on are exactly its parts, in order. `next` is the operand after it.
std::optional<int> Builder::StorageAt(std::span<const int> operands,
                                      std::span<const int64_t> offsets, size_t first,
                                      size_t& next) const {
  const int storage = program_.buffers[static_cast<size_t>(operands[first])].storage;
  next = first + 1;
  if (CanBecomePart(operands[first])) return storage;
  const Place outermost = OutermostOf(storage, parts_);
  if (outermost.storage == storage || outermost.offset != 0) return std::nullopt;
  const Storage& joined = program_.storages[static_cast<size_t>(outermost.storage)];
  if (joined.home != Home::kArena || joined.shared) return std::nullopt;
  int64_t covered = 0;
  for (next = first; next < operands.size(); ++next) {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(operands[next])];
    const Place place = OutermostOf(buffer.storage, parts_);
    if (place.storage != outermost.storage ||
        place.offset + buffer.offset != offsets[next] - offsets[first]) {
      break;
    }
    covered += BytesAt(buffer.shape, {});
  }
  if (covered != BytesAt(joined.shape, {})) return std::nullopt;
  return outermost.storage;
}

absl::StatusOr<bool> Builder::BuildParts(Frame& frame, const Node& node, const Candidate& chosen) {
  if (options_.opt_level < 2 || node.op != "Split" || blocks_.size() != 1) return false;
  const Value& value = frame.graph.value(node.inputs[0]);
  if (value.constant != nullptr) return false;
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == quench::kNone) return false;
    const Type& type = frame.graph.value(node.outputs[i]).type;
    shapes.push_back({type.dtype, type.dims, chosen.outputs[i]});
  }
  const Shape shape{value.type.dtype, value.type.dims, chosen.inputs[0]};
  const auto rank = static_cast<int64_t>(value.type.dims.size());
  const int64_t axis = node.Int("axis", 0), vector = int64_t{4} * target_.f32_lanes();
  const std::vector<int64_t> offsets =
      OffsetsIn(shape, shapes, axis < 0 ? axis + rank : axis, vector);
  if (offsets.empty()) return false;
  QUENCH_ASSIGN_OR_RETURN(const int id, BufferOf(frame, node.inputs[0], chosen.inputs[0]));
  StorageOf(id).shared = true;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string& name = frame.graph.value(node.outputs[i]).name;
    BindValue(frame, node.outputs[i], NewView(name, shapes[i], id, offsets[i]));
  }
  return true;
}

absl::StatusOr<bool> Builder::BuildJoined(Frame& frame, const Node& node, const Candidate& chosen) {
  if (options_.opt_level < 2 || node.op != "Concat" || blocks_.size() != 1) return false;
  const Value& value = frame.graph.value(node.outputs[0]);
  const Shape shape{value.type.dtype, value.type.dims, chosen.outputs[0]};
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Type& type = frame.graph.value(node.inputs[i]).type;
    shapes.push_back({type.dtype, type.dims, chosen.inputs[i]});
  }
  const auto rank = static_cast<int64_t>(value.type.dims.size());
  const int64_t axis = node.Int("axis", 0), vector = int64_t{4} * target_.f32_lanes();
  const std::vector<int64_t> offsets =
      OffsetsIn(shape, shapes, axis < 0 ? axis + rank : axis, vector);
  if (offsets.empty()) return false;
  std::vector<int> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    QUENCH_ASSIGN_OR_RETURN(const int buffer, BufferOf(frame, node.inputs[i], chosen.inputs[i]));
    operands.push_back(buffer);
  }
  std::map<int, int64_t> joined;  // storages, and where they are put
  int64_t copied = 0;
  for (size_t i = 0, next = 0; i < operands.size(); i = next) {
    const std::optional<int> storage = StorageAt(operands, offsets, i, next);
    if (storage && joined.emplace(*storage, offsets[i]).second) continue;
    next = i + 1;
    copied += BytesAt(shapes[i], {});
  }
  // One thread copies; the kernel of a Concat does it with all of them.
  constexpr int64_t kMostCopied = 1 << 20;
  if (copied > std::min(BytesAt(shape, {}) / 2, kMostCopied)) return false;
  const int whole = NewBuffer(value.name, shape, NewStorage(Home::kArena, shape));
  for (const auto& [storage, offset] : joined) {
    parts_[storage] = {program_.buffers[static_cast<size_t>(whole)].storage, offset};
    program_.storages[static_cast<size_t>(storage)].shared = true;
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    QUENCH_RETURN_IF_ERROR(AddCopy(operands[i], NewView(value.name, shapes[i], whole, offsets[i])));
  }
  BindValue(frame, node.outputs[0], whole);
  return true;
}

// The most bytes of the arena that are in use at once, at typical sizes, if `parts` lie in others.
int64_t Builder::PeakWith(const std::map<int, Place>& parts) {
  std::vector<std::pair<int, int>> lives;
  for (const Storage& storage : program_.storages) lives.emplace_back(storage.begin, storage.end);
  for (const auto& [id, place] : parts) {
    const auto [begin, end] = lives[static_cast<size_t>(id)];
    auto& whole = lives[static_cast<size_t>(OutermostOf(id, parts).storage)];
    whole = {std::min(whole.first, begin), std::max(whole.second, end)};
  }
  std::vector<int64_t> change(static_cast<size_t>(program_.num_positions) + 2);
  for (size_t i = 0; i < lives.size(); ++i) {
    const Storage& storage = program_.storages[i];
    if (storage.home != Home::kArena || parts.contains(static_cast<int>(i))) continue;
    const int64_t bytes = BytesAt(storage.shape, typical_.Slots());
    change[static_cast<size_t>(lives[i].first)] += bytes;
    change[static_cast<size_t>(lives[i].second) + 1] -= bytes;
  }
  int64_t used = 0, most = 0;
  for (const int64_t bytes : change) most = std::max(most, used += bytes);
  return most;
}

// A result is reserved when its first part is computed: the parts that would make the arena much
// larger are copied after all.
void Builder::PlaceParts() {
  constexpr double kMostArenaGrowth = 1.125;
  const auto room = static_cast<int64_t>(kMostArenaGrowth * static_cast<double>(PeakWith({})));
  std::map<int, Place> kept;
  for (const auto& [id, place] : parts_) {
    kept[id] = place;
    if (PeakWith(kept) > room) kept.erase(id);
  }
  for (Buffer& buffer : program_.buffers) {
    const Place place = OutermostOf(buffer.storage, kept);
    buffer.storage = place.storage;
    buffer.offset += place.offset;
  }
  for (const auto& [id, place] : kept) {
    const Storage& part = program_.storages[static_cast<size_t>(id)];
    Storage& whole = program_.storages[static_cast<size_t>(OutermostOf(id, kept).storage)];
    whole.shared = true;
    whole.begin = std::min(whole.begin, part.begin);
    whole.end = std::max(whole.end, part.end);
  }
  for (const auto& [id, place] : kept) {  // nobody's any more
    program_.storages[static_cast<size_t>(id)].begin = 1;
    program_.storages[static_cast<size_t>(id)].end = 0;
  }
}

}  // namespace quench::codegen
