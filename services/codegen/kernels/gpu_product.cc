// Convolutions and products with constant weights on GPUs.
#include <fmt/format.h>

#include <array>
#include <vector>

#include "services/codegen/kernels/blocks.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/gpu_product_plan.h"
#include "services/codegen/kernels/planned_kernel.h"
#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

constexpr int64_t kChunk = GpuProductPlan::kChunk;
constexpr int64_t kRow = GpuProductPlan::kStepChunks * kChunk;  // bytes of a row of a tile
constexpr int kWeights = 0, kBias = 1;                          // packs

class GpuProductEmitter {
 public:
  GpuProductEmitter(VectorBuilder& b, const Planned<GpuProductPlan>& product)
      : b_(b),
        g_(b.gpu()),
        plan_(product.plan),
        group_(product.group),
        buffers_(product.buffers),
        packs_(product.packs) {}

  absl::Status Emit() {
    thread_ = g_.Thread();
    const Int parts = b_.I(plan_.n_parts());
    m0_ = b_.Begin() / parts * plan_.block_m;
    n0_ = b_.Begin() % parts * plan_.block_n;
    BeginCopies();
    BeginSums();
    MultiplySteps();
    g_.Barrier();  // tiles are read no more
    StoreSums();
    g_.Barrier();
    return Finish();
  }

 private:
  // ---- copies ----

  // A row of the tile of `a` that a thread copies a chunk of, in each step.
  struct Source {
    Bool present;
    Int base;  // bytes from the start of `a`
    Int y, x;  // of a convolution: the input pixel under the first tap
    Int to;    // in the stage
  };

  Int Rows() { return b_.I(plan_.threads / GpuProductPlan::kStepChunks); }
  // Chunks of a row are rotated, so that eight rows of a chunk lie in different banks.
  Int PlaceOf(Int row, Int chunk) { return row * kRow + (chunk + row / 2) % 4 * kChunk; }

  void BeginCopies() {
    chunk_ = thread_ % 4;
    const Int row = thread_ / 4;
    const int64_t rows = plan_.threads / 4;
    const Int m = b_.Size(plan_.m);
    for (int64_t first = 0; first < plan_.block_m; first += rows) {
      Source source;
      const Int at = m0_ + row + first;
      source.present = at < m;
      source.to = PlaceOf(row + first, chunk_);
      if (plan_.conv) {
        PlacePixel(Min(at, m - 1), source);
      } else {
        source.base = Min(at, m - 1) * (plan_.chunks * kChunk);
      }
      sources_.push_back(source);
    }
    weights_ =
        b_.Buffer(buffers_.Pack(kWeights)) + (n0_ + row) * plan_.row_bytes() + chunk_ * kChunk;
    weights_to_ = b_.I(plan_.block_m * kRow) + PlaceOf(row, chunk_);
    a_ = b_.Buffer(plan_.prepares ? buffers_.Workspace() : buffers_.Input(group_.inputs[0]));
  }

  void PlacePixel(Int pixel, Source& source) {
    const ConvShape& s = *plan_.conv;
    const Int width = b_.Size(s.out_w), height = b_.Size(s.out_h);
    source.x = pixel % width * s.stride_w - s.pad_left;
    const Int row = pixel / width;
    source.y = row % height * s.stride_h - s.pad_top;
    source.base = ((row / height * b_.Size(s.h) + source.y) * b_.Size(s.w) + source.x) *
                  (plan_.channels * plan_.element());
  }

  void CopyStep(Int step, Int stage) {
    const Int chunk = step * 4 + chunk_;
    const Bool inside = chunk < b_.I(plan_.chunks);
    Int offset = chunk * kChunk, y = offset, x = offset;
    if (plan_.conv) {
      const ConvShape& s = *plan_.conv;
      const int64_t row = plan_.channels * plan_.element();
      const Int tap = chunk / b_.I(row / kChunk);
      y = tap / b_.I(s.kernel_w) * s.dilation_h;
      x = tap % b_.I(s.kernel_w) * s.dilation_w;
      offset = (y * b_.Size(s.w) + x) * row + chunk % b_.I(row / kChunk) * kChunk;
    }
    for (const Source& source : sources_) {
      Bool present = source.present && inside;
      if (plan_.conv) present = present && IsInImage(source.y + y, source.x + x);
      g_.CopyToShared(stage + source.to, a_ + (source.base + offset), present);
    }
    const int64_t rows = plan_.threads / 4;
    for (int64_t first = 0; first < plan_.block_n; first += rows) {
      // Rows a multiple of 8 apart have their chunks at the same places.
      g_.CopyToShared(stage + weights_to_ + first * kRow,
                      weights_ + (step * kRow + first * plan_.row_bytes()), always_);
    }
  }

  Bool IsInImage(Int y, Int x) {
    const ConvShape& s = *plan_.conv;
    return b_.I(-1) < y && y < b_.Size(s.h) && b_.I(-1) < x && x < b_.Size(s.w);
  }

  // ---- sums ----

  int64_t TilesM() const { return plan_.warp_m / 16; }
  int64_t TilesN() const { return plan_.warp_n / 8; }
  // Products of f32 without tensor cores: a thread has every 16th row and column of the tile.
  static constexpr int64_t kApart = 16;

  void BeginSums() {
    if (plan_.products) {
      const Vec zero = b_.Constant(plan_.sums(), 0, 1);
      for (int64_t i = 0; i < TilesM() * TilesN(); ++i) {
        sums_.emplace_back();
        for (VecVar& sum : sums_.back()) sum = b_.Variable(zero);
      }
      const Int warp = thread_ / 32, lane = thread_ % 32;
      const int64_t across = plan_.block_n / plan_.warp_n;
      warp_m_ = warp / b_.I(across) * plan_.warp_m;
      warp_n_ = warp % b_.I(across) * plan_.warp_n;
      a_row_ = warp_m_ + lane % 16;
      a_chunk_ = lane / 16;
      b_row_ = warp_n_ + lane / 16 * 8 + lane % 8;
      b_chunk_ = lane / 8 % 2;
      return;
    }
    const int64_t patch = plan_.block_m / kApart * (plan_.block_n / kApart);
    for (int64_t i = 0; i < patch; ++i) patch_.push_back(b_.Variable(b_.F(0, 4)));
    a_row_ = thread_ / kApart;
    b_row_ = thread_ % kApart;
  }

  void MultiplySteps() {
    const int64_t steps = plan_.steps(), ahead = plan_.stages - 1;
    always_ = b_.I(0) < b_.I(1);
    for (int64_t step = 0; step < ahead; ++step) {
      if (step < steps) CopyStep(b_.I(step), b_.I(step * plan_.stage_bytes()));
      g_.CommitCopies();
    }
    const IntVar stage = b_.Variable(b_.I(0)),
                 next = b_.Variable(b_.I(ahead * plan_.stage_bytes()));
    const auto after = [&](Int at) {  // the stage behind
      const Int end = b_.I(plan_.stages * plan_.stage_bytes());
      return (at + plan_.stage_bytes()) % end;
    };
    b_.For(b_.I(0), b_.I(steps), 1, [&](Int step) {
      g_.WaitForCopies(static_cast<int>(ahead - 1));
      g_.Barrier();
      b_.If(step + ahead < b_.I(steps), [&] { CopyStep(step + ahead, next.Get()); });
      g_.CommitCopies();
      if (plan_.products) {
        for (int64_t half = 0; half < 2; ++half) MultiplyInWarp(stage.Get(), half);
      } else {
        for (int64_t chunk = 0; chunk < 4; ++chunk) MultiplyInThread(stage.Get(), chunk);
      }
      stage.Set(after(stage.Get()));
      next.Set(after(next.Get()));
    });
  }

  // 32 bytes of k, the first or the second of the step.
  void MultiplyInWarp(Int stage, int64_t half) {
    const Int a_at = stage + PlaceOf(a_row_, a_chunk_ + 2 * half);
    const Int b_at = stage + plan_.block_m * kRow + PlaceOf(b_row_, b_chunk_ + 2 * half);
    std::vector<std::array<Vec, 4>> left, right;
    for (int64_t i = 0; i < TilesM(); ++i) {
      left.push_back(g_.LoadMatrices(a_at + i * 16 * kRow));
      if (plan_.rounds()) {
        for (Vec& word : left.back()) word = g_.RoundToTf32(word);
      }
    }
    for (int64_t j = 0; j < TilesN() / 2; ++j)
      right.push_back(g_.LoadMatrices(b_at + j * 16 * kRow));
    for (int64_t i = 0; i < TilesM(); ++i) {
      for (int64_t j = 0; j < TilesN(); ++j) {
        const std::array<Vec, 4>& two = right[static_cast<size_t>(j / 2)];
        const auto first = static_cast<size_t>(j % 2 * 2);
        const std::array<Vec, 2> columns = {two[first], two[first + 1]};
        g_.AddProducts(*plan_.products, sums_[static_cast<size_t>(i * TilesN() + j)],
                       left[static_cast<size_t>(i)], columns);
      }
    }
  }

  void MultiplyInThread(Int stage, int64_t chunk) {
    const Int a_at = stage + PlaceOf(a_row_, b_.I(chunk));
    const Int b_at = stage + plan_.block_m * kRow + PlaceOf(b_row_, b_.I(chunk));
    std::vector<Vec> columns;
    for (int64_t j = 0; j < plan_.block_n / kApart; ++j)
      columns.push_back(g_.LoadShared(b_at + j * kApart * kRow, 4, DataType::kF32));
    size_t next = 0;
    for (int64_t i = 0; i < plan_.block_m / kApart; ++i) {
      const Vec row = g_.LoadShared(a_at + i * kApart * kRow, 4, DataType::kF32);
      for (const Vec& column : columns) {
        const VecVar& sum = patch_[next++];
        sum.Set(b_.Fma(row, column, sum.Get()));
      }
    }
  }

  // ---- results ----

  Int PlaceOfSum(Int row, Int column) { return (row * plan_.block_n + column) * 4; }

  void StoreSums() {
    if (!plan_.products) {
      size_t next = 0;
      for (int64_t i = 0; i < plan_.block_m / kApart; ++i) {
        for (int64_t j = 0; j < plan_.block_n / kApart; ++j)
          g_.StoreShared(PlaceOfSum(a_row_ + i * kApart, b_row_ + j * kApart),
                         b_.Sum(patch_[next++].Get()));
      }
      return;
    }
    const Int lane = thread_ % 32;
    for (int64_t i = 0; i < TilesM(); ++i) {
      for (int64_t j = 0; j < TilesN(); ++j) {
        const std::array<VecVar, 4>& sums = sums_[static_cast<size_t>(i * TilesN() + j)];
        const Int at = PlaceOfSum(warp_m_ + lane / 4 + i * 16, warp_n_ + lane % 4 * 2 + j * 8);
        for (int64_t half = 0; half < 2; ++half) {
          for (int64_t k = 0; k < 2; ++k)
            g_.StoreShared(at + (half * 8 * plan_.block_n + k) * 4,
                           sums[static_cast<size_t>(half * 2 + k)].Get());
        }
      }
    }
  }

  absl::Status Finish() {
    const int lanes = plan_.n % 4 == 0 ? 4 : 1;
    const Int n = b_.I(plan_.n), m = b_.Size(plan_.m);
    ResultWriter writer(b_, group_, buffers_, packs_, lanes);
    b_.For(
        thread_ * lanes, b_.I(plan_.block_m * plan_.block_n), plan_.threads * lanes, [&](Int at) {
          const Int row = m0_ + at / b_.I(plan_.block_n), column = n0_ + at % b_.I(plan_.block_n);
          b_.If(row < m && column < n, [&] {
            Vec value = g_.LoadShared(at * 4, lanes, plan_.sums());
            const Int channel = column * 4;
            if (plan_.has_bias) {
              const Vec bias =
                  b_.Load(b_.Buffer(buffers_.Pack(kBias)) + channel, lanes, plan_.sums());
              value = b_.Apply(VecOp::kAdd, value, bias);
            }
            writer.Store(Place::Of(row * n + column), channel, value, Int{});
          });
        });
    return writer.status();
  }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const GpuProductPlan& plan_;
  const Group& group_;
  const BufferMap& buffers_;
  const std::vector<int>& packs_;
  Bool always_;
  Int thread_, m0_, n0_, chunk_, weights_to_;
  Ptr a_, weights_;
  std::vector<Source> sources_;
  Int warp_m_, warp_n_, a_row_, a_chunk_, b_row_, b_chunk_;
  std::vector<std::array<VecVar, 4>> sums_;
  std::vector<VecVar> patch_;
};

absl::Status EmitGpuProduct(VectorBuilder& b, const Planned<GpuProductPlan>& product) {
  return GpuProductEmitter(b, product).Emit();
}

// A row-major input with its channels together, and zeros (or the bytes of the zero point) up to whole chunks. Each task
// is a pixel.
absl::Status EmitGpuPadding(VectorBuilder& b, const Planned<GpuProductPlan>& product) {
  const GpuProductPlan& plan = product.plan;
  const ConvShape& s = *plan.conv;
  const Int pixels = b.Size(s.h) * b.Size(s.w);
  const DataType type = RegisterTypeOf(plan.type);
  b.For(b.Begin(), b.End(), 1, [&](Int pixel) {
    const Int from = (pixel / pixels * s.in_channels * pixels + pixel % pixels) * plan.element();
    const Ptr in = b.Buffer(product.buffers.Input(product.group.inputs[0])) + from;
    const Ptr out =
        b.Buffer(product.buffers.Workspace()) + pixel * (plan.channels * plan.element());
    for (int64_t c = 0; c < plan.channels; ++c) {
      const Vec value = c < s.in_channels ? b.Load(in + pixels * (c * plan.element()), 1, plan.type)
                                          : b.Constant(type, 0, 1);
      b.Store(out + c * plan.element(), AsStored(b, plan.type, value));
    }
  });
  return absl::OkStatus();
}

double CostOf(const KernelRequest& request, const Group& group, const GpuProductPlan& plan) {
  const double m = static_cast<double>(TypicalValue(request.symbols, plan.m));
  const int64_t k = plan.chunks * (kChunk / plan.element());
  const double macs = m * static_cast<double>(plan.n * k);
  // A microsecond, of a card in the middle.
  const double flops = !plan.products ? 6e6 : plan.rounds() ? 30e6 : 60e6;
  const double bytes = m * static_cast<double>(plan.n) * DataTypeBits(group.ResultType()) / 8 +
                       static_cast<double>(plan.padded_n() * plan.row_bytes());
  return 2 * macs / flops + 1e-3 * bytes / request.target.gbytes;
}

std::string ReasonOf(const GpuProductPlan& plan) {
  const std::string form =
      plan.products
          ? fmt::format("{} in tensor cores",
                        EnumNames<WarpProducts>::kNames[static_cast<size_t>(*plan.products)])
          : "f32";
  return fmt::format("{}, blocks of {} x {}{}", form, plan.block_m, plan.block_n,
                     plan.prepares ? ", padded copy" : "");
}

void AddPacks(const Group& group, const GpuProductPlan& plan, bool transposed,
              CandidateBuilder& builder) {
  std::map<std::string, int64_t> params = {{"rows", plan.padded_n()},
                                           {"row_bytes", plan.row_bytes()}};
  if (plan.conv) params["channels"] = plan.channels;
  if (transposed) params["transposed"] = 1;
  if (plan.rounds()) params["tf32"] = 1;
  if (plan.bytes && plan.bytes->w_zero != 0) params["zero"] = plan.bytes->w_zero;
  builder.Pack(1, "gpu_rows", std::move(params));
  const int64_t padded = plan.padded_n();
  if (plan.bytes) {
    AddByteSums(group, *plan.bytes, plan.conv ? 0 : 1, plan.n, padded, builder.candidate());
  } else if (plan.has_bias) {
    builder.PackChannels(2, plan.n, padded);
  }
  builder.PackOperands(plan.n, padded);
}

Candidate MakeCandidate(const KernelRequest& request, const Group& group, const Layout& layout,
                        bool transposed, const GpuProductPlan& plan) {
  CandidateBuilder builder(request, group, layout);
  Candidate& candidate = builder.candidate();
  AddPacks(group, plan, transposed, builder);
  if (plan.prepares) {
    candidate.inputs[static_cast<size_t>(group.inputs[0])] = Layout{};
    Preparation& preparation = candidate.preparation.emplace();
    const ConvShape& s = *plan.conv;
    preparation.tasks = request.symbols.Mul(s.n, request.symbols.Mul(s.h, s.w));
    preparation.workspace_bytes =
        request.symbols.Mul(preparation.tasks, plan.channels * plan.element());
    preparation.cost = 1;
    preparation.code = builder.Code<EmitGpuPadding>(plan);
  }
  builder.SetCode<EmitGpuProduct>(plan);
  candidate.block_threads = static_cast<int>(plan.threads);
  candidate.shared_bytes = plan.shared_bytes();
  candidate.cost = CostOf(request, group, plan);
  candidate.reason = ReasonOf(plan);
  return candidate;
}

Layout LayoutOf(const Group& group) {
  return group.OutputType().rank() == 4 ? ChannelsLast() : Layout{.order = {0, 2, 1}};
}

// The padding of a convolution is the zero point, which zeros are only where it is 0.
bool PadsWithZeros(const GpuProductPlan& plan) {
  return !plan.bytes || plan.bytes->x.zero == 0 || (!plan.conv->padded);
}

void ProposeGpuProduct(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2) return;
  if (const std::optional<ConvRoot>& conv = ReadConv(request); conv) {
    const std::optional<GpuProductPlan> plan = PlanGpuConv(request, *conv);
    if (plan && PadsWithZeros(*plan)) {
      candidates.push_back(
          MakeCandidate(request, conv->group, LayoutOf(conv->group), false, *plan));
    }
    return;
  }
  std::optional<Group> group = ReadGroup(request, -1);
  if (!group) return;
  const std::optional<MatMulRoot> product = ReadMatMul(request, *group);
  if (!product) return;
  const std::optional<GpuProductPlan> plan = PlanGpuMatMul(request, *product);
  if (!plan) return;
  candidates.push_back(
      MakeCandidate(request, *group, Layout{}, product->shape.b_transposed, *plan));
}

}  // namespace

const Kernel& GpuProductKernel() {
  static const Kernel kKernel{.name = "gpu_product",
                              .cpu = false,
                              .gpu = true,
                              .propose = ProposeGpuProduct,
                              .reread = Reread<GpuProductPlan>};
  return kKernel;
}

}  // namespace quench::codegen
