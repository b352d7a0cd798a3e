// Complex numbers: real tensors with one more axis behind the others, of the real and the imaginary
// part. Rows say by the ends of their names where they are: `.complex` takes and gives them,
// `.from_complex` takes, `.to_complex` gives them.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/torch/converters.h"
#include "services/importer/torch/graph_builder.h"

namespace quench::importer::torch_ops {
namespace {

ValueId PartOf(Converter& c, ValueId x, int which) {
  return c.Emit("Gather", {x, c.Scalar(DataType::kI64, which)}, {{"axis", int64_t{-1}}});
}

ValueId OfParts(AtenNode& n, ValueId re, ValueId im) {
  return n.Emit("Concat", {n.Unsqueeze(re, {n.Rank(re)}), n.Unsqueeze(im, {n.Rank(im)})},
                {{"axis", int64_t{-1}}});
}

// An operator of real tensors on its way to the nodes of the complex one: what it ends in is kept.
class PartConverter final : public Converter {
 public:
  PartConverter(Converter& whole, const Node& node, std::vector<ValueId> inputs)
      : Converter(node, std::move(inputs)), c_(whole) {}

  std::vector<ValueId> results;

  bool IsUsed(int output) const override { return c_.IsUsed(output); }
  const Type& declared(int output) const override { return c_.declared(output); }
  const Type& type(ValueId id) const override { return c_.type(id); }
  const Tensor* constant(ValueId id) const override { return c_.constant(id); }
  std::optional<std::vector<Dim>> elements(ValueId id) const override { return c_.elements(id); }
  SymbolTable& symbols() override { return c_.symbols(); }
  bool types_are_final() const override { return c_.types_are_final(); }
  ValueId AddConstant(Tensor tensor) override { return c_.AddConstant(std::move(tensor)); }
  ValueId Emit(const std::string& op, std::vector<ValueId> inputs, Attributes attributes) override {
    return c_.Emit(op, std::move(inputs), std::move(attributes));
  }
  std::vector<ValueId> EmitMany(const std::string& op, std::vector<ValueId> inputs, int outputs,
                                Attributes attributes) override {
    return c_.EmitMany(op, std::move(inputs), outputs, std::move(attributes));
  }
  absl::Status Final(const std::string& op, std::vector<ValueId> inputs,
                     Attributes attributes) override {
    return FinalValues(EmitMany(op, std::move(inputs), num_outputs(), std::move(attributes)));
  }
  absl::Status FinalValues(const std::vector<ValueId>& ids) override {
    results = ids;
    return absl::OkStatus();
  }
  absl::Status FinalConstant(Tensor tensor) override {
    return FinalValues({AddConstant(std::move(tensor))});
  }
  absl::Status FinalControl() override { return Unsupported("is control flow"); }
  void Warn(const std::string& text) override { c_.Warn(text); }

 private:
  Converter& c_;
};

const std::vector<std::string>& NamesIn(const Node& node, const char* attribute) {
  static const std::vector<std::string> kNone;
  const Attribute* names = node.Find(attribute);
  return names == nullptr ? kNone : std::get<std::vector<std::string>>(*names);
}

bool IsComplexInput(const Node& node, std::string_view name) {
  const std::vector<std::string>& names = NamesIn(node, kComplexNames);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Results of the operator of the same name on the real or the imaginary parts.
absl::StatusOr<std::vector<ValueId>> OfPart(Converter& c, int which) {
  Node node = c.node();
  node.op = node.op.substr(0, node.op.rfind('.'));
  const std::vector<std::string>& names = NamesIn(node, kInputNames);
  std::vector<ValueId> inputs = c.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (IsComplexInput(node, names[i])) inputs[i] = PartOf(c, inputs[i], which);
  }
  PartConverter part(c, node, std::move(inputs));
  QUENCH_RETURN_IF_ERROR(FindTorchConversion(node.domain, node.op)(part));
  return part.results;
}

// `im` none: a real number.
struct Number {
  ValueId re = kNone, im = kNone;
};

Number NumberOf(AtenNode& n, const char* name, DataType dtype) {
  if (!IsComplexInput(n.c.node(), name)) return {n.Operand(name, dtype)};
  const ValueId x = n.Cast(n.In(name), dtype);
  return {PartOf(n.c, x, 0), PartOf(n.c, x, 1)};
}

Number SumOf(AtenNode& n, const char* op, Number a, Number b) {
  const ValueId re = n.Emit(op, {a.re, b.re});
  if (a.im != kNone && b.im != kNone) return {re, n.Emit(op, {a.im, b.im})};
  const bool negated = a.im == kNone && std::string_view(op) == "Sub";
  const ValueId im = a.im != kNone ? a.im : negated ? n.Emit("Neg", {b.im}) : b.im;
  return {re, Broadcast(n, im, n.ShapeOf(re))};
}

Number ProductOf(AtenNode& n, Number a, Number b) {
  const auto times = [&](ValueId x, ValueId y) { return n.Emit("Mul", {x, y}); };
  if (a.im == kNone) std::swap(a, b);
  if (b.im == kNone) return {times(a.re, b.re), times(a.im, b.re)};
  return {n.Emit("Sub", {times(a.re, b.re), times(a.im, b.im)}),
          n.Emit("Add", {times(a.re, b.im), times(a.im, b.re)})};
}

Number QuotientOf(AtenNode& n, Number a, Number b) {
  ValueId divisor = b.re;
  if (b.im != kNone) {
    divisor = n.Emit("Add", {n.Emit("Mul", {b.re, b.re}), n.Emit("Mul", {b.im, b.im})});
    a = ProductOf(n, a, {b.re, n.Emit("Neg", {b.im})});
  }
  return {n.Emit("Div", {a.re, divisor}), n.Emit("Div", {a.im, divisor})};
}

}  // namespace

absl::Status ByParts(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(std::vector<ValueId> results, OfPart(c, 0));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<ValueId> imaginary, OfPart(c, 1));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != kNone) results[i] = OfParts(n, results[i], imaginary[i]);
  }
  return c.FinalValues(results);
}

// Results that do not depend on the numbers: sizes.
absl::Status ByRealPart(Converter& c) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<ValueId> results, OfPart(c, 0));
  return c.FinalValues(results);
}

absl::Status ComplexArithmetic(Converter& c) {
  AtenNode n(c);
  const DataType dtype =
      n.Common("self", "other") == DataType::kF64 ? DataType::kF64 : DataType::kF32;
  Number a = NumberOf(n, "self", dtype), b = NumberOf(n, "other", dtype);
  if (n.Is("rsub")) std::swap(a, b);
  if (const double alpha = n.Number("alpha", 1); alpha != 1) {
    b.re = n.Times(b.re, alpha);
    if (b.im != kNone) b.im = n.Times(b.im, alpha);
  }
  const std::string op = n.Canonical();
  const Number y = op == "Mul"   ? ProductOf(n, a, b)
                   : op == "Div" ? QuotientOf(n, a, b)
                                 : SumOf(n, op.c_str(), a, b);
  return n.Finish(OfParts(n, y.re, y.im));
}

absl::Status Conjugate(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(OfParts(n, PartOf(c, x, 0), n.Emit("Neg", {PartOf(c, x, 1)})));
}

absl::Status RealPart(Converter& c) {
  AtenNode n(c);
  return n.Finish(PartOf(c, n.In("self"), 0));
}

absl::Status ImaginaryPart(Converter& c) {
  AtenNode n(c);
  return n.Finish(PartOf(c, n.In("self"), 1));
}

absl::Status Magnitude(Converter& c) {
  AtenNode n(c);
  return n.Finish(n.Reduce("ReduceL2", n.In("self"), {-1}, false));
}

absl::Status Angle(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(AngleOf(n, PartOf(c, x, 1), PartOf(c, x, 0)));
}

absl::Status ComplexOf(Converter& c) {
  AtenNode n(c);
  const DataType dtype = n.Common("real", "imag");
  const ValueId re = n.Cast(n.In("real"), dtype), im = n.Cast(n.In("imag"), dtype);
  return n.Finish(OfParts(n, Broadcast(n, re, n.ShapeOf(im)), Broadcast(n, im, n.ShapeOf(re))));
}

absl::Status Polar(Converter& c) {
  AtenNode n(c);
  const ValueId size = n.In("abs"), angle = n.In("angle");
  return n.Finish(OfParts(n, n.Emit("Mul", {size, n.Emit("Cos", {angle})}),
                          n.Emit("Mul", {size, n.Emit("Sin", {angle})})));
}

}  // namespace quench::importer::torch_ops
