// The two products of attention as the threads of a block compute them, for a tile of queries and the keys of a step.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "services/codegen/kernels/gpu_attention_plan.h"

namespace quench::codegen {

// Each thread has scores of some rows and keys, and sums of these rows and some columns of values. Calls are for all
// threads of the block, in the order in which they are declared; those from Multiply to AddValues are repeated.
class GpuAttentionProducts {
 public:
  virtual ~GpuAttentionProducts() = default;

  virtual int rows() const = 0;                 // of a thread
  virtual int keys() const = 0;                 // of a thread
  virtual Int Row(int row) = 0;                 // of the tile
  virtual Int FirstKey() = 0;                   // of the step
  virtual int64_t KeyAfter(int key) const = 0;  // from its first one
  // Lanes `lane ^ mask` for these have other keys of the same rows, all together those of a part.
  virtual std::span<const int> Others() const = 0;
  virtual Int Part() = 0;
  // Whether it has the first keys of its part.
  virtual Bool IsFirst() = 0;

  // Sums are 0. Queries are in shared memory, for the last time where the plan has them in registers.
  virtual void Begin() = 0;
  // Scores of the keys in shared memory.
  virtual void Multiply() = 0;
  virtual const VecVar& Score(int row, int key) = 0;  // which become exponentials
  virtual void ScaleSums(int row, Vec factor) = 0;
  // Before the barrier after which values are in shared memory.
  virtual void ShareExponentials() = 0;
  virtual void AddValues() = 0;
  // Calls body(row, first column, sums of columns in one vector or one by one).
  using Body = std::function<void(int row, Int column, std::span<const Vec> sums)>;
  virtual void ForSums(const Body& body) = 0;
};

std::unique_ptr<GpuAttentionProducts> MakeGpuAttentionProducts(VectorBuilder& b,
                                                               const GpuAttentionPlan& plan,
                                                               const GpuAttentionTile& tile);

}  // namespace quench::codegen
