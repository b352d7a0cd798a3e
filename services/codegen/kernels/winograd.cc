// Convolution by Winograd's minimal filtering.
#include <fmt/format.h>

#include "common/base/status.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/planned_kernel.h"
#include "services/codegen/kernels/winograd_patches.h"

namespace quench::codegen {
namespace {

constexpr int64_t kLine = 64;         // bytes of a cache line
constexpr int64_t kFiltersAhead = 4;  // that are fetched: 0.95 of a layer of 512 channels at 7 x 7

constexpr WinogradSize kSizes[] = {{2, 3}, {4, 3}, {6, 3}, {2, 5}, {4, 5}};

void AddPacks(const WinogradPlan& plan, CandidateBuilder& builder) {
  const bool shared = plan.shared.used();
  const int64_t lanes = shared ? plan.shared.lanes : plan.lanes;
  const int64_t vectors = shared ? 1 : plan.tile.vectors;
  if (plan.transforms_weights) {
    builder.Pack(1, "conv_panels",
                 {{"groups", 1}, {"merged", 1}, {"lanes", lanes}, {"block", 1}, {"vectors", 1}});
  } else {
    builder.Pack(1, "winograd_panels",
                 {{"outputs", plan.size.outputs}, {"lanes", lanes}, {"vectors", vectors}});
  }
  const int64_t channels = plan.shape.out_channels, padded = plan.vectors * plan.lanes;
  if (plan.shape.has_bias) builder.PackChannels(2, channels, padded);
  builder.PackOperands(channels, padded);
}

class WinogradEmitter {
  static constexpr int64_t kElement = 4;

 public:
  WinogradEmitter(VectorBuilder& b, const Group& group, const WinogradPlan& plan,
                  const BufferMap& buffers, const std::vector<int>& epilogue_packs)
      : b_(b),
        plan_(plan),
        s_(plan.shape),
        buffers_(buffers),
        writer_(b, group, buffers, epilogue_packs, plan.lanes),
        transform_(b, plan),
        source_(group.inputs[0]),
        vector_(plan.vector_bytes()) {}

  absl::Status Emit() {
    out_height_ = b_.Size(s_.out_h);
    out_width_ = b_.Size(s_.out_w);
    tiles_x_ = b_.Size(plan_.tiles_x);
    scratch_ = b_.Buffer(buffers_.Scratch());
    part_ = b_.Stack(plan_.points() * vector_);
    plan_.by_panels ? ByPanels() : ByGroups();
    return writer_.status();
  }

 private:
  // Tiles of image n: [first, last), and the parts of the axis that they are.
  struct Tiles {
    Int n, first, last, first_part, last_part;
  };

  void ByPanels() {
    const Int tiles = b_.Size(plan_.axis.total);
    b_.For(b_.I(0), b_.Size(s_.n), 1, [&](Int n) {
      b_.If(b_.Begin() < b_.End(), [&] {
        const Tiles all{n, b_.I(0), tiles, b_.I(0), b_.Size(plan_.parts)};
        Patches(all);
        Products(all, {b_.Begin(), b_.End()});
      });
    });
  }

  void ByGroups() {
    const Int parts = b_.Size(plan_.parts);
    const Int groups = (parts + (plan_.group_parts - 1)) / plan_.group_parts;
    b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
      const Int n = task / groups;
      const Int first = (task - n * groups) * plan_.group_parts;
      const Int last = Min(first + plan_.group_parts, parts);
      const Tiles tiles{n, plan_.axis.Start(b_, first), plan_.axis.Start(b_, last), first, last};
      Patches(tiles);
      Products(tiles, {b_.I(0), b_.I(plan_.panels.parts())});
    });
  }

  void Patches(const Tiles& tiles) {
    const Int image = b_.Size(s_.h) * b_.Size(s_.w) * (plan_.blocks * vector_);
    transform_.Transform(b_.Buffer(buffers_.Input(source_)) + tiles.n * image, tiles.first,
                         tiles.last, scratch_);
  }

  // ---- products ----

  struct Panels {
    Int first, last;
  };

  void Products(const Tiles& tiles, const Panels& panels) {
    if (plan_.by_points()) return Points(tiles, panels);
    b_.For(panels.first, panels.last, 1, [&](Int p) { Panel(p, tiles); });
  }

  // The patches of a point stay in the nearest caches while all panels run over them.
  void Points(const Tiles& tiles, const Panels& panels) {
    const Int first = FirstOfPanel(plan_.panels, panels.first);
    b_.For(b_.I(0), b_.I(plan_.points()), 1, [&](Int point) {
      b_.For(panels.first, panels.last, 1, [&](Int p) {
        ForPanel(b_, plan_.panels, p, false, [&](int vectors, Int vector, bool) {
          const Weights weights = PackedWeights(vectors, vector);
          const Fetch fetch{PlanFetch(weights.point_bytes), b_.Variable(b_.I(0)),
                            NextPoint(panels, p, point)};
          Point(tiles, vectors, weights, {b_.I(0), b_.I(plan_.blocks)}, point, vector, fetch,
                /*adds=*/false);
        });
      });
    });
    const Int last = FirstOfPanel(plan_.panels, panels.last);
    b_.For(first, last, 1, [&](Int vector) { AllResults(tiles, vector, vector); });
  }

  // The weights that are read after those of a point of panel p: those of the next panel, or, after
  // the last, those of the next point for the first panel.
  Ptr NextPoint(const Panels& panels, Int p, Int point) {
    const IntVar next = b_.Variable(p + 1), next_point = b_.Variable(point);
    b_.If(p == panels.last - 1, [&] {
      next.Set(panels.first);
      next_point.Set(point + 1);
    });
    const Int first = FirstOfPanel(plan_.panels, next.Get());
    const Int vectors = FirstOfPanel(plan_.panels, next.Get() + 1) - first;
    const Ptr pack = b_.Buffer(buffers_.Pack(0));
    if (plan_.shared.used()) {
      const int64_t point_bytes = plan_.shared.elements() * kElement / plan_.points();
      return plan_.shared.At(pack, first, kElement) + next_point.Get() * point_bytes;
    }
    const int64_t vector_bytes = plan_.vector_weight_bytes();
    return pack +
           (first * vector_bytes + next_point.Get() * vectors * (vector_bytes / plan_.points()));
  }

  void AllResults(const Tiles& tiles, Int vector, Int place) {
    b_.For(tiles.first, tiles.last, 1, [&](Int tile) { Results(tiles, vector, place, tile); });
  }

  // Results are transformed back while they are in the nearest caches.
  void Panel(Int p, const Tiles& tiles) {
    const IntVar first = b_.Variable(b_.I(0)), count = b_.Variable(b_.I(0));
    ForPanel(b_, plan_.panels, p, false, [&](int vectors, Int vector, bool) {
      first.Set(vector);
      count.Set(b_.I(vectors));
      plan_.transforms_weights ? ProductsInChunks(tiles, vectors, vector)
                               : ProductsOfPanel(tiles, vectors, vector);
    });
    b_.For(b_.I(0), count.Get(), 1, [&](Int v) { AllResults(tiles, first.Get() + v, v); });
  }

  // Weights are transformed and multiplied in chunks of input channels; the results of all chunks
  // are added up in the place of the first one's.
  void ProductsInChunks(const Tiles& tiles, int vectors, Int vector) {
    const Weights weights{scratch_ + plan_.weights_at(), plan_.weights_point(vectors), 0};
    const auto chunk = [&](Int first, Int last, bool adds) {
      Filters(vectors, vector, {first, last});
      Multiply(tiles, vectors, weights, {first, last}, adds);
    };
    chunk(b_.I(0), b_.I(plan_.chunk_blocks), false);
    b_.For(b_.I(plan_.chunk_blocks), b_.I(plan_.blocks), plan_.chunk_blocks, [&](Int first) {
      chunk(first, Min(first + plan_.chunk_blocks, b_.I(plan_.blocks)), true);
    });
  }

  // Weights of the first point of a panel.
  struct Weights {
    Ptr at;
    int64_t point_bytes = 0;
    int64_t panel_bytes = 0;  // to the next panel
  };
  struct Blocks {  // of input channels
    Int first, last;
  };

  Weights PackedWeights(int vectors, Int vector) {
    const int64_t panel = plan_.vector_weight_bytes() * vectors;
    const Ptr pack = b_.Buffer(buffers_.Pack(0));
    const Ptr weights = plan_.shared.used() ? plan_.shared.At(pack, vector, kElement)
                                            : pack + vector * plan_.vector_weight_bytes();
    const int64_t point_bytes =
        (plan_.shared.used() ? plan_.shared.elements() * kElement : panel) / plan_.points();
    return {weights, point_bytes, panel};
  }

  // Weights that are read soon.
  struct Fetch {
    PanelPrefetch plan;
    IntVar done;  // tiles of the micro-kernel
    Ptr from;
  };

  void ProductsOfPanel(const Tiles& tiles, int vectors, Int vector) {
    const Weights weights = PackedWeights(vectors, vector);
    b_.For(b_.I(0), b_.I(plan_.points()), 1, [&](Int point) {
      const Fetch fetch{PlanFetch(weights.point_bytes), b_.Variable(b_.I(0)),
                        weights.at + (point + 1) * weights.point_bytes};
      Point(tiles, vectors, weights, {b_.I(0), b_.I(plan_.blocks)}, point, b_.I(0), fetch,
            /*adds=*/false);
    });
  }

  void Multiply(const Tiles& tiles, int vectors, const Weights& weights, const Blocks& blocks,
                bool adds) {
    b_.For(b_.I(0), b_.I(plan_.points()), 1, [&](Int point) {
      Point(tiles, vectors, weights, blocks, point, b_.I(0), Fetch{}, adds);
    });
  }

  // One point's product. Results of the panel's first vector are vector `place` of those in scratch.
  void Point(const Tiles& tiles, int vectors, const Weights& weights, const Blocks& blocks,
             Int point, Int place, const Fetch& fetch, bool adds) {
    plan_.axis.For(b_, tiles.first_part, tiles.last_part, [&](Int x, int xs) {
      const Int at = x - tiles.first;
      MicroTile tile;
      tile.x = xs;
      tile.vectors = vectors;
      tile.y_stride = b_.I(0);
      tile.x_stride = b_.I(vector_);
      tile.input =
          scratch_ + (point * plan_.input_point() + (blocks.first * plan_.room + at) * vector_);
      tile.weights = weights.at + point * weights.point_bytes;
      if (fetch.plan.lines > 0) {
        const Int slice = Min(fetch.done.Get(), b_.I(fetch.plan.slices - 1));
        tile.prefetch = fetch.from + slice * fetch.plan.slice_bytes;
        tile.prefetch_lines = fetch.plan.lines;
        fetch.done.Set(fetch.done.Get() + 1);
      }
      const Ptr to = scratch_ + (point * plan_.output_point() +
                                 (place * plan_.room + at) * vector_ + plan_.output_at());
      const TileCode code = plan_.form->Code(b_, plan_.weights(), {});
      code(Reduction(blocks), tile, [&](Int, Int dx, int v, Vec value) {
        const Ptr result = to + (dx + v * plan_.room) * vector_;
        if (adds) value = b_.Apply(VecOp::kAdd, value, b_.Load(result, plan_.lanes));
        b_.Store(result, value);
      });
    });
  }

  // ---- G g G^T ----

  // The weights of a panel for some input channels, transformed into scratch as a pack would have
  // them: [points][channels][vectors][lanes], the points apart. All taps of a channel lie side by side
  // in the library, so that each vector is one stream.
  void Filters(int vectors, Int vector, const Blocks& blocks) {
    const SharedPanels& from = plan_.shared;
    const int side = plan_.size.side(), taps = plan_.size.taps;
    const Ptr pack = b_.Buffer(buffers_.Pack(0));
    const Ptr to = scratch_ + plan_.weights_at();
    const int64_t row = vectors * vector_;  // of one input channel
    const int64_t point = plan_.weights_point(vectors);
    const Int before = blocks.first * plan_.lanes;
    const int64_t tap = from.lanes * kElement;
    b_.For(before, blocks.last * plan_.lanes, 1, [&](Int channel) {
      // Those beyond the last have zeros to multiply.
      const Int read = Min(channel, b_.I(s_.in_channels - 1));
      b_.For(b_.I(0), b_.I(vectors), 1, [&](Int v) {
        const Ptr filter =
            from.At(pack, vector + v, kElement) + read * (int64_t{taps} * taps * tap);
        for (int64_t line = 0; line < taps * taps * tap; line += kLine)
          b_.Prefetch(filter + (kFiltersAhead * taps * taps * tap + line), 1);
        std::vector<std::vector<Vec>> columns;
        for (int x = 0; x < taps; ++x) {
          std::vector<Vec> column;
          for (int y = 0; y < taps; ++y)
            column.push_back(b_.Load(filter + (int64_t{y} * taps + x) * tap, plan_.lanes));
          columns.push_back(WinogradFilter(b_, plan_.size, column));
        }
        const Ptr place = to + ((channel - before) * row + v * vector_);
        for (int y = 0; y < side; ++y) {
          std::vector<Vec> values;
          for (int x = 0; x < taps; ++x)
            values.push_back(columns[static_cast<size_t>(x)][static_cast<size_t>(y)]);
          const std::vector<Vec> results = WinogradFilter(b_, plan_.size, values);
          for (int x = 0; x < side; ++x)
            b_.Store(place + (int64_t{y} * side + x) * point, results[static_cast<size_t>(x)]);
        }
      });
    });
  }

  // While the tiles of one point run over a panel.
  PanelPrefetch PlanFetch(int64_t bytes) const {
    const int64_t tiles = plan_.by_panels
                              ? SplitEvenly(plan_.axis.total.value(), plan_.axis.most).parts()
                              : plan_.group_parts;
    return PanelPrefetch::Plan(bytes, plan_.blocks * (plan_.lanes / plan_.unroll), tiles);
  }

  MicroReduction Reduction(const Blocks& blocks) {
    MicroReduction r;
    r.lanes = plan_.lanes;
    r.blocks = blocks.last - blocks.first;
    r.block_stride = b_.I(plan_.room * vector_);
    r.kh = r.kw = b_.I(1);
    r.kh_stride = r.kw_stride = b_.I(0);
    r.channels = plan_.lanes;
    r.channel_stride = b_.I(4);
    r.tail = b_.I(0);
    r.unroll = plan_.unroll;
    return r;
  }

  // ---- A^T y A ----

  // Output vector `vector`, number v of its panel, of one tile.
  void Results(const Tiles& tiles, Int vector, Int v, Int tile) {
    const int side = plan_.size.side();
    const Ptr from =
        scratch_ + ((v * plan_.room + (tile - tiles.first)) * vector_ + plan_.output_at());
    b_.For(b_.I(0), b_.I(side), 1, [&](Int column) {
      std::vector<Vec> values;
      for (int i = 0; i < side; ++i) {
        const Ptr point = from + (column + i * side) * plan_.output_point();
        if (plan_.by_points()) b_.Prefetch(point + kTilesAhead * vector_, 1);
        values.push_back(b_.Load(point, plan_.lanes));
      }
      const std::vector<Vec> results = WinogradOutput(b_, plan_.size, values);
      for (int i = 0; i < plan_.size.outputs; ++i)
        b_.Store(part_ + (column + i * side) * vector_, results[static_cast<size_t>(i)]);
    });
    const Int row = tile / tiles_x_;
    const Int y = row * plan_.size.outputs, x = (tile - row * tiles_x_) * plan_.size.outputs;
    const Int plane = (tiles.n * plan_.vectors + vector) * (out_height_ * out_width_);
    const Int columns = out_width_ - x;
    b_.For(b_.I(0), Min(b_.I(plan_.size.outputs), out_height_ - y), 1, [&](Int i) {
      const std::vector<Vec> results = WinogradOutput(b_, plan_.size, Row(i));
      const Int pixel = plane + (y + i) * out_width_ + x;
      for (int j = 0; j < plan_.size.outputs; ++j) {
        const auto store = [&] { Store(vector, pixel + j, results[static_cast<size_t>(j)]); };
        j == 0 ? store() : b_.If(columns > b_.I(j), store);
      }
    });
  }

  std::vector<Vec> Row(Int row) {
    std::vector<Vec> values;
    for (int i = 0; i < plan_.size.side(); ++i)
      values.push_back(b_.Load(part_ + (row * plan_.size.side() + i) * vector_, plan_.lanes));
    return values;
  }

  void Store(Int vector, Int pixel, Vec value) {
    const Int channel = vector * vector_;
    if (s_.has_bias) {
      const Vec bias = b_.Load(b_.Buffer(buffers_.Pack(1)) + channel, plan_.lanes);
      value = b_.Apply(VecOp::kAdd, value, bias);
    }
    const Int channels = b_.I(s_.out_channels) - vector * plan_.lanes;
    writer_.Store(Place::Of(pixel * plan_.lanes), channel, value,
                  s_.out_channels % plan_.lanes == 0 ? Int{} : channels);
  }

  VectorBuilder& b_;
  const WinogradPlan& plan_;
  const ConvShape& s_;
  const BufferMap& buffers_;
  ResultWriter writer_;
  PatchTransform transform_;
  int source_;          // input of the node
  int64_t vector_;      // bytes
  Ptr scratch_, part_;  // part_: the transform of columns
  Int out_height_, out_width_, tiles_x_;
};

absl::Status EmitWinograd(VectorBuilder& b, const Planned<WinogradPlan>& conv) {
  return WinogradEmitter(b, conv.group, conv.plan, conv.buffers, conv.packs).Emit();
}

std::string ReasonOf(const WinogradPlan& plan) {
  std::string reason =
      fmt::format("F({0}x{0}, {1}x{1}), tile {2}x{3} of {4} lanes, tasks by {5}{6}",
                  plan.size.outputs, plan.size.taps, plan.tile.x, plan.tile.vectors, plan.lanes,
                  plan.by_panels ? "panels" : fmt::format("groups of {} tiles", plan.room),
                  plan.transforms_weights ? ", weights transformed at run time" : "");
  if (plan.chunks() > 1)
    reason += fmt::format(", {} input channels at once", plan.chunk_blocks * plan.lanes);
  return reason;
}

Candidate MakeCandidate(const KernelRequest& request, const Group& group,
                        const WinogradPlan& plan) {
  CandidateBuilder builder(request, group, BlockedLayout(plan.lanes));
  AddPacks(plan, builder);
  builder.SetCode<EmitWinograd>(plan);
  Candidate& candidate = builder.candidate();
  candidate.one_range = plan.by_panels;
  candidate.rows = RowOrderOf(plan, group.inputs[0]);
  candidate.cost = WinogradCost(request, plan);
  const int64_t taps = int64_t{plan.size.taps} * plan.size.taps;
  candidate.performed = static_cast<double>(plan.points()) /
                        static_cast<double>(taps * plan.size.outputs * plan.size.outputs);
  if (!plan.transforms_weights)
    candidate.extra_bytes = plan.weight_bytes() * (plan.points() - taps) / plan.points();
  candidate.reason = ReasonOf(plan);
  return candidate;
}

void ProposeWinograd(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2 || !request.options.winograd) return;
  const std::optional<ConvRoot>& conv = ReadConv(request);
  if (!conv) return;
  for (const WinogradSize& size : kSizes) {
    for (const bool transforms_weights : {false, true}) {
      const std::optional<WinogradPlan> plan =
          PlanWinograd(request, *conv, size, transforms_weights);
      if (plan) candidates.push_back(MakeCandidate(request, conv->group, *plan));
    }
  }
}

}  // namespace

const Kernel& WinogradKernel() {
  static const Kernel kKernel{
      .name = "winograd", .propose = ProposeWinograd, .reread = Reread<WinogradPlan>};
  return kKernel;
}

}  // namespace quench::codegen
