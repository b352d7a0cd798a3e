// Shapes and attributes of q.attention, for its loops and for kernels.
#pragma once

#include <optional>

#include "common/base/fields.h"
#include "common/ops/heads.h"

namespace quench::ops {

// Inputs of a q.attention: queries, keys, values, mask, lengths.
enum AttentionInput {
  kAttentionQuery,
  kAttentionKey,
  kAttentionValue,
  kAttentionMask,
  kAttentionLengths
};

// Where a tensor has its heads: [batch, heads, steps, size], or, of rank 3, the columns from `offset`
// of [batch, steps, columns], `size` a head.
struct HeadsAt {
  bool folded = false;
  Dim columns = 0;     // of rank 3
  int64_t offset = 0;  // of rank 3
  friend bool operator==(const HeadsAt&, const HeadsAt&) = default;
  QUENCH_FIELDS(folded, columns, offset)
};

struct AttentionShape {
  DataType type = DataType::kF32;
  Dim batch = 1, steps = 1, keys = 1;
  int64_t heads = 1, kv_heads = 1;   // kv_heads divides heads: so many heads share keys and values
  int64_t size = 1, value_size = 1;  // of a head
  HeadsAt at[3];                     // queries, keys, values
  bool folded_result = false;        // [batch, steps, heads * value_size], else of rank 4
  double scale = 1;
  double cap = 0;   // scores are cap * tanh(score / cap); 0: as they are
  double fill = 0;  // a score where a mask of bool is false
  bool causal = false;
  bool at_end = false;         // the last query is at the last key, else the first at the first
  bool empty_is_zero = false;  // the result of a query that may attend nothing, else NaN
  bool has_mask = false, has_lengths = false;
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
  QUENCH_FIELDS(type, batch, steps, keys, heads, kv_heads, size, value_size, at, folded_result,
                scale, cap, fill, causal, at_end, empty_is_zero, has_mask, has_lengths)
};

// Needs a node with inferred types. An error if the operands do not fit each other.
absl::StatusOr<AttentionShape> AttentionShapeOf(const OpContext& ctx);

}  // namespace quench::ops
