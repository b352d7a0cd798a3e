#include "services/analyser/tile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "common/runner/inputs.h"

namespace quench::analyser {
namespace {

bool IsProduct(const Node& node) { return node.op == "Gemm" || node.op == "MatMul"; }

int64_t Pieces(int64_t size, int64_t limit) {
  return std::max<int64_t>(1, size / limit + (size % limit != 0 ? 1 : 0));
}

// Sizes of a product as dims; 1 where a vector lacks the axis.
struct ProductDims {
  Dim m = 1, n = 1, k = 1;
};

ProductDims DimsOf(const Graph& graph, const Node& node) {
  const std::vector<Dim>& a = graph.value(node.inputs[0]).type.dims;
  const std::vector<Dim>& b = graph.value(node.inputs[1]).type.dims;
  if (node.op == "Gemm") {
    const bool trans_a = node.Int("transA", 0) != 0, trans_b = node.Int("transB", 0) != 0;
    return {a[trans_a ? 1 : 0], b[trans_b ? 0 : 1], a[trans_a ? 0 : 1]};
  }
  ProductDims dims;
  dims.k = a.back();
  if (a.size() >= 2) dims.m = a[a.size() - 2];
  if (b.size() >= 2) dims.n = b.back();
  return dims;
}

// The tiling planned for each product of a graph and its bodies, and obstacles to it.
class TilePlan {
 public:
  explicit TilePlan(TileReport& report) : report_(report) {}

  void Add(const Graph& graph) {
    for (const Node& node : graph.nodes) {
      const ops::OpDef* op = ops::FindOp(node.op);
      if (IsProduct(node)) {
        AddProduct(graph, node);
      } else if (op != nullptr && op->macs != nullptr) {
        ++report_.others[node.op];
      }
    }
  }

  absl::Status Check() const {
    if (!problems_.empty())
      return InvalidArgument("products of unknown size: {}", fmt::join(problems_, "; "));
    int64_t total = 0;
    for (const TiledProduct& each : report_.products) {
      // Each factor is at most kMostTiles + 1 here: no overflow.
      int64_t tiles = 1;
      for (const int64_t pieces : {each.tiles_m, each.tiles_n, each.tiles_k})
        tiles = std::min(tiles * std::min(pieces, kMostTiles + 1), kMostTiles + 1);
      total += tiles;
      if (total > kMostTiles) {
        return InvalidArgument(
            "limits {},{},{} (m, n, k) are too small for this model: with node `{}` ({}, {} x {} x "
            "{}) there are more than {} products",
            report_.limits.m, report_.limits.n, report_.limits.k, each.node, each.op, each.m,
            each.n, each.k, kMostTiles);
      }
    }
    return absl::OkStatus();
  }

 private:
  void AddProduct(const Graph& graph, const Node& node) {
    for (const size_t operand : {0, 1}) {
      if (graph.value(node.inputs[operand]).type.rank() > 0) continue;
      problems_.push_back(
          fmt::format("node `{}` ({}): the rank of an operand is unknown", node.name, node.op));
      return;
    }
    const ProductDims dims = DimsOf(graph, node);
    const auto size = [&](const char* axis, Dim dim, int64_t limit) {
      if (dim.is_static()) return dim.value();
      const int64_t most = graph.symbols->BoundsOf(dim).max;
      if (most > limit) {
        problems_.push_back(
            fmt::format("node `{}` ({}): {} is `{}`, which must be fixed or at most {}", node.name,
                        node.op, axis, graph.symbols->ToString(dim), limit));
      }
      return most;
    };
    TiledProduct product{node.name, node.op};
    product.m = size("m", dims.m, report_.limits.m);
    product.n = size("n", dims.n, report_.limits.n);
    product.k = size("k", dims.k, report_.limits.k);
    product.tiles_m = Pieces(product.m, report_.limits.m);
    product.tiles_n = Pieces(product.n, report_.limits.n);
    product.tiles_k = Pieces(product.k, report_.limits.k);
    report_.products.push_back(std::move(product));
  }

  TileReport& report_;
  std::vector<std::string> problems_;
};

// Rewrites the products of one graph. Names are kept in a set: there may be a hundred thousand.
class Tiler {
 public:
  Tiler(Graph& graph, const TileLimits& limits) : graph_(graph), limits_(limits) {
    for (const Value& value : graph.values) names_.insert(value.name);
    for (const Node& node : graph.nodes) names_.insert(node.name);
  }

  bool Run(const StepContext& context, absl::Status& status) {
    bool changed = false;
    const size_t count = graph_.nodes.size();
    for (size_t i = 0; i < count; ++i) {
      if (status = context.Check(); !status.ok()) return changed;
      if (IsProduct(graph_.nodes[i]) && Rewrite(i)) changed = true;
    }
    return changed;
  }

 private:
  using Values = std::vector<ValueId>;

  std::string Unique(const std::string& name) {
    std::string unique = name;
    for (int i = 1; !names_.insert(unique).second; ++i) unique = fmt::format("{}_{}", name, i);
    return unique;
  }

  ValueId AddValue(const std::string& name) {
    graph_.values.push_back({Unique(name), {}, kNone, nullptr, std::nullopt});
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }

  ValueId AddConstant(const std::string& name, Tensor tensor) {
    const ValueId id = AddValue(name);
    graph_.value(id).type =
        Type::Tensor(tensor.dtype(), {tensor.dims().begin(), tensor.dims().end()});
    graph_.value(id).constant =
        std::make_shared<const Constant>(Constant{std::move(tensor), "", {}});
    return id;
  }

  Values AddNode(const std::string& op, const std::string& suffix, Values inputs, int64_t outputs,
                 std::map<std::string, Attribute> attributes = {}) {
    Node node;
    node.name = Unique(fmt::format("{}.{}", name_, suffix));
    node.op = op;
    node.origin = origin_;
    node.inputs = std::move(inputs);
    node.attributes = std::move(attributes);
    for (int64_t i = 0; i < outputs; ++i) {
      node.outputs.push_back(AddValue(fmt::format("{}.out{}", node.name, i)));
      graph_.values.back().producer = static_cast<NodeId>(graph_.nodes.size());
    }
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().outputs;
  }

  Values Split(ValueId x, int64_t axis, int64_t size, int64_t limit, const std::string& suffix) {
    if (size <= limit) return {x};
    const auto [sizes, fresh] = sizes_.try_emplace({size, limit}, kNone);
    if (fresh) {
      std::vector<int64_t> parts(static_cast<size_t>(Pieces(size, limit)), limit);
      if (size % limit != 0) parts.back() = size % limit;
      sizes->second = AddConstant(fmt::format("split.{}.{}", size, limit), Tensor::I64(parts));
    }
    return AddNode("Split", suffix, {x, sizes->second}, Pieces(size, limit), {{"axis", axis}});
  }

  ValueId Concat(Values pieces, int64_t axis, const std::string& suffix) {
    if (pieces.size() == 1) return pieces[0];
    return AddNode("Concat", suffix, std::move(pieces), 1, {{"axis", axis}})[0];
  }

  ValueId Cast(ValueId x, DataType type, const std::string& suffix) {
    return AddNode("Cast", suffix, {x}, 1, {{"to", static_cast<int64_t>(type)}})[0];
  }

  // x * factor; of integers as f64, as Gemm does it.
  ValueId Scale(ValueId x, double factor, DataType type, const std::string& suffix) {
    if (factor == 1) return x;
    const bool whole = !IsFloat(type);
    if (whole) x = Cast(x, DataType::kF64, suffix + ".f64");
    Tensor number;
    if (whole || type == DataType::kF64) {
      number = Tensor::Of(DataType::kF64, {}, std::vector<double>{factor});
    } else {
      number = Tensor::Floats(type, {}, std::vector<float>{static_cast<float>(factor)});
    }
    const ValueId by = AddConstant(fmt::format("{}.{}.by", name_, suffix), std::move(number));
    x = AddNode("Mul", suffix, {x, by}, 1)[0];
    return whole ? Cast(x, type, suffix + ".back") : x;
  }

  // pieces[i][j]: piece i along the first axis, j along the second.
  std::vector<Values> Grid(ValueId x, int64_t first, int64_t first_size, int64_t first_limit,
                           int64_t second, int64_t second_size, int64_t second_limit,
                           const std::string& suffix) {
    std::vector<Values> grid;
    const Values outer = Split(x, first, first_size, first_limit, suffix);
    for (size_t i = 0; i < outer.size(); ++i) {
      grid.push_back(
          Split(outer[i], second, second_size, second_limit, fmt::format("{}{}", suffix, i)));
    }
    return grid;
  }

  // One piece of the result: sum over pieces of k.
  ValueId Sum(const std::vector<Values>& a, const std::vector<Values>& b, size_t m, size_t n) {
    ValueId sum = kNone;
    for (size_t k = 0; k < b.size(); ++k) {
      const std::string at = fmt::format("{}.{}.{}", m, n, k);
      const ValueId part = AddNode("MatMul", "mul." + at, {a[m][k], b[k][n]}, 1)[0];
      sum = sum == kNone ? part : AddNode("Add", "add." + at, {sum, part}, 1)[0];
    }
    return sum;
  }

  ValueId Product(ValueId a, ValueId b, const TiledProduct& sizes, int64_t a_rank, int64_t b_rank) {
    // The axes of vectors that are not there have one piece, so that they are never split.
    const std::vector<Values> left = Grid(a, std::max<int64_t>(a_rank - 2, 0), sizes.m, limits_.m,
                                          a_rank - 1, sizes.k, limits_.k, "a");
    const std::vector<Values> right = Grid(b, std::max<int64_t>(b_rank - 2, 0), sizes.k, limits_.k,
                                           b_rank - 1, sizes.n, limits_.n, "b");
    const int64_t batch = std::max<int64_t>(std::max(a_rank, b_rank) - 2, 0);
    const int64_t row_axis = batch, column_axis = batch + (a_rank >= 2 ? 1 : 0);
    Values rows;
    for (size_t m = 0; m < left.size(); ++m) {
      Values columns;
      for (size_t n = 0; n < right[0].size(); ++n) columns.push_back(Sum(left, right, m, n));
      rows.push_back(Concat(std::move(columns), column_axis, fmt::format("row{}", m)));
    }
    return Concat(std::move(rows), row_axis, "rows");
  }

  bool Rewrite(size_t at) {
    const Node node = graph_.nodes[at];  // copied: nodes are appended meanwhile
    const ProductDims dims = DimsOf(graph_, node);
    const auto most = [&](Dim dim) {
      return dim.is_static() ? dim.value() : graph_.symbols->BoundsOf(dim).max;
    };
    const TiledProduct sizes{node.name, node.op, most(dims.m), most(dims.n), most(dims.k)};
    if (sizes.m <= limits_.m && sizes.n <= limits_.n && sizes.k <= limits_.k) return false;
    name_ = node.name;
    origin_ = node.origin;
    ValueId a = node.inputs[0], b = node.inputs[1];
    const Type a_type = graph_.value(a).type;
    const int64_t b_rank = graph_.value(b).type.rank();
    const std::vector<int64_t> swapped = {1, 0};
    if (node.Int("transA", 0) != 0) a = AddNode("Transpose", "at", {a}, 1, {{"perm", swapped}})[0];
    if (node.Int("transB", 0) != 0) b = AddNode("Transpose", "bt", {b}, 1, {{"perm", swapped}})[0];
    ValueId y = Product(a, b, sizes, a_type.rank(), b_rank);
    y = Scale(y, node.Float("alpha", 1), a_type.dtype, "alpha");
    if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
      const ValueId c = Scale(node.inputs[2], node.Float("beta", 1), a_type.dtype, "beta");
      AddNode("Add", "bias", {y, c}, 1);
    }
    TakePlace(at, node);
    return true;
  }

  // The last node computes the result: it stands where the product stood, under its names.
  void TakePlace(size_t at, const Node& old) {
    Node last = std::move(graph_.nodes.back());
    graph_.nodes.pop_back();
    graph_.values.pop_back();  // its output is the value made last
    last.name = old.name;
    last.outputs = old.outputs;
    graph_.nodes[at] = std::move(last);
  }

  Graph& graph_;
  const TileLimits limits_;
  std::unordered_set<std::string> names_;
  std::map<std::pair<int64_t, int64_t>, ValueId> sizes_;  // of Splits, by size and limit
  std::string name_, origin_;                             // of the product that is rewritten
};

absl::StatusOr<bool> TileWithBodies(Graph& graph, const TileLimits& limits,
                                    const StepContext& context) {
  bool changed = false;
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes) {
      const GraphPtr* body = std::get_if<GraphPtr>(&attribute);
      if (body == nullptr || *body == nullptr) continue;
      Graph copy = **body;
      QUENCH_ASSIGN_OR_RETURN(const bool inner, TileWithBodies(copy, limits, context));
      if (!inner) continue;
      attribute = std::make_shared<const Graph>(std::move(copy));
      changed = true;
    }
  }
  absl::Status status;
  changed = Tiler(graph, limits).Run(context, status) || changed;
  QUENCH_RETURN_IF_ERROR(status);
  if (changed) graph.Compact();
  return changed;
}

}  // namespace

absl::StatusOr<Tiled> TileGraph(Graph graph, const TileLimits& limits, const StepContext& context) {
  if (graph.stage == Stage::kImported)
    return InvalidArgument("the module is at stage `imported`; products of `canonical` are tiled");
  if (limits.m < 1 || limits.n < 1 || limits.k < 1) {
    return InvalidArgument("limits {},{},{} (m, n, k): each must be at least 1", limits.m, limits.n,
                           limits.k);
  }
  Tiled result;
  result.report.limits = limits;
  TilePlan plan(result.report);
  ForEachGraph(graph, [&](const Graph& each) { plan.Add(each); });
  QUENCH_RETURN_IF_ERROR(plan.Check());
  QUENCH_RETURN_IF_ERROR(TileWithBodies(graph, limits, context).status());
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  result.graph = std::move(graph);
  return result;
}

Graph GemmGraph(int64_t m, int64_t k, int64_t n) {
  Graph graph;
  graph.name = fmt::format("gemm_{}x{}x{}", m, k, n);
  const Type c = Type::Tensor(DataType::kF32, {m, n});
  std::vector<ValueId> inputs = {graph.AddInput("A", Type::Tensor(DataType::kF32, {m, k})),
                                 graph.AddInput("B", Type::Tensor(DataType::kF32, {k, n})),
                                 graph.AddInput("bias", c)};
  const NodeId node = graph.AddNode("Gemm", "C", std::move(inputs));
  graph.outputs = graph.node(node).outputs;
  graph.value(graph.outputs[0]).type = c;
  return graph;
}

absl::StatusOr<double> LargestError(const Graph& before, const Graph& after, int64_t samples,
                                    uint64_t seed, const StepContext& context) {
  double worst = 0;
  for (int64_t i = 0; i < samples; ++i) {
    context.Report({"compare", "", i, samples});
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                            RandomInputs(before, seed + static_cast<uint64_t>(i)));
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> expected,
                            ops::Evaluate(before, inputs, context));
    QUENCH_ASSIGN_OR_RETURN(const std::vector<Tensor> actual,
                            ops::Evaluate(after, inputs, context));
    if (actual.size() != expected.size())
      return Internal("{} outputs became {}", expected.size(), actual.size());
    for (size_t at = 0; at < actual.size(); ++at)
      worst = std::max(worst, RelativeError(actual[at], expected[at]));
  }
  return worst;
}

absl::StatusOr<Tiled> TileAndProve(const Graph& graph, const TileLimits& limits,
                                   const TileProof& proof, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(Tiled tiled, TileGraph(graph, limits, context));
  QUENCH_ASSIGN_OR_RETURN(tiled.report.error,
                          LargestError(graph, tiled.graph, proof.samples, proof.seed, context));
  tiled.report.samples = proof.samples;
  if (tiled.report.error <= proof.tolerance) return tiled;
  return absl::FailedPreconditionError(
      fmt::format("an output differs by {:.3g} of its largest value, above the tolerance of {:.3g}",
                  tiled.report.error, proof.tolerance));
}

}  // namespace quench::analyser
