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
  ConvertFunction convert;     // null: handled by the reader itself
  std::string_view same_as;    // the operator of TensorFlow Lite that does the same; "": none
  std::string_view outputs;    // names, with `*attribute` after one that stands for several
};

std::span<const TensorflowOp> AllTensorflowOps();
const TensorflowOp* FindTensorflowRow(std::string_view name);  // null for none
// Also has conversions for the ONNX nodes (domain "") that the reader makes. Empty if there is none.
Conversion FindTensorflowConversion(std::string_view domain, std::string_view name);

// Converts the node like TensorFlow Lite's operator `op` with these inputs and, in addition to the
// node's own, these attributes. So each operator is defined only once.
absl::Status ConvertAsTflite(Converter& c, std::string_view op, std::vector<ValueId> inputs,
                             Attributes attributes = {});

// A TensorFlow node as one of TensorFlow Lite without scales, for the functions that read the latter.
using TfNode = TfliteNode;

// Whether the node's `data_format` has the channels after the batch ("NCHW", "NCDHW").
bool HasChannelsFirst(const Converter& c);
// Converts images to channels first, and back to the node's layout, with `spatial` axes.
ValueId ToFirst(TfNode& n, ValueId id, int spatial);
ValueId FromFirst(TfNode& n, ValueId id, int spatial);

absl::Status RequireInputs(const Converter& c, int least);

// The end of every conversion with one output.
inline absl::Status Finish(Converter& c, ValueId id) { return c.FinalValues({id}); }

}  // namespace quench::importer
