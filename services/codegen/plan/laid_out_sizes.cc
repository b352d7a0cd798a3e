#include "services/codegen/plan/laid_out_sizes.h"

#include <algorithm>

#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

// No tensor is larger than this, so that sums and products of sizes stay in int64.
constexpr int64_t kMaxBytes = int64_t{1} << 46;

int64_t Multiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? kMaxBytes : std::min(product, kMaxBytes);
}

}  // namespace

std::vector<int64_t> TypicalSlots(const SymbolTable& symbols) {
  return TypicalSizes(symbols).Slots();
}

int64_t ElementsAt(std::span<const Dim> dims, std::span<const int64_t> slots) {
  int64_t count = 1;
  for (const Dim dim : dims) {
    const int64_t value = SymbolTable::ValueOf(dim, slots);
    count = Multiply(count, value < 0 ? 1 : value);
  }
  return count;
}

int64_t BytesAt(const Shape& shape, std::span<const int64_t> slots) {
  const int rank = static_cast<int>(shape.dims.size());
  int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis) {
    int64_t value =
        std::max<int64_t>(SymbolTable::ValueOf(shape.dims[static_cast<size_t>(axis)], slots), 0);
    if (axis == shape.layout.blocked_axis)
      value = (value + shape.layout.block - 1) / shape.layout.block * shape.layout.block;
    count = Multiply(count, value);
  }
  return (Multiply(count, DataTypeBits(shape.dtype)) + 7) / 8;
}

int64_t TouchedBytes(const Graph& graph, const Node& node) {
  const std::vector<int64_t> slots = TypicalSlots(*graph.symbols);
  int64_t bytes = 0;
  for (const std::vector<ValueId>& ids : {node.inputs, node.outputs}) {
    for (const ValueId id : ids) {
      if (id == quench::kNone || !graph.value(id).type.ranked) continue;
      const Type& type = graph.value(id).type;
      bytes = std::min(bytes + BytesAt({type.dtype, type.dims, {}}, slots), kMaxBytes);
    }
  }
  return bytes;
}

bool IsFixed(const Shape& shape) {
  return std::all_of(shape.dims.begin(), shape.dims.end(), [](Dim dim) { return dim.is_static(); });
}

bool DependsOnRuntime(const Shape& shape, const SymbolTable& symbols) {
  return std::any_of(shape.dims.begin(), shape.dims.end(),
                     [&](Dim dim) { return symbols.DependsOnRuntime(dim); });
}

loops::E BytesOf(loops::Builder& b, const Shape& shape, const SymbolTable& symbols,
                 const DimValue& value, const std::string& name) {
  if (IsFixed(shape)) return b.I(BytesAt(shape, {}));
  const int rank = static_cast<int>(shape.dims.size());
  loops::E count = b.I(1);
  int64_t most = 1;  // what is known of count
  for (int axis = 0; axis < rank; ++axis) {
    const Dim dim = shape.dims[static_cast<size_t>(axis)];
    loops::E extent = value(dim);
    if (symbols.BoundsOf(dim).min < 0) {
      extent = b.Let(extent);
      b.Check(extent >= b.I(0), "tensor `" + name + "` would have a negative size");
    }
    const int64_t block = axis == shape.layout.blocked_axis ? shape.layout.block : 1;
    if (block > 1) extent = CeilDiv(extent, b.I(block)) * block;
    const int64_t bound = symbols.BoundsOf(dim).max;
    const int64_t extent_most = bound >= kMaxBytes ? kMaxBytes : bound + block;
    most = Multiply(most, extent_most);
    if (most >= kMaxBytes) {
      extent = b.Let(extent);
      b.Check(extent <= b.I(kMaxBytes), "tensor `" + name + "` is too large");
      b.Check(count <= b.I(kMaxBytes) / Max(extent, b.I(1)), "tensor `" + name + "` is too large");
    }
    count = b.Let(count * extent, "count");
  }
  const int64_t bits = DataTypeBits(shape.dtype);
  return b.Let(bits % 8 == 0 ? count * (bits / 8) : CeilDiv(count * bits, b.I(8)), "bytes");
}

}  // namespace quench::codegen
