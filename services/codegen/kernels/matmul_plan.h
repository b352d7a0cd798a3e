// Matrix products as the micro-kernel computes them: what a node's operands are, and how the work is
// cut.
#pragma once

#include <optional>

#include "services/codegen/kernels/byte_root.h"
#include "services/codegen/kernels/epilogue.h"
#include "services/codegen/kernels/micro_kernel.h"
#include "services/codegen/kernels/stored_weights.h"
#include "services/codegen/kernels/tile.h"

namespace quench::codegen {

// [batch, m, k] x [batch, k, n]; a side without batch is the same matrix for all.
struct MatMulShape {
  std::optional<ByteRoot> bytes;        // of a MatMulInteger
  std::optional<StoredWeights> stored;  // of a q.weight_only_matmul
  Dim batch = 1, m = 1, k = 1, n = 1;   // of bytes, k counts words of four
  Dim depth = 0;                        // bytes of a row in memory
  bool a_batched = false, b_batched = false;
  bool a_transposed = false, b_transposed = false;
  bool constant_b = false;
  float alpha = 1, beta = 1;
  bool has_bias = false;
  // Whether rows of bytes become words of their own, which k counts (BytePanel).
  bool widened() const { return bytes && bytes->form == BytesForm::kWords; }
};

struct MatMulPlan {
  MatMulShape shape;
  int lanes = 8;
  int unroll = 8;
  Tile tile;
  Split panels;  // of a static n
  TileAxis rows;
  bool unpack = false;   // stored weights become floats in scratch, for many rows
  bool by_rows = false;  // tasks are ranges of row tiles, else panels
  int64_t task_tiles = 1;
  Dim panel_count = 1, tasks = 1, scratch = 0;
};

// The root of a group as a product; nothing when the micro-kernel does not take it. May take a bias
// out of the group's epilogue.
std::optional<MatMulShape> ReadMatMulShape(const KernelRequest& request, Group& group);

MatMulPlan PlanMatMul(const KernelRequest& request, const MatMulShape& shape);

// Microseconds; `type` is that of the result.
double MatMulCost(const KernelRequest& request, const MatMulPlan& plan, DataType type);

}  // namespace quench::codegen
