// Weights of a product of floats that lie in memory as integers, and are scaled where they are read:
// w = (q + shift - zero) * scale, with one scale and zero for each block of the summed axis and each
// column.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/fields.h"
#include "services/codegen/forms/vector_builder.h"

namespace quench::codegen {

struct StoredWeights {
  int bits = 8;  // 8: an i8 a byte; 4: eight rows of a block a word, from the lowest bits on
  bool blocked = false;  // scales for every `block` rows, else one for all
  int64_t block = 0;     // rows
  // The common part of all zero points is in the shift; if they differ, `zeros` holds the rest.
  int64_t shift = 0;  // 0 of 8 bits; of 4, -15 to 0
  bool zeros = false;
  int rows_together() const { return bits == 8 ? 1 : 8; }
  int64_t bytes_together() const { return bits == 8 ? 1 : 4; }  // of a column
  int64_t Parts(int64_t rows) const { return (rows + rows_together() - 1) / rows_together(); }
  // Bytes that a column of `k` rows takes.
  int64_t Bytes(int64_t k) const {
    if (!blocked) return Parts(k) * bytes_together();
    return (k / block * Parts(block) + Parts(k % block)) * bytes_together();
  }
  // Scales of a column of `k` rows.
  int64_t Blocks(int64_t k) const { return blocked ? (k + block - 1) / block : 1; }
  friend bool operator==(const StoredWeights&, const StoredWeights&) = default;
  QUENCH_FIELDS(bits, blocked, block, shift, zeros)
  std::string ToString() const;  // "i4 weights in blocks of 32"
};

// Stored weights as floats, for so many vectors side by side.
class StoredReader {
 public:
  // `scales` (invalid: all 1) and `zeros` (invalid: all 0) of the block that the rows are in, a
  // vector after another.
  StoredReader(VectorBuilder& b, const StoredWeights& stored, int lanes, int vectors, Ptr scales,
               Ptr zeros)
      : b_(b), stored_(stored), lanes_(lanes), vectors_(vectors), scales_(scales), zeros_(zeros) {}
  // Reads one of the rows that are interleaved at `weights`.
  std::vector<Vec> Row(Ptr weights, int row) const;

 private:
  VectorBuilder& b_;
  const StoredWeights& stored_;
  int lanes_, vectors_;
  Ptr scales_, zeros_;
};

}  // namespace quench::codegen
