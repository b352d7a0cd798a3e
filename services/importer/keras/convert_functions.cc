// Functions that models call between their layers: TensorFlow's by name, Keras 3's by class.
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/importer/keras/call.h"
#include "services/importer/keras/converters.h"

namespace quench::importer::keras_layers {
namespace {

using Json = nlohmann::json;

// A function with its row: the operator that it is, its arguments by name.
struct Function {
  explicit Function(Converter& converter)
      : n(converter),
        row(*FindKerasRow(converter.node().domain, converter.node().op)),
        arguments(n, row.weights) {}

  KerasNode n;
  const KerasRow& row;
  const KerasArguments arguments;

  std::string First() const { return std::string(row.weights.substr(0, row.weights.find(' '))); }
  // The first argument, which is a tensor.
  absl::StatusOr<ValueId> Input() const {
    const ValueId id = arguments.Tensor(First());
    if (id == kNone)
      return n.c.Unsupported(fmt::format("its argument `{}` is not a tensor", First()));
    if (!n.c.type(id).ranked) return n.c.Unsupported("the rank of its input is not known");
    return id;
  }
  // The tensors of a list, constants of the type of the first tensor among them.
  absl::StatusOr<std::vector<ValueId>> Inputs() const {
    const Json* list = arguments.Find(First());
    if (list == nullptr || !list->is_array()) {
      QUENCH_ASSIGN_OR_RETURN(const ValueId only, Input());
      return std::vector<ValueId>{only};
    }
    std::vector<ValueId> ids;
    const ValueId like = n.count() > 0 ? n.in(0) : kNone;
    for (const Json& item : *list) {
      absl::StatusOr<ValueId> id = arguments.OperandIn(item, like);
      if (!id.ok())
        return n.c.Unsupported(fmt::format("its argument `{}` is not a list of tensors", First()));
      ids.push_back(*id);
    }
    if (ids.empty()) return n.c.Error("takes an empty list");
    return ids;
  }
  absl::StatusOr<std::vector<int64_t>> AxesOf(const std::string& name, int rank) const {
    std::vector<int64_t> axes;
    if (const auto given = arguments.Ints(name)) {
      axes = *given;
    } else if (arguments.Find(name) != nullptr) {
      return n.c.Unsupported(fmt::format("its argument `{}` is known only at run time", name));
    }
    for (int64_t& axis : axes) {
      if (axis < -rank || axis >= rank)
        return n.c.Error(
            fmt::format("{} is [{}], its input has rank {}", name, fmt::join(axes, ", "), rank));
      if (axis < 0) axis += rank;
    }
    return axes;
  }
};

std::optional<DataType> TypeNamed(const std::string& name) {
  static const std::pair<const char*, DataType> kTypes[] = {
      {"float16", DataType::kF16}, {"bfloat16", DataType::kBF16}, {"float32", DataType::kF32},
      {"float64", DataType::kF64}, {"int8", DataType::kI8},       {"int16", DataType::kI16},
      {"int32", DataType::kI32},   {"int64", DataType::kI64},     {"uint8", DataType::kU8},
      {"uint16", DataType::kU16},  {"uint32", DataType::kU32},    {"uint64", DataType::kU64},
      {"bool", DataType::kBool}};
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  return std::nullopt;
}

// "float32", or {"class_name": "TypeSpec", "config": "float32"}-like objects of old files.
absl::StatusOr<DataType> TypeArgument(const Function& f) {
  const std::optional<DataType> type = TypeNamed(f.arguments.Text("dtype"));
  if (!type) return f.n.c.Unsupported(fmt::format("its dtype is `{}`", f.arguments.Text("dtype")));
  return *type;
}

}  // namespace

absl::Status UnaryFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  return f.n.Finish(f.n.Emit(std::string(f.row.canonical).c_str(), {x}));
}

absl::Status PassFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  return f.n.Finish(x);
}

absl::Status BinaryFunction(Converter& c) {
  Function f(c);
  const std::string second = std::string(f.row.weights.substr(f.First().size() + 1));
  ValueId like = f.arguments.Tensor(f.First());
  if (like == kNone) like = f.arguments.Tensor(second);
  if (like == kNone) return c.Unsupported("none of its arguments is a tensor");
  QUENCH_ASSIGN_OR_RETURN(const ValueId a, f.arguments.Operand(f.First(), like));
  QUENCH_ASSIGN_OR_RETURN(const ValueId b, f.arguments.Operand(second, like));
  const std::string& name = c.node().op;
  if (name == "math.floordiv" || name == "FloorDivide") {
    return f.n.Finish(f.n.Emit("Floor", {f.n.Emit("Div", {a, b})}));
  }
  if (name == "math.squared_difference") {
    const ValueId difference = f.n.Emit("Sub", {a, b});
    return f.n.Finish(f.n.Emit("Mul", {difference, difference}));
  }
  const ValueId y = f.n.Emit(std::string(f.row.canonical).c_str(), {a, b});
  const bool negated = name == "math.not_equal" || name == "NotEqual" || name == "__operators__.ne";
  return f.n.Finish(negated ? f.n.Emit("Not", {y}) : y);
}

// Activations by the name that layers have for them.
absl::Status ActivationFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  std::string name = c.node().op.substr(c.node().op.rfind('.') + 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  if (name == "logsoftmax") name = "log_softmax";
  if (name == "hardsigmoid") name = "hard_sigmoid";
  if (name == "softmax" || name == "log_softmax") {
    const int64_t axis = f.arguments.Int("axis").value_or(-1);
    return f.n.Finish(
        f.n.Emit(name == "softmax" ? "Softmax" : "LogSoftmax", {x}, {{"axis", axis}}));
  }
  if (name == "gelu" && f.arguments.Flag("approximate", c.node().domain == "keras.ops"))
    return f.n.Finish(f.n.Emit("Gelu", {x}, {{"approximate", std::string("tanh")}}));
  if (name == "leaky_relu" || name == "leakyrelu") {
    const double alpha =
        f.arguments.Number("alpha").value_or(f.arguments.Number("negative_slope").value_or(0.2));
    return f.n.Finish(f.n.Emit("LeakyRelu", {x}, {{"alpha", alpha}}));
  }
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, f.n.ActivateAs(x, name));
  return f.n.Finish(y);
}

absl::Status ReduceFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  QUENCH_ASSIGN_OR_RETURN(std::vector<int64_t> axes, f.AxesOf("axis", c.Rank(x)));
  if (axes.empty()) {
    for (int64_t i = 0; i < c.Rank(x); ++i) axes.push_back(i);
  }
  const bool keep = f.arguments.Flag("keepdims", false);
  return f.n.Finish(f.n.Reduce(std::string(f.row.canonical).c_str(), x, axes, keep));
}

absl::Status AnyFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  QUENCH_ASSIGN_OR_RETURN(std::vector<int64_t> axes, f.AxesOf("axis", c.Rank(x)));
  if (axes.empty()) {
    for (int64_t i = 0; i < c.Rank(x); ++i) axes.push_back(i);
  }
  const ValueId numbers = f.n.Cast(f.n.Cast(x, DataType::kBool), DataType::kI32);
  const ValueId y = f.n.Reduce("ReduceMax", numbers, axes, f.arguments.Flag("keepdims", false));
  return f.n.Finish(f.n.Cast(y, DataType::kBool));
}

absl::Status ArgFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  const bool flat = c.node().domain == "keras.ops" && !f.arguments.Int("axis");
  const int64_t axis = f.arguments.Int("axis").value_or(0);
  const ValueId from = flat ? f.n.Reshape(x, {-1}) : x;
  const ValueId y =
      f.n.Emit(std::string(f.row.canonical).c_str(), {from},
               {{"axis", axis}, {"keepdims", int64_t{f.arguments.Flag("keepdims", false)}}});
  if (flat) return f.n.Finish(f.n.Reshape(y, {}));
  const bool tf = c.node().domain == "keras.tf" && f.arguments.Text("output_type") != "int32";
  return f.n.Finish(tf ? y : f.n.Cast(y, DataType::kI32));
}

absl::Status CastFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  QUENCH_ASSIGN_OR_RETURN(const DataType type, TypeArgument(f));
  return f.n.Finish(f.n.Cast(x, type));
}

absl::Status OneHotFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  std::optional<int64_t> depth = f.arguments.Int("depth");
  if (!depth) depth = f.arguments.Int("num_classes");
  if (!depth || *depth < 1) return c.Unsupported("its depth is known only at run time");
  DataType type = DataType::kF32;
  if (f.arguments.Find("dtype") != nullptr) {
    QUENCH_ASSIGN_OR_RETURN(type, TypeArgument(f));
  }
  const std::vector<double> values = {f.arguments.Number("off_value").value_or(0),
                                      f.arguments.Number("on_value").value_or(1)};
  const ValueId both = f.n.Cast(c.AddConstant(Tensor::Of(DataType::kF64, {2}, values)), type);
  const ValueId index = IsInteger(c.type(x).dtype) ? x : f.n.Cast(x, DataType::kI64);
  // A negative index has no place here, whereas OneHot counts it from the end.
  const ValueId place = f.n.Emit("Where", {f.n.Binary("Less", index, 0),
                                           f.n.Scalar(index, static_cast<double>(*depth)), index});
  return f.n.Finish(f.n.Emit("OneHot", {place, c.Ints({*depth}), both},
                             {{"axis", f.arguments.Int("axis").value_or(-1)}}));
}

// Sizes are numbers; one of them may be -1.
absl::Status ReshapeFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  auto shape = f.arguments.Ints("shape");
  if (!shape) shape = f.arguments.Ints("newshape");
  if (!shape) return c.Unsupported("its shape is known only at run time");
  if (std::find(shape->begin(), shape->end(), 0) != shape->end())
    return c.Unsupported("its shape has a 0");
  return f.n.Finish(f.n.Reshape(x, *shape));
}

absl::Status TransposeFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  QUENCH_ASSIGN_OR_RETURN(std::vector<int64_t> perm,
                          f.AxesOf(c.node().domain == "keras.ops" ? "axes" : "perm", c.Rank(x)));
  if (perm.empty()) {
    for (int64_t i = c.Rank(x); i-- > 0;) perm.push_back(i);
  }
  return f.n.Finish(f.n.Emit("Transpose", {x}, {{"perm", perm}}));
}

absl::Status ExpandDimsFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, f.AxesOf("axis", c.Rank(x) + 1));
  if (axes.empty()) return c.Error("its axis is missing");
  return f.n.Finish(f.n.Unsqueeze(x, axes));
}

absl::Status SqueezeFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  QUENCH_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, f.AxesOf("axis", c.Rank(x)));
  if (!axes.empty()) return f.n.Finish(f.n.Squeeze(x, axes));
  return f.n.Finish(f.n.Emit("Squeeze", {x}));
}

absl::Status ConcatFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<ValueId> inputs, f.Inputs());
  return f.n.Finish(f.n.Emit("Concat", inputs, {{"axis", f.arguments.Int("axis").value_or(-1)}}));
}

absl::Status StackFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(std::vector<ValueId> inputs, f.Inputs());
  const int rank = c.Rank(inputs[0]) + 1;
  int64_t axis = f.arguments.Int("axis").value_or(0);
  if (axis < 0) axis += rank;
  for (ValueId& id : inputs) id = f.n.Unsqueeze(id, {axis});
  return f.n.Finish(f.n.Emit("Concat", inputs, {{"axis", axis}}));
}

// Into as many parts, or parts of these sizes (TensorFlow), or at these places (Keras 3).
absl::Status SplitFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  const bool keras = c.node().domain == "keras.ops";
  const char* name = keras ? "indices_or_sections" : "num_or_size_splits";
  const Json* parts = f.arguments.Find(name);
  const auto sizes = f.arguments.Ints(name);
  int64_t axis = f.arguments.Int("axis").value_or(0);
  if (axis < 0) axis += c.Rank(x);
  if (parts == nullptr || !sizes) return c.Unsupported("its sizes are known only at run time");
  const int64_t whole = f.n.Size(x, static_cast<int>(axis));
  std::vector<int64_t> lengths = *sizes;
  if (whole < 0) return c.Unsupported("the size of its axis is known only at run time");
  if (parts->is_number()) {
    const int64_t count = sizes->front();
    if (count < 1 || count > 1 << 16 || whole % count != 0)
      return c.Error(fmt::format("splits {} elements into {} parts", whole, count));
    lengths.assign(static_cast<size_t>(count), whole / count);
  } else if (keras) {
    int64_t before = 0;
    for (int64_t& length : lengths) before += std::exchange(length, length - before) - before;
    lengths.push_back(whole - before);
  }
  if (static_cast<int>(lengths.size()) < c.num_outputs())
    return c.Error(fmt::format("gives {} parts", lengths.size()));
  return c.FinalValues(f.n.c.EmitMany("Split", {x, c.Ints(lengths)},
                                      static_cast<int>(lengths.size()), {{"axis", axis}}));
}

absl::Status UnstackFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  int64_t axis = f.arguments.Int("axis").value_or(0);
  if (axis < 0) axis += c.Rank(x);
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < c.num_outputs(); ++i)
    parts.push_back(f.n.Squeeze(f.n.Slice(x, axis, i, i + 1), {axis}));
  return c.FinalValues(parts);
}

absl::Status ClipFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  const bool keras = c.node().domain == "keras.ops";
  QUENCH_ASSIGN_OR_RETURN(const ValueId low,
                          f.arguments.Operand(keras ? "x_min" : "clip_value_min", x));
  QUENCH_ASSIGN_OR_RETURN(const ValueId high,
                          f.arguments.Operand(keras ? "x_max" : "clip_value_max", x));
  return f.n.Finish(f.n.Emit("Min", {f.n.Emit("Max", {x, low}), high}));
}

absl::Status MatMulFunction(Converter& c) {
  Function f(c);
  const std::string second = c.node().domain == "keras.ops" ? "x2" : "b";
  QUENCH_ASSIGN_OR_RETURN(ValueId a, f.Input());
  QUENCH_ASSIGN_OR_RETURN(ValueId b, f.arguments.Operand(second, a));
  const auto turn = [&](ValueId id) {
    std::vector<int64_t> perm;
    for (int64_t i = 0; i < c.Rank(id); ++i) perm.push_back(i);
    if (perm.size() > 1) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return f.n.Transpose(id, perm);
  };
  if (f.arguments.Flag("transpose_a", false)) a = turn(a);
  if (f.arguments.Flag("transpose_b", false)) b = turn(b);
  return f.n.Finish(f.n.Emit("MatMul", {a, b}));
}

absl::Status EinsumFunction(Converter& c) {
  Function f(c);
  std::string equation = f.arguments.Text("subscripts", f.arguments.Text("equation"));
  std::erase(equation, ' ');
  std::vector<ValueId> inputs;
  for (int i = 0; i < f.n.count(); ++i) inputs.push_back(f.n.in(i));
  return f.n.Finish(f.n.Emit("Einsum", inputs, {{"equation", equation}}));
}

absl::Status WhereFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId condition, f.Input());
  const bool keras = c.node().domain == "keras.ops";
  const std::string first = keras ? "x1" : "x", second = keras ? "x2" : "y";
  ValueId like = f.arguments.Tensor(first);
  if (like == kNone) like = f.arguments.Tensor(second);
  QUENCH_ASSIGN_OR_RETURN(const ValueId a, f.arguments.Operand(first, like));
  QUENCH_ASSIGN_OR_RETURN(const ValueId b, f.arguments.Operand(second, like));
  return f.n.Finish(f.n.Emit("Where", {f.n.Cast(condition, DataType::kBool), a, b}));
}

absl::Status TileFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  const auto times = f.arguments.Ints(c.node().domain == "keras.ops" ? "repeats" : "multiples");
  if (!times || times->size() != static_cast<size_t>(c.Rank(x)))
    return c.Unsupported("how often it repeats what is known only at run time");
  return f.n.Finish(f.n.Emit("Tile", {x, c.Ints(*times)}));
}

absl::Status GatherFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  const Json* index = f.arguments.Find("indices");
  const auto known = f.arguments.Ints("indices");
  ValueId indices = f.arguments.Tensor("indices");
  if (indices == kNone && index != nullptr && known) {
    Tensor list = Tensor::I64(*known);
    indices = c.AddConstant(index->is_number() ? list.Reshaped({}) : list);
  }
  if (indices == kNone) return c.Unsupported("its indices are not a tensor");
  if (!IsInteger(c.type(indices).dtype)) indices = f.n.Cast(indices, DataType::kI64);
  return f.n.Finish(
      f.n.Emit("Gather", {x, indices}, {{"axis", f.arguments.Int("axis").value_or(0)}}));
}

absl::Status PadFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  const auto pairs = f.arguments.Ints(c.node().domain == "keras.ops" ? "pad_width" : "paddings");
  std::string mode = f.arguments.Text("mode", "constant");
  std::transform(mode.begin(), mode.end(), mode.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  if (!pairs || pairs->size() != 2 * static_cast<size_t>(c.Rank(x)))
    return c.Unsupported("its sizes are not known, or not of each axis");
  if (mode != "constant" && mode != "reflect")
    return c.Unsupported(fmt::format("its mode is `{}`", mode));
  std::vector<int64_t> pads(pairs->size());
  for (size_t i = 0; i < pairs->size(); ++i) pads[i / 2 + i % 2 * pairs->size() / 2] = (*pairs)[i];
  const ValueId value = f.n.Scalar(x, f.arguments.Number("constant_values").value_or(0));
  return f.n.Finish(f.n.Emit("Pad", {x, c.Ints(pads), value}, {{"mode", mode}}));
}

// x[:, 0, 1:3, None, ...]
absl::Status GetItem(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  const Json* given = f.arguments.Find(c.node().domain == "keras.ops" ? "key" : "slice_spec");
  Json spec = given == nullptr ? Json::array({nullptr}) : *given;
  if (spec.is_object() && spec.contains("class_name") && spec["class_name"] == "__tuple__" &&
      spec.contains("items"))
    spec = spec["items"];
  if (!spec.is_array()) spec = Json::array({spec});
  const auto is_rest = [](const Json& item) {
    return item == "..." || (item.is_object() && item.contains("class_name") &&
                             item["class_name"] == "__ellipsis__");
  };
  int taken = 0, rests = 0;
  for (const Json& item : spec) {
    rests += is_rest(item);
    taken += !item.is_null() && !is_rest(item);
  }
  if (rests > 1) return c.Error("has more than one `...`");
  if (taken > c.Rank(x))
    return c.Error(fmt::format("takes {} axes, its input has {}", taken, c.Rank(x)));
  std::vector<int64_t> begins, ends, axes, steps, dropped, added;
  int64_t axis = 0, result = 0;  // the next one of the input, and of the result
  for (Json item : spec) {
    if (item.is_null()) {
      added.push_back(result++);
      continue;
    }
    if (is_rest(item)) {
      const int64_t rest = c.Rank(x) - taken;
      axis += rest;
      result += rest;
      continue;
    }
    if (item.is_object() && item.contains("config") && item["config"].is_object())
      item = item["config"];
    if (item.is_number_integer()) {
      const int64_t index = item.get<int64_t>();
      begins.push_back(index);
      ends.push_back(index == -1 ? kToEnd : index + 1);
      steps.push_back(1);
      dropped.push_back(axis);
    } else if (item.is_object() && item.contains("start")) {
      const auto number = [&](const char* key, int64_t fallback) {
        return item.contains(key) && item[key].is_number_integer() ? item[key].get<int64_t>()
                                                                   : fallback;
      };
      for (const char* key : {"start", "stop", "step"}) {
        if (item.contains(key) && !item[key].is_null() && !item[key].is_number_integer())
          return c.Unsupported("a bound that is known only at run time");
      }
      const int64_t step = number("step", 1);
      if (step == 0) return c.Error("its step is 0");
      begins.push_back(number("start", step > 0 ? 0 : -1));
      ends.push_back(number("stop", step > 0 ? kToEnd : -kToEnd));
      steps.push_back(step);
      ++result;
    } else {
      return c.Unsupported("an index that is a tensor");
    }
    axes.push_back(axis++);
  }
  ValueId y = x;
  if (!axes.empty())
    y = f.n.Emit("Slice", {y, c.Ints(begins), c.Ints(ends), c.Ints(axes), c.Ints(steps)});
  if (!dropped.empty()) y = f.n.Squeeze(y, dropped);
  if (!added.empty()) y = f.n.Unsqueeze(y, added);
  return f.n.Finish(y);
}

absl::Status ResizeFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  auto size = f.arguments.Ints("size");
  if (!size || size->size() != 2 || c.Rank(x) != 4)
    return c.Unsupported(
        "sizes that are known only at run time, or inputs of a rank that is not 4");
  const std::string mode =
      f.arguments.Text("method", f.arguments.Text("interpolation", "bilinear"));
  if (f.arguments.Flag("antialias", false) || f.arguments.Flag("preserve_aspect_ratio", false))
    return c.Unsupported("antialias or preserve_aspect_ratio is set");
  const ValueId first = f.n.Transpose(f.n.Float(x), KerasToFirst(2));
  QUENCH_ASSIGN_OR_RETURN(const ValueId y, ResizeImages(f.n, first, mode, (*size)[0], (*size)[1]));
  return f.n.Finish(f.n.Transpose(y, KerasToLast(2)));
}

absl::Status SquareFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  return f.n.Finish(f.n.Emit("Mul", {x, x}));
}

absl::Status RsqrtFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  return f.n.Finish(f.n.Emit("Reciprocal", {f.n.Emit("Sqrt", {x})}));
}

absl::Status AddListFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<ValueId> inputs, f.Inputs());
  return f.n.Finish(f.n.Emit("Sum", inputs));
}

absl::Status FillLikeFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  const std::string& name = c.node().op;
  const double value = name == "zeros_like" || name == "ZerosLike" ? 0 : 1;
  return f.n.Finish(f.n.Emit("Expand", {f.n.Scalar(x, value), f.n.Emit("Shape", {x})}));
}

absl::Status L2NormalizeFunction(Converter& c) {
  Function f(c);
  QUENCH_ASSIGN_OR_RETURN(const ValueId x, f.Input());
  QUENCH_ASSIGN_OR_RETURN(std::vector<int64_t> axes, f.AxesOf("axis", c.Rank(x)));
  if (axes.empty()) {
    for (int64_t i = 0; i < c.Rank(x); ++i) axes.push_back(i);
  }
  const ValueId sum = f.n.Reduce("ReduceSum", f.n.Emit("Mul", {x, x}), axes, true);
  const ValueId least = f.n.Scalar(sum, f.arguments.Number("epsilon").value_or(1e-12));
  return f.n.Finish(f.n.Emit("Div", {x, f.n.Emit("Sqrt", {f.n.Emit("Max", {sum, least})})}));
}

}  // namespace quench::importer::keras_layers
