// The layers and functions that Keras models have: the rows of keras_layers.def, and what their conversions
// share.
#pragma once

#include <absl/status/statusor.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/importer/graph/converter.h"

namespace quench::importer {

struct KerasRow {
  std::string_view domain;     // "keras"; for functions "keras.tf", "keras.ops"
  std::string_view name;       // the layer's class, or the function's name
  std::string_view canonical;  // the operator of the catalogue that does the work
  ConvertFunction convert;
  // For a layer, its weights in Keras' order (weights.cc); for a function, the names of its
  // arguments.
  std::string_view weights;
};

std::span<const KerasRow> AllKerasRows();
const KerasRow* FindKerasRow(std::string_view domain, std::string_view name);
// Also has conversions for the ONNX nodes (domain "") that the reader makes. Empty if there is none.
Conversion FindKerasConversion(std::string_view domain, std::string_view name);

// Attributes of imported nodes in addition to the layer's own configuration.
inline constexpr char kRolesAttribute[] = "weights";  // roles of the last inputs, in order
inline constexpr char kMaskedAttribute[] = "masked";  // the input before them is a mask
inline constexpr char kCallAttribute[] = "call";      // JSON: the arguments of a function or layer

// The conversion of one layer of a Keras model into canonical nodes. Its inputs are followed by a mask,
// if there is one, and by its weights.
class KerasNode {
 public:
  explicit KerasNode(Converter& converter);

  Converter& c;

  // ---- The configuration ----
  int64_t Int(const char* key, int64_t fallback = 0) const;
  bool Flag(const char* key, bool fallback = false) const {
    return Int(key, fallback ? 1 : 0) != 0;
  }
  double Number(const char* key, double fallback = 0) const;
  std::string Text(const char* key, const char* fallback = "") const {
    return c.node().String(key, fallback);
  }
  bool Has(const char* key) const { return c.node().Find(key) != nullptr; }
  // A list, or a single number repeated `count` times.
  std::vector<int64_t> Ints(const char* key, size_t count, int64_t fallback = 1) const;
  std::vector<double> Numbers(const char* key) const;  // one number counts as a list
  // The axes under `axis`, one or several, counted from the first.
  absl::StatusOr<std::vector<int64_t>> Axes(const char* key, int rank, int64_t fallback) const;
  bool ChannelsFirst() const { return Text("data_format", "channels_last") == "channels_first"; }

  // ---- Inputs ----
  int count() const { return count_; }  // without mask and weights
  ValueId in(int i) const { return i < count_ ? c.in(i) : kNone; }
  ValueId mask() const { return mask_; }
  ValueId Weight(std::string_view role) const;  // kNone if the layer has none
  // The sizes of the weight, all known: weights are constants.
  std::vector<int64_t> WeightDims(std::string_view role) const;
  // Errors unless the layer has `count` inputs, of rank `rank`, and so on.
  absl::Status RequireInputs(int least, int most) const;
  absl::Status RequireRank(int rank) const;
  absl::Status RequireDims(std::string_view role, const std::vector<int64_t>& dims) const;
  // The size of an axis; -1 if it is not known.
  int64_t Size(ValueId id, int axis) const;

  // ---- Nodes ----
  ValueId Emit(const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return c.Emit(op, std::move(inputs), std::move(attributes));
  }
  ValueId Transpose(ValueId id, const std::vector<int64_t>& perm);
  ValueId Cast(ValueId id, DataType dtype);
  ValueId Float(ValueId id);  // integers become f32
  ValueId Reshape(ValueId id, const std::vector<int64_t>& shape) {
    return Emit("Reshape", {id, c.Ints(shape)});
  }
  ValueId Unsqueeze(ValueId id, const std::vector<int64_t>& axes) {
    return Emit("Unsqueeze", {id, c.Ints(axes)});
  }
  ValueId Squeeze(ValueId id, const std::vector<int64_t>& axes) {
    return Emit("Squeeze", {id, c.Ints(axes)});
  }
  ValueId Slice(ValueId id, int64_t axis, int64_t begin, int64_t end, int64_t step = 1) {
    return Emit("Slice", {id, c.Ints({begin}), c.Ints({end}), c.Ints({axis}), c.Ints({step})});
  }
  // A scalar with the type of `like`.
  ValueId Scalar(ValueId like, double value) { return c.Scalar(c.type(like).dtype, value); }
  ValueId Binary(const char* op, ValueId a, double b) { return Emit(op, {a, Scalar(a, b)}); }
  ValueId Reduce(const char* op, ValueId id, const std::vector<int64_t>& axes, bool keep);
  // Converts images to channels first, and back to the layer's layout, with `spatial` axes.
  ValueId ToFirst(ValueId id, int spatial);
  ValueId FromFirst(ValueId id, int spatial);
  // Applies the activation that the configuration names under `key`.
  absl::StatusOr<ValueId> Activate(ValueId id, const char* key = "activation");
  // Applies the activation of this name.
  absl::StatusOr<ValueId> ActivateAs(ValueId id, const std::string& name);
  absl::Status Finish(ValueId id) { return c.FinalValues({id}); }

 private:
  int count_ = 0;
  ValueId mask_ = kNone;
  std::vector<std::string> roles_;
  size_t first_weight_ = 0;
};

// Order of axes: channels of `spatial` + 2 axes from the last to axis 1, and back.
std::vector<int64_t> KerasToFirst(int spatial);
std::vector<int64_t> KerasToLast(int spatial);

// The `end` of a Slice up to and including the last element.
inline constexpr int64_t kToEnd = INT64_MAX;
// Limit for the steps of a recurrent layer of which each becomes separate nodes.
inline constexpr int64_t kMaxSteps = 1024;

}  // namespace quench::importer
