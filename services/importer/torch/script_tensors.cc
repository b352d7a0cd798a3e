// Tensors of TorchScript: what is asked of them while it is imported, and quantized ones.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/torch/script_prims.h"
#include "services/importer/torch/script_values.h"

namespace quench::importer {

// ---- Tensors ----

absl::StatusOr<TorchValue> ScriptPrims::SizeOf(const CellPtr& cell, int64_t axis,
                                               const std::string& name) {
  QUENCH_ASSIGN_OR_RETURN(const int rank, p_.RankOf(cell));
  QUENCH_ASSIGN_OR_RETURN(const Type type, p_.TypeOf(cell));
  const int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank)
    return InvalidArgument("`{}`: a tensor of rank {} has no axis {}", name, rank, axis);
  const Dim dim = type.dims[static_cast<size_t>(at)];
  if (dim.is_static()) return TorchValue(dim.value());
  QUENCH_ASSIGN_OR_RETURN(const TorchValue size, p_.Call("aten", "size", name, {cell, at}));
  return p_.Settle({std::get<CellPtr>(size)->handle, RuntimeNumber::Kind::kInt});
}

// `torch.tensor`: numbers in nested lists.
absl::StatusOr<TorchValue> ScriptPrims::TensorOf(const TorchValue& data, const TorchValue* dtype) {
  DataType wanted = DataType::kUndefined;
  if (dtype != nullptr && IntOf(*dtype)) {
    QUENCH_ASSIGN_OR_RETURN(wanted, DataTypeOfScalarType(*IntOf(*dtype)));
  }
  const auto cast = [&](const TorchValue& value) -> absl::StatusOr<TorchValue> {
    if (wanted == DataType::kUndefined) return value;
    return p_.Call("aten", "to", "tensor", {value, ScalarTypeOf(wanted)});
  };
  if (As<CellPtr>(data) != nullptr) return cast(data);
  if (const auto* number = As<RuntimeNumber>(data)) return cast(p_.NewCell(number->handle));
  std::vector<int64_t> dims;
  std::vector<TorchValue> level = {data};
  while (!level.empty() && As<ListPtr>(level[0]) != nullptr) {
    const size_t size = (*As<ListPtr>(level[0]))->items.size();
    dims.push_back(static_cast<int64_t>(size));
    std::vector<TorchValue> next;
    for (const TorchValue& item : level) {
      const auto* list = As<ListPtr>(item);
      if (list == nullptr || (*list)->items.size() != size || next.size() > kMaxScriptItems)
        return InvalidArgument("a tensor is made of lists of different lengths");
      next.insert(next.end(), (*list)->items.begin(), (*list)->items.end());
    }
    level = std::move(next);
  }
  bool real = false, flags = !level.empty(), known = true;
  for (const TorchValue& value : level) {
    real = real || As<double>(value) != nullptr;
    flags = flags && As<bool>(value) != nullptr;
    known = known && RealOf(value).has_value();
  }
  if (!known) {
    QUENCH_ASSIGN_OR_RETURN(const TorchValue stacked,
                            p_.Call("aten", "stack", "tensor", {MakeList(level), int64_t{0}}));
    if (dims.size() != 1)
      return Unsupported("a tensor is made of nested lists that only a run knows");
    return cast(stacked);
  }
  if (wanted == DataType::kUndefined)
    wanted = real || level.empty() ? DataType::kF32 : flags ? DataType::kBool : DataType::kI64;
  Tensor tensor;
  if (IsFloat(wanted) || real) {
    std::vector<double> values;
    for (const TorchValue& value : level) values.push_back(*RealOf(value));
    tensor = Tensor::Of(DataType::kF64, dims, values);
    if (wanted == DataType::kF32) {
      const std::vector<float> floats(values.begin(), values.end());
      return TorchValue(p_.NewCell(p_.b.AddConstant("tensor", Tensor::Of(wanted, dims, floats))));
    }
  } else {
    std::vector<int64_t> values;
    for (const TorchValue& value : level) values.push_back(*IntOf(value));
    tensor = Tensor::Of(DataType::kI64, dims, values);
  }
  const bool right = tensor.dtype() == wanted;
  const TorchValue cell = p_.NewCell(p_.b.AddConstant("tensor", std::move(tensor)));
  return right ? absl::StatusOr<TorchValue>(cell) : cast(cell);
}

absl::StatusOr<Maybe> ScriptPrims::OnTensor(const std::string& op, const std::string& name,
                                            Arguments& arguments, TorchArguments& named) {
  if ((op == "tensor" || op == "as_tensor" || op == "scalar_tensor" || op == "NumToTensor") &&
      !arguments.empty()) {
    const TorchValue* dtype = FindArgument(named, "dtype");
    if (dtype == nullptr && arguments.size() > 1) dtype = &arguments[1];
    return TensorOf(arguments[0], dtype);
  }
  const auto* cell = arguments.empty() ? nullptr : As<CellPtr>(arguments[0]);
  if (cell == nullptr) return Maybe();
  if (op == "size" && arguments.size() == 1) {
    QUENCH_ASSIGN_OR_RETURN(const int rank, p_.RankOf(*cell));
    std::vector<TorchValue> sizes;
    for (int64_t axis = 0; axis < rank; ++axis) {
      QUENCH_ASSIGN_OR_RETURN(TorchValue size, SizeOf(*cell, axis, name));
      sizes.push_back(std::move(size));
    }
    return Maybe(MakeList(std::move(sizes)));
  }
  if (op == "shape") {
    Arguments one = {arguments[0]};
    TorchArguments none;
    return OnTensor("size", name, one, none);
  }
  if ((op == "size" && arguments.size() == 2) || op == "len") {
    const std::optional<int64_t> axis = op == "len" ? 0 : IntOf(arguments[1]);
    if (!axis) return p_.UnknownError("an axis");
    QUENCH_ASSIGN_OR_RETURN(TorchValue size, SizeOf(*cell, *axis, name));
    return Maybe(std::move(size));
  }
  if (op == "dim" || op == "ndim" || op == "ndimension") {
    QUENCH_ASSIGN_OR_RETURN(const int rank, p_.RankOf(*cell));
    return Maybe(int64_t{rank});
  }
  if (op == "numel") {
    QUENCH_ASSIGN_OR_RETURN(const int rank, p_.RankOf(*cell));
    TorchValue product = int64_t{1};
    for (int64_t axis = 0; axis < rank; ++axis) {
      QUENCH_ASSIGN_OR_RETURN(const TorchValue size, SizeOf(*cell, axis, name));
      QUENCH_ASSIGN_OR_RETURN(const Maybe next, Arithmetic("mul", name, {product, size}));
      if (!next) return InvalidArgument("`{}`: a tensor has too many elements", name);
      product = *next;
    }
    return Maybe(product);
  }
  if (op == "item" || op == "Float" || op == "Int" || op == "Bool" || op == "FloatImplicit" ||
      op == "IntImplicit" || op == "ScalarImplicit") {
    QUENCH_ASSIGN_OR_RETURN(const Type type, p_.TypeOf(*cell));
    const bool real = op.starts_with("Float") || (!op.starts_with("Int") && IsFloat(type.dtype));
    const bool flag = op == "Bool" || (op == "item" && type.dtype == DataType::kBool);
    QUENCH_ASSIGN_OR_RETURN(TorchValue number,
                            p_.NumberOf(*cell, flag   ? RuntimeNumber::Kind::kBool
                                               : real ? RuntimeNumber::Kind::kFloat
                                                      : RuntimeNumber::Kind::kInt));
    return Maybe(std::move(number));
  }
  QUENCH_ASSIGN_OR_RETURN(const Type type, p_.TypeOf(*cell));
  if (op == "dtype" || op == "is_floating_point" || op == "is_complex") {
    if (!type.known()) return p_.UnknownError(fmt::format("`{}`: an element type", name));
    if (op == "is_complex") return Maybe((*cell)->is_complex);
    return op == "dtype" ? Maybe(ScalarTypeOf(type.dtype)) : Maybe(IsFloat(type.dtype));
  }
  return Maybe();
}

// ---- Quantized ----

absl::StatusOr<CellPtr> ScriptPrims::Dequantized(const std::string& name,
                                                 const TorchTensor& tensor) {
  if (tensor.scale.scale.empty()) return p_.NewConstant(name, tensor.tensor);
  if (options_.keep_quantized_weight) {
    std::vector<TorchValue> scales, zeros;
    for (const double scale : tensor.scale.scale) scales.emplace_back(scale);
    for (const int64_t zero : tensor.scale.zero) zeros.emplace_back(zero);
    const bool one = scales.size() == 1;
    TorchArguments arguments = {{"self", p_.NewCell(p_.b.AddConstant(name, tensor.tensor))},
                                {"scale", one ? scales[0] : MakeList(scales)},
                                {"zero_point", one ? zeros[0] : MakeList(zeros)},
                                {"axis", tensor.scale.axis}};
    QUENCH_ASSIGN_OR_RETURN(const TorchValue real,
                            p_.Call("quantized", "dequantized", name, {}, std::move(arguments)));
    return std::get<CellPtr>(real);
  }
  const std::vector<int64_t>& dims = tensor.tensor.dims();
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(tensor.scale.axis) + 1; i < dims.size(); ++i)
    inner *= dims[i];
  const auto channels = static_cast<int64_t>(tensor.scale.scale.size());
  std::vector<float> values(static_cast<size_t>(tensor.tensor.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at =
        static_cast<size_t>(channels == 1 ? 0 : static_cast<int64_t>(i) / inner % channels);
    values[i] = static_cast<float>(
        static_cast<double>(tensor.tensor.IntAt(static_cast<int64_t>(i)) - tensor.scale.zero[at]) *
        tensor.scale.scale[at]);
  }
  return p_.NewCell(p_.b.AddConstant(name, Tensor::Of(DataType::kF32, dims, values)));
}

absl::StatusOr<TorchValue> ScriptPrims::FakeQuantized(TorchValue real, const TorchValue& scale,
                                                      const TorchValue& zero, int64_t type,
                                                      const std::string& name) {
  return p_.Call(
      "quantized", "fake_quantize", name, {},
      {{"self", std::move(real)}, {"scale", scale}, {"zero_point", zero}, {"dtype", type}});
}

// Packed parameters: weight, bias, then what of the window they have.
absl::StatusOr<Maybe> ScriptPrims::Quantized(const std::string& domain, const std::string& op,
                                             const std::string& name, Arguments& arguments,
                                             TorchArguments& named) {
  constexpr int64_t kQuint8 = 13;
  const auto at = [&](size_t i, const char* key) -> TorchValue {
    if (i < arguments.size()) return arguments[i];
    const TorchValue* value = FindArgument(named, key);
    return value == nullptr ? TorchValue() : *value;
  };
  if (domain == "aten") {  // a quantized tensor is the real one that it stands for
    if (op == "quantize_per_tensor" && arguments.size() >= 3) {
      const TorchValue type = at(3, "dtype");
      QUENCH_ASSIGN_OR_RETURN(const TorchValue scale,
                              ToNumber(arguments[1], RuntimeNumber::Kind::kFloat));
      QUENCH_ASSIGN_OR_RETURN(const TorchValue zero,
                              ToNumber(arguments[2], RuntimeNumber::Kind::kInt));
      QUENCH_ASSIGN_OR_RETURN(TorchValue y, FakeQuantized(arguments[0], scale, zero,
                                                          IntOf(type).value_or(kQuint8), name));
      return Maybe(std::move(y));
    }
    if (op == "dequantize" && !arguments.empty()) return Maybe(arguments[0]);
    return Maybe();
  }
  if (domain != "quantized" && domain != "prepacked") return Maybe();
  if (op.ends_with("_prepack")) {
    auto packed = std::make_shared<TorchObject>();
    packed->type = "packed";
    packed->state = arguments;
    return Maybe(packed);
  }
  const auto* object =
      arguments.size() > 1 ? As<std::shared_ptr<TorchObject>>(arguments[1]) : nullptr;
  const bool convolves = op.starts_with("conv");
  if (object != nullptr && (convolves || op.starts_with("linear"))) {
    const Arguments& packed = (*object)->state;
    if (packed.empty()) return InvalidArgument("`{}`: packed parameters without a weight", name);
    TorchArguments all = {{"input", arguments[0]}, {"weight", packed[0]}};
    if (packed.size() > 1 && !IsNone(packed[1])) all.emplace_back("bias", packed[1]);
    if (domain == "prepacked") {
      const size_t first = convolves ? 6 : 2;
      const char* window[] = {"stride", "padding", "dilation", "groups"};
      for (size_t i = 2; i < std::min<size_t>(packed.size(), 6) && convolves; ++i)
        all.emplace_back(window[i - 2], packed[i]);
      if (packed.size() > first && !IsNone(packed[first]))
        all.emplace_back("output_min", packed[first]);
      if (packed.size() > first + 1 && !IsNone(packed[first + 1]))
        all.emplace_back("output_max", packed[first + 1]);
      QUENCH_ASSIGN_OR_RETURN(TorchValue y, p_.Call("prepacked", op, name, {}, std::move(all)));
      return Maybe(std::move(y));
    }
    if (op.starts_with("linear_dynamic") || op.starts_with("linear_relu_dynamic")) {
      if (op.ends_with("fp16")) {
        QUENCH_ASSIGN_OR_RETURN(TorchValue y, p_.Call("aten", "linear", name, {}, std::move(all)));
        return Maybe(std::move(y));
      }
      all.emplace_back("reduce_range", at(2, "reduce_range"));
      all.emplace_back("relu", op.starts_with("linear_relu"));
      if (IsNone(all[all.size() - 2].second)) all[all.size() - 2].second = false;
      QUENCH_ASSIGN_OR_RETURN(TorchValue y,
                              p_.Call("quantized", "linear_dynamic", name, {}, std::move(all)));
      return Maybe(std::move(y));
    }
    const char* window[] = {"stride", "padding", "dilation", "groups"};
    for (size_t i = 2; i < std::min<size_t>(packed.size(), 6) && convolves; ++i)
      all.emplace_back(window[i - 2], packed[i]);
    QUENCH_ASSIGN_OR_RETURN(TorchValue y, p_.Call("aten", convolves ? op.substr(0, 6) : "linear",
                                                  name, {}, std::move(all)));
    if (op.find("relu") != std::string::npos) {
      QUENCH_ASSIGN_OR_RETURN(y, p_.Call("aten", "relu", name, {y}));
    }
    QUENCH_ASSIGN_OR_RETURN(
        y, FakeQuantized(y, at(2, "output_scale"), at(3, "output_zero_point"), kQuint8, name));
    return Maybe(std::move(y));
  }
  if ((op == "add" || op == "mul" || op == "add_relu" || op == "mul_relu") &&
      arguments.size() >= 2) {
    QUENCH_ASSIGN_OR_RETURN(TorchValue y,
                            p_.Call("aten", op.substr(0, 3), name, {arguments[0], arguments[1]}));
    if (op.ends_with("relu")) {
      QUENCH_ASSIGN_OR_RETURN(y, p_.Call("aten", "relu", name, {y}));
    }
    QUENCH_ASSIGN_OR_RETURN(y,
                            FakeQuantized(y, at(2, "scale"), at(3, "zero_point"), kQuint8, name));
    return Maybe(std::move(y));
  }
  if (op == "cat" && arguments.size() >= 2) {
    QUENCH_ASSIGN_OR_RETURN(TorchValue y,
                            p_.Call("aten", "cat", name, {arguments[0], arguments[1]}));
    if (IsNone(at(2, "scale"))) return Maybe(std::move(y));
    QUENCH_ASSIGN_OR_RETURN(y,
                            FakeQuantized(y, at(2, "scale"), at(3, "zero_point"), kQuint8, name));
    return Maybe(std::move(y));
  }
  return Maybe();
}

}  // namespace quench::importer
