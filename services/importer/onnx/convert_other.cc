// Operators outside of today's ONNX: previews of its first years, and those that ONNX Runtime's
// optimiser and exporters write under `com.microsoft`. Formulas are those of ONNX Runtime's contrib
// operator documentation.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/onnx/converters.h"

namespace quench::importer {
namespace {

ValueId F32(Converter& c, double value) { return c.Scalar(DataType::kF32, value); }

// Applies an activation by name with ONNX Runtime's `activation_params`; kNone for one that Quench
// does not know.
ValueId Activate(Converter& c, ValueId id, const std::string& name,
                 const std::vector<double>& params) {
  const auto param = [&](size_t i, double fallback) {
    return i < params.size() ? params[i] : fallback;
  };
  if (name.empty()) return id;
  if (name == "Relu" || name == "Sigmoid" || name == "Tanh" || name == "Softplus" ||
      name == "Softsign") {
    return c.Emit(name, {id});
  }
  if (name == "LeakyRelu") return c.Emit(name, {id}, {{"alpha", param(0, 0.01)}});
  if (name == "Elu" || name == "ThresholdedRelu")
    return c.Emit(name, {id}, {{"alpha", param(0, 1.0)}});
  if (name == "HardSigmoid")
    return c.Emit(name, {id}, {{"alpha", param(0, 0.2)}, {"beta", param(1, 0.5)}});
  if (name == "Clip" && params.size() == 2) {
    const DataType dtype = c.type(id).dtype;
    return c.Emit("Clip", {id, c.Scalar(dtype, params[0]), c.Scalar(dtype, params[1])});
  }
  return kNone;
}

absl::Status WrongInputs(const Converter& c, int at_least) {
  return c.Error(fmt::format("has {} inputs, expected at least {}", c.inputs().size(), at_least));
}

bool HasInputs(const Converter& c, int count) {
  for (int i = 0; i < count; ++i) {
    if (!c.has(i)) return false;
  }
  return true;
}

ValueId Dequantize(Converter& c, ValueId x, ValueId scale, ValueId zero_point) {
  return zero_point == kNone ? c.Emit("DequantizeLinear", {x, scale})
                             : c.Emit("DequantizeLinear", {x, scale, zero_point});
}

absl::Status FinalQuantize(Converter& c, ValueId x, ValueId scale, ValueId zero_point) {
  if (zero_point == kNone) return c.Final("QuantizeLinear", {x, scale});
  return c.Final("QuantizeLinear", {x, scale, zero_point});
}

ValueId SwapLastAxes(Converter& c, ValueId id) {
  const int rank = c.Rank(id);
  std::vector<int64_t> perm;
  for (int axis = 0; axis < rank; ++axis) perm.push_back(axis);
  if (rank >= 2) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return c.Emit("Transpose", {id}, {{"perm", perm}});
}

}  // namespace

// y = alpha * x + beta
absl::Status ConvertAffine(Converter& c) {
  if (!HasInputs(c, 1)) return WrongInputs(c, 1);
  const ValueId scaled = c.Emit("Mul", {c.in(0), F32(c, c.node().Float("alpha", 1))});
  return c.Final("Add", {scaled, F32(c, c.node().Float("beta", 0))});
}

absl::Status ConvertBiasGelu(Converter& c) {
  if (!HasInputs(c, 2)) return WrongInputs(c, 2);
  return c.Final("Gelu", {c.Emit("Add", {c.in(0), c.in(1)})});
}

// border = [left, top, right, bottom]; or, with `scale` = [height, width], that size from the top
// left border.
absl::Status ConvertCrop(Converter& c) {
  if (!HasInputs(c, 1)) return WrongInputs(c, 1);
  const std::vector<int64_t> border = c.node().Ints("border"), scale = c.node().Ints("scale");
  if (border.size() != 4 || (!scale.empty() && scale.size() != 2)) {
    return c.Error("`border` has 4 numbers and `scale` 2 or none");
  }
  const int64_t left = border[0], top = border[1];
  std::vector<int64_t> ends = {-border[3], -border[2]};
  if (!scale.empty()) ends = {top + scale[0], left + scale[1]};
  for (int64_t& end : ends) end = end == 0 ? INT64_MAX : end;
  return c.Final("Slice", {c.in(0), c.Ints({top, left}), c.Ints(ends), c.Ints({2, 3})});
}

// A is quantised on the fly: y = (int32 product) * a_scale * b_scale + bias.
absl::Status ConvertDynamicQuantizeMatMul(Converter& c) {
  if (!HasInputs(c, 3)) return WrongInputs(c, 3);
  const std::vector<ValueId> a = c.EmitMany("DynamicQuantizeLinear", {c.in(0)}, 3);
  std::vector<ValueId> operands = {a[0], c.in(1), a[2]};
  if (c.has(3)) operands.push_back(c.in(3));
  const ValueId product = c.Emit("Cast", {c.Emit("MatMulInteger", operands)}, {{"to", int64_t{1}}});
  const ValueId scale = c.Emit("Mul", {a[1], c.in(2)});
  if (!c.has(4)) return c.Final("Mul", {product, scale});
  return c.Final("Add", {c.Emit("Mul", {product, scale}), c.in(4)});
}

absl::Status ConvertFastGelu(Converter& c) {
  if (!HasInputs(c, 1)) return WrongInputs(c, 1);
  const ValueId x = c.has(1) ? c.Emit("Add", {c.in(0), c.in(1)}) : c.in(0);
  return c.Final("Gelu", {x}, {{"approximate", std::string("tanh")}});
}

namespace {

// Conv or Gemm with `activation`; Conv may add a fourth input first.
absl::Status WithActivation(Converter& c, const std::string& op, const std::string& params_name) {
  Attributes attributes = c.node().attributes;
  const std::string activation = c.node().String("activation", "");
  std::vector<double> params = c.node().Floats(params_name);
  attributes.erase("activation");
  attributes.erase(params_name);
  for (const char* name : {"alpha", "beta", "gamma"}) {  // FusedGemm spells them out
    const std::string key = std::string("activation_") + name;
    if (const auto found = attributes.find(key); found != attributes.end()) {
      if (const double* value = std::get_if<double>(&found->second)) params.push_back(*value);
      attributes.erase(found);
    }
  }
  std::vector<ValueId> inputs = c.inputs();
  ValueId added = kNone;
  if (op == "Conv" && inputs.size() > 3) {
    added = inputs[3];
    inputs.resize(3);
  }
  ValueId y = c.Emit(op, std::move(inputs), std::move(attributes));
  if (added != kNone) y = c.Emit("Add", {y, added});
  const ValueId activated = Activate(c, y, activation, params);
  if (activated == kNone) return c.Unsupported(fmt::format("activation `{}`", activation));
  return c.FinalValues({activated});
}

}  // namespace

absl::Status ConvertFusedConv(Converter& c) {
  return WithActivation(c, "Conv", "activation_params");
}
absl::Status ConvertFusedGemm(Converter& c) {
  return WithActivation(c, "Gemm", "activation_params");
}

// y = alpha * op(A) * op(B), op transposing the last two axes.
absl::Status ConvertFusedMatMul(Converter& c) {
  if (!HasInputs(c, 2)) return WrongInputs(c, 2);
  if (c.node().Int("transBatchA", 0) != 0 || c.node().Int("transBatchB", 0) != 0) {
    return c.Unsupported("`transBatchA` and `transBatchB`");
  }
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(1));
  QUENCH_RETURN_IF_ERROR(c.RequireDataType(0));
  const ValueId a = c.node().Int("transA", 0) != 0 ? SwapLastAxes(c, c.in(0)) : c.in(0);
  const ValueId b = c.node().Int("transB", 0) != 0 ? SwapLastAxes(c, c.in(1)) : c.in(1);
  const double alpha = c.node().Float("alpha", 1);
  if (alpha == 1) return c.Final("MatMul", {a, b});
  return c.Final("Mul", {c.Emit("MatMul", {a, b}), c.Scalar(c.type(c.in(0)).dtype, alpha)});
}

// y = x * scale + bias[channel] on NCHW.
absl::Status ConvertImageScaler(Converter& c) {
  if (!HasInputs(c, 1)) return WrongInputs(c, 1);
  const std::vector<double> bias = c.node().Floats("bias");
  const ValueId scaled = c.Emit("Mul", {c.in(0), F32(c, c.node().Float("scale", 1))});
  if (bias.empty()) return c.FinalValues({scaled});
  const std::vector<float> floats(bias.begin(), bias.end());
  const ValueId per_channel = c.AddConstant(
      Tensor::Of(DataType::kF32, {static_cast<int64_t>(floats.size()), 1, 1}, floats));
  return c.Final("Add", {scaled, per_channel});
}

// inputs A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias
absl::Status ConvertMatMulIntegerToFloat(Converter& c) {
  if (!HasInputs(c, 4)) return WrongInputs(c, 4);
  std::vector<ValueId> operands = {c.in(0), c.in(1)};
  if (c.has(4) || c.has(5)) operands.push_back(c.in(4));
  if (c.has(5)) operands.push_back(c.in(5));
  const ValueId product = c.Emit("Cast", {c.Emit("MatMulInteger", operands)}, {{"to", int64_t{1}}});
  const ValueId scale = c.Emit("Mul", {c.in(2), c.in(3)});
  if (!c.has(6)) return c.Final("Mul", {product, scale});
  return c.Final("Add", {c.Emit("Mul", {product, scale}), c.in(6)});
}

namespace {

// Attributes and weights of MatMulNBits. Weights lie a column after another, each in blocks along k
// of whole bytes, the first number in the lowest bits.
struct NBits {
  int64_t k = 0, n = 0, bits = 4, block = 0, blocks = 0;

  // Number `i` of column `column` in bytes whose columns have `numbers` of them.
  int64_t At(std::span<const uint8_t> bytes, int64_t column, int64_t numbers, int64_t i) const {
    const int64_t column_bytes = (numbers * bits + 7) / 8;
    const uint8_t byte = bytes[static_cast<size_t>(column * column_bytes + i * bits / 8)];
    return bits == 8 ? byte : (byte >> (i % 2 * 4)) & 15;
  }
  DataType dtype() const { return bits == 8 ? DataType::kU8 : DataType::kU4; }

  // A matrix [rows, n] with value(row, column).
  template <typename Value>
  Tensor Matrix(int64_t rows, const Value& value) const {
    Tensor matrix = Tensor::Zeros(dtype(), {rows, n});
    std::byte* const out = matrix.mutable_bytes();
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        const int64_t at = row * n + column;
        out[at * bits / 8] |= static_cast<std::byte>(value(row, column) << (at * bits % 8));
      }
    }
    return matrix;
  }
};

absl::StatusOr<NBits> ReadNBits(const Converter& c) {
  NBits form;
  form.k = c.node().Int("K", 0);
  form.n = c.node().Int("N", 0);
  form.bits = c.node().Int("bits", 4);
  form.block = c.node().Int("block_size", 0);
  if (form.bits != 4 && form.bits != 8)
    return c.Unsupported(fmt::format("{} bits; 4 and 8 are known", form.bits));
  if (c.has(4) || c.has(5)) return c.Unsupported("group indices, and a bias");
  const Tensor* b = c.constant(c.in(1));
  const Tensor* scales = c.constant(c.in(2));
  if (b == nullptr || scales == nullptr || (c.has(3) && c.constant(c.in(3)) == nullptr))
    return c.Unsupported("weights, scales or zero points that are not constants");
  constexpr int64_t kMost = int64_t{1} << 31;
  if (form.k < 1 || form.k > kMost || form.n < 1 || form.n > kMost || form.block < 16 ||
      form.block > kMost || (form.block & (form.block - 1)) != 0) {
    return c.Error(fmt::format(
        "`K` is {}, `N` {} and `block_size` {}; sizes are from 1 to 2^31, of blocks powers of two "
        "from 16 on",
        form.k, form.n, form.block));
  }
  form.blocks = (form.k + form.block - 1) / form.block;
  const int64_t bytes = form.n * form.blocks * (form.block * form.bits / 8);
  if (b->dtype() != DataType::kU8 || b->size() != bytes) {
    return c.Error(fmt::format("weights are {} {}, {} bytes of u8 were to be there", b->size(),
                               DataTypeName(b->dtype()), bytes));
  }
  if (scales->dtype() != DataType::kF32)
    return c.Unsupported(fmt::format("scales of {}", DataTypeName(scales->dtype())));
  if (scales->size() != form.n * form.blocks) {
    return c.Error(
        fmt::format("{} scales, {} blocks have one each", scales->size(), form.n * form.blocks));
  }
  if (!c.has(3)) return form;
  const Tensor* zeros = c.constant(c.in(3));
  if (zeros->dtype() != DataType::kU8)
    return c.Unsupported(fmt::format("zero points of {}", DataTypeName(zeros->dtype())));
  const int64_t zero_bytes = form.n * ((form.blocks * form.bits + 7) / 8);
  if (zeros->size() != zero_bytes) {
    return c.Error(
        fmt::format("{} bytes of zero points, {} were to be there", zeros->size(), zero_bytes));
  }
  return form;
}

}  // namespace

// inputs A, B, scales, zero points, group indices, bias. Zero points are in the middle when there are
// none.
absl::Status ConvertMatMulNBits(Converter& c) {
  if (!HasInputs(c, 3)) return WrongInputs(c, 3);
  QUENCH_ASSIGN_OR_RETURN(const NBits form, ReadNBits(c));
  const std::span<const uint8_t> b = c.constant(c.in(1))->as<uint8_t>();
  const std::span<const float> scales = c.constant(c.in(2))->as<float>();
  Tensor weights = form.Matrix(form.k, [&](int64_t row, int64_t column) {
    return form.At(b, column, form.blocks * form.block, row);
  });
  std::vector<float> steps;
  for (int64_t block = 0; block < form.blocks; ++block) {
    for (int64_t column = 0; column < form.n; ++column)
      steps.push_back(scales[static_cast<size_t>(column * form.blocks + block)]);
  }
  const Tensor* zeros = c.has(3) ? c.constant(c.in(3)) : nullptr;
  const int64_t middle = int64_t{1} << (form.bits - 1);
  Tensor zero = form.Matrix(form.blocks, [&](int64_t block, int64_t column) {
    return zeros == nullptr ? middle : form.At(zeros->as<uint8_t>(), column, form.blocks, block);
  });
  const ValueId real =
      c.Emit("DequantizeLinear",
             {c.AddConstant(std::move(weights)),
              c.AddConstant(Tensor::Of(DataType::kF32, {form.blocks, form.n}, steps)),
              c.AddConstant(std::move(zero))},
             {{"axis", int64_t{0}}, {"block_size", form.block}});
  return c.Final("MatMul", {c.in(0), real});
}

// QLinearAdd, QLinearMul: A, a_scale, a_zero, B, b_scale, b_zero, c_scale, c_zero
absl::Status ConvertQLinearBinary(Converter& c) {
  for (const int i : {0, 1, 3, 4, 6}) {
    if (!c.has(i)) return WrongInputs(c, 7);
  }
  const ValueId a = Dequantize(c, c.in(0), c.in(1), c.in(2));
  const ValueId b = Dequantize(c, c.in(3), c.in(4), c.in(5));
  const ValueId y = c.Emit(c.node().op.substr(7), {a, b});
  return FinalQuantize(c, y, c.in(6), c.in(7));
}

// y_scale, y_zero, then (x, scale, zero) per operand
absl::Status ConvertQLinearConcat(Converter& c) {
  if (c.inputs().size() < 5 || (c.inputs().size() - 2) % 3 != 0) return WrongInputs(c, 5);
  std::vector<ValueId> operands;
  for (int i = 2; i + 2 < static_cast<int>(c.inputs().size()); i += 3) {
    operands.push_back(Dequantize(c, c.in(i), c.in(i + 1), c.in(i + 2)));
  }
  const ValueId y = c.Emit("Concat", operands, {{"axis", c.node().Int("axis", 0)}});
  return FinalQuantize(c, y, c.in(0), c.in(1));
}

// QLinearSigmoid, QLinearLeakyRelu, QLinearGlobalAveragePool, QLinearAveragePool: x, x_scale,
// x_zero, y_scale, y_zero
absl::Status ConvertQLinearUnary(Converter& c) {
  for (const int i : {0, 1, 3}) {
    if (!c.has(i)) return WrongInputs(c, 4);
  }
  Attributes attributes = c.node().attributes;
  if (c.node().Int("channels_last", 0) != 0) return c.Unsupported("`channels_last`");
  attributes.erase("channels_last");
  const ValueId y = c.Emit(c.node().op.substr(7), {Dequantize(c, c.in(0), c.in(1), c.in(2))},
                           std::move(attributes));
  return FinalQuantize(c, y, c.in(3), c.in(4));
}

// y = x * sigmoid(alpha * x)
absl::Status ConvertQuickGelu(Converter& c) {
  if (!HasInputs(c, 1)) return WrongInputs(c, 1);
  QUENCH_RETURN_IF_ERROR(c.RequireDataType(0));
  const ValueId alpha = c.Scalar(c.type(c.in(0)).dtype, c.node().Float("alpha", 1.702));
  const ValueId gate = c.Emit("Sigmoid", {c.Emit("Mul", {c.in(0), alpha})});
  return c.Final("Mul", {c.in(0), gate});
}

// y = alpha * tanh(beta * x)
absl::Status ConvertScaledTanh(Converter& c) {
  if (!HasInputs(c, 1)) return WrongInputs(c, 1);
  const ValueId inner =
      c.Emit("Tanh", {c.Emit("Mul", {c.in(0), F32(c, c.node().Float("beta", 1))})});
  return c.Final("Mul", {inner, F32(c, c.node().Float("alpha", 1))});
}

// LayerNormalization(input + skip [+ bias]); inputs input, skip, gamma, beta, bias; output 3 is the
// sum.
absl::Status ConvertSkipLayerNormalization(Converter& c) {
  if (!HasInputs(c, 3)) return WrongInputs(c, 3);
  if (c.IsUsed(1) || c.IsUsed(2)) return c.Unsupported("mean and deviation exist in training only");
  ValueId sum = c.Emit("Add", {c.in(0), c.in(1)});
  if (c.has(4)) sum = c.Emit("Add", {sum, c.in(4)});
  Attributes attributes = {{"axis", int64_t{-1}}, {"epsilon", c.node().Float("epsilon", 1e-12)}};
  std::vector<ValueId> operands = {sum, c.in(2)};
  if (c.has(3)) operands.push_back(c.in(3));
  const ValueId y = c.Emit("LayerNormalization", std::move(operands), std::move(attributes));
  return c.FinalValues({y, kNone, kNone, sum});
}

}  // namespace quench::importer
