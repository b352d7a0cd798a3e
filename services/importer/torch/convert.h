// The operators that PyTorch models have: the rows of aten_ops.def, and what their conversions share.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/importer/graph/converter.h"

namespace quench::importer {

struct TorchRow {
  std::string_view domain;  // "aten", "quantized", ...
  std::string_view name;  // with the overload, where overloads differ in their arguments: "max.dim"
  std::string_view canonical;  // the operator of the catalogue that does the work
  ConvertFunction convert;
  int outputs;                 // 0: a list, whose length follows from the arguments
  std::string_view arguments;  // aten_ops.def
};

std::span<const TorchRow> AllTorchRows();
// The row of an operator that accepts these arguments: `kinds` has a letter for each positional one
// (KindOf), `names` are those of the others. Null if there is none; the first fitting one of
// several overloads.
struct TorchCallShape {
  std::string kinds;
  std::vector<std::string_view> names;
  bool is_complex = false;  // a tensor of them is: rows for complex numbers count, and no others
};
const TorchRow* ResolveTorchRow(std::string_view domain, std::string_view op,
                                const TorchCallShape& call);
bool HasTorchRow(std::string_view domain, std::string_view op);
// Names of the row's arguments, in order.
std::vector<std::string_view> ArgumentsOf(const TorchRow& row);
// Also of the nodes in ONNX's vocabulary (domain "") that readers make. Empty for none.
Conversion FindTorchConversion(std::string_view domain, std::string_view name);

// The end of a Slice that goes on to the last element.
inline constexpr int64_t kTorchEnd = INT64_MAX;

// One call on its way into canonical nodes.
class AtenNode {
 public:
  explicit AtenNode(Converter& converter);

  Converter& c;

  bool Is(std::string_view name) const { return c.node().op.starts_with(name); }
  std::string Canonical() const;  // of its row

  // ---- Arguments ----
  bool Has(std::string_view name) const;    // given, and not None
  ValueId In(std::string_view name) const;  // a tensor, or a number that a run knows; else kNone
  // Elements of a list of tensors; kNone for those that are None.
  std::vector<ValueId> List(const char* name) const;
  int64_t Int(const char* name, int64_t fallback = 0) const;
  bool Flag(const char* name, bool fallback = false) const { return Int(name, fallback) != 0; }
  double Number(const char* name, double fallback = 0) const;
  std::string Text(const char* name, const char* fallback = "") const;
  // A list of numbers, or one; nullopt where a run decides about one, or it is None.
  std::optional<std::vector<int64_t>> Ints(const char* name) const;
  // The same, `count` of them: one number stands for all.
  absl::StatusOr<std::vector<int64_t>> IntsOf(const char* name, size_t count,
                                              int64_t fallback) const;
  std::vector<double> Numbers(const char* name) const;
  // A list of sizes as a tensor of rank 1, numbers that a run knows included.
  ValueId Sizes(const char* name);
  // A number as a tensor of rank 1 with one element.
  ValueId Size1(const char* name, int64_t fallback);
  // A tensor, or a number as a scalar of `dtype`.
  ValueId Operand(const char* name, DataType dtype);
  // The number of an input that is a constant.
  std::optional<int64_t> KnownInt(const char* name) const;
  // The element type that an argument `dtype` says, or `fallback`.
  absl::StatusOr<DataType> Dtype(const char* name, DataType fallback) const;
  absl::StatusOr<int64_t> Axis(const char* name, int64_t rank, int64_t fallback) const;
  // `dim`: one or several axes; all where it is None or empty.
  absl::StatusOr<std::vector<int64_t>> Axes(const char* name, int64_t rank) const;
  absl::Status RequireRank(ValueId id, const char* name) const;
  int Rank(ValueId id) const { return c.Rank(id); }
  DataType TypeOf(ValueId id) const { return c.type(id).dtype; }
  // Where a size is not known, -1.
  int64_t SizeAt(ValueId id, int64_t axis) const;

  // ---- Nodes ----
  ValueId Emit(const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return c.Emit(op, std::move(inputs), std::move(attributes));
  }
  ValueId Cast(ValueId id, DataType dtype);
  ValueId Float(ValueId id);  // integers and bools become f32
  ValueId Scalar(ValueId like, double value) { return c.Scalar(c.type(like).dtype, value); }
  ValueId Transpose(ValueId id, const std::vector<int64_t>& perm);
  ValueId Reshape(ValueId id, const std::vector<int64_t>& shape) {
    return Emit("Reshape", {id, c.Ints(shape)}, {{"allowzero", int64_t{0}}});
  }
  ValueId Unsqueeze(ValueId id, const std::vector<int64_t>& axes) {
    return axes.empty() ? id : Emit("Unsqueeze", {id, c.Ints(axes)});
  }
  ValueId Squeeze(ValueId id, const std::vector<int64_t>& axes) {
    return axes.empty() ? id : Emit("Squeeze", {id, c.Ints(axes)});
  }
  ValueId Slice(ValueId id, int64_t axis, int64_t begin, int64_t end, int64_t step = 1) {
    return Emit("Slice", {id, c.Ints({begin}), c.Ints({end}), c.Ints({axis}), c.Ints({step})});
  }
  ValueId Binary(const char* op, ValueId a, double b) { return Emit(op, {a, Scalar(a, b)}); }
  ValueId Times(ValueId id, double factor) { return factor == 1 ? id : Binary("Mul", id, factor); }
  ValueId Reduce(const char* op, ValueId id, const std::vector<int64_t>& axes, bool keep) {
    return Emit(op, {id, c.Ints(axes)}, {{"keepdims", int64_t{keep}}});
  }
  ValueId ShapeOf(ValueId id) { return Emit("Shape", {id}); }
  // The type in which arithmetic on both is done: torch.result_type.
  DataType Common(const char* a, const char* b) const;
  absl::Status Finish(ValueId id) { return c.FinalValues({id}); }

 private:
  const std::vector<std::string>* names_ = nullptr;
};

}  // namespace quench::importer
