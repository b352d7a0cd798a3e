#include "services/codegen/object/weights.h"

#include <cstring>
#include <numeric>

#include "common/base/status.h"
#include "services/codegen/packs/pack.h"
#include "services/codegen/plan/laid_out_sizes.h"

namespace quench::codegen {
namespace {

absl::StatusOr<std::vector<std::byte>> PackEntry(const WeightEntry& entry) {
  std::vector<const Tensor*> sources;
  for (const Constant* constant : entry.sources) sources.push_back(&constant->tensor);
  return Pack(entry.spec, sources);
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> Relayout(const Tensor& tensor, const Layout& layout) {
  const int bits = DataTypeBits(tensor.dtype());
  const int rank = tensor.rank();
  if (bits % 8 != 0 || bits == 0 || layout.blocked_axis >= rank) {
    return Internal("cannot lay out {} of rank {} as {}", DataTypeName(tensor.dtype()), rank,
                    layout.ToString());
  }
  const auto element = static_cast<size_t>(bits / 8);
  std::vector<int> order = layout.order;
  if (order.empty()) {
    order.resize(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<Dim> dims(tensor.dims().begin(), tensor.dims().end());
  std::vector<std::byte> out(static_cast<size_t>(BytesAt({tensor.dtype(), dims, layout}, {})));
  // Strides of the logical axes in the new memory, in elements; a blocked axis has its blocks at
  // its place.
  const int64_t block = layout.blocked_axis >= 0 ? layout.block : 1;
  std::vector<int64_t> strides(static_cast<size_t>(rank), 0);
  int64_t stride = block;
  for (size_t i = order.size(); i-- > 0;) {
    const int axis = order[i];
    int64_t extent = tensor.dims()[static_cast<size_t>(axis)];
    if (axis == layout.blocked_axis) extent = (extent + block - 1) / block;
    strides[static_cast<size_t>(axis)] = stride;
    stride *= extent;
  }
  std::vector<int64_t> index(static_cast<size_t>(rank), 0);
  const std::byte* from = tensor.bytes().data();
  for (int64_t n = tensor.size(); n > 0; --n, from += element) {
    int64_t at = 0;
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t i = index[static_cast<size_t>(axis)];
      const int64_t step = strides[static_cast<size_t>(axis)];
      at += axis == layout.blocked_axis ? i / block * step + i % block : i * step;
    }
    std::memcpy(out.data() + static_cast<size_t>(at) * element, from, element);
    for (int axis = rank - 1; axis >= 0; --axis) {
      if (++index[static_cast<size_t>(axis)] < tensor.dims()[static_cast<size_t>(axis)]) break;
      index[static_cast<size_t>(axis)] = 0;
    }
  }
  return out;
}

absl::StatusOr<std::vector<uint64_t>> WriteWeights(const WeightTable& table, WeightsWriter& writer,
                                                   const StepContext& context) {
  std::vector<uint64_t> offsets;
  const auto total = static_cast<int64_t>(table.entries().size());
  for (const WeightEntry& entry : table.entries()) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report({"weights", "", static_cast<int64_t>(offsets.size()), total});
    QUENCH_ASSIGN_OR_RETURN(const uint64_t offset, writer.Begin());
    offsets.push_back(offset);
    if (!entry.packed && entry.layout.row_major()) {
      QUENCH_RETURN_IF_ERROR(writer.Append(entry.sources[0]->tensor.bytes()));
      continue;
    }
    QUENCH_ASSIGN_OR_RETURN(
        const std::vector<std::byte> bytes,
        entry.packed ? PackEntry(entry) : Relayout(entry.sources[0]->tensor, entry.layout));
    QUENCH_RETURN_IF_ERROR(writer.Append(bytes));
  }
  return offsets;
}

}  // namespace quench::codegen
