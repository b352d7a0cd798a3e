// MatMul and Gemm by the micro-kernel: rows of the left side are the pixels, columns of the right
// side the channels. A constant right side is packed at compile time; of two activations the right
// one is packed at run time, a panel at a time, into scratch. Tensors are row-major. Bytes are
// multiplied four along k at once: k counts words of four.
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "common/base/status.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/kernels/conv_plan.h"
#include "services/codegen/kernels/epilogue.h"
#include "services/codegen/kernels/micro_kernel.h"

namespace quench::codegen {
namespace {

// [batch, m, k] x [batch, k, n]; a side without batch is the same matrix for all.
struct MatMulShape {
  std::optional<ByteRoot> bytes;  // of a MatMulInteger
  Dim batch = 1, m = 1, k = 1, n = 1;
  bool a_batched = false, b_batched = false;
  bool a_transposed = false, b_transposed = false;
  bool constant_b = false;
  float alpha = 1, beta = 1;
  bool has_bias = false;
};

struct MatMulPlan {
  MatMulShape shape;
  int lanes = 8;
  int unroll = 8;
  Tile tile;
  Split panels;  // of a static n
  TileAxis rows;
  bool by_rows = false;  // tasks are ranges of row tiles, else panels
  int64_t task_tiles = 1;
  Dim panel_count = 1, tasks = 1, scratch = 0;
};

bool IsMatrix(const Type& type, bool floats) {
  return type.kind == ValueKind::kTensor && (type.dtype == DataType::kF32 || !floats) &&
         type.ranked && type.rank() >= 2;
}

std::vector<Dim> Leading(const Type& type) { return {type.dims.begin(), type.dims.end() - 2}; }

bool AllOnes(const std::vector<Dim>& dims) {
  return std::all_of(dims.begin(), dims.end(), [](Dim d) { return d.is(1); });
}

// Whether a side's batch dims are those of the output; nothing when they broadcast in part.
std::optional<bool> Batched(const Type& side, const Type& out) {
  const std::vector<Dim> dims = Leading(side);
  if (AllOnes(dims)) return false;
  if (dims == Leading(out)) return true;
  return std::nullopt;
}

std::optional<MatMulShape> ReadMatMul(const Group& group, SymbolTable& symbols, MatMulShape shape) {
  const Type& a = group.InputType(0);
  const Type& b = group.InputType(1);
  const Type& y = group.OutputType();
  const std::optional<bool> a_batched = Batched(a, y);
  const std::optional<bool> b_batched = Batched(b, y);
  if (!a_batched || !b_batched) return std::nullopt;
  shape.a_batched = *a_batched;
  shape.b_batched = *b_batched;
  const std::vector<Dim> batch = Leading(y);
  shape.batch = symbols.Product(batch);
  shape.m = a.dims[static_cast<size_t>(a.rank() - 2)];
  shape.k = a.dims.back();
  shape.n = b.dims.back();
  if (!shape.b_batched) {  // one matrix for all: the batches of the left side are more rows
    if (!shape.a_batched && !shape.batch.is(1)) return std::nullopt;
    shape.m = symbols.Mul(shape.m, shape.batch);
    shape.batch = 1;
    shape.a_batched = false;
  }
  return shape;
}

std::optional<MatMulShape> ReadGemm(const KernelRequest& request, const Group& group,
                                    MatMulShape shape) {
  const Node& node = *group.root;
  const Type& a = group.InputType(0);
  const Type& b = group.InputType(1);
  if (a.rank() != 2 || b.rank() != 2) return std::nullopt;
  shape.a_transposed = node.Int("transA", 0) != 0;
  shape.b_transposed = node.Int("transB", 0) != 0;
  shape.alpha = static_cast<float>(node.Float("alpha", 1));
  shape.beta = static_cast<float>(node.Float("beta", 1));
  shape.m = a.dims[shape.a_transposed ? 1 : 0];
  shape.k = a.dims[shape.a_transposed ? 0 : 1];
  shape.n = b.dims[shape.b_transposed ? 0 : 1];
  if (!shape.constant_b && (shape.alpha != 1 || shape.b_transposed)) return std::nullopt;
  if (!group.HasInput(2) || shape.beta == 0) return shape;
  // A row of constants is a bias; other forms of C are added by nests.
  const Constant* c = ConstantInput(request, group, 2);
  const Type& type = group.InputType(2);
  if (c == nullptr || type.dtype != DataType::kF32 || !shape.n.is_static()) return std::nullopt;
  const bool row =
      type.rank() == 0 || (type.dims.back() == shape.n && (type.rank() == 1 || type.dims[0].is(1)));
  if (!row && c->tensor.size() != 1) return std::nullopt;
  shape.has_bias = true;
  return shape;
}

// Rows of bytes are read in words, so k is a multiple of four; the right side is constant.
bool ReadBytes(const KernelRequest& request, Group& group, MatMulShape& shape) {
  shape.bytes = ReadByteRoot(request, 1, group);
  if (!shape.bytes || group.InputType(1).rank() != 2) return false;
  const Dim k = group.InputType(1).dims[0];
  return k.is_static() && k.value() % 4 == 0;
}

std::optional<MatMulShape> ReadShape(const KernelRequest& request, Group& group) {
  const std::string& op = group.root->op;
  const bool bytes = op == "MatMulInteger";
  if ((op != "MatMul" && op != "Gemm" && !bytes) || !group.HasInput(0) || !group.HasInput(1))
    return std::nullopt;
  if (!IsMatrix(group.InputType(0), !bytes) || !IsMatrix(group.InputType(1), !bytes) ||
      !IsMatrix(group.OutputType(), !bytes)) {
    return std::nullopt;
  }
  MatMulShape shape;
  shape.constant_b = ConstantInput(request, group, 1) != nullptr;
  if (bytes && !ReadBytes(request, group, shape)) return std::nullopt;
  std::optional<MatMulShape> read = op == "Gemm" ? ReadGemm(request, group, shape)
                                                 : ReadMatMul(group, *request.graph.symbols, shape);
  if (!read) return std::nullopt;
  for (const Dim dim : {read->m, read->k, read->n}) {
    if (dim.is_static() && dim.value() < 1) return std::nullopt;
  }
  if (read->constant_b && !(read->k.is_static() && read->n.is_static())) return std::nullopt;
  if (bytes) {
    read->k = read->k.value() / 4;
    read->has_bias = true;
  }
  return read;
}

MatMulPlan MakePlan(const KernelRequest& request, const MatMulShape& shape) {
  SymbolTable& symbols = *request.graph.symbols;
  MatMulPlan plan;
  plan.shape = shape;
  plan.lanes = request.target.f32_lanes();
  plan.unroll = request.target.tile_rows * request.target.tile_vectors > 16 ? 4 : 8;
  TileProblem problem;
  problem.height = 1;
  if (shape.m.is_static()) problem.width = shape.m.value();
  problem.vectors =
      static_cast<int64_t>((TypicalSize(symbols, shape.n) + plan.lanes - 1) / plan.lanes);
  problem.steps = static_cast<int64_t>(TypicalSize(symbols, shape.k));
  if (shape.bytes) {
    problem.operations = ProductsCost(shape.bytes->form);
    problem.spare = SpareRegisters(shape.bytes->form);
  }
  if (!shape.n.is_static()) problem.vectors = std::max<int64_t>(problem.vectors, 8) / 8 * 8;
  plan.tile = ChooseTile(request.target, problem);
  plan.rows = {shape.m, plan.tile.x};
  const Dim columns = symbols.CeilDiv(shape.n, plan.lanes);
  if (shape.n.is_static()) plan.panels = SplitEvenly(columns.value(), plan.tile.vectors);
  plan.panel_count =
      shape.n.is_static() ? Dim(plan.panels.parts()) : symbols.CeilDiv(columns, plan.tile.vectors);
  const double a_bytes = TypicalSize(symbols, shape.m) * TypicalSize(symbols, shape.k);
  const double b_bytes = TypicalSize(symbols, shape.k) * TypicalSize(symbols, shape.n);
  plan.by_rows = shape.constant_b && shape.batch.is(1) && a_bytes > b_bytes;
  plan.tasks = symbols.Mul(shape.batch, plan.panel_count);
  if (plan.by_rows) {
    const double tiles = TypicalSize(symbols, shape.m) / plan.tile.x;
    plan.task_tiles = std::max<int64_t>(1, static_cast<int64_t>(tiles / 8));
    plan.tasks = symbols.CeilDiv(plan.rows.Parts(symbols), plan.task_tiles);
  }
  if (!shape.constant_b) {
    plan.scratch = symbols.Mul(
        symbols.CeilDiv(symbols.Mul(shape.k, plan.tile.vectors * plan.lanes * 4), 64), 64);
  }
  return plan;
}

class MatMulEmitter {
 public:
  MatMulEmitter(VectorBuilder& b, const KernelRequest& request, const Group& group,
                const MatMulPlan& plan, const BufferMap& buffers, const std::vector<int>& packs)
      : b_(b),
        request_(request),
        group_(group),
        plan_(plan),
        s_(plan.shape),
        buffers_(buffers),
        packs_(packs) {}

  absl::Status Emit() {
    if (s_.bytes) zero_ = LoadRunZero(b_, group_, *s_.bytes, buffers_);
    m_ = b_.Size(s_.m);
    k_ = b_.Size(s_.k);
    n_ = b_.Size(s_.n);
    row_stride_ = s_.a_transposed ? b_.I(4) : k_ * 4;
    channel_stride_ = s_.a_transposed ? m_ * 4 : b_.I(4);
    const Int panels = b_.Size(plan_.panel_count);
    if (plan_.by_rows) {
      const Int parts = b_.Size(plan_.rows.Parts(*request_.graph.symbols));
      b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
        const Int first = task * plan_.task_tiles;
        const Int last = Min(first + plan_.task_tiles, parts);
        b_.For(b_.I(0), panels, 1, [&](Int p) { Panel(b_.I(0), p, first, last); });
      });
      return status_;
    }
    b_.For(b_.Begin(), b_.End(), 1, [&](Int task) {
      const Int batch = s_.batch.is(1) ? b_.I(0) : task / panels;
      Panel(batch, s_.batch.is(1) ? task : task - batch * panels, {}, {});
    });
    return status_;
  }

 private:
  struct Columns {
    Int first;  // first vector
    int vectors = 1;
    bool last = false;
  };

  void Panel(Int batch, Int p, Int first_tile, Int last_tile) {
    const auto body = [&](int vectors, Int first, bool last) {
      const Columns columns{first, vectors, last};
      const Ptr weights = s_.constant_b ? ConstantPanel(batch, columns) : PackPanel(batch, columns);
      const PanelPrefetch prefetch = PlanPrefetch(vectors);
      const IntVar index = prefetch.lines > 0 ? b_.Variable(b_.I(0)) : IntVar{};
      const auto tile = [&](Int row, int rows) {
        EmitTile(batch, columns, weights, prefetch, index, row, rows);
      };
      first_tile.valid() ? plan_.rows.For(b_, first_tile, last_tile, tile)
                         : plan_.rows.ForAll(b_, tile);
    };
    if (s_.n.is_static())
      return ForPanel(b_, plan_.panels, p, s_.n.value() % plan_.lanes != 0, body);
    const int vectors = plan_.tile.vectors;
    const Int first = p * vectors;
    b_.If((first + vectors) * plan_.lanes <= n_, [&] { body(vectors, first, false); },
          [&] { body(vectors, first, true); });
  }

  Ptr ConstantPanel(Int batch, const Columns& columns) {
    const int64_t vectors = (s_.n.value() + plan_.lanes - 1) / plan_.lanes;
    const Int vector = b_.I(s_.k.value() * plan_.lanes * 4);
    return b_.Buffer(buffers_.Pack(0)) + (batch * vectors + columns.first) * vector;
  }

  // Copies k rows of the panel's columns side by side; lanes beyond n become 0.
  Ptr PackPanel(Int batch, const Columns& columns) {
    const Ptr scratch = b_.Buffer(buffers_.Scratch());
    const int64_t vector = 4 * plan_.lanes;
    Ptr source = b_.Buffer(buffers_.Input(group_.inputs[1])) + columns.first * vector;
    if (s_.b_batched) source = source + batch * k_ * n_ * 4;
    b_.For(b_.I(0), k_, 1, [&](Int row) {
      const Ptr from = source + row * n_ * 4;
      const Ptr to = scratch + row * (vector * columns.vectors);
      for (int v = 0; v < columns.vectors; ++v) {
        const Vec value = columns.last ? b_.LoadFirst(from + v * vector, Valid(columns, v),
                                                      plan_.lanes, DataType::kF32)
                                       : b_.Load(from + v * vector, plan_.lanes);
        b_.Store(to + v * vector, value);
      }
    });
    return scratch;
  }

  // Columns that vector v of the last panel holds; may be <= 0 or more than the lanes.
  Int Valid(const Columns& columns, int v) {
    if (!s_.n.is_static()) return n_ - (columns.first + v) * plan_.lanes;
    return b_.I(v == columns.vectors - 1 ? s_.n.value() % plan_.lanes : plan_.lanes);
  }

  PanelPrefetch PlanPrefetch(int vectors) const {
    if (!s_.constant_b || plan_.by_rows || !s_.m.is_static()) return {};
    const int64_t k = s_.k.value();
    return PanelPrefetch::Plan(k * vectors * plan_.lanes * 4, (k + plan_.unroll - 1) / plan_.unroll,
                               SplitEvenly(s_.m.value(), plan_.tile.x).parts());
  }

  void EmitTile(Int batch, const Columns& columns, Ptr weights, const PanelPrefetch& prefetch,
                const IntVar& index, Int row, int rows) {
    MicroReduction r;
    r.lanes = plan_.lanes;
    r.by_lane = request_.target.multiply_by_lane;
    r.bytes = s_.bytes ? &*s_.bytes : nullptr;
    r.unroll = plan_.unroll;
    r.channels = plan_.unroll;
    r.blocks = k_ / plan_.unroll;
    r.tail = k_ - r.blocks * plan_.unroll;
    r.block_stride = channel_stride_ * plan_.unroll;
    r.kh = r.kw = b_.I(1);
    r.kh_stride = r.kw_stride = b_.I(0);
    r.channel_stride = channel_stride_;

    const int64_t vector = 4 * plan_.lanes;
    MicroTile tile;
    tile.x = rows;
    tile.vectors = columns.vectors;
    tile.x_stride = row_stride_;
    tile.y_stride = b_.I(0);
    tile.input = b_.Buffer(buffers_.Input(group_.inputs[0])) + row * row_stride_;
    if (s_.a_batched) tile.input = tile.input + batch * m_ * k_ * 4;
    tile.weights = weights;
    if (s_.has_bias)
      tile.bias = b_.Buffer(buffers_.Pack(s_.constant_b ? 1 : 0)) + columns.first * vector;
    if (zero_.value.valid()) {
      tile.factors = b_.Buffer(buffers_.Pack(2)) + columns.first * vector;
      tile.zero = zero_.value;
    }
    if (prefetch.lines > 0) {
      const Int slice = Min(index.Get(), b_.I(prefetch.slices - 1));
      tile.prefetch =
          weights + s_.k.value() * vector * columns.vectors + slice * prefetch.slice_bytes;
      tile.prefetch_lines = prefetch.lines;
      index.Set(index.Get() + 1);
    }
    const Place place = Place::Of((batch * m_ + row) * n_ + columns.first * plan_.lanes);
    EmitMicroTile(b_, r, tile, [&](int, int x, int v, Vec value) {
      Store(columns, place + (n_ * x + static_cast<int64_t>(plan_.lanes) * v), v, value);
    });
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
                     o.type);
    };
    absl::StatusOr<Vec> result = EmitEpilogue(b_, group_.epilogue, buffers_, value, load);
    if (!result.ok()) {
      status_ = result.status();
      return;
    }
    b_.StoreFirst(b_.Buffer(buffers_.Output()) + place.At(result->type), *result, valid);
  }

  VectorBuilder& b_;
  const KernelRequest& request_;
  const Group& group_;
  const MatMulPlan& plan_;
  const MatMulShape& s_;
  const BufferMap& buffers_;
  const std::vector<int>& packs_;
  RunZero zero_;
  Int m_, k_, n_, row_stride_, channel_stride_;
  absl::Status status_;
};

std::vector<int> AddPacks(const KernelRequest& request, const Group& group, const MatMulPlan& plan,
                          Candidate& candidate) {
  const MatMulShape& s = plan.shape;
  const auto input = [&](int i) {
    return static_cast<size_t>(group.inputs[static_cast<size_t>(i)]);
  };
  const auto bits = [](float value) {
    return static_cast<int64_t>(std::bit_cast<uint32_t>(value));
  };
  const int64_t n = s.n.is_static() ? s.n.value() : 1;
  const int64_t padded = (n + plan.lanes - 1) / plan.lanes * plan.lanes;
  if (group.HasInput(2) && !s.bytes)
    candidate.packed[input(2)] = true;  // a bias, or a C with beta = 0
  if (s.bytes) {
    candidate.packed[input(1)] = true;
    candidate.packs.push_back({"gemm_panels_bytes",
                               {{"lanes", plan.lanes}, {"vectors", plan.tile.vectors}},
                               {request.node.inputs[input(1)]}});
    AddByteSums(request, group, *s.bytes, 1, n, padded, candidate);
    return PackEpilogue(request, group, n, padded, candidate);
  }
  if (s.constant_b) {
    candidate.packed[input(1)] = true;
    candidate.packs.push_back({"gemm_panels",
                               {{"lanes", plan.lanes},
                                {"vectors", plan.tile.vectors},
                                {"transposed", s.b_transposed ? 1 : 0},
                                {"scale", bits(s.alpha)}},
                               {request.node.inputs[input(1)]}});
  }
  if (s.has_bias) {
    candidate.packs.push_back({"channels",
                               {{"channels", n}, {"padded", padded}, {"scale", bits(s.beta)}},
                               {request.node.inputs[input(2)]}});
  }
  return PackEpilogue(request, group, n, padded, candidate);
}

// `type` is that of the result.
double Cost(const KernelRequest& request, const MatMulPlan& plan, DataType type) {
  const SymbolTable& symbols = *request.graph.symbols;
  const MatMulShape& s = plan.shape;
  const double batch = TypicalSize(symbols, s.batch), m = TypicalSize(symbols, s.m);
  const double k = TypicalSize(symbols, s.k), n = TypicalSize(symbols, s.n);
  const double cycles = plan.tile.cycles * (s.m.is_static() ? 1 : m);
  // The tile's cycles do two multiply-adds of `lanes`: 4 * lanes flops.
  const double micros = batch * cycles * 4 * plan.lanes / (request.target.gflops * 1e3);
  const double packing = s.constant_b ? 0 : batch * k * n * 8 / (request.target.gbytes * 4e3);
  // A word of k is four bytes or a float.
  const double result = DataTypeBits(type) / 8.0;
  const double bytes = batch * (m * k * 4 + m * n * result) + (s.b_batched ? batch : 1) * k * n * 4;
  return std::max(micros + packing, bytes / (request.target.gbytes * 1e3));
}

std::string Identity(const Group& group, const MatMulPlan& plan, const std::vector<int>& packs) {
  const MatMulShape& s = plan.shape;
  const auto text = [](Dim dim) {
    return dim.is_static() ? fmt::format("{}", dim.value()) : fmt::format("s{}", dim.symbol());
  };
  return fmt::format(
      "matmul {}x{}x{}x{} {}{}{}{}{}{} lanes{} unroll{} tile{}x{} tasks{}{} in{} packs{} {} {}",
      text(s.batch), text(s.m), text(s.k), text(s.n), s.a_batched ? "A" : "",
      s.b_batched ? "B" : "", s.a_transposed ? "a" : "", s.b_transposed ? "b" : "",
      s.constant_b ? "c" : "", s.has_bias ? "i" : "", plan.lanes, plan.unroll, plan.tile.x,
      plan.tile.vectors, plan.by_rows ? "r" : "p", plan.task_tiles, fmt::join(group.inputs, ","),
      fmt::join(packs, ","),
      s.bytes ? fmt::format("{} zero {}", s.bytes->ToString(), s.bytes->zero_input) : "floats",
      EpilogueIdentity(group.epilogue));
}

void ProposeMatMul(const KernelRequest& request, std::vector<Candidate>& candidates) {
  if (request.opt_level < 2) return;
  std::optional<Group> group = ReadGroup(request, -1);
  if (!group) return;
  const std::optional<MatMulShape> shape = ReadShape(request, *group);
  if (!shape) return;
  const MatMulPlan plan = MakePlan(request, *shape);
  Candidate candidate;
  candidate.kernel = &MatMulKernel();
  candidate.inputs.assign(request.node.inputs.size(), Layout{});
  candidate.packed.assign(request.node.inputs.size(), false);
  candidate.outputs = {Layout{}};
  AddPacks(request, *group, plan, candidate);
  candidate.in_place = InPlaceOperand(*group);
  candidate.scratch_bytes = plan.scratch;
  candidate.params = {
      {"rows", plan.tile.x}, {"vectors", plan.tile.vectors}, {"by_rows", plan.by_rows ? 1 : 0}};
  candidate.cost = Cost(request, plan, group->ResultType());
  candidate.reason = fmt::format("{}tile {}x{} of {} lanes, tasks by {}{}",
                                 shape->bytes ? shape->bytes->ToString() + ", " : "", plan.tile.x,
                                 plan.tile.vectors, plan.lanes, plan.by_rows ? "rows" : "panels",
                                 shape->constant_b ? "" : ", packs at run time");
  candidates.push_back(std::move(candidate));
}

absl::StatusOr<EmittedKernel> EmitMatMul(const KernelRequest& request, const Candidate& candidate,
                                         KernelEmitter& emitter) {
  std::optional<Group> group = ReadGroup(request, -1);
  QUENCH_CHECK(group.has_value());  // the candidate was made from it
  const std::optional<MatMulShape> shape = ReadShape(request, *group);
  QUENCH_CHECK(shape.has_value());
  const MatMulPlan plan = MakePlan(request, *shape);
  Candidate packed = candidate;
  packed.packs.clear();
  const std::vector<int> packs = AddPacks(request, *group, plan, packed);
  const BufferMap buffers(request.node, candidate);
  return emitter.EmitVector("matmul", Identity(*group, plan, packs), plan.tasks, plan.scratch,
                            *request.graph.symbols, [&](VectorBuilder& b) {
                              return MatMulEmitter(b, request, *group, plan, buffers, packs).Emit();
                            });
}

}  // namespace

const Kernel& MatMulKernel() {
  static const Kernel kKernel{"matmul", ProposeMatMul, EmitMatMul};
  return kKernel;
}

}  // namespace quench::codegen
