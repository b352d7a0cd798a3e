// MatMul and Gemm by the micro-kernel: rows of the left side are the pixels, columns of the right
// side the channels. A constant right side is packed at compile time; of two activations the right
// one is packed at run time, a panel at a time, into scratch. Tensors are row-major. Bytes are
// multiplied four along k at once: k counts words of four, and a last one that is not whole.
// Weights of a q.weight_only_matmul stay integers in memory: few rows scale them as they multiply,
// many share a panel that is scaled into scratch first.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "common/base/status.h"
#include "services/codegen/forms/matrix_tile.h"
#include "services/codegen/kernels/byte_panel.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/float_forms.h"
#include "services/codegen/kernels/matmul_plan.h"
#include "services/codegen/kernels/planned_kernel.h"
#include "services/codegen/kernels/stored_operands.h"

namespace quench::codegen {
namespace {

class MatMulEmitter {
 public:
  MatMulEmitter(VectorBuilder& b, const Group& group, const MatMulPlan& plan,
                const BufferMap& buffers, const std::vector<int>& packs)
      : b_(b),
        group_(group),
        plan_(plan),
        weights_(plan.weights()),
        s_(plan.shape),
        buffers_(buffers),
        packs_(packs) {}

  absl::Status Emit() {
    if (s_.bytes) zero_ = LoadRunZero(b_, group_, s_.bytes->x, buffers_);
    if (s_.computed_bytes()) {
      const RunZero zero = LoadRunZero(b_, group_, *s_.bytes->w, buffers_);
      byte_panel_.emplace(b_, *s_.bytes, plan_.form, plan_.lanes, b_.Size(s_.k), zero_.value,
                          zero.value);
    }
    m_ = b_.Size(s_.m);
    words_ = b_.Size(plan_.words);
    n_ = b_.Size(s_.n);
    row_stride_ = s_.a_transposed ? b_.I(4) : b_.Size(s_.k) * (DataTypeBits(s_.a_type) / 8);
    channel_stride_ = s_.a_transposed ? m_ * 4 : b_.I(4);
    if (s_.lengths) used_rows_ = UsedRows();
    registers_ = plan_.form->Registers(b_, plan_.tile, weights_, plan_.rows.WholeTile(b_));
    Tasks();
    if (registers_) registers_->Release();
    return status_;
  }

 private:
  void Tasks() {
    const Int panels = b_.Size(plan_.panel_count);
    if (plan_.by_rows) {
      const Int parts = b_.Size(plan_.row_parts);
      b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
        const Int first = task * plan_.task_tiles;
        const Int last = Min(first + plan_.task_tiles, parts);
        WidenOnce(plan_.rows.Start(b_, first), plan_.rows.Start(b_, last));
        b_.For(b_.I(0), panels, 1, [&](Int p) { Panel(b_.I(0), p, first, last); });
      });
      return;
    }
    b_.If(b_.Begin() < b_.End(), [&] { WidenOnce(b_.I(0), m_); });
    b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
      const Int batch = s_.batch.is(1) ? b_.I(0) : task / panels;
      Panel(batch, s_.batch.is(1) ? task : task - batch * panels, {}, {});
    });
  }

  struct Columns {
    Int panel;
    Int first;  // first vector
    int vectors = 1;
    bool last = false;
  };

  void Panel(Int batch, Int p, Int first_tile, Int last_tile) {
    const auto body = [&](int vectors, Int first, bool last) {
      const Columns columns{p, first, vectors, last};
      const Ptr weights = Weights(batch, columns);
      const PanelPrefetch prefetch = PlanPrefetch(vectors);
      const IntVar index = prefetch.lines > 0 ? b_.Variable(b_.I(0)) : IntVar{};
      const auto tile = [&](Int row, int rows, Int stored) {
        const auto emit = [&] {
          EmitTile(batch, columns, weights, prefetch, index, row, rows, stored);
        };
        s_.lengths ? b_.If(row < used_rows_, emit) : emit();
      };
      const Int begin = first_tile.valid() ? first_tile : b_.I(0);
      const Int end = first_tile.valid() ? last_tile : plan_.rows.Parts(b_);
      if (plan_.form->whole_tiles()) {
        plan_.rows.ForWhole(b_, begin, end,
                            [&](Int row, Int stored) { tile(row, plan_.tile.x, stored); });
      } else {
        plan_.rows.For(b_, begin, end, [&](Int row, int rows) { tile(row, rows, {}); });
      }
    };
    if (s_.n.is_static())
      return ForPanel(b_, plan_.panels, p, s_.n.value() != plan_.panels.vectors * plan_.lanes,
                      body);
    const int vectors = plan_.tile.vectors;
    const Int first = p * vectors;
    b_.If((first + vectors) * plan_.lanes <= n_, [&] { body(vectors, first, false); },
          [&] { body(vectors, first, true); });
  }

  // Rows of the steps that the longest sequence has. (A length out of range is found later.)
  Int UsedRows() {
    const Ptr lengths = b_.Buffer(buffers_.Input(group_.inputs[2]));
    const DataType type = *s_.lengths;
    const Int samples = b_.Size(s_.samples);
    const IntVar longest = b_.Variable(b_.I(0));
    b_.For(b_.I(0), samples, 1, [&](Int n) {
      const Int length = b_.LoadInt(lengths + n * (DataTypeBits(type) / 8), type);
      longest.Set(Max(longest.Get(), length));
    });
    return Min(longest.Get() * samples, m_);
  }

  Ptr Weights(Int batch, const Columns& columns) {
    if (!s_.constant_b) return PackPanel(batch, columns);
    const Ptr panel = ConstantPanel(batch, columns);
    if (!plan_.form->unpacks()) return panel;
    const Ptr scratch = b_.Buffer(buffers_.Scratch());
    plan_.form->Unpack(b_, weights_, Operands(columns), panel, columns.vectors, scratch);
    return scratch;
  }

  Ptr ConstantPanel(Int batch, const Columns& columns) {
    if (plan_.shared.used()) {
      const int64_t element = plan_.form->weight_bits() / 8;
      const int64_t panels = (s_.n.value() + plan_.shared.lanes - 1) / plan_.shared.lanes;
      const Ptr first =
          b_.Buffer(buffers_.Pack(0)) + batch * (panels * plan_.shared.elements() * element);
      return plan_.shared.At(first, columns.first, element);
    }
    const Int vector = b_.I(PanelBytes(1));
    return b_.Buffer(buffers_.Pack(0)) + (batch * plan_.panels.vectors + columns.first) * vector;
  }

  // Bytes of the packed weights of `vectors` vectors.
  int64_t PanelBytes(int64_t vectors) const { return plan_.form->VectorBytes(weights_) * vectors; }

  // Copies k rows of the panel's columns side by side; lanes beyond n become 0.
  Ptr PackPanel(Int batch, const Columns& columns) {
    const Ptr scratch = b_.Buffer(buffers_.Scratch());
    const int64_t vector = 4 * plan_.lanes;
    if (byte_panel_) {
      Ptr source = b_.Buffer(buffers_.Input(group_.inputs[1])) + columns.first * plan_.lanes;
      if (s_.b_batched) source = source + batch * n_ * b_.Size(s_.k);
      byte_panel_->Pack(source, n_, columns.vectors, scratch, [&](Ptr row, int v) {
        const Ptr from = row + int64_t{plan_.lanes} * v;
        return columns.last ? b_.LoadFirst(from, Valid(columns, v), plan_.lanes, DataType::kU8)
                            : b_.Load(from, plan_.lanes, DataType::kU8);
      });
      return scratch;
    }
    const int64_t element = DataTypeBits(s_.b_type) / 8, width = element * plan_.lanes;
    Ptr source = b_.Buffer(buffers_.Input(group_.inputs[1])) + columns.first * width;
    if (s_.b_batched) source = source + batch * words_ * n_ * element;
    b_.For(b_.I(0), words_, 1, [&](Int row) {
      const Ptr from = source + row * n_ * element;
      const Ptr to = scratch + row * (vector * columns.vectors);
      for (int v = 0; v < columns.vectors; ++v) {
        const Vec value =
            columns.last ? b_.LoadFirst(from + v * width, Valid(columns, v), plan_.lanes, s_.b_type)
                         : b_.Load(from + v * width, plan_.lanes, s_.b_type);
        b_.Store(to + v * vector, value);
      }
    });
    return scratch;
  }

  // Columns that vector v of the last panel holds; may be <= 0 or more than the lanes.
  Int Valid(const Columns& columns, int v) {
    if (!s_.n.is_static() || plan_.form->whole_tiles())
      return n_ - (columns.first + v) * plan_.lanes;
    return b_.I(v == columns.vectors - 1 ? s_.n.value() % plan_.lanes : plan_.lanes);
  }

  PanelPrefetch PlanPrefetch(int vectors) const {
    if (!s_.constant_b || plan_.by_rows || plan_.form->unpacks() || !s_.m.is_static()) return {};
    const int64_t tiles = SplitEvenly(s_.m.value(), plan_.tile.x).parts();
    if (tiles < 2) return {};  // a panel that is read once is in no hurry for the next
    const int64_t k = plan_.words.value(), block = plan_.form->block();
    const int64_t run = block > 0 ? block : std::max<int64_t>(k, 1);  // of consecutive bodies
    const auto bodies = [&](int64_t rows) { return (rows + plan_.unroll - 1) / plan_.unroll; };
    return PanelPrefetch::Plan(PanelBytes(vectors), k / run * bodies(run) + bodies(k % run), tiles);
  }

  MicroReduction Reduction() {
    MicroReduction r;
    r.lanes = plan_.lanes;
    r.unroll = plan_.unroll;
    r.channels = plan_.form->block() > 0 ? plan_.form->block() : plan_.unroll;
    r.blocks = words_ / r.channels;
    r.tail = words_ - r.blocks * r.channels;
    r.block_stride = channel_stride_ * r.channels;
    r.kh = r.kw = b_.I(1);
    r.kh_stride = r.kw_stride = b_.I(0);
    r.channel_stride = channel_stride_;
    return r;
  }

  // The rows and weights that a tile reads.
  MicroTile TileOf(Int batch, const Columns& columns, Ptr weights, Int row, int rows) {
    MicroTile tile;
    tile.x = rows;
    tile.vectors = columns.vectors;
    tile.x_stride = row_stride_;
    tile.y_stride = b_.I(0);
    tile.input = b_.Buffer(buffers_.Input(group_.inputs[0])) + row * row_stride_;
    if (s_.a_batched) tile.input = tile.input + batch * m_ * row_stride_;
    if (byte_panel_ && byte_panel_->widens()) WidenRows(tile, weights);
    if (plan_.widens_rows()) UseWidenedRows(tile, row);
    tile.weights = weights;
    if (byte_panel_) {
      tile.bias = byte_panel_->Starts(weights, columns.vectors);
    } else if (s_.has_bias) {
      tile.bias = b_.Buffer(buffers_.Pack(s_.constant_b ? 1 : 0)) + columns.first * VectorBytes();
    }
    tile.results_in_memory = IsLong(group_.epilogue);
    return tile;
  }
  int64_t VectorBytes() const { return int64_t{4} * plan_.lanes; }

  TileOperands Operands(const Columns& columns) {
    TileOperands operands{.pack = [this](int i) { return b_.Buffer(buffers_.Pack(i)); },
                          .panel = columns.panel,
                          .vector = columns.first,
                          .registers = registers_};
    if (!s_.bytes) return operands;
    operands.flip = s_.bytes->x.flip;
    if (!byte_panel_) operands.zero = zero_.value;
    if (!byte_panel_ || !byte_panel_->widens()) operands.rest = b_.Size(s_.k) % plan_.form->unit();
    return operands;
  }

  void Prefetch(const PanelPrefetch& prefetch, const IntVar& index, MicroTile& tile) {
    if (prefetch.lines == 0) return;
    const Int slice = Min(index.Get(), b_.I(prefetch.slices - 1));
    tile.prefetch = tile.weights + PanelBytes(tile.vectors) + slice * prefetch.slice_bytes;
    tile.prefetch_lines = prefetch.lines;
    index.Set(index.Get() + 1);
  }

  void EmitTile(Int batch, const Columns& columns, Ptr weights, const PanelPrefetch& prefetch,
                const IntVar& index, Int row, int rows, Int stored) {
    const MicroReduction reduction = Reduction();
    MicroTile tile = TileOf(batch, columns, weights, row, rows);
    tile.stored = stored;
    if (stored.valid()) tile.pixels = plan_.rows.WholeTile(b_);
    const TileCode code = plan_.form->Code(b_, weights_, Operands(columns));
    Prefetch(prefetch, index, tile);
    const Place place = Place::Of((batch * m_ + row) * n_ + columns.first * plan_.lanes);
    const bool row_terms = byte_panel_ && byte_panel_->HasRowTerms();
    Vec row_term;
    code(reduction, tile, [&](Int, Int x, int v, Vec value) {
      if (row_terms && v == 0) row_term = byte_panel_->RowTerm(tile.input + tile.x_stride * x);
      if (row_terms) value = b_.Apply(VecOp::kAdd, value, row_term);
      Store(columns, place + (n_ * x + static_cast<int64_t>(plan_.lanes) * v), v, value);
    });
  }

  // The rows of a tile, where the panel leaves them room.
  void WidenRows(MicroTile& tile, Ptr panel) {
    const Ptr rows = byte_panel_->WidenedRows(panel, tile.vectors);
    for (int x = 0; x < tile.x; ++x)
      byte_panel_->WidenRow(tile.input + row_stride_ * x, rows + byte_panel_->pitch() * x);
    tile.input = rows;
    tile.x_stride = byte_panel_->pitch();
  }

  Ptr WidenedRows() { return b_.Buffer(buffers_.Scratch()) + b_.Size(plan_.rows_at); }

  // Rows of the left side as f32, side by side.
  void WidenRowsFrom(Ptr source, Int rows) {
    const int64_t element = DataTypeBits(s_.a_type) / 8;
    const Int whole = words_ / plan_.lanes * plan_.lanes;
    b_.For(b_.I(0), rows, 1, [&](Int x) {
      const Ptr from = source + row_stride_ * x, to = WidenedRows() + words_ * 4 * x;
      const auto widen = [&](Int first, Int last, int lanes) {
        b_.For(first, last, lanes,
               [&](Int i) { b_.Store(to + i * 4, b_.Load(from + i * element, lanes, s_.a_type)); });
      };
      widen(b_.I(0), whole, plan_.lanes);
      widen(whole, words_, 1);
    });
  }

  // Widens the rows of a task, which begin with row `base_`.
  void WidenOnce(Int first, Int last) {
    if (!plan_.widen_once) return;
    base_ = first;
    const Ptr left = b_.Buffer(buffers_.Input(group_.inputs[0]));
    WidenRowsFrom(left + first * row_stride_, last - first);
  }

  void UseWidenedRows(MicroTile& tile, Int row) {
    if (!plan_.widen_once) WidenRowsFrom(tile.input, b_.I(tile.x));
    tile.x_stride = words_ * 4;
    tile.input = plan_.widen_once ? WidenedRows() + (row - base_) * tile.x_stride : WidenedRows();
  }

  void Store(const Columns& columns, const Place& place, int v, Vec value) {
    const Int valid = columns.last ? Valid(columns, v) : b_.I(plan_.lanes);
    const auto load = [&](int operand) {
      const EpilogueOperand& o = group_.epilogue.operands[static_cast<size_t>(operand)];
      if (o.kind == EpilogueOperand::kTensor) {
        return b_.LoadFirst(b_.Buffer(buffers_.Input(o.input)) + place.At(o.type), valid,
                            plan_.lanes, o.type);
      }
      const Ptr pack = b_.Buffer(buffers_.Pack(packs_[static_cast<size_t>(operand)]));
      const bool scalar = o.kind == EpilogueOperand::kScalar;
      return b_.Load(scalar ? pack : pack + (columns.first + v) * (4 * plan_.lanes), plan_.lanes,
                     RegisterTypeOf(o.type));
    };
    absl::StatusOr<Vec> result = EmitEpilogue(b_, group_.epilogue, buffers_, value, load);
    if (!result.ok()) {
      status_ = result.status();
      return;
    }
    const Vec stored = AsStored(b_, group_.ResultType(), *result);
    b_.StoreFirst(b_.Buffer(buffers_.Output()) + place.At(stored.type), stored, valid);
  }

  VectorBuilder& b_;
  const Group& group_;
  const MatMulPlan& plan_;
  const WeightPanels weights_;
  const MatMulShape& s_;
  const BufferMap& buffers_;
  const std::vector<int>& packs_;
  RunZero zero_;
  std::optional<BytePanel> byte_panel_;  // of a computed right side
  std::shared_ptr<MatrixRegisters> registers_;
  Int m_, words_, n_, row_stride_, channel_stride_;
  Int used_rows_;
  Int base_;  // first of the rows that are widened at once
  absl::Status status_;
};

int64_t BitsOf(float value) { return static_cast<int64_t>(std::bit_cast<uint32_t>(value)); }

// The right side in panels.
void PackWeights(const MatMulPlan& plan, CandidateBuilder& builder) {
  const MatMulShape& s = plan.shape;
  std::map<std::string, int64_t> params = {
      {"lanes", plan.shared.used() ? plan.shared.lanes : plan.lanes},
      {"vectors", plan.shared.used() ? 1 : plan.tile.vectors}};
  if (plan.form->whole_tiles()) params["all"] = plan.panels.vectors;
  if (s.b_transposed) params["transposed"] = 1;
  if (s.alpha != 1) params["scale"] = BitsOf(s.alpha);
  builder.PackWeights(1, "gemm_panels", plan.form->Pack(plan.weights()), std::move(params));
}

// Packs of the right side and of what is added to the sums.
void PackOperandsOf(const KernelRequest& request, const Group& group, const MatMulPlan& plan,
                    int64_t n, int64_t padded, CandidateBuilder& builder) {
  const MatMulShape& s = plan.shape;
  Candidate& candidate = builder.candidate();
  if (s.constant_b) PackWeights(plan, builder);
  if (const auto* stored = plan.form.As<StoredForm>(); stored != nullptr)
    return AddScales(request, group, stored->weights, plan.lanes, plan.tile.vectors, candidate);
  if (s.computed_bytes()) return PackZeros(group, *s.bytes, candidate);
  if (s.bytes) return AddByteSums(group, *s.bytes, 1, n, padded, candidate);
  if (group.HasInput(2) && !s.lengths) builder.Take(2);  // a bias, or a C with beta = 0
  if (s.has_bias) {
    builder.PackChannels(2, n, padded);
    candidate.packs.back().params["scale"] = BitsOf(s.beta);
  }
}

// The form of the operands, for the report.
std::string DescribeForm(const MatMulPlan& plan) {
  const std::string form = DescribeForm(plan.shape.bytes, *plan.form);
  return form.empty() && plan.shape.lengths ? "steps in use, " : form;
}

absl::Status EmitMatMul(VectorBuilder& b, const Planned<MatMulPlan>& product) {
  return MatMulEmitter(b, product.group, product.plan, product.buffers, product.packs).Emit();
}

Candidate MakeCandidate(const KernelRequest& request, const Group& group, const MatMulPlan& plan) {
  const int64_t n = plan.shape.n.is_static() ? plan.shape.n.value() : 1;
  const int64_t padded = plan.shape.n.is_static() ? plan.panels.vectors * plan.lanes : plan.lanes;
  CandidateBuilder builder(request, group, {});
  PackOperandsOf(request, group, plan, n, padded, builder);
  builder.PackOperands(n, padded);
  builder.SetCode<EmitMatMul>(plan);
  Candidate& candidate = builder.candidate();
  candidate.cost = MatMulCost(request, plan, group.ResultType());
  candidate.reason =
      fmt::format("{}tile {}x{} of {} lanes, tasks by {}{}", DescribeForm(plan), plan.tile.x,
                  plan.tile.vectors, plan.lanes, plan.by_rows ? "rows" : "panels",
                  plan.shape.constant_b ? "" : ", packs at run time");
  candidate.slow = plan.form->Slow();
  return candidate;
}

// The same product in matrix registers, where the target has them.
std::optional<MatMulRoot> WithMatrices(const KernelRequest& request, const MatMulRoot& product) {
  MatMulRoot matrices = product;
  MatMulShape& shape = matrices.shape;
  if (!shape.constant_b || shape.a_transposed || shape.alpha != 1) return std::nullopt;
  if (shape.bytes) {
    std::optional<ByteProducts> products =
        MatricesOf(request, {*shape.bytes, product.form}, shape.b_type);
    if (!products) return std::nullopt;
    shape.bytes = std::move(products->root);
    matrices.form = products->form;
    return matrices;
  }
  const std::optional<MatrixForm> form = MatricesOf(request, shape.a_type, shape.b_type);
  if (!form) return std::nullopt;
  matrices.form = *form;
  return matrices;
}

void ProposeMatMul(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.options.opt_level < 2) return;
  std::optional<Group> group = ReadGroup(request, -1);
  if (!group) return;
  const std::optional<MatMulRoot> product = ReadMatMul(request, *group);
  if (!product) return;
  const auto propose = [&](const MatMulRoot& root) {
    for (const PlanVariation& variation : VariationsAt(request.options.opt_level)) {
      const std::optional<MatMulPlan> plan = PlanMatMul(request, root, variation);
      if (plan) candidates.push_back(MakeCandidate(request, *group, *plan));
    }
  };
  // The first of equal costs wins: where memory decides, that should be matrices.
  const size_t before = candidates.size();
  if (const std::optional<MatMulRoot> matrices = WithMatrices(request, *product))
    propose(*matrices);
  // Emulated ones are there to be compared.
  if (candidates.size() > before && !request.target.matrices.in_registers()) return;
  propose(*product);
}

}  // namespace

const Kernel& MatMulKernel() {
  static const Kernel kKernel{
      .name = "matmul", .propose = ProposeMatMul, .reread = Reread<MatMulPlan>};
  return kKernel;
}

}  // namespace quench::codegen
