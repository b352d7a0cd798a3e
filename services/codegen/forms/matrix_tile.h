// A tile of sums in matrix registers: blocks of pixels by columns of 16 output channels, while the reduction of tile.h
// streams packed weights. A register holds the words of a block of pixels for one step of the reduction, another one
// those of 16 channels for it. Weights lie as for pairs and bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/fields.h"
#include "services/codegen/forms/tile.h"
#include "services/codegen/targets/target.h"

namespace quench::codegen {

// The tiles of a kernel: `blocks` of at most `rows` pixels (1 or 2) by at most `columns` of 16 channels, in steps of
// `words` words.
struct MatrixShapes {
  int blocks = 2, rows = MatrixUnit::kRows, columns = 2, words = MatrixUnit::kWords;
  friend bool operator==(const MatrixShapes&, const MatrixShapes&) = default;
  QUENCH_FIELDS(blocks, rows, columns, words)
  // One block with more columns would leave too few registers to load weights ahead of their products.
  static constexpr int MostColumns(int blocks) { return blocks == 1 ? 4 : 2; }
};

struct MatrixTile {
  // A block of pixels.
  struct Block {
    Ptr input;  // first word of the first tap of its first pixel
    Int first;  // row of the first pixel whose results are stored
  };
  std::vector<Block> blocks;
  Int stride;       // bytes from a pixel of a block to the next
  int vectors = 1;  // of channels: whole columns
  Ptr weights;
  Ptr bias;      // `vectors` vectors that sums start with; 0 when invalid
  Ptr prefetch;  // lines to fetch, `prefetch_lines` per step; none when invalid
  int prefetch_lines = 1;
};

// Takes each sum once: f32, or the i32 of bytes. `row` counts the pixels of a block.
using StoreRow = std::function<void(int block, Int row, int vector, Vec value)>;

// The registers of a kernel from its construction to Release.
class MatrixRegisters {
 public:
  // `rows` replaces that of `shapes` if it is known only at run time.
  MatrixRegisters(VectorBuilder& b, MatrixProducts products, const MatrixShapes& shapes, Int rows,
                  int lanes);

  // The reduction's channels are words that lie side by side, a multiple of `words`, and it has no tail.
  void Emit(const MicroReduction& reduction, const MatrixTile& tile, const StoreRow& store);
  void Release() { b_.ReleaseMatrices(); }
  Int rows() const { return rows_; }
  // The start values of a tile's sums plus i32 `factors`, of which the tile's begin with vector `first`, times `zero`.
  Ptr Moved(const MicroTile& tile, Ptr factors, Int first, Vec zero);

 private:
  DataType SumType() const;
  const Matrix& Sum(int block, int column) const {
    return sums_[static_cast<size_t>(block * shapes_.columns + column)];
  }
  void Start(const MatrixTile& tile);
  // Stores pixels that nobody reads, once in VectorBuilder::StoreMatricesWithin steps.
  void StoreInTime();
  // `offset` bytes after the first word of each block.
  void Step(const MatrixTile& tile, Int offset);
  void StoreSums(const MatrixTile& tile, const StoreRow& store);

  VectorBuilder& b_;
  const MatrixProducts products_;
  const MatrixShapes shapes_;
  const Int rows_;
  const int lanes_;
  std::vector<Matrix> sums_, pixels_, weights_;
  Ptr memory_;    // of a tile's sums
  IntVar steps_;  // since a register was stored; invalid where that does not matter
  Ptr starts_;    // of those of a pixel
  PtrVar weights_at_, prefetch_at_;
};

}  // namespace quench::codegen
