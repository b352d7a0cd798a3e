#include "services/quantizer/options.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/quantizer/methods/method.h"

namespace quench::quantizer {
namespace {

// Refuses options that have no meaning, or another one, where activations stay in float.
void CheckWeightsOnly(const QuantizeOptions& options, StatusCollector& problems) {
  const int64_t block = options.block_size.value_or(0);
  if (block < 0 || block % 2 != 0 || block > (1 << 20)) {
    problems.Add(InvalidArgument(
        "block_size is {}, it must be even, at least 0 and at most 1048576", block));
  }
  const auto none = [&](bool given, const char* what) {
    if (given) problems.Add(InvalidArgument("{} is for activations, which stay in float", what));
  };
  none(options.switches, "a budget");
  none(options.bias_dtype != DataType::kI32, "bias_dtype");
  none(options.symmetric, "symmetric");
  none(options.single_operators, "single_operators");
  none(options.bias_correction, "bias_correction");
  if (!options.method.empty() && options.method != "minmax" && options.method != "mse") {
    problems.Add(InvalidArgument("method is `{}`; with weights only it must be `minmax` or `mse`",
                                 options.method));
  }
}

absl::Status CheckOptions(const QuantizeOptions& options) {
  StatusCollector problems;
  const auto one_of = [&](const char* what, DataType dtype, DataType a, DataType b) {
    if (dtype == a || dtype == b) return;
    problems.Add(InvalidArgument("{} dtype is {}, it must be {} or {}", what, DataTypeName(dtype),
                                 DataTypeName(a), DataTypeName(b)));
  };
  one_of("activation", options.activation_dtype, DataType::kI8, DataType::kU8);
  const bool weights_only = options.source == RangeSource::kWeights;
  const DataType kernel = options.kernel_dtype;
  if (kernel != DataType::kUndefined && !(weights_only && DataTypeBits(kernel) == 4))
    one_of("kernel", kernel, DataType::kI8, DataType::kU8);
  if (weights_only) {
    CheckWeightsOnly(options, problems);
  } else if (options.block_size) {
    problems.Add(InvalidArgument("block_size is {}, but only the type `weights` has blocks",
                                 *options.block_size));
  }
  if (options.bias_dtype != DataType::kF32)
    one_of("bias", options.bias_dtype, DataType::kI32, DataType::kI8);
  if (!(options.percentile > 50 && options.percentile <= 100)) {
    problems.Add(InvalidArgument("percentile is {}, it must be above 50 and at most 100",
                                 options.percentile));
  }
  if (options.percentile != QuantizeOptions().percentile && options.method != "percentile") {
    problems.Add(InvalidArgument("percentile is {}, and only the method `percentile` has one",
                                 options.percentile));
  }
  problems.Add(FindMethod(options.method).status());
  return problems.Finish();
}

absl::Status CheckStage(const Graph& graph) {
  const bool has_integers =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
        return node.op == "QuantizeLinear" || node.op == "DynamicQuantizeLinear" ||
               node.op == "QLinearConv" || node.op == "QLinearMatMul";
      });
  if (graph.stage == Stage::kQuantized || has_integers) {
    return absl::FailedPreconditionError(
        "the module is quantized already; quantize the float module it was made from");
  }
  for (const Node& node : graph.nodes) {
    if (node.op == "q.fused")
      return InvalidArgument("node `{}` is a fused group; quantization makes its own", node.name);
  }
  if (graph.stage == Stage::kCanonical) return absl::OkStatus();
  return InvalidArgument("the module is at stage `{}`, quantization takes `canonical`",
                         StageName(graph.stage));
}

}  // namespace

absl::StatusOr<Graph> CheckedForQuantization(const Graph& graph, const QuantizeOptions& options) {
  QUENCH_RETURN_IF_ERROR(CheckOptions(options));
  QUENCH_RETURN_IF_ERROR(CheckStage(graph));
  Graph checked = graph;
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(checked));
  return checked;
}

}  // namespace quench::quantizer
