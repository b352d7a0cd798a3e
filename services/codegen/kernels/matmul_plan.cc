#include "services/codegen/kernels/matmul_plan.h"

#include <algorithm>

#include "services/codegen/kernels/byte_panel.h"
#include "services/codegen/kernels/conv_plan.h"
#include "services/codegen/kernels/float_forms.h"
#include "services/codegen/kernels/stored_operands.h"

namespace quench::codegen {
namespace {

// From here on scaling stored weights once for all rows costs less than scaling them for each tile
// (measured with GPT-2's layers on AVX-512: 8 bits break even at about 60 rows, 4 bits at 30).
double ManyRows(const StoredWeights& stored) { return stored.bits == 8 ? 64 : 32; }

bool IsMatrix(const Type& type, bool floats) {
  const bool is_float = RegisterTypeOf(type.dtype) == DataType::kF32;
  return type.kind == ValueKind::kTensor && (is_float || !floats) && type.ranked &&
         type.rank() >= 2;
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

std::optional<MatMulShape> ReadSizes(const Group& group, SymbolTable& symbols, MatMulShape shape) {
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
  // The one that is known, if any.
  shape.k = b.dims[static_cast<size_t>(b.rank() - 2)];
  if (!shape.k.is_static()) shape.k = a.dims.back();
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
  if (!shape.constant_b && shape.alpha != 1) return std::nullopt;
  // Panels are packed of rows along n.
  if (!shape.constant_b && shape.b_transposed && !request.target.gpu) return std::nullopt;
  if (shape.a_transposed && IsHalf(shape.a_type)) return std::nullopt;
  if (!group.HasInput(2) || shape.beta == 0) return shape;
  // A row of constants is a bias; other forms of C are added by nests.
  const Constant* c = ConstantInput(request, group, 2);
  const Type& type = group.InputType(2);
  const bool is_float = RegisterTypeOf(type.dtype) == DataType::kF32;
  if (c == nullptr || !is_float || !shape.n.is_static()) return std::nullopt;
  const bool row =
      type.rank() == 0 || (type.dims.back() == shape.n && (type.rank() == 1 || type.dims[0].is(1)));
  if (!row && c->tensor.size() != 1) return std::nullopt;
  shape.has_bias = true;
  return shape;
}

bool ReadBytes(const KernelRequest& request, Group& group, MatMulRoot& product) {
  const bool constant = product.shape.constant_b;
  std::optional<ByteProducts> read =
      constant ? ReadByteRoot(request, 1, group) : ReadComputedBytes(request, group);
  if (!read || (constant && group.InputType(1).rank() != 2)) return false;
  product.shape.bytes = std::move(read->root);
  product.form = read->form;
  return true;
}

// The form of a product of floats.
AnyForm FormOfFloats(const KernelRequest& request, const MatMulShape& shape) {
  // Panels that tasks pack, and scaled constants, hold f32.
  if (!shape.constant_b || shape.alpha != 1) return FloatsOf(request, DataType::kF32);
  const bool whole_words = !shape.a_transposed && shape.k.value() % 2 == 0;
  return whole_words ? PairsOrFloats(request, shape.a_type, shape.b_type)
                     : FloatsOf(request, shape.b_type);
}

// f32 rows lie in scratch behind the panel: all of a task's where they fit the second cache beside
// the panel, so that panels do not widen them again and again, else those of a tile.
void PlanWidenedRows(const KernelRequest& request, MatMulPlan& plan) {
  SymbolTable& symbols = request.symbols;
  const MatMulShape& s = plan.shape;
  int64_t rows = plan.tile.x;
  if (s.batch.is(1) && s.m.is_static() && s.k.is_static()) {
    const int64_t all =
        plan.by_rows ? std::min(s.m.value(), plan.task_tiles * plan.tile.x) : s.m.value();
    plan.widen_once = all * s.k.value() * 4 <= request.target.l2_bytes * 3 / 4;
    if (plan.widen_once) rows = all;
  }
  plan.rows_at = plan.scratch;
  plan.scratch =
      symbols.Add(plan.scratch, symbols.Mul(symbols.CeilDiv(symbols.Mul(s.k, rows * 4), 64), 64));
}

// False where numbers do not fill words, or words do not fill bodies of one length.
bool PlanBodies(MatMulPlan& plan) {
  const Dim k = plan.shape.k;
  if (!k.is_static() || k.value() % plan.form->unit() != 0) return false;
  plan.unroll = plan.form->WordsOfBody(plan.words.value());
  return plan.unroll > 0;
}

void PlanRanges(SymbolTable& symbols, MatMulPlan& plan) {
  plan.tasks = symbols.Mul(plan.shape.batch, plan.panel_count);
  if (plan.by_rows) {
    const double tiles = TypicalSize(symbols, plan.shape.m) / plan.tile.x;
    plan.task_tiles = std::max<int64_t>(1, static_cast<int64_t>(tiles / 8));
    plan.row_parts = plan.rows.Parts(symbols);
    plan.tasks = symbols.CeilDiv(plan.row_parts, plan.task_tiles);
  }
}

void PlanPanelScratch(SymbolTable& symbols, MatMulPlan& plan) {
  const MatMulShape& shape = plan.shape;
  if (shape.computed_bytes()) {
    const Dim bytes =
        BytePanel::Bytes(symbols, plan.form, shape.k, plan.tile.vectors, plan.lanes, plan.tile.x);
    plan.scratch = symbols.Mul(symbols.CeilDiv(bytes, 64), 64);
  } else if (!shape.constant_b || plan.form->unpacks()) {
    plan.scratch = symbols.Mul(
        symbols.CeilDiv(symbols.Mul(plan.words, plan.tile.vectors * plan.lanes * 4), 64), 64);
  }
}

}  // namespace

std::optional<MatMulRoot> ReadMatMul(const KernelRequest& request, Group& group) {
  const std::string& op = group.root->op;
  const bool bytes = op == "MatMulInteger", weight_only = op == "q.weight_only_matmul";
  const bool sequence = op == "q.sequence_matmul";
  if ((op != "MatMul" && op != "Gemm" && !bytes && !weight_only && !sequence) ||
      !group.HasInput(0) || !group.HasInput(1))
    return std::nullopt;
  if (!IsMatrix(group.InputType(0), !bytes) ||
      !IsMatrix(group.InputType(1), !bytes && !weight_only) ||
      !IsMatrix(group.OutputType(), !bytes)) {
    return std::nullopt;
  }
  MatMulRoot product;
  MatMulShape& shape = product.shape;
  if (sequence) {
    shape.lengths = group.InputType(2).dtype;
    shape.samples = group.InputType(0).dims[1];
  }
  shape.constant_b = ConstantInput(request, group, 1) != nullptr;
  shape.a_type = group.InputType(0).dtype;
  shape.b_type = group.InputType(1).dtype;
  if (bytes && !ReadBytes(request, group, product)) return std::nullopt;
  std::optional<StoredWeights> stored;
  if (weight_only) stored = ReadStoredWeights(request, group);
  if (weight_only && !stored) return std::nullopt;
  const std::optional<MatMulShape> read =
      op == "Gemm" ? ReadGemm(request, group, shape) : ReadSizes(group, request.symbols, shape);
  if (!read) return std::nullopt;
  shape = *read;
  for (const Dim dim : {shape.m, shape.k, shape.n}) {
    if (dim.is_static() && dim.value() < 1) return std::nullopt;
  }
  if (shape.constant_b && !(shape.k.is_static() && shape.n.is_static())) return std::nullopt;
  if (bytes) {
    shape.has_bias = true;
  } else if (stored) {
    const bool many = TypicalSize(request.symbols, shape.m) >= ManyRows(*stored);
    product.form = StoredForm(*stored, request.target.multiply_by_lane, many);
  } else {
    product.form = FormOfFloats(request, shape);
  }
  return product;
}

WeightPanels MatMulPlan::weights() const {
  WeightPanels weights{.split = panels, .lanes = lanes, .unroll = unroll, .shared = shared};
  if (shape.constant_b) {
    weights.run = words.value();
    weights.rest = shape.k.value() % form->unit();
  }
  return weights;
}

std::optional<MatMulPlan> PlanMatMul(const KernelRequest& request, const MatMulRoot& product,
                                     const PlanVariation& variation) {
  SymbolTable& symbols = request.symbols;
  const MatMulShape& shape = product.shape;
  MatMulPlan plan;
  plan.shape = shape;
  plan.form = product.form;
  plan.words = shape.computed_bytes() ? BytePanel::WholeWords(symbols, plan.form, shape.k)
                                      : symbols.FloorDiv(shape.k, plan.form->unit());
  plan.lanes = request.target.f32_lanes();
  plan.unroll = plan.form->Unroll(request.target);
  if (plan.form->whole_tiles() && !PlanBodies(plan)) return std::nullopt;
  TileProblem problem;
  problem.height = 1;
  if (shape.m.is_static()) problem.width = shape.m.value();
  problem.vectors =
      static_cast<int64_t>((TypicalSize(symbols, shape.n) + plan.lanes - 1) / plan.lanes);
  problem.steps = std::max<int64_t>(1, static_cast<int64_t>(TypicalSize(symbols, plan.words)));
  if (shape.constant_b && plan.form->shares_panels()) {
    plan.shared = SharedPanels::Of(request.target);
    plan.shared.rows = shape.k.value();
    problem.most_vectors = plan.shared.MostVectors();
  }
  if (!shape.n.is_static()) problem.vectors = std::max<int64_t>(problem.vectors, 8) / 8 * 8;
  if (plan.form->whole_tiles()) {  // columns beyond n are 0
    constexpr int64_t kColumn = MatrixUnit::kWords;
    problem.vectors =
        (shape.n.value() + kColumn - 1) / kColumn * std::max<int64_t>(1, kColumn / plan.lanes);
  }
  const std::vector<Tile> ranked = plan.form->Tiles(request.target, problem);
  if (variation.tile >= ranked.size()) return std::nullopt;
  plan.tile = ranked[variation.tile];
  plan.rows = {shape.m, plan.tile.x};
  const Dim columns =
      plan.form->whole_tiles() ? Dim(problem.vectors) : symbols.CeilDiv(shape.n, plan.lanes);
  if (shape.n.is_static()) plan.panels = SplitIntoPanels(columns.value(), plan.tile.vectors);
  plan.panel_count =
      shape.n.is_static() ? Dim(plan.panels.parts()) : symbols.CeilDiv(columns, plan.tile.vectors);
  const double a_size = TypicalSize(symbols, shape.m) * TypicalSize(symbols, plan.words);
  const double b_size = TypicalSize(symbols, plan.words) * TypicalSize(symbols, shape.n);
  // A panel is scaled into scratch once: by the one task that has it.
  const bool may_be_by_rows = shape.constant_b && shape.batch.is(1) && !plan.form->unpacks();
  if (variation.other_tasks && !may_be_by_rows) return std::nullopt;
  plan.by_rows = may_be_by_rows && (a_size > b_size) != variation.other_tasks;
  PlanRanges(symbols, plan);
  PlanPanelScratch(symbols, plan);
  if (plan.widens_rows()) PlanWidenedRows(request, plan);
  return plan;
}

double MatMulCost(const KernelRequest& request, const MatMulPlan& plan, DataType type) {
  const SymbolTable& symbols = request.symbols;
  const MatMulShape& s = plan.shape;
  const double batch = TypicalSize(symbols, s.batch), m = TypicalSize(symbols, s.m);
  const double k = TypicalSize(symbols, plan.words), n = TypicalSize(symbols, s.n);
  const double cycles = plan.tile.cycles * (s.m.is_static() ? 1 : m);
  const double micros =
      batch * cycles * request.target.FlopsPerCycle(plan.lanes) / (request.target.gflops * 1e3);
  const double packing = s.constant_b ? 0 : batch * k * n * 8 / (request.target.gbytes * 4e3);
  const double result = DataTypeBits(type) / 8.0;
  const auto word = [&](DataType element) {
    return static_cast<double>(plan.form->unit() * DataTypeBits(element)) / 8;
  };
  const double left = word(s.a_type);
  const double weight =
      s.constant_b ? static_cast<double>(plan.form->weight_bits()) / 8 : word(s.b_type);
  const double bytes =
      batch * (m * k * left + m * n * result) + (s.b_batched ? batch : 1) * k * n * weight;
  return std::max(micros + packing, bytes / (request.target.gbytes * 1e3));
}

}  // namespace quench::codegen
