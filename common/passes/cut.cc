#include "common/passes/cut.h"

#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "common/ops/op.h"

namespace quench::passes {
namespace {

// Adds nodes at the end of a graph whose order is restored later.
class Expansion {
 public:
  Expansion(Graph& graph, NodeId place) : graph_(graph), place_(place), old_(graph.node(place)) {}

  void Conv() {
    const std::vector<ValueId>& in = old_.inputs;
    std::vector<ValueId> operands = {Real(in[0], in[1], in[2], 1), Real(in[3], in[4], in[5], 0)};
    if (in.size() > 8 && in[8] != kNone) {
      const ValueId steps = Add("Mul", {in[1], in[4]}, {});
      operands.push_back(Real(in[8], steps, kNone, 0));
    }
    Finish(Add("Conv", std::move(operands), old_.attributes));
  }

  void MatMul() {
    const std::vector<ValueId>& in = old_.inputs;
    Finish(Add("MatMul", {Real(in[0], in[1], in[2], -2), Real(in[3], in[4], in[5], -1)}, {}));
  }

 private:
  ValueId Add(const std::string& op, std::vector<ValueId> inputs,
              std::map<std::string, Attribute> attributes) {
    const NodeId id =
        graph_.AddNode(op, old_.name + "." + op, std::move(inputs), 1, std::move(attributes));
    graph_.node(id).origin = old_.origin;
    return graph_.node(id).outputs[0];
  }
  ValueId Real(ValueId integers, ValueId scale, ValueId zero, int64_t axis) {
    std::vector<ValueId> operands = {integers, scale};
    if (zero != kNone) operands.push_back(zero);
    return Add("DequantizeLinear", std::move(operands), {{"axis", axis}});
  }
  void Finish(ValueId real) {
    Node& node = graph_.node(place_);
    node.op = "QuantizeLinear";
    node.inputs = {real, old_.inputs[6], old_.inputs[7]};
    node.attributes.clear();
  }

  Graph& graph_;
  const NodeId place_;
  const Node old_;  // adding nodes moves them
};

std::string NameOf(const Graph& graph, const Node& node, size_t input) {
  const bool given = input < node.inputs.size() && node.inputs[input] != kNone;
  return given ? graph.value(node.inputs[input]).name : "";
}

// Least and largest integer.
std::pair<double, double> RangeOf(DataType type) {
  const int bits = DataTypeBits(type);
  if (IsSigned(type)) return {-std::ldexp(1, bits - 1), std::ldexp(1, bits - 1) - 1};
  return {0, std::ldexp(1, bits) - 1};
}

// Scale and zero point of each element of x.
class Parameters {
 public:
  Parameters(const Quantizer& quantizer, const Tensor& x, const Tensor& parameter)
      : parameter_(parameter), block_(std::max<int64_t>(quantizer.block_size, 1)) {
    const std::vector<int64_t>& dims = x.dims();
    const auto axis = static_cast<size_t>(quantizer.axis);
    for (size_t i = axis + 1; i < dims.size(); ++i) inner_ *= dims[i];
    axis_size_ = axis < dims.size() ? dims[axis] : 1;
    blocks_ = (axis_size_ + block_ - 1) / block_;
    blocked_ = quantizer.block_size != 0;
  }
  int64_t Index(int64_t element) const {
    if (parameter_.size() == 1) return 0;
    const int64_t at = element / inner_ % axis_size_;
    if (!blocked_) return at;
    const int64_t outer = element / inner_ / axis_size_;
    return (outer * blocks_ + at / block_) * inner_ + element % inner_;
  }

 private:
  const Tensor& parameter_;
  int64_t block_, inner_ = 1, axis_size_ = 1, blocks_ = 1;
  bool blocked_ = false;
};

}  // namespace

std::vector<Quantizer> QuantizersOf(const Graph& graph) {
  std::vector<Quantizer> result;
  for (const Node& node : graph.nodes) {
    if (node.outputs.empty() || node.outputs[0] == kNone) continue;
    const Value& value = graph.value(node.outputs[0]);
    if (!IsInteger(value.type.dtype)) continue;
    Quantizer quantizer{node.origin.empty() ? node.name : node.origin,
                        value.name,
                        value.type.dtype,
                        NameOf(graph, node, 0),
                        NameOf(graph, node, 1),
                        NameOf(graph, node, 2)};
    if (node.op == "DynamicQuantizeLinear") {
      if (node.outputs[1] == kNone || node.outputs[2] == kNone) continue;  // nobody can read it
      quantizer.dynamic = true;
      quantizer.scale = graph.value(node.outputs[1]).name;
      quantizer.zero = graph.value(node.outputs[2]).name;
    } else if (node.op != "QuantizeLinear") {
      continue;
    }
    const int64_t axis = node.Int("axis", 1);
    quantizer.axis = axis < 0 ? axis + value.type.rank() : axis;
    quantizer.block_size = node.Int("block_size", 0);
    result.push_back(std::move(quantizer));
  }
  return result;
}

absl::StatusOr<Graph> ExpandLinear(Graph graph) {
  const size_t nodes = graph.nodes.size();
  for (size_t i = 0; i < nodes; ++i) {
    const std::string op = graph.nodes[i].op;
    if (op == "QLinearConv") Expansion(graph, static_cast<NodeId>(i)).Conv();
    if (op == "QLinearMatMul") Expansion(graph, static_cast<NodeId>(i)).MatMul();
  }
  if (graph.nodes.size() == nodes) return graph;
  graph.Compact();
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  return graph;
}

Graph CutAt(Graph graph, const std::vector<std::string>& values) {
  for (const std::string& name : values) {
    const std::optional<ValueId> made = graph.FindValue(name);
    QUENCH_CHECK(made.has_value());
    const ValueId fed = graph.AddInput(name, graph.value(*made).type);
    for (Node& node : graph.nodes) std::replace(node.inputs.begin(), node.inputs.end(), *made, fed);
  }
  return graph;
}

double TieWidth(DataType x, DataType integers) {
  const int digits = x == DataType::kF16 ? 10 : x == DataType::kBF16 ? 7 : 23;
  const auto [low, high] = RangeOf(integers);
  return std::min(0.5, std::max(1e-3, (high - low) * std::ldexp(1, -digits)));
}

Rounding Judge(int64_t actual, double steps, int64_t zero, DataType type, double width) {
  const std::pair<double, double> range = RangeOf(type);
  const auto is = [&](double rounded) {
    return std::clamp(rounded + static_cast<double>(zero), range.first, range.second) ==
           static_cast<double>(actual);
  };
  // For infinities saturation is the nearest; for NaN the conversion is undefined.
  if (std::isnan(steps)) return Rounding::kNearest;
  if (is(std::nearbyint(steps))) return Rounding::kNearest;
  const double floor = std::floor(steps);
  if (std::abs(steps - floor - 0.5) > width) return Rounding::kWrong;
  return is(floor) || is(floor + 1) ? Rounding::kOtherOfTie : Rounding::kWrong;
}

void IntegerErrors::Count(Rounding rounding, int64_t at, int64_t integer, double steps) {
  if (rounding == Rounding::kOtherOfTie) ++ties;
  if (rounding != Rounding::kWrong) return;
  const auto distance = [](int64_t whole, double real) {
    return std::abs(static_cast<double>(whole) - real);
  };
  if (wrong++ > 0 && distance(integer, steps) <= distance(actual, expected)) return;
  index = at;
  actual = integer;
  expected = steps;
}

IntegerErrors JudgeElements(const Quantizer& quantizer, const Tensor& computed,
                            const Tensor& actual, const Tensor& x, const Tensor& scale,
                            const Tensor* zero) {
  const Parameters of_scale(quantizer, x, scale), of_zero(quantizer, x, zero ? *zero : scale);
  const double width = TieWidth(x.dtype(), quantizer.type);
  IntegerErrors errors;
  for (int64_t i = 0; i < actual.size(); ++i) {
    const int64_t integer = actual.IntAt(i);
    if (integer == computed.IntAt(i)) continue;
    const double steps = x.FloatAt(i) / scale.FloatAt(of_scale.Index(i));
    const int64_t origin = zero == nullptr ? 0 : zero->IntAt(of_zero.Index(i));
    errors.Count(Judge(integer, steps, origin, quantizer.type, width), i, integer,
                 steps + static_cast<double>(origin));
  }
  return errors;
}

}  // namespace quench::passes
