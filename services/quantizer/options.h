// Options of quantization.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ir/graph.h"
#include "common/passes/pass.h"

namespace quench::quantizer {

struct Rounding;  // rounding.h

// The source of activation ranges.
enum class RangeSource : uint8_t {
  kStatic,   // statistics of calibration; all that are needed must be there
  kDynamic,  // each run's own extrema, always asymmetric u8 (ONNX's DynamicQuantizeLinear)
  kAny,      // statistics where there are any, else as kDynamic
  kWeights,  // none: activations stay in float, and only weights become integers (weight_only.h)
};

struct QuantizeOptions {
  DataType activation_dtype = DataType::kI8;  // i8 or u8
  // i8 or u8, of weights alone also i4 or u4; undefined: that of activations
  DataType kernel_dtype = DataType::kUndefined;
  DataType bias_dtype = DataType::kI32;  // i32, or i8, which costs accuracy, or f32: they stay
  bool per_channel = false;              // kernels: a scale for each output channel
  // Weights only: number of consecutive summed weights that share a scale; 0: one scale per output
  // channel. Absent: 32 for four bits, 0 for eight.
  std::optional<int64_t> block_size;
  bool symmetric = false;     // activations; kernels always are
  bool power_of_two = false;  // scales
  // Biases of Conv and Gemm are adjusted to cancel the mean error of each output channel from
  // rounding the kernel; needs statistics of their inputs.
  bool bias_correction = false;
  std::string method;      // "": the catalogue's first
  double percentile = 99;  // of that method
  RangeSource source = RangeSource::kAny;
  // Nodes by name, or `op:NAME` for all of one operator; `*`, `?` and [] as in the shell. With
  // include, only the nodes it names; exclude takes precedence. A node stands for those in its
  // bodies too. A pattern that fits nothing is an error.
  std::vector<std::string> include, exclude;
  // Nodes that stay in float for other reasons, by the names that switches have: node -> why.
  std::map<std::string, std::string> kept;
  // Result of AdaptRounding for this module and these options; null: weights become the nearest
  // integers.
  std::shared_ptr<const Rounding> rounding;
  // Integers are placed around each product by itself, or with an activation behind it that only
  // clips, instead of around groups: for runtimes that compute products one by one, as ONNX Runtime
  // does.
  bool single_operators = false;
  // Makes a module for trials (switches.h) instead.
  bool switches = false;
  passes::PassOptions passes;  // of fuse_groups: integers stand between groups, not inside
};

// A copy with types inferred anew, because a module may come from anywhere. INVALID_ARGUMENT:
// options without meaning (all named), or an invalid module; FAILED_PRECONDITION: quantized
// already.
absl::StatusOr<Graph> CheckedForQuantization(const Graph& graph, const QuantizeOptions& options);

}  // namespace quench::quantizer
