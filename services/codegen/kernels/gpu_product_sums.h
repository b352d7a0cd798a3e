// The sums of a block's tile, in the registers of its threads.
#pragma once

#include <memory>

#include "services/codegen/kernels/gpu_product_plan.h"

namespace quench::codegen {

class GpuSums {
 public:
  virtual ~GpuSums() = default;
  // Adds the products of the step whose tiles are in the stage at this offset.
  virtual void Multiply(Int stage) = 0;
  // Stores them to shared memory, as block_m rows of block_n numbers.
  virtual void Store() = 0;
};

// In tensor cores, or in the ordinary units, as the plan says.
std::unique_ptr<GpuSums> MakeGpuSums(VectorBuilder& b, const GpuProductPlan& plan);

}  // namespace quench::codegen
