#include "services/importer/tflite/convert.h"

#include <algorithm>
#include <numeric>

#include "common/base/status.h"
#include "common/ir/text_elements.h"
#include "services/importer/tflite/attributes.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer {
namespace {

constexpr TfliteOp kRows[] = {
#define QUENCH_TFLITE_OP(name, canonical, converter) \
  {"tflite", #name, canonical, &tflite_ops::converter},
#define QUENCH_TFLITE_CUSTOM(name, canonical, converter) \
  {"tflite.custom", name, canonical, &tflite_ops::converter},
#include "services/importer/tflite/tflite_ops.def"
#undef QUENCH_TFLITE_CUSTOM
#undef QUENCH_TFLITE_OP
};

// Nodes that the reader makes are canonical already, but for the bodies of If and Loop.
absl::Status ConvertOwn(Converter& c) {
  const std::string& op = c.node().op;
  if (op == "If" || op == "Loop") return c.FinalControl();
  return c.Final(op, c.inputs(), c.node().attributes);
}

// Zero points fit their type: ScaleOf has looked.
Tensor ZeroPoints(DataType dtype, const std::vector<int64_t>& values, std::vector<int64_t> dims) {
  text::ElementWriter writer(dtype);
  for (const int64_t value : values)
    QUENCH_CHECK(writer.AddNumber(std::to_string(std::abs(value)), value < 0).ok());
  return writer.Finish(std::move(dims));
}

}  // namespace

std::span<const TfliteOp> AllTfliteOps() { return kRows; }

Conversion FindTfliteConversion(std::string_view domain, std::string_view name) {
  if (domain.empty()) return &ConvertOwn;
  for (const TfliteOp& row : kRows) {
    if (row.domain == domain && row.name == name) return row.convert;
  }
  return {};
}

std::vector<int64_t> ToChannelsFirst(int spatial) {
  std::vector<int64_t> perm = {0, spatial + 1};
  for (int64_t i = 1; i <= spatial; ++i) perm.push_back(i);
  return perm;
}

std::vector<int64_t> ToChannelsLast(int spatial) {
  std::vector<int64_t> perm = {0};
  for (int64_t i = 2; i <= spatial + 1; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

bool TfliteNode::IsQuantized(int input) const {
  return !ScaleOf(c.node(), "input", static_cast<size_t>(input)).scale.empty();
}

bool TfliteNode::HasQuantizedOutput(int output) const {
  return !ScaleOf(c.node(), "output", static_cast<size_t>(output)).scale.empty();
}

bool TfliteNode::HasSameScale(int input, int output) const {
  const TensorScale a = ScaleOf(c.node(), "input", static_cast<size_t>(input));
  const TensorScale b = ScaleOf(c.node(), "output", static_cast<size_t>(output));
  return a.scale == b.scale && a.zero == b.zero;
}

ValueId TfliteNode::Transpose(ValueId id, const std::vector<int64_t>& perm) {
  return perm.empty() || id == kNone ? id : Emit("Transpose", {id}, {{"perm", perm}});
}

ValueId TfliteNode::Cast(ValueId id, DataType dtype) {
  if (id == kNone || c.type(id).dtype == dtype) return id;
  return Emit("Cast", {id}, {{"to", static_cast<int64_t>(dtype)}});
}

ValueId TfliteNode::Real(int input, const std::vector<int64_t>& perm) {
  ValueId id = Raw(input);
  if (id == kNone) return id;
  // Transposes move whole bytes.
  const Tensor* constant = c.constant(id);
  if (!perm.empty() && constant != nullptr && DataTypeBits(c.type(id).dtype) < 8)
    id = c.AddConstant(constant->Widened());
  id = Transpose(id, perm);
  TensorScale scale = ScaleOf(c.node(), "input", static_cast<size_t>(input));
  if (scale.scale.empty())
    return c.type(id).dtype == DataType::kF16 ? Cast(id, DataType::kF32) : id;
  const DataType dtype = c.type(id).dtype;
  // The caller gives real numbers, or the value has no type, which is reported where that began.
  if (!IsInteger(dtype)) return id;
  std::vector<int64_t> dims;
  if (scale.scale.size() > 1) {
    dims = {static_cast<int64_t>(scale.scale.size())};
    const auto at = std::find(perm.begin(), perm.end(), scale.axis);
    if (at != perm.end()) scale.axis = at - perm.begin();
  }
  const std::vector<float> floats(scale.scale.begin(), scale.scale.end());
  const ValueId factor = c.AddConstant(Tensor::Of(DataType::kF32, dims, floats));
  if (dtype == DataType::kI64)  // biases of 16-bit layers: as an exact f64 product, rounded once
    return Cast(Emit("Mul", {Cast(id, DataType::kF64), Cast(factor, DataType::kF64)}),
                DataType::kF32);
  std::vector<ValueId> operands = {id, factor};
  const bool centred =
      std::all_of(scale.zero.begin(), scale.zero.end(), [](int64_t zero) { return zero == 0; });
  if (!centred) operands.push_back(c.AddConstant(ZeroPoints(dtype, scale.zero, dims)));
  return Emit("DequantizeLinear", operands, {{"axis", scale.axis}});
}

ValueId TfliteNode::Quantize(ValueId real, int output) {
  if (real == kNone) return real;
  const TensorScale scale = ScaleOf(c.node(), "output", static_cast<size_t>(output));
  const DataType dtype = c.declared(output).dtype;
  if (scale.scale.empty() || !IsInteger(dtype) || !IsFloat(c.type(real).dtype))
    return dtype == DataType::kUndefined ? real : Cast(real, dtype);
  const std::vector<float> floats(scale.scale.begin(), scale.scale.end());
  std::vector<int64_t> dims;
  if (floats.size() > 1) dims = {static_cast<int64_t>(floats.size())};
  const ValueId factor = c.AddConstant(Tensor::Of(DataType::kF32, dims, floats));
  if (DataTypeBits(dtype) >= 32) {  // sums that the model keeps in 32 or 64 bits
    const std::vector<float> zeros(scale.zero.begin(), scale.zero.end());
    const ValueId steps = Emit("Round", {Emit("Div", {real, factor})});
    return Cast(Emit("Add", {steps, c.AddConstant(Tensor::Of(DataType::kF32, dims, zeros))}),
                dtype);
  }
  const ValueId zero = c.AddConstant(ZeroPoints(dtype, scale.zero, dims));
  return Emit("QuantizeLinear", {real, factor, zero}, {{"axis", scale.axis}});
}

std::optional<std::vector<int64_t>> TfliteNode::KnownInts(int input) const {
  const Tensor* constant = c.constant(c.in(input));
  if (constant != nullptr) {
    if (!IsInteger(constant->dtype())) return std::nullopt;
    return constant->ToInts();
  }
  // Shapes that hold in one run of a loop need not hold in the next.
  const std::optional<std::vector<Dim>> dims = c.elements(c.in(input));
  if (!dims || !c.types_are_final() || !IsInteger(c.type(c.in(input)).dtype)) return std::nullopt;
  std::vector<int64_t> values;
  for (const Dim dim : *dims) {
    if (!dim.is_static()) return std::nullopt;
    values.push_back(dim.value());
  }
  return values;
}

absl::StatusOr<std::vector<int64_t>> TfliteNode::RequireInts(int input, const char* what) const {
  if (!c.has(input)) return c.Error(fmt::format("input {} ({}) is missing", input, what));
  std::optional<std::vector<int64_t>> known = KnownInts(input);
  if (!known) return c.Unsupported(fmt::format("{} is known only at run time", what));
  return *std::move(known);
}

absl::StatusOr<int64_t> TfliteNode::RequireInt(int input, const char* what) const {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> values, RequireInts(input, what));
  if (values.size() != 1)
    return c.Error(fmt::format("{} has {} elements, expected one", what, values.size()));
  return values[0];
}

ValueId TfliteNode::Sizes(int input) {
  if (const Tensor* constant = c.constant(c.in(input)); constant && IsInteger(constant->dtype()))
    return c.AddConstant(Tensor::I64(constant->ToInts()).Reshaped(constant->dims()));
  return Cast(Raw(input), DataType::kI64);
}

ValueId TfliteNode::Activate(ValueId id) {
  const DataType dtype = c.type(id).dtype;
  const auto clip = [&](std::optional<double> low, std::optional<double> high) {
    return Emit("Clip",
                {id, low ? c.Scalar(dtype, *low) : kNone, high ? c.Scalar(dtype, *high) : kNone});
  };
  switch (Int("fused_activation_function")) {
    case tflite::ActivationFunctionType_RELU:
      return IsFloat(dtype) ? Emit("Relu", {id}) : clip(0, std::nullopt);
    case tflite::ActivationFunctionType_RELU_N1_TO_1:
      return clip(-1, 1);
    case tflite::ActivationFunctionType_RELU6:
      return clip(0, 6);
    case tflite::ActivationFunctionType_TANH:
      return Emit("Tanh", {id});
    case tflite::ActivationFunctionType_SIGN_BIT:
      return Emit("Less", {id, c.Scalar(dtype, 0)});
    default:
      return id;
  }
}

absl::Status TfliteNode::Finish(ValueId real, const std::vector<int64_t>& perm) {
  return c.FinalValues({Transpose(Quantize(real, 0), perm)});
}

absl::Status TfliteNode::FinishAll(const std::vector<ValueId>& reals) {
  std::vector<ValueId> ids;
  for (size_t i = 0; i < reals.size(); ++i) ids.push_back(Quantize(reals[i], static_cast<int>(i)));
  return c.FinalValues(ids);
}

}  // namespace quench::importer
