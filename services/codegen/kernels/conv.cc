// Convolution by the micro-kernel.
#include <fmt/format.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/codegen/forms/matrix_tile.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/conv_copy.h"
#include "services/codegen/kernels/float_forms.h"
#include "services/codegen/kernels/planned_kernel.h"

namespace quench::codegen {
namespace {

// Weights, bias (if any), per-channel operands of the epilogue.
void AddPacks(const Group& group, const ConvPlan& plan, CandidateBuilder& builder) {
  const ConvShape& shape = plan.shape;
  const bool shared = plan.shared.used();
  std::map<std::string, int64_t> params = {
      {"groups", shape.groups},
      {"merged", plan.merged},
      {"lanes", shared ? plan.shared.lanes : plan.lanes},
      {"block", shared ? plan.shared.block : plan.block_channels},
      {"vectors", shared ? 1 : plan.tile.vectors}};
  if (plan.form->whole_tiles()) params["all"] = plan.vectors;
  if (shape.bytes) params["zero"] = shape.bytes->w_zero;
  builder.PackWeights(1, "conv_panels", plan.form->Pack(plan.weights()), std::move(params));
  const int64_t padded = plan.out_blocks() * plan.lanes;
  if (shape.bytes) {
    AddByteSums(group, *shape.bytes, 0, shape.out_channels, padded, builder.candidate());
  } else if (shape.has_bias) {
    builder.PackChannels(2, shape.out_channels, padded);
  }
  builder.PackOperands(shape.out_channels, padded);
}

class ConvEmitter {
 public:
  ConvEmitter(VectorBuilder& b, const Group& group, const ConvPlan& plan, const BufferMap& buffers,
              const std::vector<int>& epilogue_packs)
      : b_(b),
        group_(group),
        plan_(plan),
        weights_(plan.weights()),
        s_(plan.shape),
        buffers_(buffers),
        writer_(b, group, buffers, epilogue_packs, plan.lanes) {}

  absl::Status Emit() {
    Prepare();
    plan_.by_panels ? ByPanels() : ByBands();
    if (registers_) registers_->Release();
    return writer_.status();
  }

 private:
  // Addresses that do not depend on the task.
  void Prepare() {
    if (s_.bytes) zero_ = LoadRunZero(b_, group_, s_.bytes->x, buffers_);
    pixels_out_ = b_.Size(s_.out_h) * b_.Size(s_.out_w);
    image_out_ = pixels_out_ * (plan_.out_blocks() * plan_.lanes);
    pixel_ = plan_.pixel_words * 4;
    if (plan_.copy) {
      rows_ = CopiedRows(b_, plan_, zero_);
      row_ = rows_.row_bytes;
      block_ = rows_.block_bytes;
    } else {
      row_ = b_.Size(s_.w) * pixel_;
      block_ = row_ * b_.Size(s_.h);
    }
    registers_ = plan_.form->Registers(b_, plan_.tile, weights_, plan_.x_axis.WholeTile(b_));
    tail_ = !group_.epilogue.empty() && s_.out_channels != plan_.out_blocks() * plan_.lanes;
  }

  Ptr Image(Int n) {
    return SourceImage(b_, plan_, b_.Buffer(buffers_.Input(group_.inputs[0])), n);
  }

  // The source that panels of image n read.
  Ptr Source(Int n) {
    if (plan_.prepares()) return b_.Buffer(buffers_.Workspace()) + n * plan_.image_copy;
    return plan_.copy ? b_.Buffer(buffers_.Scratch()) : Image(n);
  }

  void ByPanels() {
    b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
      b_.For(b_.I(0), b_.Size(s_.n), 1, [&](Int n) { Panel(task, n, b_.I(0), {}); });
    });
  }

  struct Band {
    Int first, last;  // tiles of the outer pixel axis; invalid: all
  };

  void ByBands() {
    const TileAxis& outer = plan_.flat ? plan_.x_axis : plan_.y_axis;
    const Int parts = b_.Size(plan_.outer_parts);
    const Int bands = (parts + (plan_.task_tiles - 1)) / plan_.task_tiles;
    b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
      const Int n = task / bands;
      const Int first = (task - n * bands) * plan_.task_tiles;
      const Band band{first, Min(first + plan_.task_tiles, parts)};
      Int base = b_.I(0);
      if (plan_.copy) {
        base = outer.Start(b_, band.first);
        const Int rows = outer.Start(b_, band.last) - base;
        PadRows(b_, rows_, Image(n), b_.Buffer(buffers_.Scratch()), base * s_.stride_h - s_.pad_top,
                (rows - 1) * s_.stride_h + ((s_.kernel_h - 1) * s_.dilation_h + 1));
      }
      b_.For(b_.I(0), b_.I(plan_.groups * plan_.panels.parts()), 1,
             [&](Int p) { Panel(p, n, base, band); });
    });
  }

  // One panel (of all groups' panels) over all pixels of image n, or those of a band whose first
  // row is `base`.
  void Panel(Int p, Int n, Int base, const Band& band) {
    const int64_t per_group = plan_.panels.parts();
    const Int g = plan_.groups == 1 ? b_.I(0) : p / per_group;
    const Ptr source = Source(n) + g * (block_ * plan_.blocks);
    ForPanel(b_, plan_.panels, p - g * per_group, tail_, [&](int vectors, Int first, bool last) {
      PanelTiles tiles{source, base, n, p, g * plan_.vectors + first, vectors, last, {}, {}};
      StartPrefetch(tiles);
      Spatial(tiles, band);
    });
  }

  struct PanelTiles {
    Ptr source;
    Int row_base;
    Int n;
    Int panel;   // of those of all groups
    Int vector;  // first output vector
    int vectors = 1;
    bool last = false;
    PanelPrefetch prefetch;
    IntVar index;  // tiles done, while the next panel is prefetched
  };

  void Spatial(const PanelTiles& tiles, const Band& band) {
    const auto columns = [&](Int y, int ys) {
      const auto tile = [&](Int x, int xs) { EmitTile(tiles, y, x, ys, xs, {}); };
      const auto whole = [&](Int x, Int stored) {
        EmitTile(tiles, y, x, ys, plan_.tile.x, stored);
      };
      const bool in_band = plan_.flat && band.first.valid();
      const Int first = in_band ? band.first : b_.I(0);
      const Int last = in_band ? band.last : plan_.x_axis.Parts(b_);
      plan_.form->whole_tiles() ? plan_.x_axis.ForWhole(b_, first, last, whole)
                                : plan_.x_axis.For(b_, first, last, tile);
    };
    !plan_.flat&& band.first.valid() ? plan_.y_axis.For(b_, band.first, band.last, columns)
                                     : plan_.y_axis.ForAll(b_, columns);
  }

  void StartPrefetch(PanelTiles& tiles) {
    if (!plan_.by_panels || !plan_.x_axis.total.is_static() || !plan_.y_axis.total.is_static()) {
      return;
    }
    const int64_t count = SplitEvenly(plan_.x_axis.total.value(), plan_.x_axis.most).parts() *
                          SplitEvenly(plan_.y_axis.total.value(), plan_.y_axis.most).parts();
    const int64_t panel = plan_.vector_weight_bytes() * tiles.vectors;
    const int64_t run = plan_.run();
    const int64_t runs = plan_.words() / run;
    const int64_t bodies = runs * ((run + plan_.unroll - 1) / plan_.unroll);
    if (count < 2) return;  // a panel that is read once is in no hurry for the next
    tiles.prefetch = PanelPrefetch::Plan(panel, bodies, count);
    if (tiles.prefetch.lines > 0) tiles.index = b_.Variable(b_.I(0));
  }

  void Prefetch(const PanelTiles& tiles, MicroTile& tile) {
    if (tiles.prefetch.lines == 0) return;
    const Int slice = Min(tiles.index.Get(), b_.I(tiles.prefetch.slices - 1));
    const int64_t panel = plan_.vector_weight_bytes() * tiles.vectors;
    tile.prefetch = tile.weights + panel + slice * tiles.prefetch.slice_bytes;
    tile.prefetch_lines = tiles.prefetch.lines;
    tiles.index.Set(tiles.index.Get() + 1);
  }

  MicroReduction Reduction() {
    MicroReduction r;
    r.lanes = plan_.lanes;
    r.blocks = b_.I(plan_.blocks - (plan_.rest() > 0 ? 1 : 0));
    r.block_stride = block_;
    r.kh = b_.I(s_.kernel_h);
    r.kh_stride = row_ * s_.dilation_h;
    r.kw = b_.I(plan_.fold_width ? 1 : s_.kernel_w);
    r.kw_stride = b_.I(pixel_ * s_.dilation_w);
    r.channels = plan_.run();
    r.channel_stride = b_.I(4);
    r.tail = b_.I(plan_.rest());
    r.unroll = plan_.unroll;
    return r;
  }

  TileOperands Operands(const PanelTiles& tiles, Ptr weights) {
    TileOperands operands{
        .pack = [this, weights](int i) { return i == 0 ? weights : b_.Buffer(buffers_.Pack(i)); },
        .panel = tiles.panel,
        .vector = tiles.vector,
        .registers = registers_};
    if (!s_.bytes) return operands;
    operands.flip = s_.bytes->x.flip;
    operands.zero = zero_.value;
    if (plan_.words_twice() > 0) {
      for (const ops::WeightWord& at : *s_.bytes->twice) operands.again.push_back(OffsetOf(at));
    }
    return operands;
  }

  // From the first word of the first tap.
  Int OffsetOf(const ops::WeightWord& at) {
    const int64_t kh = at.tap / s_.kernel_w, kw = at.tap % s_.kernel_w;
    return block_ * (at.word / plan_.block_channels) + row_ * (s_.dilation_h * kh) +
           b_.I(pixel_ * s_.dilation_w * kw + at.word % plan_.block_channels * 4);
  }

  void EmitTile(const PanelTiles& tiles, Int y, Int x, int ys, int xs, Int stored) {
    MicroTile tile;
    tile.y = ys;
    tile.x = xs;
    tile.stored = stored;
    if (stored.valid()) tile.pixels = plan_.x_axis.WholeTile(b_);
    tile.vectors = tiles.vectors;
    tile.y_stride = row_ * s_.stride_h;
    tile.x_stride = b_.I(pixel_ * s_.stride_w);
    tile.input = tiles.source + ((y - tiles.row_base) * tile.y_stride + x * tile.x_stride);
    const int64_t vector = 4 * plan_.lanes;
    const Ptr weights = b_.Buffer(buffers_.Pack(0));
    tile.weights = plan_.shared.used()
                       ? plan_.shared.At(weights, tiles.vector, plan_.form->weight_bits() / 8)
                       : weights + tiles.vector * plan_.vector_weight_bytes();
    if (s_.has_bias) tile.bias = b_.Buffer(buffers_.Pack(1)) + tiles.vector * vector;
    const TileCode code = plan_.form->Code(b_, weights_, Operands(tiles, weights));
    Prefetch(tiles, tile);
    const int64_t block = plan_.out_block, per_block = block / plan_.lanes;
    const Int line = plan_.flat ? b_.I(0) : b_.Size(s_.out_w) * block;
    // A vector's channels, at the tile's first pixel.
    const auto place_of = [&](Int vector) {
      return Place::Of(tiles.n * image_out_ + vector / per_block * (pixels_out_ * block) +
                       vector % per_block * plan_.lanes + y * line + x * block);
    };
    std::vector<Place> places = {place_of(tiles.vector)};
    for (int v = 1; v < tiles.vectors && per_block > 1; ++v)
      places.push_back(place_of(tiles.vector + v));
    tile.results_in_memory = IsLong(group_.epilogue);
    code(Reduction(), tile, [&](Int dy, Int dx, int v, Vec value) {
      const Int pixel = line * dy + dx * block;
      Store(tiles,
            per_block > 1 ? places[static_cast<size_t>(v)] + pixel
                          : places[0] + (pixel + pixels_out_ * (block * v)),
            v, value);
    });
  }

  void Store(const PanelTiles& tiles, const Place& place, int v, Vec value) {
    // Lanes without a channel must stay 0: whole vectors, too, where a block has several.
    const Int vector = tiles.vector + v;
    Int channels;
    if (tail_ && plan_.out_block != plan_.lanes) {
      channels = b_.I(s_.out_channels) - vector * plan_.lanes;
    } else if (tiles.last && v == tiles.vectors - 1) {
      channels = b_.I(s_.out_channels % plan_.lanes);
    }
    writer_.Store(place, vector * (4 * plan_.lanes), value, channels);
  }

  VectorBuilder& b_;
  const Group& group_;
  const ConvPlan& plan_;
  const WeightPanels weights_;
  const ConvShape& s_;
  const BufferMap& buffers_;
  ResultWriter writer_;
  PaddedRows rows_;
  Int pixels_out_, image_out_, row_, block_;
  RunZero zero_;
  std::shared_ptr<MatrixRegisters> registers_;
  int64_t pixel_ = 0;
  bool tail_ = false;
};

// Reads and writes the input once.
double CopyCost(const KernelRequest& request, const ConvPlan& plan) {
  const SymbolTable& symbols = request.symbols;
  const ConvShape& s = plan.shape;
  const double l2_bandwidth = request.target.gbytes * 4;
  return TypicalSize(symbols, s.n) * TypicalSize(symbols, s.h) * TypicalSize(symbols, s.w) *
         static_cast<double>(s.in_channels * 2 * s.element()) / (l2_bandwidth * 1e3);
}

double Cost(const KernelRequest& request, const Group& group, const ConvPlan& plan) {
  const SymbolTable& symbols = request.symbols;
  const ConvShape& s = plan.shape;
  const double n = TypicalSize(symbols, s.n);
  const double out = TypicalSize(symbols, s.out_h) * TypicalSize(symbols, s.out_w);
  const double in = TypicalSize(symbols, s.h) * TypicalSize(symbols, s.w);
  // gflops is a thousand flops a microsecond.
  const double per_cycle = request.target.FlopsPerCycle(plan.lanes) / (request.target.gflops * 1e3);
  const double pixels =
      s.out_w.is_static() ? 1 : out / (s.out_h.is_static() ? TypicalSize(symbols, s.out_h) : 1);
  double micros = plan.tile.cycles * static_cast<double>(plan.groups) * n * pixels * per_cycle;
  const auto element = static_cast<double>(s.element());
  const double result = DataTypeBits(group.ResultType()) / 8.0;
  const double activations = n * (in * static_cast<double>(s.in_channels) * element +
                                  out * static_cast<double>(s.out_channels) * result);
  if (plan.copy) micros += CopyCost(request, plan);
  if (plan.row_major_input) micros += n * in * static_cast<double>(s.in_channels) * 0.5e-3;
  for (const EpilogueOperand& operand : group.epilogue.operands) {
    if (operand.kind == EpilogueOperand::kTensor) {
      micros += n * out * static_cast<double>(s.out_channels) * DataTypeBits(operand.type) / 8 /
                (request.target.gbytes * 2e3);
    }
  }
  return WithMemory(request.target, micros, activations, static_cast<double>(plan.weight_bytes()));
}

absl::Status EmitConv(VectorBuilder& b, const Planned<ConvPlan>& conv) {
  return ConvEmitter(b, conv.group, conv.plan, conv.buffers, conv.packs).Emit();
}

void Prepare(const KernelRequest& request, const ConvPlan& plan, CandidateBuilder& builder) {
  SymbolTable& symbols = request.symbols;
  Preparation& preparation = builder.candidate().preparation.emplace();
  preparation.tasks = symbols.Mul(plan.shape.n, plan.band_rows(plan.shape.out_h.value()));
  preparation.workspace_bytes = symbols.Mul(plan.shape.n, plan.image_copy);
  preparation.cost = CopyCost(request, plan);
  preparation.code = builder.Code<EmitConvCopy>(plan);
}

std::string ReasonOf(const ConvPlan& plan) {
  return fmt::format("{}tile {}x{}x{} of {} lanes, tasks by {}{}",
                     DescribeForm(plan.shape.bytes, *plan.form), plan.tile.y, plan.tile.x,
                     plan.tile.vectors, plan.lanes, plan.by_panels ? "panels" : "bands",
                     plan.copy ? ", padded copy" : "");
}

Candidate MakeCandidate(const KernelRequest& request, const Group& group, const ConvPlan& plan) {
  CandidateBuilder builder(request, group, BlockedLayout(plan.out_block));
  Candidate& candidate = builder.candidate();
  candidate.inputs[static_cast<size_t>(group.inputs[0])] =
      plan.row_major_input ? Layout{} : BlockedLayout(plan.in_block);
  AddPacks(group, plan, builder);
  if (plan.prepares()) Prepare(request, plan, builder);
  builder.SetCode<EmitConv>(plan);
  candidate.rows = RowOrderOf(plan, group.inputs[0]);
  candidate.cost = Cost(request, group, plan);
  candidate.reason = ReasonOf(plan);
  candidate.slow = plan.form->Slow();
  return candidate;
}

// One input cannot have two layouts.
bool LayoutsAgree(const Group& group, const ConvPlan& plan) {
  if (!plan.row_major_input && plan.in_block == plan.out_block) return true;
  return std::ranges::none_of(group.epilogue.operands, [&](const EpilogueOperand& operand) {
    return operand.kind == EpilogueOperand::kTensor && operand.input == group.inputs[0];
  });
}

// The same convolution in matrix registers, where the target has them.
std::optional<ConvRoot> WithMatrices(const KernelRequest& request, const ConvRoot& conv) {
  ConvRoot matrices = conv;
  if (conv.shape.bytes) {
    std::optional<ByteProducts> products =
        MatricesOf(request, {*conv.shape.bytes, conv.form}, conv.w_type());
    if (!products) return std::nullopt;
    matrices.shape.bytes = std::move(products->root);
    matrices.form = products->form;
    return matrices;
  }
  const std::optional<MatrixForm> form = MatricesOf(request, conv.shape.x_type, conv.w_type());
  if (!form) return std::nullopt;
  matrices.form = *form;
  return matrices;
}

void ProposeConv(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2) return;
  const std::optional<ConvRoot>& conv = ReadConv(request);
  if (!conv) return;
  // Gathering many channels is the business of a transform.
  const bool gathers = conv->shape.in_channels <= request.target.f32_lanes();
  const std::optional<ConvRoot> matrices = WithMatrices(request, *conv);
  for (const PlanVariation& variation : VariationsAt(request.options.opt_level)) {
    const auto propose = [&](const ConvRoot& root, const AnyForm& form, bool row_major) {
      if (row_major && !gathers) return;
      const std::optional<ConvPlan> plan = PlanConv(request, root, form, row_major, variation);
      if (plan && LayoutsAgree(root.group, *plan))
        candidates.push_back(MakeCandidate(request, root.group, *plan));
    };
    const size_t before = candidates.size();
    // The first of equal costs wins: where memory decides, that should be matrices.
    for (const bool row_major : {false, true}) {
      if (matrices) propose(*matrices, matrices->form, row_major);
    }
    // Emulated ones are there to be compared.
    if (candidates.size() > before && !request.target.matrices.in_registers()) continue;
    propose(*conv, conv->form, false);
    // Pairs are not gathered.
    propose(*conv, conv->shape.bytes ? conv->form : FloatsOf(request, conv->w_type()), true);
  }
}

}  // namespace

const Kernel& ConvKernel() {
  static const Kernel kKernel{.name = "conv", .propose = ProposeConv, .reread = Reread<ConvPlan>};
  return kKernel;
}

}  // namespace quench::codegen
