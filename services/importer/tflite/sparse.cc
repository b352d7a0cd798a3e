#include "services/importer/tflite/sparse.h"

#include <cstring>
#include <vector>

#include "common/base/status.h"

namespace quench::importer {
namespace {

constexpr int64_t kMaxDenseBytes = int64_t{256} << 20;

// One level of the tree.
struct Level {
  bool sparse = false;
  int64_t size = 0;
  std::vector<int64_t> segments, indices;  // of a sparse one
  int64_t stride = 0;                      // in elements of the dense tensor
};

std::vector<int64_t> Numbers(tflite::SparseIndexVector type, const void* list) {
  const auto copy = [](const auto* values) {
    return values == nullptr ? std::vector<int64_t>()
                             : std::vector<int64_t>(values->begin(), values->end());
  };
  if (list == nullptr) return {};
  switch (type) {
    case tflite::SparseIndexVector_Int32Vector:
      return copy(static_cast<const tflite::Int32Vector*>(list)->values());
    case tflite::SparseIndexVector_Uint16Vector:
      return copy(static_cast<const tflite::Uint16Vector*>(list)->values());
    case tflite::SparseIndexVector_Uint8Vector:
      return copy(static_cast<const tflite::Uint8Vector*>(list)->values());
    default:
      return {};
  }
}

absl::StatusOr<std::vector<Level>> LevelsOf(const tflite::SparsityParameters& sparsity,
                                            const TensorHeader& header) {
  const auto rank = static_cast<int64_t>(header.dims.size());
  const auto* order = sparsity.traversal_order();
  const auto* blocks = sparsity.block_map();
  const auto* metadata = sparsity.dim_metadata();
  const int64_t block_rank = blocks == nullptr ? 0 : blocks->size();
  const int64_t levels = rank + block_rank;
  if (block_rank > rank || order == nullptr || metadata == nullptr ||
      int64_t{order->size()} != levels || int64_t{metadata->size()} != levels)
    return InvalidArgument("is sparse, its lists of levels do not have {} entries", levels);
  // Sizes of outer dims and blocks, and the step of each in the dense tensor.
  std::vector<int64_t> sizes(static_cast<size_t>(levels)), strides(static_cast<size_t>(levels));
  int64_t stride = 1;
  for (int64_t dim = rank; dim-- > 0;) {
    sizes[static_cast<size_t>(dim)] = header.dims[static_cast<size_t>(dim)];
    strides[static_cast<size_t>(dim)] = stride;
    stride *= header.dims[static_cast<size_t>(dim)];
  }
  std::vector<bool> seen(static_cast<size_t>(levels), false);
  for (int64_t level = 0; level < levels; ++level) {
    const int64_t dim = order->Get(static_cast<uint32_t>(level));
    if (dim < 0 || dim >= levels || seen[static_cast<size_t>(dim)])
      return InvalidArgument("is sparse, its order of traversal is not a permutation");
    seen[static_cast<size_t>(dim)] = true;
    if (dim < rank) continue;
    const int64_t blocked = blocks->Get(static_cast<uint32_t>(dim - rank));
    const int64_t size = metadata->Get(static_cast<uint32_t>(level))->dense_size();
    if (blocked < 0 || blocked >= rank || size <= 0 ||
        sizes[static_cast<size_t>(blocked)] % size != 0)
      return InvalidArgument("is sparse, its block {} does not divide the tensor", dim - rank);
    sizes[static_cast<size_t>(dim)] = size;
    strides[static_cast<size_t>(dim)] = strides[static_cast<size_t>(blocked)];
    sizes[static_cast<size_t>(blocked)] /= size;
    strides[static_cast<size_t>(blocked)] *= size;
  }
  std::vector<Level> result;
  for (int64_t i = 0; i < levels; ++i) {
    const auto dim = static_cast<size_t>(order->Get(static_cast<uint32_t>(i)));
    const tflite::DimensionMetadata& given = *metadata->Get(static_cast<uint32_t>(i));
    Level level;
    level.size = sizes[dim];
    level.stride = strides[dim];
    level.sparse = given.format() == tflite::DimensionType_SPARSE_CSR;
    if (level.sparse) {
      level.segments = Numbers(given.array_segments_type(), given.array_segments());
      level.indices = Numbers(given.array_indices_type(), given.array_indices());
    } else if (given.dense_size() != level.size) {
      return InvalidArgument("is sparse, level {} has {} entries instead of {}", i,
                             given.dense_size(), level.size);
    }
    result.push_back(std::move(level));
  }
  return result;
}

class Spreader {
 public:
  Spreader(const std::vector<Level>& levels, size_t width, std::span<const std::byte> values,
           Tensor& dense)
      : levels_(levels), width_(width), values_(values), dense_(dense.mutable_bytes()) {}

  // Entry `entry` of level `depth`, whose elements lie from `offset` on.
  absl::Status Spread(size_t depth, int64_t entry, int64_t offset) {
    if (depth == levels_.size()) {
      if (next_ + width_ > values_.size()) return InvalidArgument("is sparse, values are missing");
      std::memcpy(dense_ + static_cast<size_t>(offset) * width_, values_.data() + next_, width_);
      next_ += width_;
      return absl::OkStatus();
    }
    const Level& level = levels_[depth];
    if (!level.sparse) {
      for (int64_t i = 0; i < level.size; ++i)
        QUENCH_RETURN_IF_ERROR(
            Spread(depth + 1, entry * level.size + i, offset + i * level.stride));
      return absl::OkStatus();
    }
    if (entry + 1 >= static_cast<int64_t>(level.segments.size()))
      return InvalidArgument("is sparse, level {} has too few segments", depth);
    const int64_t begin = level.segments[static_cast<size_t>(entry)];
    const int64_t end = level.segments[static_cast<size_t>(entry) + 1];
    if (begin < 0 || end < begin || end > static_cast<int64_t>(level.indices.size()))
      return InvalidArgument("is sparse, segment {} of level {} lies outside its indices", entry,
                             depth);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t index = level.indices[static_cast<size_t>(i)];
      if (index < 0 || index >= level.size)
        return InvalidArgument("is sparse, index {} of level {} lies outside its {} entries", index,
                               depth, level.size);
      QUENCH_RETURN_IF_ERROR(Spread(depth + 1, i, offset + index * level.stride));
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<Level>& levels_;
  size_t width_;
  std::span<const std::byte> values_;
  std::byte* dense_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<Tensor> MakeDense(const tflite::SparsityParameters& sparsity,
                                 const TensorHeader& header, std::span<const std::byte> values) {
  if (header.bytes > kMaxDenseBytes)
    return InvalidArgument("is sparse and takes {} bytes when dense, at most {} are read",
                           header.bytes, kMaxDenseBytes);
  if (DataTypeBits(header.dtype) % 8 != 0)
    return Unsupported("is sparse and of {}", DataTypeName(header.dtype));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Level> levels, LevelsOf(sparsity, header));
  Tensor dense = Tensor::Zeros(header.dtype, header.dims);
  const auto width = static_cast<size_t>(DataTypeBits(header.dtype) / 8);
  QUENCH_RETURN_IF_ERROR(Spreader(levels, width, values, dense).Spread(0, 0, 0));
  return dense;
}

}  // namespace quench::importer
