// How a convolution is carried out by Winograd's minimal filtering.
#pragma once

#include <optional>

#include "services/codegen/kernels/conv_plan.h"
#include "services/codegen/kernels/winograd_transform.h"

namespace quench::codegen {

// Tensors are NCHW<lanes>c. Patches of the input are transformed into scratch, as
// [points][blocks][tiles][lanes]; each point's product with its weights is a GEMM by the
// micro-kernel, whose pixels are tiles; results are transformed back. As in direct convolution, the
// work is divided into tasks in one of two ways:
//  * by panels of output channels: each range of tasks transforms the patches of a whole image
//    itself, because they are larger than the image and would take longer to come from another
//    core. It takes all its panels through one point before the next: a point's patches stay in the
//    nearest caches, and weights are read once. Results are transformed back at the end;
//  * by groups of tiles: the transformed patches of a group stay in L2, and all panels run over
//    them; their results are transformed back one panel at a time.
struct WinogradPlan {
  ConvShape shape;
  WinogradSize size;
  AnyForm form;  // of transformed patches and weights
  int lanes = 8;
  int64_t blocks = 1;   // blocks of input channels
  int64_t vectors = 1;  // vectors of output channels
  // The layout of the library's weights. Always used for weights that are transformed at run time.
  SharedPanels shared;
  Tile tile;  // of the micro-kernel: x tiles of the image by vectors
  PanelSplit panels;
  int unroll = 8;
  bool by_panels = false;
  // The library holds the weights untransformed, and a task transforms its panel's while it runs:
  // no copies in the library, for work that pays if many tiles share it. By panels only.
  bool transforms_weights = false;
  // If `transforms_weights`: blocks of input channels taken at a time, so that their weights stay in
  // L2 between being transformed and being multiplied.
  int64_t chunk_blocks = 1;
  Dim tiles_x = 1, tiles_y = 1;
  TileAxis axis;            // tiles of an image, in tiles of the micro-kernel
  Dim parts = 1;            // parts of `axis`
  int64_t group_parts = 1;  // by groups: parts that a task takes
  int64_t room = 1;         // tiles of the image in scratch
  Dim tasks = 1;
  int64_t scratch = 0;  // bytes

  friend bool operator==(const WinogradPlan&, const WinogradPlan&) = default;
  QUENCH_FIELDS(shape, size, form, lanes, blocks, vectors, shared, tile, panels, unroll, by_panels,
                transforms_weights, chunk_blocks, tiles_x, tiles_y, axis, parts, group_parts, room,
                tasks, scratch)
  bool by_points() const { return by_panels && !transforms_weights; }
  int64_t points() const { return size.points(); }
  int64_t vector_bytes() const { return int64_t{4} * lanes; }
  // Distances of the points in scratch. An odd number of cache lines, so that they do not share sets.
  int64_t input_point() const { return Apart(blocks * room * vector_bytes()); }
  int64_t output_point() const {
    return Apart((by_points() ? vectors : tile.vectors) * room * vector_bytes());
  }
  int64_t output_at() const { return points() * input_point(); }  // in scratch, after the input
  int64_t weights_at() const { return output_at() + points() * output_point(); }
  int64_t chunks() const { return (blocks + chunk_blocks - 1) / chunk_blocks; }
  // Size of a point of weights that are transformed at run time, for `count` vectors of output
  // channels.
  int64_t weights_point(int64_t count) const {
    return Apart(chunk_blocks * lanes * count * vector_bytes());
  }
  // Weights of a point as tiles read them.
  WeightPanels weights() const {
    return {.split = panels,
            .lanes = lanes,
            .run = blocks * lanes,
            .unroll = unroll,
            .shared = transforms_weights ? SharedPanels{} : shared};
  }
  // Weights of one vector of output channels.
  int64_t vector_weight_bytes() const { return points() * blocks * lanes * vector_bytes(); }
  int64_t weight_bytes() const { return vectors * vector_weight_bytes(); }

 private:
  static int64_t Apart(int64_t bytes) { return (bytes + 63) / 128 * 128 + 64; }
};

// Nothing where the convolution's taps are not size.taps by size.taps of stride 1 over f32 of rank 4 in
// one group, or it has no whole vector of input and of output channels.
std::optional<WinogradPlan> PlanWinograd(const KernelRequest& request, const ConvRoot& conv,
                                         const WinogradSize& size, bool transforms_weights);

// The row order of tasks by groups over images of static size; `input` is the index of the
// convolution's data input.
std::optional<RowOrder> RowOrderOf(const WinogradPlan& plan, int input);

// Predicted microseconds on one core.
double WinogradCost(const KernelRequest& request, const WinogradPlan& plan);

}  // namespace quench::codegen
