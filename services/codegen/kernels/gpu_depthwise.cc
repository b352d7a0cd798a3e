// Depthwise convolution on GPUs, of images whose channels lie together. A thread has neighbouring channels, of 16 bytes
// (of 8 where they are bytes), of a few neighbouring pixels of a row: it reads each input once for all of these pixels
// and taps of a row, and the weights of a row of taps once. Neighbouring threads have neighbouring channels. With
// four pixels and 3 x 3 taps of f16, 27 accesses of 16 bytes make 32 results, where a thread for each result would read
// 18 numbers for one. Bytes become floats minus their zero point, as in depthwise.cc.
#include <fmt/format.h>

#include "services/codegen/kernels/blocks.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/conv_plan.h"
#include "services/codegen/kernels/planned_kernel.h"
#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

struct GpuDepthwisePlan {
  ConvShape shape;
  int64_t lanes = 4;   // channels of a thread
  int64_t pixels = 4;  // of a row, likewise
  Dim x_parts = 1;     // threads along a row
  Dim tasks = 1, scratch = 0;
  friend bool operator==(const GpuDepthwisePlan&, const GpuDepthwisePlan&) = default;
  QUENCH_FIELDS(shape, lanes, pixels, x_parts, tasks, scratch)
  int64_t vectors() const { return shape.in_channels / lanes; }
  // Columns of the input under a thread's pixels.
  int64_t columns() const {
    return (pixels - 1) * shape.stride_w + (shape.kernel_w - 1) * shape.dilation_w + 1;
  }
};

class GpuDepthwiseEmitter {
 public:
  GpuDepthwiseEmitter(VectorBuilder& b, const Planned<GpuDepthwisePlan>& planned)
      : b_(b),
        g_(b.gpu()),
        plan_(planned.plan),
        s_(planned.plan.shape),
        buffers_(planned.buffers),
        input_(planned.group.inputs[0]),
        lanes_(static_cast<int>(planned.plan.lanes)),
        writer_(b, planned.group, planned.buffers, planned.packs, lanes_, /*aligned=*/true) {}

  absl::Status Emit() {
    b_.For(b_.Begin(), b_.End(), 1, [&](Int task) { Pixels(task); });
    return writer_.status();
  }

 private:
  int64_t PixelBytes() const { return s_.in_channels * s_.element(); }

  void Pixels(Int task) {
    const Int out_w = b_.Size(s_.out_w), out_h = b_.Size(s_.out_h);
    const Int x_parts = b_.Size(plan_.x_parts);
    const Int vector = task % plan_.vectors(), of_rows = task / plan_.vectors();
    const Int x = of_rows % x_parts * plan_.pixels, row = of_rows / x_parts;
    channel_ = vector * plan_.lanes;
    PlaceColumns(x, row / out_h, row % out_h);
    std::vector<VecVar> sums;
    const Vec start = s_.has_bias && !s_.bytes ? LoadFloats(1, channel_) : b_.F(0, lanes_);
    for (int64_t i = 0; i < plan_.pixels; ++i) sums.push_back(b_.Variable(start));
    b_.For(b_.I(0), b_.I(s_.kernel_h), 1, [&](Int tap) {
      const Int y = top_ + tap * s_.dilation_h;
      b_.If(b_.I(-1) < y && y < b_.Size(s_.h), [&] { RowOfTaps(tap, sums); });
    });
    for (int64_t i = 0; i < plan_.pixels; ++i) {
      const auto store = [&] {
        Store(Place::Of((row * out_w + x + i) * s_.in_channels + channel_),
              sums[static_cast<size_t>(i)].Get());
      };
      i == 0 ? store() : b_.If(x + i < out_w, store);
    }
  }

  // The input under the first tap of the pixels from x on, and which of its columns are inside.
  void PlaceColumns(Int x, Int image, Int y) {
    const Int w = b_.Size(s_.w);
    const Int left = x * s_.stride_w - s_.pad_left;
    top_ = y * s_.stride_h - s_.pad_top;
    source_ =
        b_.Buffer(buffers_.Input(input_)) +
        (((image * b_.Size(s_.h) + top_) * w + left) * PixelBytes() + channel_ * s_.element());
    inside_.clear();
    for (int64_t column = 0; column < plan_.columns(); ++column)
      inside_.push_back(b_.I(-1) < left + column && left + column < w);
  }

  // Adds the products of row `tap` of the kernel.
  void RowOfTaps(Int tap, const std::vector<VecVar>& sums) {
    std::vector<Vec> weights;
    for (int64_t k = 0; k < s_.kernel_w; ++k)
      weights.push_back(LoadFloats(0, (tap * s_.kernel_w + k) * s_.in_channels + channel_));
    const Ptr row = source_ + tap * s_.dilation_h * b_.Size(s_.w) * PixelBytes();
    for (int64_t column = 0; column < plan_.columns(); ++column) {
      Vec value;
      for (int64_t k = 0; k < s_.kernel_w; ++k) {
        const int64_t offset = column - k * s_.dilation_w;
        if (offset < 0 || offset % s_.stride_w != 0 || offset / s_.stride_w >= plan_.pixels)
          continue;
        if (!value.valid()) value = LoadColumn(row, column);
        const VecVar& sum = sums[static_cast<size_t>(offset / s_.stride_w)];
        sum.Set(b_.Fma(value, weights[static_cast<size_t>(k)], sum.Get()));
      }
    }
  }

  // Minus the zero point, and 0 outside of the image.
  Vec LoadColumn(Ptr row, int64_t column) {
    const int64_t zero = s_.bytes ? s_.bytes->x.zero : 0;
    const Vec value = g_.LoadIf(inside_[static_cast<size_t>(column)], row + column * PixelBytes(),
                                lanes_, s_.x_type, static_cast<uint8_t>(zero));
    if (!s_.bytes) return value;
    const Vec floats = b_.ToF32(value);
    return zero == 0 ? floats
                     : b_.Apply(VecOp::kAdd, floats, b_.F(static_cast<double>(-zero), lanes_));
  }

  // Numbers of a pack, from this element on.
  Vec LoadFloats(int pack, Int first) {
    return g_.LoadAligned(b_.Buffer(buffers_.Pack(pack)) + first * 4, lanes_, DataType::kF32);
  }

  void Store(const Place& place, Vec sum) {
    if (s_.bytes) {
      const Ptr bias = b_.Buffer(buffers_.Pack(1)) + channel_ * 4;
      sum = b_.Apply(VecOp::kAdd, b_.ToI32(sum), g_.LoadAligned(bias, lanes_, DataType::kI32));
    }
    writer_.Store(place, channel_ * 4, sum, Int{});
  }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const GpuDepthwisePlan& plan_;
  const ConvShape& s_;
  const BufferMap& buffers_;
  const int input_;
  const int lanes_;
  ResultWriter writer_;
  Int channel_, top_;
  Ptr source_;
  std::vector<Bool> inside_;
};

absl::Status EmitGpuDepthwise(VectorBuilder& b, const Planned<GpuDepthwisePlan>& planned) {
  return GpuDepthwiseEmitter(b, planned).Emit();
}

// False where bytes need another zero point for each run, or sums that f32 does not hold.
bool SumsBytes(const ByteRoot& bytes) {
  constexpr double kExact = 1 << 24;
  return bytes.x.zero_input < 0 && !bytes.w && bytes.weight_reach < kExact;
}

std::optional<GpuDepthwisePlan> MakePlan(const KernelRequest& request, const ConvShape& shape) {
  constexpr int64_t kMaxRow = 7;               // taps of a row, unrolled
  constexpr int64_t kEnoughThreads = 1 << 16;  // for a card
  const int64_t lanes = std::min<int64_t>(8, 16 / shape.element());
  if (shape.groups != shape.in_channels || shape.out_channels != shape.in_channels ||
      shape.groups == 1 || shape.kernel_w > kMaxRow || shape.in_channels % lanes != 0 ||
      (shape.bytes && !SumsBytes(*shape.bytes))) {
    return std::nullopt;
  }
  SymbolTable& symbols = request.symbols;
  GpuDepthwisePlan plan;
  plan.shape = shape;
  if (plan.shape.bytes) plan.shape.bytes->x.flip = false;
  plan.lanes = lanes;
  const Dim rows = symbols.Mul(symbols.Mul(shape.n, shape.out_h), plan.vectors());
  // Four pixels share more, one makes more threads.
  for (plan.pixels = 4;; plan.pixels /= 2) {
    plan.x_parts = symbols.CeilDiv(shape.out_w, plan.pixels);
    plan.tasks = symbols.Mul(rows, plan.x_parts);
    if (plan.pixels == 1 || TypicalValue(symbols, plan.tasks) >= kEnoughThreads) return plan;
  }
}

void AddPacks(const Group& group, const GpuDepthwisePlan& plan, CandidateBuilder& builder) {
  const int64_t channels = plan.shape.in_channels;
  const std::optional<ByteRoot>& bytes = plan.shape.bytes;
  builder.Pack(1, "depthwise",
               {{"lanes", channels}, {"padded", channels}, {"zero", bytes ? bytes->w_zero : 0}});
  if (bytes) {
    Candidate& candidate = builder.candidate();
    candidate.packs.push_back(ByteBias(group, *bytes, 0, channels, channels));
    PackZeros(group, *bytes, candidate);
  } else if (plan.shape.has_bias) {
    builder.PackChannels(2, channels, channels);
  }
  builder.PackOperands(channels, channels);
}

// Each input is read once, each result written once.
double Cost(const KernelRequest& request, const ConvShape& s, DataType result) {
  const auto size = [&](Dim dim) {
    return static_cast<double>(TypicalValue(request.symbols, dim));
  };
  const double channels = size(s.n) * static_cast<double>(s.in_channels);
  const double bytes = size(s.h) * size(s.w) * static_cast<double>(s.element()) +
                       size(s.out_h) * size(s.out_w) * DataTypeBits(result) / 8;
  return 1e-3 * channels * bytes / request.target.gbytes;
}

void ProposeGpuDepthwise(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2) return;
  const std::optional<ConvRoot>& conv = ReadConv(request);
  if (!conv) return;
  const std::optional<GpuDepthwisePlan> plan = MakePlan(request, conv->shape);
  if (!plan) return;
  const bool image = conv->group.OutputType().rank() == 4;
  CandidateBuilder builder(request, conv->group,
                           image ? ChannelsLast() : Layout{.order = {0, 2, 1}});
  AddPacks(conv->group, *plan, builder);
  builder.SetCode<EmitGpuDepthwise>(*plan);
  Candidate& candidate = builder.candidate();
  candidate.cost = Cost(request, conv->shape, conv->group.ResultType());
  candidate.reason =
      fmt::format("{}{} channels of {} pixels", plan->shape.bytes ? "bytes as floats, " : "",
                  plan->lanes, plan->pixels);
  candidates.push_back(std::move(candidate));
}

}  // namespace

const Kernel& GpuDepthwiseKernel() {
  static const Kernel kKernel{.name = "gpu_depthwise",
                              .cpu = false,
                              .gpu = true,
                              .propose = ProposeGpuDepthwise,
                              .reread = Reread<GpuDepthwisePlan>};
  return kKernel;
}

}  // namespace quench::codegen
