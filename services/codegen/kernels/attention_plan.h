// Attention as tiles: how the queries of a head are divided, and which of its keys are in scratch
// at once.
#pragma once

#include <algorithm>
#include <optional>

#include "common/base/fields.h"
#include "common/ops/q_attention.h"
#include "services/codegen/forms/any_form.h"
#include "services/codegen/kernels/epilogue.h"
#include "services/codegen/kernels/tile_axis.h"

namespace quench::codegen {

// A task has a range of query tiles of one batch entry and one head of keys, and all heads of queries
// that share it. For each block of keys it transposes the keys and packs the values; each tile
// multiplies its queries by the keys, takes the exponentials, and multiplies by the values while the
// scores are in the nearest cache. Over several blocks sums are scaled to the largest score so far
// (Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867).
struct AttentionPlan {
  ops::AttentionShape shape;
  AnyForm form;                // of queries and keys, and of scores and values, in scratch
  std::vector<Dim> mask_dims;  // four, where there is a mask
  DataType mask_type = DataType::kF32;
  int lanes = 8;
  int unroll = 4;
  int vectors = 2;  // of keys and of values in a tile
  TileAxis rows;    // of queries
  int64_t task_tiles = 1;
  Dim row_tasks = 1, tasks = 1;
  int64_t block = 0;    // keys at once
  bool single = false;  // all keys are one block, whose size is known
  // Whether few queries read keys and values in place, one query at a time: always, never, or if a
  // run has few enough.
  bool few = false, many = true;
  // Scratch of a task, in bytes.
  int64_t keys_at = 0, values_at = 0, queries_at = 0, scores_at = 0, factors_at = 0;
  int64_t sums_at = 0, largest_at = 0, totals_at = 0;  // of all rows of a task, over several blocks
  int64_t scratch = 0;

  friend bool operator==(const AttentionPlan&, const AttentionPlan&) = default;
  QUENCH_FIELDS(shape, form, mask_dims, mask_type, lanes, unroll, vectors, rows, task_tiles,
                row_tasks, tasks, block, single, few, many, keys_at, values_at, queries_at,
                scores_at, factors_at, sums_at, largest_at, totals_at, scratch)
  static constexpr int64_t kFewQueries = 4;
  // Number of heads of queries for one head of keys.
  int64_t sharing() const { return shape.heads / shape.kv_heads; }
  int64_t task_rows() const { return task_tiles * rows.most; }
  int64_t key_vectors() const { return block / lanes; }  // of a block, rounded up to tiles
  int64_t value_vectors() const { return (shape.value_size + lanes - 1) / lanes; }
  int64_t pitch() const { return 4 * block; }  // bytes from a query's scores to the next one's
  // Matrices only: queries, keys, values and exponentials are words of two halves in scratch, in
  // steps of whole matrices.
  bool halves() const { return form->whole_tiles(); }
  static constexpr int64_t kStep = 2 * MatrixUnit::kWords;  // halves
  // Words of a query, and of a key.
  int64_t size_words() const {
    return halves() ? (shape.size + kStep - 1) / kStep * MatrixUnit::kWords : shape.size;
  }
  int64_t QueryBytes() const {
    const int64_t floats = (shape.size + lanes - 1) / lanes * lanes;
    return 4 * std::max(floats, size_words());
  }
};

// The plan of a group, a q.attention, in this form; nothing if the kernel does not support it.
std::optional<AttentionPlan> PlanAttention(const KernelRequest& request, const Group& group,
                                           const AnyForm& form);

// Microseconds.
double AttentionCost(const KernelRequest& request, const AttentionPlan& plan);

}  // namespace quench::codegen
