#include "services/codegen/kernels/winograd_plan.h"

#include <algorithm>
#include <cmath>

namespace quench::codegen {
namespace {

constexpr double kMostPatches = 24 << 20;  // of a whole image, with its results
constexpr double kWeightsShareOfL2 = 0.4;  // of weights that are transformed at run time
constexpr double kShareOfL2 = 0.6;         // of transformed patches and results: weights pass by
constexpr double kMostOfL2 = 0.85;         // of these with all weights

bool Takes(const ConvRoot& conv, int lanes, int64_t taps) {
  const ConvShape& shape = conv.shape;
  return conv.group.InputType(0).rank() == 4 && shape.x_type == DataType::kF32 &&
         conv.w_type() == DataType::kF32 && shape.kernel_h == taps && shape.kernel_w == taps &&
         shape.stride_h == 1 && shape.stride_w == 1 && shape.dilation_h == 1 &&
         shape.dilation_w == 1 && shape.groups == 1 && shape.in_channels >= lanes &&
         shape.out_channels >= lanes;
}

void PlanTile(const KernelRequest& request, WinogradPlan& plan) {
  TileProblem problem;
  problem.height = 1;
  if (plan.axis.total.is_static()) problem.width = plan.axis.total.value();
  problem.vectors = plan.vectors;
  problem.steps = plan.blocks * plan.lanes;
  plan.shared = SharedPanels::Of(request.target);
  if (plan.transforms_weights && !plan.shared.used()) plan.shared.lanes = plan.lanes;
  if (plan.shared.used()) {
    const int64_t lanes = plan.shared.lanes, channels = plan.shape.in_channels;
    plan.shared.rows = plan.transforms_weights
                           ? channels * plan.size.taps * plan.size.taps
                           : (channels + lanes - 1) / lanes * lanes * plan.points();
    problem.most_vectors = plan.shared.MostVectors();
  }
  plan.tile = plan.form->Tiles(request.target, problem).front();
  plan.panels = SplitIntoPanels(plan.vectors, plan.tile.vectors);
  plan.axis.most = plan.tile.x;
  plan.unroll = StepsOfBody(request.target);
}

// Bytes of transformed patches per tile of the image.
int64_t TileBytes(const WinogradPlan& plan) {
  return plan.points() * plan.blocks * plan.vector_bytes();
}

// Bytes of the patches of a whole image.
double PatchBytes(const WinogradPlan& plan) {
  return static_cast<double>(TileBytes(plan) * plan.axis.total.value());
}

// Parts of the axis whose patches stay in L2 beside a panel's results, and beside all weights where
// these leave room for them; enough groups for several threads.
int64_t GroupParts(const KernelRequest& request, const WinogradPlan& plan) {
  const auto l2 = static_cast<double>(request.target.l2_bytes);
  const double tile = static_cast<double>(TileBytes(plan) +
                                          plan.points() * plan.tile.vectors * plan.vector_bytes());
  const double part = tile * static_cast<double>(plan.axis.most);
  const double beside = kMostOfL2 * l2 - static_cast<double>(plan.weight_bytes());
  const double fits = (beside >= part ? std::min(beside, kShareOfL2 * l2) : kShareOfL2 * l2) / part;
  const double all = TypicalSize(request.symbols, plan.parts);
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(fits, all / 4)));
}

// Whether writing and reading all patches and results once moves less beyond L2 than reading the
// weights again for each group; where neither is much, whatever gives threads more to do. Groups divide
// among threads without transforming a patch twice.
bool ByPanels(const KernelRequest& request, const WinogradPlan& plan) {
  if (!plan.axis.total.is_static()) return false;
  const double patches = PatchBytes(plan);
  if (plan.transforms_weights) return patches <= kMostPatches;
  const double results =
      patches * static_cast<double>(plan.vectors) / static_cast<double>(plan.blocks);
  if (patches + results > kMostPatches) return false;
  const double groups =
      std::ceil(TypicalSize(request.symbols, plan.parts) / static_cast<double>(plan.group_parts));
  if (groups < 2) return true;
  const auto weights = static_cast<double>(plan.weight_bytes());
  const double room = kShareOfL2 * static_cast<double>(request.target.l2_bytes);
  if (patches + results <= room) return static_cast<double>(plan.panels.parts()) >= groups;
  const double by_groups = weights <= room ? weights : weights * groups;
  constexpr double kTwice = 1.15;  // what threads do more than once
  return (2 * (patches + results) + weights) * kTwice < by_groups;
}

// Blocks of input channels whose transformed weights of a panel fit a part of L2, beside the patches that
// pass by; equal parts.
int64_t ChunkBlocks(const KernelRequest& request, const WinogradPlan& plan) {
  if (!plan.transforms_weights) return plan.blocks;
  const int64_t block = plan.tile.vectors * plan.vector_weight_bytes() / plan.blocks;
  const auto room =
      static_cast<int64_t>(kWeightsShareOfL2 * static_cast<double>(request.target.l2_bytes));
  const int64_t most = std::clamp<int64_t>(room / block, 1, plan.blocks);
  const int64_t chunks = (plan.blocks + most - 1) / most;
  return (plan.blocks + chunks - 1) / chunks;
}

void PlanTasks(const KernelRequest& request, WinogradPlan& plan) {
  SymbolTable& symbols = request.symbols;
  plan.parts = plan.axis.Parts(symbols);
  plan.group_parts = GroupParts(request, plan);
  plan.by_panels = ByPanels(request, plan);
  if (plan.by_panels) {
    plan.room = plan.axis.total.value();
    plan.tasks = plan.panels.parts();
  } else {
    plan.room = plan.group_parts * plan.axis.most;
    plan.tasks = symbols.Mul(plan.shape.n, symbols.CeilDiv(plan.parts, plan.group_parts));
  }
  plan.chunk_blocks = ChunkBlocks(request, plan);
  plan.scratch = plan.weights_at();
  if (plan.transforms_weights)
    plan.scratch += plan.points() * plan.weights_point(plan.tile.vectors);
  plan.scratch = (plan.scratch + 63) / 64 * 64;
}

}  // namespace

std::optional<WinogradPlan> PlanWinograd(const KernelRequest& request, const ConvRoot& conv,
                                         const WinogradSize& size, bool transforms_weights) {
  const ConvShape& shape = conv.shape;
  const int lanes = request.target.f32_lanes();
  if (!Takes(conv, lanes, size.taps)) return std::nullopt;
  SymbolTable& symbols = request.symbols;
  WinogradPlan plan;
  plan.shape = shape;
  plan.size = size;
  plan.transforms_weights = transforms_weights;
  plan.lanes = lanes;
  plan.blocks = (shape.in_channels + lanes - 1) / lanes;
  plan.vectors = (shape.out_channels + lanes - 1) / lanes;
  plan.tiles_x = symbols.CeilDiv(shape.out_w, size.outputs);
  plan.tiles_y = symbols.CeilDiv(shape.out_h, size.outputs);
  plan.axis.total = symbols.Mul(plan.tiles_y, plan.tiles_x);
  PlanTile(request, plan);
  PlanTasks(request, plan);
  if (transforms_weights && !plan.by_panels) return std::nullopt;
  return plan;
}

std::optional<RowOrder> RowOrderOf(const WinogradPlan& plan, int input) {
  const ConvShape& s = plan.shape;
  if (plan.by_panels || !CanListRows(s, plan.tasks)) return std::nullopt;
  RowOrder order;
  order.input = input;
  const Split split = SplitEvenly(plan.axis.total.value(), plan.axis.most);
  const int64_t width = plan.tiles_x.value(), height = s.out_h.value();
  for (int64_t n = 0; n < s.n.value(); ++n) {
    for (int64_t first = 0; first < split.parts(); first += plan.group_parts) {
      const int64_t end = split.Start(std::min(first + plan.group_parts, split.parts()));
      const auto rows = [&](int64_t tiles) { return std::min(height, tiles * plan.size.outputs); };
      order.needs.push_back(n * s.h.value() + RowsUnder(s, rows((end + width - 1) / width)));
      order.makes.push_back(n * height + rows(end / width));
    }
  }
  return order;
}

double WinogradCost(const KernelRequest& request, const WinogradPlan& plan) {
  const SymbolTable& symbols = request.symbols;
  const ConvShape& s = plan.shape;
  const double n = TypicalSize(symbols, s.n);
  const double tiles = TypicalSize(symbols, plan.axis.total);
  const auto points = static_cast<double>(plan.points());
  const double per_cycle = request.target.FlopsPerCycle(plan.lanes) / (request.target.gflops * 1e3);
  const double products = points * plan.tile.cycles * (plan.axis.total.is_static() ? 1 : tiles);
  // Loads, arithmetic and stores of both passes, a vector of a patch; measured on Zen 3.
  const double transforms =
      tiles * points *
      (5 * static_cast<double>(plan.blocks) + 4 * static_cast<double>(plan.vectors));
  // And as much for a vector of a filter's points; but what is stored leaves the nearest cache, a line
  // in eight cycles (Emerald Rapids).
  const double store = std::max<double>(3, static_cast<double>(plan.vector_bytes()) / 8);
  const double filters =
      plan.transforms_weights
          ? store * points * static_cast<double>(plan.vectors * plan.blocks * plan.lanes)
          : 0;
  const double element = 4;
  const double activations =
      n * element *
      (TypicalSize(symbols, s.h) * TypicalSize(symbols, s.w) * static_cast<double>(s.in_channels) +
       TypicalSize(symbols, s.out_h) * TypicalSize(symbols, s.out_w) *
           static_cast<double>(s.out_channels));
  const int64_t weights = plan.transforms_weights ? plan.weight_bytes() / plan.points() *
                                                        plan.size.taps * plan.size.taps
                                                  : plan.weight_bytes();
  return WithMemory(request.target, n * (products + transforms + filters) * per_cycle, activations,
                    static_cast<double>(weights));
}

}  // namespace quench::codegen
