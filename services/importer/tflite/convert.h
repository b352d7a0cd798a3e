// The operators that TensorFlow Lite models have: the rows of tflite_ops.def, and what their
// conversions share.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "services/importer/graph/converter.h"
#include "services/importer/tflite/model_file.h"

namespace quench::importer {

// The end of a Slice that goes on to the last element; its negative goes on to the first.
inline constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kMaxSize = int64_t{1} << 40;  // of an axis

struct TfliteOp {
  std::string_view domain;     // "tflite", or "tflite.custom"
  std::string_view name;       // as the schema has it
  std::string_view canonical;  // the operator of the catalogue that does the work
  ConvertFunction convert;
};

std::span<const TfliteOp> AllTfliteOps();
// Also of the nodes in ONNX's vocabulary (domain "") that the reader makes. Empty for none.
Conversion FindTfliteConversion(std::string_view domain, std::string_view name);

// One operator of a TensorFlow Lite model on its way into canonical nodes. Arithmetic sees
// quantized tensors as real numbers: inputs are dequantized, results quantized, and the passes for
// integers find the pairs. Operators that only move elements take the integers as they are.
class TfliteNode {
 public:
  explicit TfliteNode(Converter& converter) : c(converter) {}

  Converter& c;

  int64_t Int(const char* option, int64_t fallback = 0) const {
    return c.node().Int(option, fallback);
  }
  bool Flag(const char* option) const { return Int(option) != 0; }
  double Float(const char* option, double fallback = 0) const {
    return c.node().Float(option, fallback);
  }

  bool IsQuantized(int input) const;
  bool HasQuantizedOutput(int output = 0) const;
  // Input and output hold numbers of one meaning: not quantized, or with the same scale.
  bool HasSameScale(int input, int output = 0) const;
  // Input i as it is.
  ValueId Raw(int input) const { return c.in(input); }
  // Input i as real numbers, its axes in the order of `perm` if that is given.
  ValueId Real(int input, const std::vector<int64_t>& perm = {});
  // Input i, all integers, as i64: axes, sizes, shapes.
  ValueId Sizes(int input);
  // Its contents, where they are known now.
  std::optional<std::vector<int64_t>> KnownInts(int input) const;
  // The same; UNIMPLEMENTED where only a run can tell. `what` names the input.
  absl::StatusOr<std::vector<int64_t>> RequireInts(int input, const char* what) const;
  // The same of an input with one element.
  absl::StatusOr<int64_t> RequireInt(int input, const char* what) const;

  ValueId Emit(const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return c.Emit(op, std::move(inputs), std::move(attributes));
  }
  ValueId Transpose(ValueId id, const std::vector<int64_t>& perm);
  ValueId Cast(ValueId id, DataType dtype);
  // `fused_activation_function` of the options, of a real or integer value.
  ValueId Activate(ValueId id);

  // The operator's outputs, as integers where the model has them so; element types become those that
  // the model says. Real numbers, in the order of `perm` once they are quantized.
  absl::Status Finish(ValueId real, const std::vector<int64_t>& perm = {});
  absl::Status FinishAll(const std::vector<ValueId>& reals);
  // The operator's outputs as they are.
  absl::Status FinishRaw(ValueId id) { return c.FinalValues({id}); }

 private:
  ValueId Quantize(ValueId real, int output);
};

// NHWC to NCHW and back, for images of `spatial` axes.
std::vector<int64_t> ToChannelsFirst(int spatial);
std::vector<int64_t> ToChannelsLast(int spatial);

}  // namespace quench::importer
