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
  std::string_view name;    // with the overload if overloads differ in their arguments: "max.dim"
  std::string_view canonical;  // the operator of the catalogue that does the work
  ConvertFunction convert;
  int outputs;                 // 0: a list, whose length follows from the arguments
  std::string_view arguments;  // aten_ops.def
};

std::span<const TorchRow> AllTorchRows();
// The arguments of a call: `kinds` has a letter for each positional one (KindOf), `names` has the names
// of the others. ResolveTorchRow gives the operator's first row that accepts them, or null if there is
// none.
struct TorchCallShape {
  std::string kinds;
  std::vector<std::string_view> names;
  bool is_complex = false;  // one of them is: only rows for complex numbers fit
};
const TorchRow* ResolveTorchRow(std::string_view domain, std::string_view op,
                                const TorchCallShape& call);
bool HasTorchRow(std::string_view domain, std::string_view op);
// Names of the row's arguments, in order.
std::vector<std::string_view> ArgumentsOf(const TorchRow& row);
// Also has conversions for the ONNX nodes (domain "") that readers make. Empty if there is none.
Conversion FindTorchConversion(std::string_view domain, std::string_view name);

// The `end` of a Slice up to and including the last element.
inline constexpr int64_t kTorchEnd = INT64_MAX;

// The conversion of one call into canonical nodes.
class AtenNode {
 public:
  explicit AtenNode(Converter& converter);

  Converter& c;

  bool Is(std::string_view name) const { return c.node().op.starts_with(name); }
  std::string Canonical() const;  // the canonical operator of its row

  // ---- Arguments ----
  bool Has(std::string_view name) const;    // given, and not None
  ValueId In(std::string_view name) const;  // a tensor or run-time number; else kNone
  // Elements of a list of tensors; kNone for elements that are None.
  std::vector<ValueId> List(const char* name) const;
  int64_t Int(const char* name, int64_t fallback = 0) const;
  bool Flag(const char* name, bool fallback = false) const { return Int(name, fallback) != 0; }
  double Number(const char* name, double fallback = 0) const;
  std::string Text(const char* name, const char* fallback = "") const;
  // A list of numbers, or a single one; nullopt if one is known only at run time, or it is None.
  std::optional<std::vector<int64_t>> Ints(const char* name) const;
  // Like Ints, with `count` elements: a single number stands for all.
  absl::StatusOr<std::vector<int64_t>> IntsOf(const char* name, size_t count,
                                              int64_t fallback) const;
  std::vector<double> Numbers(const char* name) const;
  // A list of sizes as a tensor of rank 1, including numbers known only at run time.
  ValueId Sizes(const char* name);
  // A number as a tensor of rank 1 with one element.
  ValueId Size1(const char* name, int64_t fallback);
  // A tensor, or a number as a scalar of `dtype`.
  ValueId Operand(const char* name, DataType dtype);
  // The value of an input that is a constant number.
  std::optional<int64_t> KnownInt(const char* name) const;
  // The element type given by an argument like `dtype`, or `fallback`.
  absl::StatusOr<DataType> Dtype(const char* name, DataType fallback) const;
  absl::StatusOr<int64_t> Axis(const char* name, int64_t rank, int64_t fallback) const;
  // The axes given by an argument like `dim`: one or several; all if it is None or empty.
  absl::StatusOr<std::vector<int64_t>> Axes(const char* name, int64_t rank) const;
  absl::Status RequireRank(ValueId id, const char* name) const;
  int Rank(ValueId id) const { return c.Rank(id); }
  DataType TypeOf(ValueId id) const { return c.type(id).dtype; }
  // The size of an axis; -1 if it is not known.
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
