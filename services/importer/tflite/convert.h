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

// The `end` of a Slice up to and including the last element; negated, down to the first.
inline constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kMaxSize = int64_t{1} << 40;  // of an axis

struct TfliteOp {
  std::string_view domain;     // "tflite", or "tflite.custom"
  std::string_view name;       // as in the schema
  std::string_view canonical;  // the operator of the catalogue that does the work
  ConvertFunction convert;
};

std::span<const TfliteOp> AllTfliteOps();
// Also has conversions for the ONNX nodes (domain "") that the reader makes. Empty if there is none.
Conversion FindTfliteConversion(std::string_view domain, std::string_view name);

// The conversion of one operator of a TensorFlow Lite model into canonical nodes. Arithmetic treats
// quantized tensors as real numbers: inputs are dequantized, results quantized, and the passes for
// integers find the pairs. Operators that only move elements keep the integers.
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
  // Whether equal numbers of input and output mean the same: not quantized, or with the same scale.
  bool HasSameScale(int input, int output = 0) const;
  // Input i, unchanged.
  ValueId Raw(int input) const { return c.in(input); }
  // Input i as real numbers, with its axes in the order of `perm` if given.
  ValueId Real(int input, const std::vector<int64_t>& perm = {});
  // Input i, all integers, as i64: axes, sizes, shapes.
  ValueId Sizes(int input);
  // The contents of input i, if they are known at import.
  std::optional<std::vector<int64_t>> KnownInts(int input) const;
  // The same; UNIMPLEMENTED if they are known only at run time. `what` names the input.
  absl::StatusOr<std::vector<int64_t>> RequireInts(int input, const char* what) const;
  // The same for an input with one element.
  absl::StatusOr<int64_t> RequireInt(int input, const char* what) const;

  ValueId Emit(const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return c.Emit(op, std::move(inputs), std::move(attributes));
  }
  ValueId Transpose(ValueId id, const std::vector<int64_t>& perm);
  ValueId Cast(ValueId id, DataType dtype);
  // Applies `fused_activation_function` of the options to a real or integer value.
  ValueId Activate(ValueId id);

  // Emits the operator's outputs from real numbers, quantized if the model's outputs are, with the
  // model's element types, and then with their axes in the order of `perm`.
  absl::Status Finish(ValueId real, const std::vector<int64_t>& perm = {});
  absl::Status FinishAll(const std::vector<ValueId>& reals);
  // Emits the operator's outputs, unchanged.
  absl::Status FinishRaw(ValueId id) { return c.FinalValues({id}); }

 private:
  ValueId Quantize(ValueId real, int output);
};

// NHWC to NCHW and back, for images of `spatial` axes.
std::vector<int64_t> ToChannelsFirst(int spatial);
std::vector<int64_t> ToChannelsLast(int spatial);

}  // namespace quench::importer
