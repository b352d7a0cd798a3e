// Computes products of what is dequantized on both sides as sums of products of integers.
//   pre: types inferred, topological order
//   DQ(x, sx, zx), DQ(w, sw), DQ(b, sx sw) -> Conv -> y
//     ==>   x, w, zx -> ConvInteger -> Add(b) -> Cast(f32) -> Mul(sx sw) -> y
//   Gemm and MatMul become MatMulInteger, also where both sides are computed. Exact up to the last
//   rounding: the sum is an integer, its scale one f32 product. A product whose sums may overflow
//   i32 stays in float. Weights of any zero point keep it where a byte does not hold their distances
//   from it, in the convolutions that kernels compute so; other products with such stay in float.
//   A scale of each run (DynamicQuantizeLinear) is multiplied first: ... -> Cast -> Mul(sx) -> Mul(sw) -> y
//   QLinearConv and QLinearMatMul are what they stand for: DQ -> Conv or MatMul -> QuantizeLinear.
//   source: Jacob et al. 2018, arXiv 1712.05877, section 2.2
//   case: integer_products.ir.txt
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "common/base/status.h"
#include "common/ops/byte_weights.h"
#include "common/passes/dequantized.h"
#include "common/passes/fold.h"
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

class IntegerProduct {
 public:
  IntegerProduct(Graph& graph, const StepContext& context) : graph_(graph), context_(context) {}

  // The scaled sums in float, in place of the node's output; nothing when it stays as it is.
  std::optional<ValueId> ToIntegers(const Node& node) {
    const bool conv = node.op == "Conv";
    const std::optional<Dequantized> input = ReadDequantized(graph_, node.inputs[0]);
    if (!input || graph_.value(node.outputs[0]).type.dtype != DataType::kF32 ||
        graph_.value(node.inputs[0]).type.rank() < 2)
      return std::nullopt;
    std::optional<Kernel> kernel = ReadKernel(graph_, node.inputs[1]);
    if (!kernel) return OfTwoComputed(node, *input);
    if (!IsCentred(*kernel) && !TakesAnyZero(node, *kernel)) return std::nullopt;
    if (!conv && !PrepareMatrix(node, *kernel)) return std::nullopt;
    const int64_t channel_axis = conv ? 0 : 1;
    const int64_t channels = kernel->integers.dims()[static_cast<size_t>(channel_axis)];
    const bool per_channel = kernel->scales.size() > 1;
    if (per_channel && (kernel->scale_axis != channel_axis ||
                        static_cast<int64_t>(kernel->scales.size()) != channels)) {
      return std::nullopt;
    }
    std::vector<double> scales;
    for (const double scale : kernel->scales) {
      // A scale of each run is a factor of its own.
      scales.push_back(static_cast<double>(input->scale) * scale * node.Float("alpha", 1));
      if (!IsNormal(scales.back())) return std::nullopt;
    }
    const Bias bias = ReadBias(node, *input, scales, channels);
    if (bias.none) return std::nullopt;
    if (!SumsFit(*kernel, channel_axis, *input, bias.integers ? &*bias.integers : nullptr))
      return std::nullopt;
    return Emit(node, *input, *kernel, scales, bias);
  }

  // The same where the right side is not a constant.
  std::optional<ValueId> OfTwoComputed(const Node& node, const Dequantized& left) {
    const std::optional<Dequantized> right =
        node.op == "MatMul" ? ReadDequantized(graph_, node.inputs[1]) : std::nullopt;
    if (!right || ConstantOf(graph_, right->integers) != nullptr) return std::nullopt;
    const std::vector<Dim>& dims = graph_.value(right->integers).type.dims;
    if (dims.size() < 2) return std::nullopt;
    const double sum = RowReach(left, dims[dims.size() - 2]) * static_cast<double>(right->Reach());
    if (!(sum <= std::numeric_limits<int32_t>::max())) return std::nullopt;
    const double scale = static_cast<double>(left.scale) * right->scale;
    if (!IsNormal(scale)) return std::nullopt;
    const ValueId right_zero = right->known && right->zero == 0 ? kNone : right->zero_id;
    const ValueId sums = AddSum(node, {left.integers, right->integers}, left, right_zero);
    return Scaled(node, sums, {left, *right}, {static_cast<float>(scale)});
  }

  // The largest sum of |x - zero point| over a row of `depth` numbers.
  double RowReach(const Dequantized& side, Dim depth) const {
    const double all = static_cast<double>(graph_.symbols->BoundsOf(depth).max) *
                       static_cast<double>(side.Reach());
    const Node* quantize = ProducerOf(graph_, side.integers, "QuantizeLinear");
    const Node* softmax =
        quantize == nullptr ? nullptr : ProducerOf(graph_, quantize->inputs[0], "Softmax");
    if (softmax == nullptr || !side.known) return all;
    const int64_t axis = softmax->Int("axis", -1);
    if (axis != -1 && axis != graph_.value(side.integers).type.rank() - 1) return all;
    // Shares of 1: one of s steps becomes at most 2 s, as below a half it becomes 0.
    constexpr double kRoundedSum = 1.001;
    return std::min(all, 2 * kRoundedSum / static_cast<double>(side.scale));
  }

  // QLinearConv and QLinearMatMul through what they stand for.
  std::optional<ValueId> OfLinear(const Node& node) {
    const bool conv = node.op == "QLinearConv";
    const std::vector<ValueId>& in = node.inputs;
    const auto real = [&](size_t first, int64_t axis) {
      Type type = graph_.value(in[first]).type;
      type.dtype = DataType::kF32;
      return Add("DequantizeLinear", node.name + ".in", {in[first], in[first + 1], in[first + 2]},
                 type, {{"axis", axis}});
    };
    std::vector<ValueId> operands = {real(0, 1), real(3, conv ? 0 : 1)};
    if (conv && in.size() > 8 && in[8] != kNone) {
      const Tensor* x_scale = ConstantOf(graph_, in[1]);
      const Tensor* w_scale = ConstantOf(graph_, in[4]);
      if (x_scale == nullptr || w_scale == nullptr || x_scale->size() != 1) return std::nullopt;
      std::vector<float> steps;
      for (int64_t c = 0; c < w_scale->size(); ++c)
        steps.push_back(static_cast<float>(x_scale->FloatAt(0) * w_scale->FloatAt(c)));
      const ValueId scale = graph_.AddConstant(node.name + ".steps",
                                               Tensor::Of(DataType::kF32, w_scale->dims(), steps));
      Type type = graph_.value(in[8]).type;
      type.dtype = DataType::kF32;
      operands.push_back(Add("DequantizeLinear", node.name + ".bias", {in[8], scale}, type,
                             {{"axis", int64_t{0}}}));
    }
    Type type = graph_.value(node.outputs[0]).type;
    const Type integers = type;
    type.dtype = DataType::kF32;
    const ValueId y = Add(conv ? "Conv" : "MatMul", node.name, operands, type, node.attributes);
    graph_.node(graph_.value(y).producer).origin = node.origin;
    const std::optional<ValueId> scaled = ToIntegers(Node(graph_.node(graph_.value(y).producer)));
    if (!scaled) return std::nullopt;
    return Add("QuantizeLinear", node.name + ".q", {*scaled, in[6], in[7]}, integers);
  }

 private:
  ValueId Add(const std::string& op, const std::string& name, std::vector<ValueId> inputs,
              Type type, std::map<std::string, Attribute> attributes = {}) {
    return AddTyped(graph_, op, name, std::move(inputs), std::move(type), std::move(attributes));
  }

  static bool IsCentred(const Kernel& kernel) {
    return kernel.integers.dtype() == DataType::kI8 && kernel.zero_id == kNone;
  }

  // Whether kernels compute the node with weights whose distances from their zero point are no
  // bytes: convolutions where few are not, or of each channel by itself.
  bool TakesAnyZero(const Node& node, const Kernel& kernel) const {
    if (node.op != "Conv" || kernel.integers.rank() < 3) return false;
    const int64_t group = node.Int("group", 1);
    const std::vector<int64_t>& dims = kernel.integers.dims();
    if (group > 1) return dims[0] == group && dims[1] == 1;
    return ops::WordsOfTwoParts(kernel.integers, kernel.zero).has_value();
  }

  // A matrix as MatMulInteger takes it: [k, n].
  bool PrepareMatrix(const Node& node, Kernel& kernel) {
    if (kernel.integers.rank() != 2 || node.Int("transA", 0) != 0) return false;
    if (node.Int("transB", 0) == 0) return true;
    kernel.integers = TransposedMatrix(kernel.integers);
    kernel.id = kNone;
    kernel.scale_axis = 1 - kernel.scale_axis;
    return true;
  }

  struct Bias {
    bool none = false;  // there is one that this pass cannot add
    std::optional<Tensor> integers;
    std::optional<Tensor> floats;
  };

  // In steps of the sums where it is quantized so, else in float.
  Bias ReadBias(const Node& node, const Dequantized& input, const std::vector<double>& scales,
                int64_t channels) {
    Bias bias;
    if (node.inputs.size() < 3 || node.inputs[2] == kNone) return bias;
    const double beta = node.Float("beta", 1);
    const Tensor* floats = ConstantOf(graph_, node.inputs[2]);
    if (const Node* dequantize = ProducerOf(graph_, node.inputs[2], "DequantizeLinear")) {
      const Tensor* integers = ConstantOf(graph_, dequantize->inputs[0]);
      const Tensor* steps = ConstantOf(graph_, dequantize->inputs[1]);
      if (integers != nullptr && steps != nullptr && integers->dtype() == DataType::kI32 &&
          integers->size() == channels && IsRow(*integers) && beta == 1 && input.known &&
          StepsAre(*steps, scales) && IsZero(*dequantize)) {
        bias.integers = *integers;
        return bias;
      }
      absl::StatusOr<Tensor> value = EvaluateConstant(graph_, *dequantize, context_);
      if (!value.ok()) {
        bias.none = true;
        return bias;
      }
      bias.floats = *std::move(value);
      floats = &*bias.floats;
    }
    if (floats == nullptr || floats->dtype() != DataType::kF32 || floats->size() != channels ||
        !IsRow(*floats)) {
      bias.none = true;
      return bias;
    }
    Tensor scaled = Tensor::Zeros(DataType::kF32, {channels});
    auto* out = reinterpret_cast<float*>(scaled.mutable_bytes());
    for (int64_t c = 0; c < channels; ++c) out[c] = static_cast<float>(floats->FloatAt(c) * beta);
    bias.floats = std::move(scaled);
    return bias;
  }

  static bool IsRow(const Tensor& bias) {
    return bias.rank() <= 1 || (bias.rank() == 2 && bias.dims()[0] == 1);
  }

  bool IsZero(const Node& dequantize) const {
    if (dequantize.inputs.size() < 3 || dequantize.inputs[2] == kNone) return true;
    const Tensor* zero = ConstantOf(graph_, dequantize.inputs[2]);
    for (int64_t i = 0; zero != nullptr && i < zero->size(); ++i) {
      if (zero->IntAt(i) != 0) return false;
    }
    return zero != nullptr;
  }

  static bool StepsAre(const Tensor& steps, const std::vector<double>& scales) {
    const auto count = static_cast<int64_t>(scales.size());
    if (steps.size() != 1 && steps.size() != count) return false;
    for (int64_t i = 0; i < count; ++i) {
      const double scale = scales[static_cast<size_t>(i)];
      if (std::abs(steps.FloatAt(steps.size() == 1 ? 0 : i) - scale) > 1e-5 * scale) return false;
    }
    return true;
  }

  ValueId Emit(const Node& node, const Dequantized& input, const Kernel& kernel,
               const std::vector<double>& scales, const Bias& bias) {
    const ValueId weights =
        kernel.id != kNone ? kernel.id : graph_.AddConstant(node.name + ".w", kernel.integers);
    ValueId sum = AddSum(node, {input.integers, weights}, input, kernel.zero_id);
    if (bias.integers) {
      const Type type = graph_.value(sum).type;
      sum = Add("Add", node.name + ".biased", {sum, PerChannel(node, ".b", *bias.integers)}, type);
    }
    const ValueId real =
        Scaled(node, sum, {input}, std::vector<float>(scales.begin(), scales.end()));
    if (!bias.floats) return real;
    return Add("Add", node.name + ".biased", {real, PerChannel(node, ".b", *bias.floats)},
               graph_.value(real).type);
  }

  // The i32 sums of products of `sides`, minus the zero points; none on the right is 0.
  ValueId AddSum(const Node& node, std::vector<ValueId> sides, const Dequantized& left,
                 ValueId right_zero) {
    const bool conv = node.op == "Conv";
    Type type = graph_.value(node.outputs[0]).type;
    type.dtype = DataType::kI32;
    sides.push_back(left.known && left.zero == 0 ? kNone : left.zero_id);
    sides.push_back(right_zero);
    while (sides.back() == kNone) sides.pop_back();
    const ValueId sum = Add(conv ? "ConvInteger" : "MatMulInteger", node.name, std::move(sides),
                            type, conv ? node.attributes : std::map<std::string, Attribute>{});
    graph_.node(graph_.value(sum).producer).origin = node.origin;
    return sum;
  }

  // Sums times the scales of the run that `sides` have, then times `factors`.
  ValueId Scaled(const Node& node, ValueId sum, const std::vector<Dequantized>& sides,
                 const std::vector<float>& factors) {
    Type type = graph_.value(sum).type;
    type.dtype = DataType::kF32;
    ValueId real = Add("Cast", node.name + ".whole", {sum}, type,
                       {{"to", static_cast<int64_t>(DataType::kF32)}});
    for (const Dequantized& side : sides) {
      if (!side.known) real = Add("Mul", node.name + ".steps", {real, side.scale_id}, type);
    }
    const auto count = static_cast<int64_t>(factors.size());
    const Tensor scales = Tensor::Of(DataType::kF32, {count}, factors);
    return Add("Mul", node.name + ".real", {real, PerChannel(node, ".scale", scales)}, type);
  }

  // A constant of one element, or one for each channel: axis 1 of a convolution, the last one of a
  // product.
  ValueId PerChannel(const Node& node, const char* suffix, const Tensor& values) {
    std::vector<int64_t> dims(values.size() == 1 ? 0 : 1, values.size());
    const auto rank = static_cast<size_t>(graph_.value(node.outputs[0]).type.rank());
    if (node.op == "Conv" && values.size() != 1) dims.resize(rank - 1, 1);
    return graph_.AddConstant(node.name + suffix, values.Reshaped(std::move(dims)));
  }

  Graph& graph_;
  const StepContext& context_;
};

}  // namespace

absl::StatusOr<Graph> MakeIntegerProducts(Graph graph, const PassOptions& options,
                                          const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(ForEachBody(
      graph, [&](Graph body) { return MakeIntegerProducts(std::move(body), options, context); }));
  IntegerProduct product(graph, context);
  const size_t nodes = graph.nodes.size();
  for (size_t i = 0; i < nodes; ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    const Node node = graph.nodes[i];  // adding nodes moves them
    if (node.op == "Conv" || node.op == "Gemm" || node.op == "MatMul") {
      if (const std::optional<ValueId> y = product.ToIntegers(node))
        graph.ReplaceUses(node.outputs[0], *y);
    } else if (node.op == "QLinearConv" || node.op == "QLinearMatMul") {
      if (const std::optional<ValueId> y = product.OfLinear(node))
        TakePlace(graph, node.outputs[0], *y);
    }
  }
  return Settled(std::move(graph));
}

}  // namespace quench::passes
