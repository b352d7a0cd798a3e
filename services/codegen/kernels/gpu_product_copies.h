// Tiles of both sides of a product on their way to shared memory.
#pragma once

#include <vector>

#include "services/codegen/kernels/gpu_product_plan.h"
#include "services/codegen/kernels/planned_kernel.h"

namespace quench::codegen {

// Where a block's tile lies: its first row and column, of the matrix of a batch, or of a group.
struct GpuBlockPlace {
  Int batch, group, m0, n0;
};

// The place of a chunk in a tile of rows. Chunks of a row are rotated, so that eight rows of a chunk lie in different
// banks.
inline Int PlaceInTile(Int row, Int chunk) {
  return row * GpuProductPlan::kRow + (chunk + row / 2) % 4 * GpuProductPlan::kChunk;
}

// The copies that one thread makes.
class GpuTileCopies {
 public:
  static constexpr int kWeights = 0;  // pack

  // All outlive it.
  GpuTileCopies(VectorBuilder& b, const Planned<GpuProductPlan>& product,
                const GpuBlockPlace& place);
  // Starts to fill the stage at this offset.
  void CopyStep(Int step, Int stage);

 private:
  // A row of a tile that the thread copies a chunk of, in each step.
  struct Source {
    Bool present;
    Int base;  // bytes from the start of the operand
    Int y, x;  // of a convolution: the input pixel under the first tap
    Int to;    // in the stage
  };

  Source RowSource(Int at, Int rows, Int first);
  void BeginLeft();
  void BeginRight();
  void PlacePixel(Int pixel, Source& source);
  void CopyLeft(Int step, Int stage);
  void CopyRow(const Source& source, Ptr operand, Int step, Int stage, int64_t piece);
  void CopyColumns(Int step, Int stage);
  Bool IsInImage(Int y, Int x);
  Bool Always() { return b_.I(0) < b_.I(1); }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const GpuProductPlan& plan_;
  const BufferMap& buffers_;
  const GpuBlockPlace& place_;
  const std::vector<int>& inputs_;  // of the root
  int64_t apart_;                   // rows of a tile between those of a thread
  Int thread_, row_, chunk_;
  Ptr a_, w_;
  std::vector<Source> left_, right_;
  Int weights_to_;
};

}  // namespace quench::codegen
