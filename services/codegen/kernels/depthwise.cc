// Depthwise convolution over NCHW<lanes>c: a row of output pixels in registers, one row of taps at
// a time, every input vector loaded once per row. Tiles at the ends of a row have code of their own,
// without the taps that lie outside; rows above and below the image are not visited. Where the width is
// known only at run time, and where the input is not f32, rows are copied into scratch with their
// border, a band of one block of channels at a time, small enough for the nearest cache. Bytes become
// floats in that copy, minus their zero point: sums below 2^24 are exact in f32, in any order, fused or
// not.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/conv_plan.h"
#include "services/codegen/kernels/pad_rows.h"
#include "services/codegen/kernels/planned_kernel.h"

namespace quench::codegen {
namespace {

struct DepthwisePlan {
  ConvShape shape;
  int lanes = 8;
  int64_t block = 8;    // channels of a block in memory
  int64_t vectors = 1;  // of channels, those of padding in the last block included
  TileAxis x_axis;
  bool copies = false;
  int64_t band = 1;   // output rows per copy
  int64_t parts = 1;  // of an image's rows: a task is a vector of channels of one
  // First output row of a part, where there are several.
  int64_t PartStart(int64_t part) const { return part * shape.out_h.value() / parts; }
  Dim tasks = 1, scratch = 0;
  friend bool operator==(const DepthwisePlan&, const DepthwisePlan&) = default;
  QUENCH_FIELDS(shape, lanes, block, vectors, x_axis, copies, band, parts, tasks, scratch)
  int64_t reach_h() const { return (shape.kernel_h - 1) * shape.dilation_h + 1; }
  int64_t reach_w() const { return (shape.kernel_w - 1) * shape.dilation_w + 1; }
  // Columns of the input that `pixels` pixels of a row read.
  int64_t columns(int64_t pixels) const { return (pixels - 1) * shape.stride_w + reach_w(); }
  int64_t band_rows() const { return (band - 1) * shape.stride_h + reach_h(); }
};

// Inputs that are converted to floats are always copied.
bool Widens(const ConvShape& shape) { return shape.bytes || IsHalf(shape.x_type); }

// Columns of the input under a tile of pixels that lie inside of it, from the first tap's.
struct Columns {
  int64_t first = 0, end = 0;
};

Columns ColumnsUnder(const DepthwisePlan& plan, int64_t pixel, int64_t pixels) {
  const ConvShape& s = plan.shape;
  const int64_t left = pixel * s.stride_w - s.pad_left;
  return {std::max<int64_t>(0, -left), std::min(plan.columns(pixels), s.w.value() - left)};
}

// Equal tiles side by side, or one that reaches over an end of the input.
struct Tiles {
  int64_t first = 0, count = 1;  // of the split
  int64_t pixels = 1;
  Columns columns;
};

std::vector<Tiles> TilesOfRow(const DepthwisePlan& plan) {
  const Split split = SplitEvenly(plan.x_axis.total.value(), plan.x_axis.most);
  std::vector<Tiles> row;
  bool open = false;
  for (int64_t i = 0; i < split.parts(); ++i) {
    const int64_t pixels = split.big - (i < split.bigs ? 0 : 1);
    const Columns columns = ColumnsUnder(plan, split.Start(i), pixels);
    const bool whole = columns.first == 0 && columns.end == plan.columns(pixels);
    if (whole && open && row.back().pixels == pixels) {
      ++row.back().count;
    } else {
      row.push_back({i, 1, pixels, columns});
    }
    open = whole;
  }
  return row;
}

bool Copies(const DepthwisePlan& plan) {
  if (Widens(plan.shape)) return true;
  if (!plan.shape.padded) return false;
  constexpr size_t kMostBodies = 6;
  constexpr int64_t kMostPixels = 1 << 20;  // of a row whose tiles are looked at one by one
  return !plan.shape.w.is_static() || !plan.shape.out_w.is_static() ||
         plan.shape.out_w.value() > kMostPixels || TilesOfRow(plan).size() > kMostBodies;
}

void PlanCopies(const KernelRequest& request, DepthwisePlan& plan) {
  SymbolTable& symbols = request.symbols;
  const ConvShape& s = plan.shape;
  const double row = TypicalSize(symbols, s.w) * plan.lanes * 4;
  const double room = 0.75 * static_cast<double>(request.target.l1_bytes);
  const int64_t height = static_cast<int64_t>(TypicalSize(symbols, s.out_h));
  while (plan.band < height && row * static_cast<double>(plan.band_rows() + s.stride_h) <= room)
    ++plan.band;
  plan.band = std::min(height, std::max<int64_t>(plan.band, plan.reach_h()));
  const Dim width = symbols.Add(symbols.Mul(symbols.Sub(s.out_w, 1), s.stride_w), plan.reach_w());
  plan.scratch =
      symbols.Mul(symbols.CeilDiv(symbols.Mul(width, plan.band_rows() * plan.lanes * 4), 64), 64);
}

// Images that leave L2 are cut: their rows can be read while they are still there. Rows that are copied
// once for two bands are not copied again for parts.
int64_t Parts(const KernelRequest& request, const DepthwisePlan& plan) {
  const ConvShape& s = plan.shape;
  constexpr int64_t kFewRows = 4;
  if (!s.h.is_static() || !s.w.is_static() || !s.out_h.is_static()) return 1;
  const auto element = static_cast<double>(s.element());
  const auto image = static_cast<double>(s.h.value()) * static_cast<double>(s.w.value()) *
                     static_cast<double>(s.in_channels) * element;
  const double parts = image / (static_cast<double>(request.target.l2_bytes) / 8);
  const int64_t rows = plan.copies ? std::max(kFewRows, plan.band) : kFewRows;
  const auto most = static_cast<double>(std::max<int64_t>(1, s.out_h.value() / rows));
  return static_cast<int64_t>(std::clamp(parts, 1.0, most));
}

std::optional<RowOrder> RowOrderOf(const DepthwisePlan& plan, int input) {
  const ConvShape& s = plan.shape;
  if (!CanListRows(s, plan.tasks)) return std::nullopt;
  RowOrder order;
  order.input = input;
  for (int64_t n = 0; n < s.n.value(); ++n) {
    for (int64_t part = 0; part < plan.parts; ++part) {
      const int64_t rows = plan.PartStart(part + 1);
      for (int64_t vector = 0; vector < plan.vectors; ++vector) {
        const bool last = vector == plan.vectors - 1;
        order.needs.push_back(n * s.h.value() + RowsUnder(s, rows));
        order.makes.push_back(n * s.out_h.value() + (last ? rows : plan.PartStart(part)));
      }
    }
  }
  return order;
}

std::optional<DepthwisePlan> MakePlan(const KernelRequest& request, const ConvShape& shape,
                                      int64_t block) {
  constexpr int64_t kMaxRow = 11;  // taps of a row, unrolled
  if (shape.groups != shape.in_channels || shape.out_channels != shape.in_channels ||
      shape.groups == 1 || shape.kernel_w > kMaxRow) {
    return std::nullopt;
  }
  constexpr double kExact = 1 << 24;
  if (shape.bytes && shape.bytes->weight_reach >= kExact) return std::nullopt;
  SymbolTable& symbols = request.symbols;
  DepthwisePlan plan;
  plan.shape = shape;
  plan.lanes = request.target.f32_lanes();
  plan.block = block;
  plan.vectors = (shape.in_channels + block - 1) / block * (block / plan.lanes);
  // Accumulators, the taps of a row and one input, with a product where there is no fused
  // multiply-add.
  const int64_t free =
      request.target.vector_registers - shape.kernel_w - (request.target.fma ? 2 : 3);
  plan.x_axis = {shape.out_w, static_cast<int>(std::clamp<int64_t>(free, 4, 14))};
  plan.copies = Copies(plan);
  if (plan.copies) PlanCopies(request, plan);
  plan.parts = Parts(request, plan);
  plan.tasks = symbols.Mul(shape.n, plan.parts * plan.vectors);
  return plan;
}

void AddPacks(const Group& group, const DepthwisePlan& plan, CandidateBuilder& builder) {
  const int64_t channels = plan.shape.in_channels, padded = plan.vectors * plan.lanes;
  const std::optional<ByteRoot>& bytes = plan.shape.bytes;
  builder.Pack(1, "depthwise",
               {{"lanes", plan.lanes}, {"padded", padded}, {"zero", bytes ? bytes->w_zero : 0}});
  if (bytes) {
    // The zero point goes with the copy: sums start from the bias alone.
    Candidate& candidate = builder.candidate();
    candidate.packs.push_back(ByteBias(group, *bytes, 0, channels, padded));
    PackZeros(group, *bytes, candidate);
  } else if (plan.shape.has_bias) {
    builder.PackChannels(2, channels, padded);
  }
  builder.PackOperands(channels, padded);
}

class DepthwiseEmitter {
 public:
  DepthwiseEmitter(VectorBuilder& b, const Group& group, const DepthwisePlan& plan,
                   const BufferMap& buffers, const std::vector<int>& packs)
      : b_(b),
        group_(group),
        plan_(plan),
        s_(plan.shape),
        buffers_(buffers),
        writer_(b, group, buffers, packs, plan.lanes),
        vector_bytes_(4 * plan.lanes),
        pixel_(4 * (plan.copies ? plan.lanes : plan.block)) {}

  absl::Status Emit() {
    out_h_ = b_.Size(s_.out_h);
    out_w_ = b_.Size(s_.out_w);
    const Int width = plan_.copies ? (out_w_ - 1) * s_.stride_w + plan_.reach_w() : b_.Size(s_.w);
    row_ = width * pixel_;
    rows_ = {.channels = plan_.lanes,
             .blocks = 1,
             .row_major = false,
             .lanes = plan_.lanes,
             .block = plan_.block,
             .pixel_words = plan_.lanes,
             .type = s_.x_type,
             .fill = s_.bytes ? s_.bytes->x.zero : 0,
             .run_fill = s_.bytes ? LoadRunZero(b_, group_, s_.bytes->x, buffers_) : RunZero{},
             .to_floats = Widens(s_),
             .height = b_.Size(s_.h),
             .width = b_.Size(s_.w),
             .left = s_.pad_left,
             .row_pixels = width,
             .row_bytes = row_,
             .block_bytes = row_ * plan_.band_rows()};
    const int64_t element = DataTypeBits(rows_.type) / 8, per_block = plan_.block / plan_.lanes;
    const Int plane = b_.Size(s_.h) * b_.Size(s_.w) * (element * plan_.block);
    b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
      vector_ = task % plan_.vectors;
      const Int of_images = task / plan_.vectors;
      const Int n = of_images / plan_.parts;
      const Int part = of_images - n * plan_.parts;
      plane_ = n * (plan_.vectors / per_block) + vector_ / per_block;
      lane_ = vector_ % per_block * plan_.lanes;
      const Ptr source =
          b_.Buffer(buffers_.Input(group_.inputs[0])) + (plane_ * plane + lane_ * element);
      const Int first = PartStart(part), last = PartStart(part + 1);
      if (!plan_.copies) return RowsInPlace(source, first, last);
      const Ptr scratch = b_.Buffer(buffers_.Scratch());
      b_.For(first, last, plan_.band, [&](Int row) {
        const Int rows = Min(b_.I(plan_.band), last - row);
        PadRows(b_, rows_, source, scratch, row * s_.stride_h - s_.pad_top,
                (rows - 1) * s_.stride_h + plan_.reach_h());
        Rows(scratch, row, rows);
      });
    });
    return writer_.status();
  }

 private:
  Int PartStart(Int part) { return plan_.parts == 1 ? part * out_h_ : part * out_h_ / plan_.parts; }

  // Output rows first .. first + rows - 1 from `source`, where the first one's taps begin.
  void Rows(Ptr source, Int first, Int rows) {
    b_.For(b_.I(0), rows, 1, [&](Int y) {
      plan_.x_axis.ForAll(b_, [&](Int x, int xs) {
        const Ptr input = source + (y * row_ * s_.stride_h + x * (s_.stride_w * pixel_));
        const Int pixel = (plane_ * out_h_ + first + y) * out_w_ + x;
        Pixels(input, Place::Of(pixel * plan_.block + lane_), xs, {0, plan_.columns(xs)},
               {b_.I(0), b_.I(s_.kernel_h)});
      });
    });
  }

  // Rows of taps that lie inside of the input.
  struct KernelRows {
    Int first, end;
  };

  // Output rows [first, last) from the plane itself.
  void RowsInPlace(Ptr plane, Int first, Int last) {
    b_.For(first, last, 1, [&](Int y) {
      const Int top = y * s_.stride_h - s_.pad_top;
      KernelRows rows{b_.I(0), b_.I(s_.kernel_h)};
      if (s_.padded) {
        const auto rows_to = [&](Int edge) {
          return (Max(edge - top, b_.I(0)) + (s_.dilation_h - 1)) / s_.dilation_h;
        };
        rows = {rows_to(b_.I(0)), Min(rows_to(b_.Size(s_.h)), b_.I(s_.kernel_h))};
      }
      const Ptr line = plane + (top * row_ - s_.pad_left * pixel_);
      const auto tile = [&](Int x, int pixels, const Columns& columns) {
        const Int pixel = (plane_ * out_h_ + y) * out_w_ + x;
        Pixels(line + x * (s_.stride_w * pixel_), Place::Of(pixel * plan_.block + lane_), pixels,
               columns, rows);
      };
      if (!s_.padded)
        return plan_.x_axis.ForAll(
            b_, [&](Int x, int pixels) { tile(x, pixels, {0, plan_.columns(pixels)}); });
      const Split split = SplitEvenly(plan_.x_axis.total.value(), plan_.x_axis.most);
      for (const Tiles& tiles : TilesOfRow(plan_)) {
        b_.For(b_.I(0), b_.I(tiles.count), 1, [&](Int i) {
          tile(i * tiles.pixels + split.Start(tiles.first), static_cast<int>(tiles.pixels),
               tiles.columns);
        });
      }
    });
  }

  void Pixels(Ptr input, const Place& place, int pixels, const Columns& columns,
              const KernelRows& rows) {
    const Ptr bias = s_.has_bias ? b_.Buffer(buffers_.Pack(1)) + vector_ * vector_bytes_ : Ptr{};
    const Vec start = s_.has_bias && !s_.bytes ? b_.Load(bias, plan_.lanes) : b_.F(0, plan_.lanes);
    std::vector<VecVar> sums;
    for (int x = 0; x < pixels; ++x) sums.push_back(b_.Variable(start));
    const PtrVar row = b_.Variable(input + rows.first * (row_ * s_.dilation_h));
    const PtrVar weights =
        b_.Variable(b_.Buffer(buffers_.Pack(0)) +
                    (vector_ * s_.kernel_h + rows.first) * (s_.kernel_w * vector_bytes_));
    b_.For(rows.first, rows.end, 1, [&](Int) {
      RowOfTaps(row.Get(), weights.Get(), columns, sums);
      row.Set(row.Get() + row_ * s_.dilation_h);
      weights.Set(weights.Get() + s_.kernel_w * vector_bytes_);
    });
    for (int x = 0; x < pixels; ++x) {
      Vec sum = sums[static_cast<size_t>(x)].Get();
      if (s_.bytes) {
        sum = b_.Apply(VecOp::kAdd, b_.ToI32(sum), b_.Load(bias, plan_.lanes, DataType::kI32));
      }
      Store(place + b_.I(x * plan_.block), sum);
    }
  }

  void RowOfTaps(Ptr input, Ptr weights, const Columns& inside, const std::vector<VecVar>& sums) {
    std::vector<Vec> taps;
    for (int64_t k = 0; k < s_.kernel_w; ++k)
      taps.push_back(b_.Load(weights + k * vector_bytes_, plan_.lanes));
    const int64_t pixels = static_cast<int64_t>(sums.size());
    for (int64_t column = inside.first; column < inside.end; ++column) {
      Vec value;
      for (int64_t k = 0; k < s_.kernel_w; ++k) {
        const int64_t offset = column - k * s_.dilation_w;
        if (offset < 0 || offset % s_.stride_w != 0 || offset / s_.stride_w >= pixels) continue;
        if (!value.valid()) value = b_.Load(input + column * pixel_, plan_.lanes);
        const VecVar& sum = sums[static_cast<size_t>(offset / s_.stride_w)];
        sum.Set(b_.Fma(value, taps[static_cast<size_t>(k)], sum.Get()));
      }
    }
  }

  void Store(const Place& place, Vec value) {
    const bool padding = s_.in_channels != plan_.vectors * plan_.lanes;
    writer_.Store(place, vector_ * vector_bytes_, value,
                  padding ? b_.I(s_.in_channels) - vector_ * plan_.lanes : Int{});
  }

  VectorBuilder& b_;
  const Group& group_;
  const DepthwisePlan& plan_;
  const ConvShape& s_;
  const BufferMap& buffers_;
  ResultWriter writer_;
  int64_t vector_bytes_;  // of floats
  int64_t pixel_;         // bytes from a pixel to the next in what is multiplied
  PaddedRows rows_;
  Int out_h_, out_w_, row_;
  Int vector_;  // of an image's channels
  Int plane_;   // block of all images
  Int lane_;    // of the block, where the vector begins
};

double Cost(const KernelRequest& request, const DepthwisePlan& plan) {
  const SymbolTable& symbols = request.symbols;
  const ConvShape& s = plan.shape;
  const double in = TypicalSize(symbols, s.h) * TypicalSize(symbols, s.w);
  const double out = TypicalSize(symbols, s.out_h) * TypicalSize(symbols, s.out_w);
  const double vectors = TypicalSize(symbols, s.n) * static_cast<double>(plan.vectors);
  const double copied = Widens(s) ? in * 3 : plan.copies ? in * 1.5 : 0;
  // 28 x 28 pixels of 192 channels take 24 microseconds on Emerald Rapids.
  const double steps =
      out * static_cast<double>(s.kernel_h * s.kernel_w) * 0.55 + out * 1.8 + copied;
  const double micros = vectors * steps * 4 * plan.lanes / (request.target.gflops * 1e3);
  const auto bytes = static_cast<double>(s.element());
  return std::max(micros,
                  vectors * (in + out) * bytes * plan.lanes / (request.target.gbytes * 1e3));
}

absl::Status EmitDepthwise(VectorBuilder& b, const Planned<DepthwisePlan>& conv) {
  return DepthwiseEmitter(b, conv.group, conv.plan, conv.buffers, conv.packs).Emit();
}

void ProposeOver(int64_t block, const KernelRequest& request, const ConvRoot& conv,
                 std::vector<Candidate>& candidates) {
  const std::optional<DepthwisePlan> plan = MakePlan(request, conv.shape, block);
  if (!plan) return;
  CandidateBuilder builder(request, conv.group, BlockedLayout(block));
  AddPacks(conv.group, *plan, builder);
  builder.SetCode<EmitDepthwise>(*plan);
  Candidate& candidate = builder.candidate();
  candidate.cost = Cost(request, *plan);
  candidate.rows = RowOrderOf(*plan, conv.group.inputs[0]);
  candidate.reason = fmt::format(
      "{}{} pixels of {} lanes{}", plan->shape.bytes ? "bytes as floats, " : "", plan->x_axis.most,
      plan->lanes, plan->copies ? fmt::format(", padded copy of {} rows", plan->band) : "");
  candidates.push_back(std::move(candidate));
}

void ProposeDepthwise(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2) return;
  const std::optional<ConvRoot>& conv = ReadConv(request);
  if (!conv) return;
  for (const int64_t block : ActivationBlocks(request.target, conv->shape.x_type))
    ProposeOver(block, request, *conv, candidates);
}

}  // namespace

const Kernel& DepthwiseKernel() {
  static const Kernel kKernel{
      .name = "depthwise", .propose = ProposeDepthwise, .reread = Reread<DepthwisePlan>};
  return kKernel;
}

}  // namespace quench::codegen
