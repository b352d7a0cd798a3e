// The operators that TensorFlow's graphs have: the rows of tensorflow_ops.def, and what their conversions
// share.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "services/importer/graph/converter.h"
#include "services/importer/tflite/convert.h"

namespace quench::importer {

struct TensorflowOp {
  std::string_view name;
  std::string_view canonical;  // the operator of the catalogue that does the work
  ConvertFunction convert;     // null: the reader itself understands it
  std::string_view same_as;    // the operator of TensorFlow Lite that does the same; "" for none
  std::string_view outputs;    // names, `*attribute` behind one that stands for several
};

std::span<const TensorflowOp> AllTensorflowOps();
const TensorflowOp* FindTensorflowRow(std::string_view name);  // null for none
// Also of the nodes in ONNX's vocabulary (domain "") that the reader makes. Empty for none.
Conversion FindTensorflowConversion(std::string_view domain, std::string_view name);

// Converts the node as the operator of TensorFlow Lite named `op` with these inputs and, beside the
// node's own, these attributes. So each operator is defined only once.
absl::Status ConvertAsTflite(Converter& c, std::string_view op, std::vector<ValueId> inputs,
                             Attributes attributes = {});

// A node of a TensorFlow graph has no scales, so what reads those of TensorFlow Lite reads it too.
using TfNode = TfliteNode;

// The node's `data_format` has channels behind the batch ("NCHW", "NCDHW").
bool HasChannelsFirst(const Converter& c);
// Images with channels first, and back to what the node has; `spatial` axes between.
ValueId ToFirst(TfNode& n, ValueId id, int spatial);
ValueId FromFirst(TfNode& n, ValueId id, int spatial);

absl::Status RequireInputs(const Converter& c, int least);

// The end of every conversion with one output.
inline absl::Status Finish(Converter& c, ValueId id) { return c.FinalValues({id}); }

}  // namespace quench::importer
