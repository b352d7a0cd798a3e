// Averages integers.
//   pre: types inferred, topological order
//   DQ(x) -> AveragePool, GlobalAveragePool or ReduceMean over all that is spatial -> QuantizeLinear
//     ==>   x -> q.average_pool
//   where scales are known and sums fit i32, whatever the input.
//   case: average_integers.ir.txt

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "common/base/status.h"
#include "common/passes/dequantized.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr int64_t kMostTerms = std::numeric_limits<int32_t>::max() / 255;

// The product of numbers that are 1 or more; anything beyond kMostTerms is kMostTerms + 1.
int64_t Times(int64_t a, int64_t b) { return a > kMostTerms / b ? kMostTerms + 1 : a * b; }

class Averager {
 public:
  explicit Averager(Graph& graph) : graph_(graph), uses_(graph.UseCounts()) {}

  void Run() {
    std::map<ValueId, std::vector<NodeId>> quantizers;  // of each average
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op == "QuantizeLinear" && AverageBefore(node) != nullptr)
        quantizers[node.inputs[0]].push_back(static_cast<NodeId>(i));
    }
    for (const auto& [value, nodes] : quantizers) {
      // A value that is read in float too is computed once.
      if (uses_[static_cast<size_t>(value)] != static_cast<int>(nodes.size())) continue;
      for (const NodeId id : nodes) Substitute(id);
    }
  }

 private:
  const Node* AverageBefore(const Node& quantize) const {
    for (const char* op : {"AveragePool", "GlobalAveragePool", "ReduceMean"}) {
      if (const Node* node = ProducerOf(graph_, quantize.inputs[0], op)) return node;
    }
    return nullptr;
  }

  // Whether all axes but the first two are reduced.
  bool OverSpace(const Node& mean, int rank) const {
    const Tensor* axes = mean.inputs.size() > 1 ? ConstantOf(graph_, mean.inputs[1]) : nullptr;
    if (axes == nullptr || rank < 3 || axes->size() != rank - 2) return false;
    std::vector<bool> reduced(static_cast<size_t>(rank), false);
    for (int64_t i = 0; i < axes->size(); ++i) {
      const int64_t axis = axes->IntAt(i) + (axes->IntAt(i) < 0 ? rank : 0);
      if (axis < 2 || axis >= rank) return false;
      reduced[static_cast<size_t>(axis)] = true;
    }
    return std::count(reduced.begin(), reduced.end(), true) == rank - 2;
  }

  // Elements of an average at most.
  int64_t Terms(const Node& average, const Type& x) const {
    int64_t terms = 1;
    if (average.op == "AveragePool") {
      for (const int64_t size : average.Ints("kernel_shape"))
        terms = Times(terms, std::max<int64_t>(size, 1));
      return terms;
    }
    for (size_t i = 2; i < x.dims.size(); ++i) {
      const int64_t size =
          x.dims[i].is_static() ? x.dims[i].value() : graph_.symbols->BoundsOf(x.dims[i]).max;
      terms = Times(terms, std::max<int64_t>(size, 1));
    }
    return terms;
  }

  void Substitute(NodeId place) {
    const Node quantize = graph_.node(place);  // adding nodes moves them
    const Node average = *AverageBefore(quantize);
    const std::optional<Dequantized> x = ReadKnown(graph_, average.inputs[0]);
    const Type result = graph_.value(quantize.outputs[0]).type;
    const std::optional<Dequantized> y = OneScale(graph_, quantize, result.dtype);
    if (!x || !y) return;
    Type type = graph_.value(average.inputs[0]).type;
    if (!type.ranked || type.rank() < 2) return;
    const bool mean = average.op == "ReduceMean";
    if (mean && !OverSpace(average, type.rank())) return;
    const double scale = static_cast<double>(x->scale) / static_cast<double>(y->scale);
    const int64_t terms = Terms(average, type);
    if (terms > kMostTerms || !IsNormal(scale) || !IsNormal(scale / static_cast<double>(terms)))
      return;
    std::map<std::string, Attribute> attributes;
    if (average.op == "AveragePool") attributes = average.attributes;
    attributes["scale"] = static_cast<double>(static_cast<float>(scale));
    attributes["to"] = static_cast<int64_t>(result.dtype);
    attributes["x_zero_point"] = x->zero;
    attributes["y_zero_point"] = y->zero;
    type.dtype = result.dtype;
    for (size_t i = 2; mean && i < type.dims.size(); ++i) type.dims[i] = 1;
    if (!mean) type = result;
    ValueId value = AddTyped(graph_, "q.average_pool", average.name, {x->integers}, type,
                             std::move(attributes));
    Take(value, average);
    if (type.dims != result.dims) value = Squeezed(value, average, result);
    TakePlace(graph_, quantize.outputs[0], value);
  }

  // The node that makes `value` takes the place of `old` in reports.
  void Take(ValueId value, const Node& old) {
    Node& node = graph_.node(graph_.value(value).producer);
    node.origin = old.origin;
    std::swap(node.name, graph_.node(graph_.value(old.outputs[0]).producer).name);
  }

  ValueId Squeezed(ValueId value, const Node& average, const Type& result) {
    std::vector<int64_t> axes;
    for (int64_t i = 2; i < graph_.value(value).type.rank(); ++i) axes.push_back(i);
    const ValueId list = graph_.AddConstant(average.name + ".axes", Tensor::I64(axes));
    return AddTyped(graph_, "Squeeze", average.name, {value, list}, result);
  }

  Graph& graph_;
  const std::vector<int> uses_;
};

}  // namespace

absl::StatusOr<Graph> AverageIntegers(Graph graph, const PassOptions& options,
                                      const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return AverageIntegers(std::move(body), options, context); }));
  Averager(graph).Run();
  return Settled(std::move(graph));
}

}  // namespace quench::passes
