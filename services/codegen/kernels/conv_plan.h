// How a convolution is carried out by the micro-kernel.
#pragma once

#include <optional>
#include <string>

#include "common/base/fields.h"
#include "services/codegen/forms/any_form.h"
#include "services/codegen/forms/shared_panels.h"
#include "services/codegen/kernels/blocks.h"
#include "services/codegen/kernels/byte_root.h"
#include "services/codegen/kernels/epilogue.h"
#include "services/codegen/kernels/tile_axis.h"

namespace quench::codegen {

// A Conv node, or a ConvInteger, over [n, channels, h, w] (h = 1 for rank 3).
struct ConvShape {
  std::optional<ByteRoot> bytes;  // of a ConvInteger: its operands
  Dim n = 1, h = 1, w = 1, out_h = 1, out_w = 1;
  int64_t in_channels = 1, out_channels = 1, groups = 1;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0;
  DataType x_type = DataType::kF32;  // in memory
  bool padded = false;               // some tap may lie outside of the input
  bool has_bias = false;
  friend bool operator==(const ConvShape&, const ConvShape&) = default;
  QUENCH_FIELDS(bytes, n, h, w, out_h, out_w, in_channels, out_channels, groups, kernel_h, kernel_w,
                stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, x_type, padded,
                has_bias)
  int64_t element() const { return DataTypeBits(x_type) / 8; }  // bytes of one of the input
};
// A node as a convolution.
struct ConvRoot {
  Group group;  // for bytes, without the bias in its epilogue
  ConvShape shape;
  AnyForm form;  // of a blocked input
  DataType w_type() const { return group.InputType(1).dtype; }
};
// Nothing when the node is not a convolution of f32, f16, bf16 or bytes, of rank 3 or 4, with
// constant weights whose channels are static.
const std::optional<ConvRoot>& ReadConv(const KernelRequest& request);

// Tensors are NCHW<block>c. Channels are counted in the words of the form, which a lane multiplies at
// once. Where padding is needed, rows are copied with their border, a band at a time or, by panels, all:
// the copy is 1-3 % of a convolution's time, stays in L2, needs no agreement with the producer about
// halos (two consumers may want different ones, nests need not write any), and works for sizes known
// only at run time. The same copy gathers the channels of a row-major input, and widens f16 and bf16
// that are not multiplied as they are. Two divisions of the work into tasks:
//  * by panels of output channels (weights larger than the input): each task streams its weights
//  once over all pixels;
//  * by bands of rows (input larger than the weights): each task copies its band and runs all
//  panels over it.
struct ConvPlan {
  ConvShape shape;
  AnyForm form;
  int lanes = 8;
  int64_t in_block = 8, out_block = 8;  // channels of a block of the input and of the output
  bool row_major_input = false;
  bool copy = false;   // input is copied: by panels, before (Preparation), else into scratch
  bool flat = false;   // 1x1, stride 1: all pixels are one row
  int64_t merged = 1;  // groups computed as one, so that channels fill vectors
  int64_t groups = 1;  // after merging
  int64_t blocks = 1;  // of input channels per group
  int64_t block_channels = 8;  // channels (or words) per block that carry weights
  int64_t pixel_words = 8;     // distance of pixels in the source that the micro-kernel reads
  // taps of a row are contiguous: one run of kernel_w * block_channels channels
  bool fold_width = false;
  int unroll = 8;
  int64_t vectors = 1;  // of output channels per group
  SharedPanels shared;
  Tile tile;
  PanelSplit panels;
  bool by_panels = true;
  int64_t task_tiles = 1;   // by bands: tiles per task along the outer pixel axis
  TileAxis x_axis, y_axis;  // pixels per row (or all pixels when flat) and rows
  Dim outer_parts = 1;      // tiles along the outer one of the two
  Dim tasks = 1;
  Dim scratch = 0;         // bytes
  int64_t image_copy = 0;  // by panels: bytes of an image's copy

  friend bool operator==(const ConvPlan&, const ConvPlan&) = default;
  QUENCH_FIELDS(shape, form, lanes, in_block, out_block, row_major_input, copy, flat, merged,
                groups, blocks, block_channels, pixel_words, fold_width, unroll, vectors, shared,
                tile, panels, by_panels, task_tiles, x_axis, y_axis, outer_parts, tasks, scratch,
                image_copy)
  bool prepares() const { return copy && by_panels; }
  // Whether the copy holds f32, unlike the input.
  bool widens() const { return IsHalf(shape.x_type) && form->reads_floats(); }
  int64_t out_blocks() const { return groups * vectors; }
  int64_t taps() const { return shape.kernel_h * shape.kernel_w; }
  int64_t words() const { return blocks * taps() * block_channels; }
  // Channels of the last block, where a convolution of one tap ends with them: the others are padding,
  // which is skipped. 0: blocks are whole, or are multiplied whole.
  int64_t rest() const {
    const bool skips = taps() == 1 && form->unit() == 1 && !row_major_input && blocks > 1;
    return skips ? shape.in_channels / groups % in_block : 0;
  }
  // Channels that the reduction multiplies, for every tap.
  int64_t steps() const { return words() - (rest() > 0 ? block_channels - rest() : 0); }
  int64_t words_twice() const {
    return shape.bytes && shape.bytes->twice ? static_cast<int64_t>(shape.bytes->twice->size()) : 0;
  }
  // Channels (or words) that lie side by side in what the micro-kernel reads.
  int64_t run() const { return fold_width ? block_channels * shape.kernel_w : block_channels; }
  // Constant weights as the form has them.
  WeightPanels weights() const;
  // Bytes of the weights of a vector of output channels.
  int64_t vector_weight_bytes() const { return form->VectorBytes(weights()); }
  int64_t weight_bytes() const { return out_blocks() * vector_weight_bytes(); }
  int64_t band_rows(int64_t rows) const {  // input rows under `rows` output rows
    return (rows - 1) * shape.stride_h + (shape.kernel_h - 1) * shape.dilation_h + 1;
  }
};

// Nothing where there is no such variation.
std::optional<ConvPlan> PlanConv(const KernelRequest& request, const ConvRoot& conv,
                                 const AnyForm& form, bool row_major_input,
                                 const PlanVariation& variation = {});

// The order in which tasks that split images into bands of rows visit those rows. Requires static
// image sizes. `input` is the index of the convolution's data input.
std::optional<RowOrder> RowOrderOf(const ConvPlan& plan, int input);

// The rows of an image of the input that its first `rows` output rows need.
int64_t RowsUnder(const ConvShape& shape, int64_t rows);

// Whether `tasks` tasks over images of this shape may be listed one by one.
bool CanListRows(const ConvShape& shape, Dim tasks);

// Microseconds of work that takes `micros` on data in cache, and reads `weights` bytes of weights
// from memory beside `activations` bytes. Weights are prefetched, but more slowly than a single
// stream is read; and if both take equally long, each delays the other: ResNet-50's 3 x 3 layers at
// 7 x 7 take 2.1 ms with tiles of 2 x 2 (0.9 for products and 1.5 for weights), and 1.7 directly
// (1.4 and 0.9) (Emerald Rapids).
double WithMemory(const Target& target, double micros, double activations, double weights);

// A representative value of a dim for cost models.
double TypicalSize(const SymbolTable& symbols, Dim dim);

}  // namespace quench::codegen
