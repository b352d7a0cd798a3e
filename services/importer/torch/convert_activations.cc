// Activations: one number in, one number out, with parameters that are known.
#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {

absl::Status HardTanh(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const bool six = n.Is("relu6");
  return n.Finish(n.Emit("Clip", {x, n.Scalar(x, n.Number("min_val", six ? 0 : -1)),
                                  n.Scalar(x, n.Number("max_val", six ? 6 : 1))}));
}

absl::Status HardSigmoidOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("HardSigmoid", {n.In("self")}, {{"alpha", 1.0 / 6}, {"beta", 0.5}}));
}

absl::Status LeakyReluOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(
      n.Emit("LeakyRelu", {n.In("self")}, {{"alpha", n.Number("negative_slope", 0.01)}}));
}

absl::Status Celu(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Celu", {n.In("self")}, {{"alpha", n.Number("alpha", 1)}}));
}

absl::Status EluOf(Converter& c) {
  AtenNode n(c);
  if (n.Number("scale", 1) != 1 || n.Number("input_scale", 1) != 1)
    return c.Unsupported("scale and input_scale must be 1");
  return n.Finish(n.Emit("Elu", {n.In("self")}, {{"alpha", n.Number("alpha", 1)}}));
}

absl::Status GeluOf(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Gelu", {n.In("self")}, {{"approximate", n.Text("approximate", "none")}}));
}

absl::Status Glu(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_RETURN_IF_ERROR(n.RequireRank(x, "self"));
  QUENCH_ASSIGN_OR_RETURN(const int64_t axis, n.Axis("dim", n.Rank(x), -1));
  const std::vector<ValueId> halves =
      c.EmitMany("Split", {x}, 2, {{"axis", axis}, {"num_outputs", int64_t{2}}});
  return n.Finish(n.Emit("Mul", {halves[0], n.Emit("Sigmoid", {halves[1]})}));
}

absl::Status PReluOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  ValueId slope = n.In("weight");
  if (n.SizeAt(slope, 0) != 1 && n.Rank(x) > 2) {
    std::vector<int64_t> shape(static_cast<size_t>(n.Rank(x) - 1), 1);
    shape[0] = -1;
    slope = n.Reshape(slope, shape);
  }
  return n.Finish(n.Emit("PRelu", {x, slope}));
}

absl::Status SoftplusOf(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const double beta = n.Number("beta", 1), threshold = n.Number("threshold", 20);
  const ValueId scaled = n.Times(x, beta);
  const ValueId y = n.Times(n.Emit("Softplus", {scaled}), 1 / beta);
  // Above the threshold the function is the identity; at 20 f32 cannot tell.
  if (threshold >= 20) return n.Finish(beta == 1 ? y : n.Emit("Identity", {y}));
  return n.Finish(n.Emit("Where", {n.Emit("Greater", {scaled, n.Scalar(x, threshold)}), x, y}));
}

// Comparisons with NaN are false, and it stays what it is in all three.
absl::Status Threshold(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const ValueId below = n.Emit("LessOrEqual", {x, n.Scalar(x, n.Number("threshold"))});
  return n.Finish(n.Emit("Where", {below, n.Scalar(x, n.Number("value")), x}));
}

absl::Status HardShrink(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const ValueId bound = n.Scalar(x, n.Number("lambd", 0.5));
  const ValueId inside = n.Emit("LessOrEqual", {n.Emit("Abs", {x}), bound});
  return n.Finish(n.Emit("Where", {inside, n.Scalar(x, 0), x}));
}

absl::Status SoftShrink(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  const double bound = n.Number("lambd", 0.5);
  const ValueId taken = n.Emit("Clip", {x, n.Scalar(x, -bound), n.Scalar(x, bound)});
  return n.Finish(n.Emit("Sub", {x, taken}));
}

absl::Status LogSigmoid(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Emit("Neg", {n.Emit("Softplus", {n.Emit("Neg", {n.In("self")})})}));
}

}  // namespace quench::importer::torch_ops
