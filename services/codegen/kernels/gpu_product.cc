// Convolutions and products of matrices on GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "services/codegen/kernels/blocks.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/gpu_product_copies.h"
#include "services/codegen/kernels/gpu_product_sums.h"
#include "services/codegen/kernels/planned_kernel.h"
#include "services/codegen/kernels/typical_sizes.h"

namespace quench::codegen {
namespace {

class GpuProductEmitter {
 public:
  GpuProductEmitter(VectorBuilder& b, const Planned<GpuProductPlan>& product)
      : b_(b),
        g_(b.gpu()),
        product_(product),
        plan_(product.plan),
        place_(Place()),
        copies_(b, product, place_),
        sums_(MakeGpuSums(b, product.plan)) {}

  absl::Status Emit() {
    if (plan_.registers > 0) g_.LimitRegisters(plan_.registers);
    MultiplySteps();
    g_.Barrier();  // tiles are read no more
    sums_->Store();
    g_.Barrier();
    return Finish();
  }

 private:
  // The blocks of a matrix, or of a part of an image, lie one after the other.
  GpuBlockPlace Place() {
    const Int n_parts = b_.Size(plan_.n_parts), parts = n_parts * plan_.groups;
    const Int task = b_.Begin(), part = task % parts, rows = task / parts;
    const bool batches = !plan_.batch.is(1);
    const Int m_parts = b_.Size(plan_.m_parts);
    return {.batch = batches ? rows / m_parts : b_.I(0),
            .group = plan_.groups > 1 ? part / n_parts : b_.I(0),
            .m0 = (batches ? rows % m_parts : rows) * plan_.block_m,
            .n0 = (plan_.groups > 1 ? part % n_parts : part) * plan_.block_n};
  }

  void MultiplySteps() {
    const Int steps = b_.Size(plan_.steps);
    const int64_t ahead = plan_.stages - 1, stage_bytes = plan_.stage_bytes();
    for (int64_t step = 0; step < ahead; ++step) {
      const auto copy = [&] { copies_.CopyStep(b_.I(step), b_.I(step * stage_bytes)); };
      if (!plan_.steps.is_static()) {
        b_.If(b_.I(step) < steps, copy);
      } else if (step < plan_.steps.value()) {
        copy();
      }
      g_.CommitCopies();
    }
    const IntVar stage = b_.Variable(b_.I(0)), next = b_.Variable(b_.I(ahead * stage_bytes));
    const auto after = [&](Int at) {  // the stage behind
      return (at + stage_bytes) % b_.I(plan_.stages * stage_bytes);
    };
    b_.For(b_.I(0), steps, 1, [&](Int step) {
      g_.WaitForCopies(static_cast<int>(ahead - 1));
      g_.Barrier();
      b_.If(step + ahead < steps, [&] { copies_.CopyStep(step + ahead, next.Get()); });
      g_.CommitCopies();
      sums_->Multiply(stage.Get());
      stage.Set(after(stage.Get()));
      next.Set(after(next.Get()));
    });
  }

  absl::Status Finish() {
    const bool fours = plan_.n.is_static() && plan_.n.value() % 4 == 0;
    const int lanes = fours ? 4 : 1;
    const Int n = b_.Size(plan_.n), m = b_.Size(plan_.m);
    const int bias_pack = plan_.right == GpuRight::kPacked ? 1 : 0;
    ResultWriter writer(b_, product_.group, product_.buffers, product_.packs, lanes, fours);
    b_.For(g_.Thread() * lanes, b_.I(plan_.block_m * plan_.block_n), plan_.threads * lanes,
           [&](Int at) {
             const Int row = place_.m0 + at / b_.I(plan_.block_n);
             const Int column = place_.n0 + at % b_.I(plan_.block_n);
             b_.If(row < m && column < n, [&] {
               Vec value = g_.LoadShared(at * 4, lanes, plan_.sums());
               const Int number = place_.group * n + column, channel = number * 4;
               if (plan_.has_bias) {
                 const Ptr bias = b_.Buffer(product_.buffers.Pack(bias_pack)) + channel;
                 value = b_.Apply(VecOp::kAdd, value, g_.LoadAligned(bias, lanes, plan_.sums()));
               }
               const Int pixel = place_.batch * m + row;
               writer.Store(Place::Of(pixel * (n * plan_.groups) + number), channel, value, Int{});
             });
           });
    return writer.status();
  }

  VectorBuilder& b_;
  GpuBuilder& g_;
  const Planned<GpuProductPlan>& product_;
  const GpuProductPlan& plan_;
  const GpuBlockPlace place_;
  GpuTileCopies copies_;
  std::unique_ptr<GpuSums> sums_;
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
  const auto size = [&](Dim dim) {
    return static_cast<double>(TypicalValue(request.symbols, dim));
  };
  const double rows = size(plan.batch) * size(plan.m);
  const double n = size(plan.n) * static_cast<double>(plan.groups), k = size(plan.k);
  // A microsecond, of a card in the middle.
  const double flops = !plan.products ? 6e6 : plan.rounds() ? 30e6 : 60e6;
  const auto element = static_cast<double>(plan.element());
  const double right = plan.right == GpuRight::kPacked
                           ? static_cast<double>(plan.groups * plan.padded_n() * plan.row_bytes())
                           : (plan.w_batched ? size(plan.batch) : 1) * n * k * element;
  const double bytes = rows * n * DataTypeBits(group.ResultType()) / 8 + right;
  return 2 * rows * n * k / flops + 1e-3 * bytes / request.target.gbytes;
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

void AddWeights(const GpuProductPlan& plan, bool transposed, CandidateBuilder& builder) {
  std::map<std::string, int64_t> params = {{"rows", plan.groups * plan.padded_n()},
                                           {"row_bytes", plan.row_bytes()}};
  if (plan.conv) params["channels"] = plan.channels;
  if (plan.groups > 1) params["groups"] = plan.groups;
  if (transposed) params["transposed"] = 1;
  if (plan.rounds()) params["tf32"] = 1;
  if (plan.bytes && plan.bytes->w_zero != 0) params["zero"] = plan.bytes->w_zero;
  builder.Pack(1, "gpu_rows", std::move(params));
}

void AddPacks(const Group& group, const GpuProductPlan& plan, bool transposed,
              CandidateBuilder& builder) {
  if (plan.right == GpuRight::kPacked) AddWeights(plan, transposed, builder);
  const bool known = plan.n.is_static();
  const int64_t n = known ? plan.groups * plan.n.value() : 1;
  const int64_t padded = known ? plan.groups * plan.padded_n() : 1;
  if (plan.bytes) {
    AddByteSums(group, *plan.bytes, plan.conv ? 0 : 1, n, padded, builder.candidate());
  } else if (plan.has_bias) {
    builder.PackChannels(2, n, padded);
  }
  builder.PackOperands(n, padded);
}

void AddPreparation(const KernelRequest& request, const Group& group, const GpuProductPlan& plan,
                    CandidateBuilder& builder) {
  Candidate& candidate = builder.candidate();
  candidate.inputs[static_cast<size_t>(group.inputs[0])] = Layout{};
  Preparation& preparation = candidate.preparation.emplace();
  const ConvShape& s = *plan.conv;
  preparation.tasks = request.symbols.Mul(s.n, request.symbols.Mul(s.h, s.w));
  preparation.workspace_bytes =
      request.symbols.Mul(preparation.tasks, plan.channels * plan.element());
  preparation.cost = 1;
  preparation.code = builder.Code<EmitGpuPadding>(plan);
}

Candidate MakeCandidate(const KernelRequest& request, const Group& group, const Layout& layout,
                        bool transposed, const GpuProductPlan& plan) {
  CandidateBuilder builder(request, group, layout);
  Candidate& candidate = builder.candidate();
  AddPacks(group, plan, transposed, builder);
  if (plan.prepares) AddPreparation(request, group, plan, builder);
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

void ProposeGpuMatMul(const KernelRequest& request, std::vector<Candidate>& candidates) {
  std::optional<Group> group = ReadGroup(request, -1);
  if (!group) return;
  const std::optional<MatMulRoot> product = ReadMatMul(request, *group);
  if (!product) return;
  const std::optional<GpuProductPlan> plan = PlanGpuMatMul(request, *product);
  if (!plan) return;
  candidates.push_back(
      MakeCandidate(request, *group, Layout{}, product->shape.b_transposed, *plan));
}

void ProposeGpuProduct(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2) return;
  const std::optional<ConvRoot>& conv = ReadConv(request);
  if (!conv) return ProposeGpuMatMul(request, candidates);
  const std::optional<GpuProductPlan> plan = PlanGpuConv(request, *conv);
  if (plan && PadsWithZeros(*plan))
    candidates.push_back(MakeCandidate(request, conv->group, LayoutOf(conv->group), false, *plan));
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
