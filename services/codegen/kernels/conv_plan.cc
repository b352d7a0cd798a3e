#include "services/codegen/kernels/conv_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/status.h"
#include "services/codegen/kernels/float_forms.h"
#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

// Attributes of one spatial axis (0: h, 1: w), for rank 3 only w.
struct Axis {
  int64_t kernel = 1, stride = 1, dilation = 1, begin = 0, end = 0;
};

int64_t Element(const std::vector<int64_t>& values, int index, int64_t fallback) {
  return index < static_cast<int>(values.size()) ? values[static_cast<size_t>(index)] : fallback;
}

// Padding of `auto_pad` = SAME_*; needs a static size.
bool SamePadding(const std::string& mode, Dim in, Dim out, Axis& axis) {
  if (!in.is_static() || !out.is_static()) return false;
  const int64_t reach = (out.value() - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
  const int64_t total = std::max<int64_t>(0, reach - in.value());
  axis.begin = mode == "SAME_LOWER" ? total - total / 2 : total / 2;
  axis.end = total - axis.begin;
  return true;
}

std::optional<Axis> ReadAxis(const Node& node, const Type& weight, int i, int spatial, Dim in,
                             Dim out) {
  Axis axis;
  axis.kernel = weight.dims[static_cast<size_t>(2 + i)].value();
  axis.stride = Element(node.Ints("strides"), i, 1);
  axis.dilation = Element(node.Ints("dilations"), i, 1);
  const std::string mode = node.String("auto_pad", "NOTSET");
  if (mode == "NOTSET") {
    axis.begin = Element(node.Ints("pads"), i, 0);
    axis.end = Element(node.Ints("pads"), spatial + i, 0);
  } else if (mode != "VALID" && !SamePadding(mode, in, out, axis)) {
    return std::nullopt;
  }
  if (axis.begin < 0 || axis.end < 0) return std::nullopt;
  return axis;
}

bool ReadSpatial(const Group& group, ConvShape& shape) {
  const Node& node = *group.root;
  const Type& x = group.InputType(0);
  const Type& weight = group.InputType(1);
  const Type& y = group.OutputType();
  const int spatial = x.rank() - 2;
  for (int i = 0; i < spatial; ++i) {
    const size_t dim = static_cast<size_t>(2 + i);
    const std::optional<Axis> axis = ReadAxis(node, weight, i, spatial, x.dims[dim], y.dims[dim]);
    if (!axis) return false;
    const bool is_w = i == spatial - 1;
    (is_w ? shape.w : shape.h) = x.dims[dim];
    (is_w ? shape.out_w : shape.out_h) = y.dims[dim];
    (is_w ? shape.kernel_w : shape.kernel_h) = axis->kernel;
    (is_w ? shape.stride_w : shape.stride_h) = axis->stride;
    (is_w ? shape.dilation_w : shape.dilation_h) = axis->dilation;
    (is_w ? shape.pad_left : shape.pad_top) = axis->begin;
    shape.padded = shape.padded || axis->begin > 0 || axis->end > 0;
  }
  return true;
}

// The fewest groups to compute together so that their channels fill whole vectors; 0 when that
// wastes too much.
int64_t MergedGroups(const ConvShape& shape, int lanes) {
  if (shape.groups == 1) return 1;
  const int64_t in = shape.in_channels / shape.groups;
  const int64_t out = shape.out_channels / shape.groups;
  for (int64_t merged = 1; merged <= 4; merged *= 2) {
    if (shape.groups % merged == 0 && merged * in % lanes == 0 && merged * out % lanes == 0)
      return merged;
  }
  return 0;
}

// Blocks of channels are those of the widest variant, too.
void ShareWeights(const Target& target, ConvPlan& plan) {
  plan.shared = SharedPanels::Of(target);
  if (!plan.shared.used()) return;
  const bool whole = plan.block_channels == plan.lanes;
  plan.shared.block = whole ? plan.shared.lanes : plan.block_channels;
  const int64_t blocks = (plan.shape.in_channels + plan.shared.block - 1) / plan.shared.block;
  plan.shared.rows = blocks * plan.taps() * plan.shared.block;
  if (plan.taps() > 1 && plan.shared.block > plan.block_channels) plan.fold_width = false;
}

void PlanChannels(const Target& target, ConvPlan& plan) {
  const ConvShape& shape = plan.shape;
  const int64_t in = shape.in_channels / plan.groups;
  const int64_t unit = plan.form->unit();
  plan.blocks = (in + plan.in_block - 1) / plan.in_block;
  plan.block_channels = (std::min<int64_t>(in, plan.in_block) + unit - 1) / unit;
  plan.pixel_words = plan.row_major_input ? plan.block_channels : plan.in_block / unit;
  plan.fold_width = plan.pixel_words == plan.block_channels && shape.dilation_w == 1;
  const int64_t out = shape.out_channels / plan.groups;
  plan.vectors = (out + plan.out_block - 1) / plan.out_block * (plan.out_block / plan.lanes);
  if (plan.groups == 1 && plan.form->shares_panels()) ShareWeights(target, plan);
  plan.unroll = plan.form->Unroll(target);
  if (plan.block_channels % plan.unroll != 0 && plan.block_channels % 4 == 0) plan.unroll = 4;
  // A body in which two pixels read the same address keeps the value in a register that is not
  // there.
  plan.unroll = static_cast<int>(std::min<int64_t>(plan.unroll, plan.pixel_words * shape.stride_w));
  if (plan.unroll % plan.form->together() != 0) plan.unroll = 1;
  if (const int words = plan.form->WordsOfBody(plan.run()); words != 0) plan.unroll = words;
}

// False where there is no tile of this rank.
bool PlanTile(const KernelRequest& request, size_t rank, ConvPlan& plan) {
  const ConvShape& shape = plan.shape;
  SymbolTable& symbols = request.symbols;
  plan.flat = shape.kernel_h == 1 && shape.kernel_w == 1 && shape.stride_h == 1 &&
              shape.stride_w == 1 && !plan.copy;
  const Dim width = plan.flat ? symbols.Mul(shape.out_h, shape.out_w) : shape.out_w;
  const Dim height = plan.flat ? Dim(1) : shape.out_h;
  TileProblem problem;
  if (width.is_static()) problem.width = width.value();
  if (height.is_static()) problem.height = height.value();
  problem.vectors = plan.vectors;
  problem.steps = plan.steps() + plan.words_twice();
  problem.most_vectors = plan.shared.MostVectors();
  problem.taps = std::max(1.0, static_cast<double>(shape.kernel_h * shape.kernel_w) /
                                   static_cast<double>(shape.stride_h * shape.stride_w));
  const std::vector<Tile> tiles = plan.form->Tiles(request.target, problem);
  if (rank >= tiles.size()) return false;
  plan.tile = tiles[rank];
  plan.panels = SplitIntoPanels(plan.vectors, plan.tile.vectors);
  plan.x_axis = {width, plan.tile.x};
  plan.y_axis = {height, plan.tile.y};
  return true;
}

// Rows of a band: its copy fits half of L2, and there are bands enough for several threads.
int64_t BandTiles(const KernelRequest& request, const ConvPlan& plan) {
  const SymbolTable& symbols = request.symbols;
  const double height = TypicalSize(symbols, plan.shape.out_h);
  const double row = TypicalSize(symbols, plan.shape.w) *
                     static_cast<double>(plan.groups * plan.blocks) *
                     static_cast<double>(plan.pixel_words * 4);
  int64_t rows = std::max<int64_t>(1, static_cast<int64_t>(height / 8));
  while (rows > 1 && row * static_cast<double>(plan.band_rows(rows)) >
                         static_cast<double>(request.target.l2_bytes) / 2) {
    --rows;
  }
  return std::max<int64_t>(1, rows / plan.tile.y);
}

// False where there is no other way to divide the work.
bool PlanTasks(const KernelRequest& request, bool other, ConvPlan& plan) {
  const ConvShape& shape = plan.shape;
  SymbolTable& symbols = request.symbols;
  const double input_bytes = TypicalSize(symbols, shape.h) * TypicalSize(symbols, shape.w) *
                             static_cast<double>(shape.in_channels * shape.element());
  const bool whole_image = shape.h.is_static() && shape.w.is_static();
  if (other && !whole_image) return false;
  plan.by_panels =
      whole_image && (input_bytes <= static_cast<double>(plan.weight_bytes())) != other;
  if (plan.by_panels) {
    plan.tasks = plan.groups * plan.panels.parts();
  } else {
    const TileAxis& outer = plan.flat ? plan.x_axis : plan.y_axis;
    plan.task_tiles =
        plan.flat
            ? std::max<int64_t>(
                  1, static_cast<int64_t>(TypicalSize(symbols, outer.total) / (8.0 * outer.most)))
            : BandTiles(request, plan);
    plan.outer_parts = outer.Parts(symbols);
    plan.tasks = symbols.Mul(shape.n, symbols.CeilDiv(plan.outer_parts, plan.task_tiles));
  }
  return true;
}

void PlanCopy(SymbolTable& symbols, ConvPlan& plan) {
  if (!plan.copy) return;
  const ConvShape& shape = plan.shape;
  const Dim width = symbols.Add(symbols.Mul(symbols.Sub(shape.out_w, 1), shape.stride_w),
                                (shape.kernel_w - 1) * shape.dilation_w + 1);
  const Dim rows = plan.by_panels ? Dim(plan.band_rows(shape.out_h.value()))
                                  : Dim(plan.band_rows(plan.task_tiles * plan.tile.y));
  const Dim dims[] = {Dim(plan.groups * plan.blocks), rows, width, Dim(plan.pixel_words * 4)};
  const Dim bytes = symbols.Mul(symbols.CeilDiv(symbols.Product(dims), 64), 64);
  if (plan.by_panels) {
    plan.image_copy = bytes.value();  // of static sizes
  } else {
    plan.scratch = bytes;
  }
}

// Fills in shape and form.
bool ReadShape(const KernelRequest& request, ConvRoot& conv) {
  Group& group = conv.group;
  const bool bytes = group.root->op == "ConvInteger";
  if ((group.root->op != "Conv" && !bytes) || !group.HasInput(0) || !group.HasInput(1))
    return false;
  const Type& x = group.InputType(0);
  const Type& weight = group.InputType(1);
  if (x.rank() < 3 || x.rank() > 4 || weight.rank() != x.rank() || !weight.is_static() ||
      !x.dims[1].is_static()) {
    return false;
  }
  const auto is_float = [](const Type& type) {
    return RegisterTypeOf(type.dtype) == DataType::kF32;
  };
  if (!bytes && (!is_float(x) || !is_float(weight) || !is_float(group.OutputType()))) return false;
  if (ConstantInput(request, group, 1) == nullptr || ConstantInput(request, group, 0) != nullptr)
    return false;
  ConvShape& shape = conv.shape;
  if (bytes) {
    std::optional<ByteProducts> products = ReadByteRoot(request, 0, group);
    if (!products) return false;
    shape.bytes = std::move(products->root);
    conv.form = products->form;
  } else {
    conv.form = PairsOrFloats(request, x.dtype, weight.dtype);
  }
  shape.x_type = x.dtype;
  shape.has_bias = bytes || group.HasInput(2);
  if (!bytes && shape.has_bias && ConstantInput(request, group, 2) == nullptr) return false;
  shape.n = x.dims[0];
  shape.in_channels = x.dims[1].value();
  shape.out_channels = weight.dims[0].value();
  shape.groups = group.root->Int("group", 1);
  if (shape.in_channels < 1 || shape.out_channels < 1 || shape.groups < 1) return false;
  if (!ReadSpatial(group, shape)) return false;
  for (const Dim dim : {shape.n, shape.h, shape.w, shape.out_h, shape.out_w}) {
    if (dim.is_static() && dim.value() < 1) return false;
  }
  return true;
}

}  // namespace

const std::optional<ConvRoot>& ReadConv(const KernelRequest& request) {
  return request.views.Of<std::optional<ConvRoot>>([&]() -> std::optional<ConvRoot> {
    std::optional<Group> group = ReadGroup(request, 1);
    if (!group) return std::nullopt;
    ConvRoot conv{*std::move(group), {}, {}};
    if (!ReadShape(request, conv)) return std::nullopt;
    return conv;
  });
}

WeightPanels ConvPlan::weights() const {
  WeightPanels weights{.groups = groups,
                       .split = panels,
                       .lanes = lanes,
                       .rows = words() / run(),
                       .run = run(),
                       .twice = words_twice(),
                       .unroll = unroll,
                       .shared = shared};
  if (taps() == 1 || fold_width) weights.shared.block = 0;  // rows follow each other
  return weights;
}

std::optional<ConvPlan> PlanConv(const KernelRequest& request, const ConvRoot& conv,
                                 const AnyForm& form, bool row_major_input,
                                 const PlanVariation& variation) {
  const ConvShape& shape = conv.shape;
  ConvPlan plan;
  plan.shape = shape;
  plan.form = form;
  plan.lanes = request.target.f32_lanes();
  plan.in_block = form->InputBlock(plan.lanes);
  plan.out_block = plan.lanes;
  if (form->whole_tiles()) {
    const int64_t block = MatrixBlock(request.target, conv.group.ResultType());
    plan.out_block = std::max<int64_t>({plan.lanes, block, MatrixUnit::kWords});
    if (shape.groups > 1) return std::nullopt;
  }
  plan.row_major_input = row_major_input;
  plan.copy = shape.padded || row_major_input || plan.widens();
  plan.merged = MergedGroups(shape, plan.lanes);
  if (plan.merged == 0) return std::nullopt;
  if (shape.bytes && (!shape.bytes->twice || (shape.groups > 1 && plan.words_twice() > 0)))
    return std::nullopt;
  plan.groups = shape.groups / plan.merged;
  PlanChannels(request.target, plan);
  if (plan.unroll < 0) return std::nullopt;
  if (!PlanTile(request, variation.tile, plan) ||
      !PlanTasks(request, variation.other_tasks, plan)) {
    return std::nullopt;
  }
  PlanCopy(request.symbols, plan);
  return plan;
}

int64_t RowsUnder(const ConvShape& shape, int64_t rows) {
  const int64_t last = (rows - 1) * shape.stride_h - shape.pad_top;
  // The operators after the convolution may read the same rows of the input as it writes.
  return std::min(std::max(last + (shape.kernel_h - 1) * shape.dilation_h + 1, rows),
                  shape.h.value());
}

bool CanListRows(const ConvShape& shape, Dim tasks) {
  constexpr int64_t kMostTasks = 4096;
  return shape.n.is_static() && shape.h.is_static() && shape.w.is_static() &&
         shape.out_h.is_static() && shape.out_w.is_static() && tasks.is_static() &&
         tasks.value() <= kMostTasks;
}

std::optional<RowOrder> RowOrderOf(const ConvPlan& plan, int input) {
  const ConvShape& s = plan.shape;
  if (plan.by_panels || !CanListRows(s, plan.tasks)) return std::nullopt;
  RowOrder order;
  order.input = input;
  const TileAxis& outer = plan.flat ? plan.x_axis : plan.y_axis;
  const Split split = SplitEvenly(outer.total.value(), outer.most);
  const int64_t width = plan.flat ? s.out_w.value() : 1;
  for (int64_t n = 0; n < s.n.value(); ++n) {
    for (int64_t first = 0; first < split.parts(); first += plan.task_tiles) {
      const int64_t end = split.Start(std::min(first + plan.task_tiles, split.parts()));
      order.needs.push_back(n * s.h.value() + RowsUnder(s, (end + width - 1) / width));
      order.makes.push_back(n * s.out_h.value() + end / width);
    }
  }
  return order;
}

double WithMemory(const Target& target, double micros, double activations, double weights) {
  constexpr double kFetched = 0.7;               // of the bandwidth of one stream
  const double bandwidth = target.gbytes * 1e3;  // bytes a microsecond
  const double reading = weights / (kFetched * bandwidth);
  return std::max(std::sqrt(micros * micros + reading * reading),
                  (activations + weights) / bandwidth);
}

double TypicalSize(const SymbolTable& symbols, Dim dim) {
  return static_cast<double>(TypicalValue(symbols, dim));
}

}  // namespace quench::codegen
