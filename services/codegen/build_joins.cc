// Concat without a copy: its operands are computed where they belong in its result.
#include <algorithm>

#include "common/base/status.h"
#include "services/codegen/build_internal.h"

namespace quench::codegen {
namespace {

// Where the operands of a Concat lie in its result: bytes before each. Nothing where one of them does
// not lie in one piece, or would begin in the middle of a vector.
std::vector<int64_t> OffsetsIn(const Shape& result, std::span<const Shape> operands, int64_t axis) {
  const Layout& layout = result.layout;
  if (!layout.row_major() && (layout.blocked_axis != axis || !layout.order.empty())) return {};
  constexpr int64_t kAlignment = 32;
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const Shape& operand : operands) {
    if (!IsFixed(operand) || !(operand.layout == layout) || end % kAlignment != 0) return {};
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

// A storage that nothing else decides about, filled by one buffer.
bool Builder::CanBecomePart(int buffer) const {
  const Buffer& whole = program_.buffers[static_cast<size_t>(buffer)];
  const Storage& storage = program_.storages[static_cast<size_t>(whole.storage)];
  return storage.home == Home::kArena && !storage.shared && whole.offset == 0 &&
         storage_block_[static_cast<size_t>(whole.storage)] == 1 &&
         BytesAt(storage.shape, {}) == BytesAt(whole.shape, {});
}

Builder::Part Builder::OutermostOf(int storage) const {
  Part part{storage, 0};
  for (auto found = parts_.find(storage); found != parts_.end(); found = parts_.find(part.whole))
    part = {found->second.whole, part.offset + found->second.offset};
  return part;
}

// Storages that can lie in the result, by operand: the operand's own, or what earlier Concats have
// joined it to if the operands from here on are all of that, in its order. `next`: the first operand
// behind it.
std::optional<Builder::Part> Builder::PartAt(std::span<const int> operands,
                                             std::span<const int64_t> offsets, size_t first,
                                             size_t& next) const {
  const int storage = program_.buffers[static_cast<size_t>(operands[first])].storage;
  next = first + 1;
  if (CanBecomePart(operands[first])) return Part{storage, offsets[first]};
  const Part outermost = OutermostOf(storage);
  if (outermost.whole == storage || outermost.offset != 0) return std::nullopt;
  const Storage& joined = program_.storages[static_cast<size_t>(outermost.whole)];
  if (joined.home != Home::kArena || joined.shared) return std::nullopt;
  int64_t covered = 0;
  for (next = first; next < operands.size(); ++next) {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(operands[next])];
    const Part part = OutermostOf(buffer.storage);
    if (part.whole != outermost.whole || part.offset != offsets[next] - offsets[first]) break;
    covered += BytesAt(buffer.shape, {});
  }
  if (covered != BytesAt(joined.shape, {})) return std::nullopt;
  return Part{outermost.whole, offsets[first]};
}

absl::StatusOr<bool> Builder::BuildJoined(Frame& frame, const Node& node, const Candidate& chosen) {
  if (node.op != "Concat" || blocks_.size() != 1) return false;
  const Value& value = frame.graph.value(node.outputs[0]);
  const Shape shape{value.type.dtype, value.type.dims, chosen.outputs[0]};
  std::vector<Shape> shapes;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Type& type = frame.graph.value(node.inputs[i]).type;
    shapes.push_back({type.dtype, type.dims, chosen.inputs[i]});
  }
  const auto rank = static_cast<int64_t>(value.type.dims.size());
  const int64_t axis = node.Int("axis", 0);
  const std::vector<int64_t> offsets = OffsetsIn(shape, shapes, axis < 0 ? axis + rank : axis);
  if (offsets.empty()) return false;
  std::vector<int> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    QUENCH_ASSIGN_OR_RETURN(const int buffer, BufferOf(frame, node.inputs[i], chosen.inputs[i]));
    operands.push_back(buffer);
  }
  std::vector<Part> parts;
  std::vector<size_t> copied;
  std::set<int> taken;
  int64_t copied_bytes = 0;
  for (size_t i = 0, next = 0; i < operands.size(); i = next) {
    const std::optional<Part> part = PartAt(operands, offsets, i, next);
    if (part && taken.insert(part->whole).second) {
      parts.push_back(*part);
      continue;
    }
    next = i + 1;
    copied.push_back(i);
    copied_bytes += BytesAt(shapes[i], {});
  }
  // What cannot be computed there is copied, one thread for all: a kernel does that as well.
  if (2 * copied_bytes > BytesAt(shape, {})) return false;
  const int whole = NewStorage(Home::kArena, shape);
  for (const Part& part : parts) {
    parts_[part.whole] = {whole, part.offset};
    program_.storages[static_cast<size_t>(part.whole)].shared = true;
  }
  for (const int operand : operands) Use(operand);
  for (const size_t i : copied) {
    const int place = NewBuffer(value.name, shapes[i], whole);
    program_.buffers[static_cast<size_t>(place)].offset = offsets[i];
    QUENCH_RETURN_IF_ERROR(AddCopy(operands[i], place));
  }
  BindValue(frame, node.outputs[0], NewBuffer(value.name, shape, whole));
  return true;
}

// Buffers of parts become buffers of the storage that the parts lie in.
void Builder::PlaceParts() {
  for (Buffer& buffer : program_.buffers) {
    const Part part = OutermostOf(buffer.storage);
    buffer.storage = part.whole;
    buffer.offset += part.offset;
  }
  for (const auto& [id, inner] : parts_) {
    Storage& part = program_.storages[static_cast<size_t>(id)];
    Storage& whole = program_.storages[static_cast<size_t>(OutermostOf(id).whole)];
    whole.shared = true;
    whole.begin = std::min(whole.begin, part.begin);
    whole.end = std::max(whole.end, part.end);
  }
  for (const auto& [id, inner] : parts_) {  // nobody's any more
    program_.storages[static_cast<size_t>(id)].begin = 1;
    program_.storages[static_cast<size_t>(id)].end = 0;
  }
}

}  // namespace quench::codegen
