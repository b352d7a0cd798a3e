// Attention as the blocks of a GPU compute it.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "common/base/fields.h"
#include "services/codegen/kernels/attention_operands.h"
#include "services/codegen/kernels/plan_text.h"

namespace quench::codegen {

// How the threads of a block divide queries and keys.
struct GpuAttentionTile {
  int64_t rows = 64;  // queries of a block
  int64_t keys = 64;  // of a step
  int64_t parts =
      1;  // of the keys of a step, each for threads of its own, which have sums of their own
  friend bool operator==(const GpuAttentionTile&, const GpuAttentionTile&) = default;
  QUENCH_FIELDS(rows, keys, parts)
  int64_t part_keys() const { return keys / parts; }
};

// A block has a tile of the queries of one batch entry and one head of keys: rows count the steps of all heads of
// queries that share it, head by head. It goes through the keys in steps. While it multiplies by the keys of a step,
// their values are copied to shared memory, and while it multiplies exponentials by these, the next keys are. Sums of a
// row are scaled to its largest score so far (Milakov and Gimelshein, Online normalizer calculation for softmax,
// arXiv:1805.02867); scores and exponentials of halves stay in registers, as what one product gives is what the next
// one takes (Dao, FlashAttention-2, arXiv:2307.08691). Where there are few rows, parts of the block have parts of the
// keys, and their sums are joined at the end, in order.
struct GpuAttentionPlan {
  ops::AttentionShape shape;
  std::vector<Dim> mask_dims;  // four, where there is a mask
  DataType mask_type = DataType::kF32;
  std::optional<WarpProducts> products;  // nothing: of f32, in the ordinary units
  std::optional<GpuAttentionTile> many;
  std::optional<GpuAttentionTile> few;  // with `many`: for runs that have no more rows than it
  int64_t threads = 128;
  Dim tasks = 1, scratch = 0;

  friend bool operator==(const GpuAttentionPlan&, const GpuAttentionPlan&) = default;
  QUENCH_FIELDS(shape, mask_dims, mask_type, products, many, few, threads, tasks, scratch)

  static constexpr int64_t kChunk = 16;             // bytes
  static constexpr int64_t kMostInRegisters = 128;  // numbers of a query
  int64_t element() const { return DataTypeBits(shape.type) / 8; }
  int64_t sharing() const { return shape.heads / shape.kv_heads; }
  // Chunks of a row of numbers in shared memory: for tensor cores, whole steps of theirs.
  int64_t Chunks(int64_t numbers) const;
  // Bytes from a row to the next one: an odd number of chunks, so that eight rows of a chunk lie in different banks.
  int64_t Pitch(int64_t numbers) const { return (Chunks(numbers) | 1) * kChunk; }
  int64_t key_pitch() const { return Pitch(shape.size); }
  int64_t value_pitch() const { return Pitch(shape.value_size); }
  // Tensor cores only: queries are read from shared memory once, where values are later.
  bool queries_in_registers() const { return products && shape.size <= kMostInRegisters; }

  // Shared memory of a tile, by byte offsets.
  struct Places {
    int64_t queries = 0, keys = 0, values = 0;
    int64_t exponentials = 0, exponential_pitch = 0;  // f32: [parts][rows][keys of a part]
    int64_t sums = 0, sum_pitch = 0;                  // of parts, in the end: [parts][rows][size]
    int64_t largest = 0, totals = 0;                  // of the same: [parts][rows]
    int64_t bytes = 0;
  };
  Places PlacesOf(const GpuAttentionTile& tile) const;
  int64_t shared_bytes() const {
    return std::max(many ? PlacesOf(*many).bytes : 0, few ? PlacesOf(*few).bytes : 0);
  }
};

// Nothing where the kernel does not support the group.
std::optional<GpuAttentionPlan> PlanGpuAttention(const KernelRequest& request, const Group& group);

// Microseconds.
double GpuAttentionCost(const KernelRequest& request, const GpuAttentionPlan& plan);

}  // namespace quench::codegen
