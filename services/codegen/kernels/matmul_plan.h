// Matrix products as the micro-kernel computes them: the operands of a node, and the division of
// the work.
#pragma once

#include <optional>

#include "common/base/fields.h"
#include "services/codegen/forms/any_form.h"
#include "services/codegen/forms/register_tile.h"
#include "services/codegen/forms/shared_panels.h"
#include "services/codegen/kernels/byte_root.h"
#include "services/codegen/kernels/epilogue.h"
#include "services/codegen/kernels/tile_axis.h"

namespace quench::codegen {

// [batch, m, k] x [batch, k, n]; a side without batch is the same matrix for all.
struct MatMulShape {
  std::optional<ByteRoot> bytes;  // of a MatMulInteger: its operands
  Dim batch = 1, m = 1, k = 1, n = 1;
  bool a_batched = false, b_batched = false;
  bool a_transposed = false, b_transposed = false;
  bool constant_b = false;
  DataType a_type = DataType::kF32, b_type = DataType::kF32;  // in memory
  float alpha = 1, beta = 1;
  bool has_bias = false;
  std::optional<DataType> lengths;  // of a q.sequence_matmul's input 2: rows are [time, samples]
  Dim samples = 1;
  friend bool operator==(const MatMulShape&, const MatMulShape&) = default;
  QUENCH_FIELDS(bytes, batch, m, k, n, a_batched, b_batched, a_transposed, b_transposed, constant_b,
                a_type, b_type, alpha, beta, has_bias, lengths, samples)
  bool computed_bytes() const { return bytes && bytes->w; }  // that a BytePanel packs
};
// A node as a product.
struct MatMulRoot {
  MatMulShape shape;
  AnyForm form;
};

struct MatMulPlan {
  MatMulShape shape;
  AnyForm form;
  Dim words = 1;  // along k, that the reduction multiplies
  int lanes = 8;
  int unroll = 8;
  Tile tile;
  SharedPanels shared;
  PanelSplit panels;  // of a static n
  TileAxis rows;
  Dim row_parts = 1;     // tiles along them
  bool by_rows = false;  // tasks are ranges of row tiles, else panels
  int64_t task_tiles = 1;
  Dim panel_count = 1, tasks = 1, scratch = 0;
  Dim rows_at = 0;  // of scratch, where rows are widened
  // All rows that a task multiplies become f32 at its start, instead of a tile's rows at a time.
  bool widen_once = false;
  friend bool operator==(const MatMulPlan&, const MatMulPlan&) = default;
  QUENCH_FIELDS(shape, form, words, lanes, unroll, tile, shared, panels, rows, row_parts, by_rows,
                task_tiles, panel_count, tasks, scratch, rows_at, widen_once)
  // Whether a tile's rows become f32 in scratch.
  bool widens_rows() const { return IsHalf(shape.a_type) && form->reads_floats(); }
  // Constant weights as the form has them.
  WeightPanels weights() const;
};

// The root of a group as a product; nothing when the micro-kernel does not support it. May take a
// bias out of the group's epilogue.
std::optional<MatMulRoot> ReadMatMul(const KernelRequest& request, Group& group);

// Nothing where there is no such variation.
std::optional<MatMulPlan> PlanMatMul(const KernelRequest& request, const MatMulRoot& product,
                                     const PlanVariation& variation = {});

// Microseconds; `type` is that of the result.
double MatMulCost(const KernelRequest& request, const MatMulPlan& plan, DataType type);

}  // namespace quench::codegen
