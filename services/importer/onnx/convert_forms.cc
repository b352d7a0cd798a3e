// Older forms of ONNX operators, brought up to the newest opset. Each function names the versions
// it deals with.
#include <algorithm>

#include "common/base/status.h"
#include "services/importer/onnx/converters.h"

namespace quench::importer {
namespace {

// The node's attributes without those of ONNX's first years that never meant anything for
// inference.
Attributes Own(const Converter& c) {
  Attributes attributes = c.node().attributes;
  if (c.version() < 7) {
    attributes.erase("consumed_inputs");
    attributes.erase("is_test");
  }
  return attributes;
}

// Removes an attribute and gives its integers (one for an int), or nullopt when it is absent.
std::optional<std::vector<int64_t>> TakeInts(Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return std::nullopt;
  std::optional<std::vector<int64_t>> ints;
  if (const auto* list = std::get_if<std::vector<int64_t>>(&found->second)) ints = *list;
  if (const auto* one = std::get_if<int64_t>(&found->second)) ints = {*one};
  if (ints) attributes.erase(found);
  return ints;
}

std::optional<double> TakeFloat(Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  if (found == attributes.end() || !std::holds_alternative<double>(found->second))
    return std::nullopt;
  const double value = std::get<double>(found->second);
  attributes.erase(found);
  return value;
}

// `inputs` with `id` at position `at`; positions between are omitted inputs.
std::vector<ValueId> WithInput(std::vector<ValueId> inputs, size_t at, ValueId id) {
  if (inputs.size() <= at) inputs.resize(at + 1, kNone);
  inputs[at] = id;
  return inputs;
}

bool IsEmptyConstant(const Converter& c, int i) {
  const Tensor* tensor = c.has(i) ? c.constant(c.in(i)) : nullptr;
  return tensor != nullptr && tensor->size() == 0;
}

}  // namespace

absl::Status ConvertSame(Converter& c) { return c.Final(c.node().op, c.inputs(), Own(c)); }

absl::Status ConvertControl(Converter& c) { return c.FinalControl(); }

// Add, Sub, Mul, Div, Pow, And, Or, Xor, Equal, Greater, Less up to opset 6: the second operand
// broadcasts only if `broadcast` says so, from dim `axis` of the first on.
absl::Status ConvertArithmetic(Converter& c) {
  Attributes attributes = Own(c);
  const bool broadcast = c.node().Int("broadcast", 0) != 0;
  attributes.erase("broadcast");
  const std::optional<std::vector<int64_t>> axis = TakeInts(attributes, "axis");
  if (!broadcast || !axis || axis->empty())
    return c.Final(c.node().op, c.inputs(), std::move(attributes));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(1));
  const int first = c.Rank(c.in(0)), second = c.Rank(c.in(1));
  const int64_t from = (*axis)[0] < 0 ? (*axis)[0] + first : (*axis)[0];
  const int64_t trailing = first - from - second;
  if (from < 0 || trailing < 0) {
    return c.Error(fmt::format("axis {} does not place an operand of rank {} in one of rank {}",
                               (*axis)[0], second, first));
  }
  if (trailing == 0) return c.Final(c.node().op, c.inputs(), std::move(attributes));
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < trailing; ++i) axes.push_back(second + i);
  const ValueId operand = c.Emit("Unsqueeze", {c.in(1), c.Ints(axes)});
  return c.Final(c.node().op, {c.in(0), operand}, std::move(attributes));
}

// Squeeze and Unsqueeze up to 11, ReduceSum up to 11, the other reductions up to 13.
absl::Status ConvertAxes(Converter& c) {
  Attributes attributes = Own(c);
  std::vector<ValueId> inputs = c.inputs();
  if (!c.has(1)) {
    if (const auto axes = TakeInts(attributes, "axes"))
      inputs = WithInput(std::move(inputs), 1, c.Ints(*axes));
  }
  return c.Final(c.node().op, std::move(inputs), std::move(attributes));
}

namespace {

// Up to opset 8 `spatial` = 0 gave scale, bias, mean and variance one entry per element of a
// sample: y = (x - mean) / sqrt(variance + epsilon) * scale + bias.
absl::Status PerActivationNormalization(Converter& c) {
  QUENCH_RETURN_IF_ERROR(c.RequireDataType(0));
  const double epsilon = c.node().Float("epsilon", 1e-5);
  const ValueId centred = c.Emit("Sub", {c.in(0), c.in(3)});
  const ValueId variance = c.Emit("Add", {c.in(4), c.Scalar(c.type(c.in(0)).dtype, epsilon)});
  const ValueId normal = c.Emit("Div", {centred, c.Emit("Sqrt", {variance})});
  return c.Final("Add", {c.Emit("Mul", {normal, c.in(1)}), c.in(2)});
}

// Statistics of the batch itself, and the running ones moved towards them: mean' = mean * m +
// batch_mean * (1 - m).
absl::Status TrainingNormalization(Converter& c) {
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  QUENCH_RETURN_IF_ERROR(c.RequireDataType(0));
  const int rank = c.Rank(c.in(0));
  if (rank < 2) return c.Error(fmt::format("the input has rank {}, expected at least 2", rank));
  std::vector<int64_t> reduced = {0}, spatial;
  for (int axis = 2; axis < rank; ++axis) {
    reduced.push_back(axis);
    spatial.push_back(axis - 1);
  }
  c.Warn(
      "`training_mode` is 1, so it normalises by the mean and variance of each run's own batch, "
      "not by those that were learned");
  const DataType dtype = c.type(c.in(0)).dtype;
  const auto per_channel = [&](ValueId id) {
    return spatial.empty() ? id : c.Emit("Unsqueeze", {id, c.Ints(spatial)});
  };
  const ValueId axes = c.Ints(reduced);
  const ValueId mean = c.Emit("ReduceMean", {c.in(0), axes}, {{"keepdims", int64_t{0}}});
  const ValueId centred = c.Emit("Sub", {c.in(0), per_channel(mean)});
  const ValueId variance =
      c.Emit("ReduceMean", {c.Emit("Mul", {centred, centred}), axes}, {{"keepdims", int64_t{0}}});
  const ValueId deviation =
      c.Emit("Sqrt", {c.Emit("Add", {variance, c.Scalar(dtype, c.node().Float("epsilon", 1e-5))})});
  const ValueId scale = c.Emit("Div", {c.in(1), deviation});
  const ValueId y =
      c.Emit("Add", {c.Emit("Mul", {centred, per_channel(scale)}), per_channel(c.in(2))});
  const double momentum = c.node().Float("momentum", 0.9);
  const auto moved = [&](ValueId running, ValueId batch) {
    return c.Emit("Add", {c.Emit("Mul", {running, c.Scalar(dtype, momentum)}),
                          c.Emit("Mul", {batch, c.Scalar(dtype, 1 - momentum)})});
  };
  std::vector<ValueId> outputs = {y};
  if (c.num_outputs() > 1) outputs.push_back(moved(c.in(3), mean));
  if (c.num_outputs() > 2) outputs.push_back(moved(c.in(4), variance));
  return c.FinalValues(outputs);
}

}  // namespace

absl::Status ConvertBatchNormalization(Converter& c) {
  if (c.inputs().size() != 5)
    return c.Error(fmt::format("has {} inputs, expected 5", c.inputs().size()));
  if (c.version() >= 14 && c.node().Int("training_mode", 0) != 0) return TrainingNormalization(c);
  for (int i = 1; i < c.num_outputs(); ++i) {
    if (c.IsUsed(i)) return c.Unsupported(fmt::format("output {} exists in training only", i));
  }
  if (c.version() < 9 && c.node().Int("spatial", 1) == 0) return PerActivationNormalization(c);
  Attributes attributes;
  if (const Attribute* epsilon = c.node().Find("epsilon")) attributes["epsilon"] = *epsilon;
  return c.Final("BatchNormalization", c.inputs(), std::move(attributes));
}

// Up to opset 5 the type was spelt out ("FLOAT").
absl::Status ConvertCast(Converter& c) {
  Attributes attributes = Own(c);
  if (const auto to = attributes.find("to");
      to != attributes.end() && std::holds_alternative<std::string>(to->second)) {
    std::string name = std::get<std::string>(to->second);
    for (char& letter : name)
      letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    const std::optional<DataType> type = ParseDataType(name);
    if (!type) return c.Error(fmt::format("`to` is `{}`, which is not a data type", name));
    to->second = static_cast<int64_t>(*type);
  }
  return c.Final("Cast", c.inputs(), std::move(attributes));
}

absl::Status ConvertCastLike(Converter& c) {
  QUENCH_RETURN_IF_ERROR(c.RequireDataType(1));
  Attributes attributes = Own(c);
  attributes["to"] = static_cast<int64_t>(c.type(c.in(1)).dtype);
  return c.Final("Cast", {c.in(0)}, std::move(attributes));
}

// Up to opset 10.
absl::Status ConvertClip(Converter& c) {
  Attributes attributes = Own(c);
  std::vector<ValueId> inputs = c.inputs();
  const std::optional<double> low = TakeFloat(attributes, "min"),
                              high = TakeFloat(attributes, "max");
  if (low || high) {
    QUENCH_RETURN_IF_ERROR(c.RequireDataType(0));
    const DataType dtype = c.type(c.in(0)).dtype;
    if (low) inputs = WithInput(std::move(inputs), 1, c.Scalar(dtype, *low));
    if (high) inputs = WithInput(std::move(inputs), 2, c.Scalar(dtype, *high));
  }
  return c.Final("Clip", std::move(inputs), std::move(attributes));
}

absl::Status ConvertConcat(Converter& c) {
  Attributes attributes = Own(c);
  if (c.version() < 4) attributes.emplace("axis", int64_t{1});
  return c.Final("Concat", c.inputs(), std::move(attributes));
}

absl::Status ConvertConstant(Converter& c) {
  const auto& attributes = c.node().attributes;
  if (attributes.size() != 1)
    return c.Error(fmt::format("has {} attributes, expected one", attributes.size()));
  const auto& [name, value] = *attributes.begin();
  if (const auto* tensor = std::get_if<Tensor>(&value)) return c.FinalConstant(*tensor);
  if (const auto* number = std::get_if<double>(&value))
    return c.FinalConstant(Tensor::ScalarF32(static_cast<float>(*number)));
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return c.FinalConstant(Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{*number}));
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
    return c.FinalConstant(Tensor::I64(*list));
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    const std::vector<float> floats(list->begin(), list->end());
    return c.FinalConstant(
        Tensor::Of(DataType::kF32, {static_cast<int64_t>(floats.size())}, floats));
  }
  if (const auto* text = std::get_if<std::string>(&value))
    return c.FinalConstant(Tensor::Strings({}, {*text}));
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    return c.FinalConstant(Tensor::Strings({static_cast<int64_t>(list->size())}, *list));
  }
  return c.Error(fmt::format("attribute `{}` is not a value", name));
}

// Opset 17: the axis was an attribute, 1 by default.
absl::Status ConvertDft(Converter& c) {
  Attributes attributes = Own(c);
  if (c.version() >= 20) return c.Final("DFT", c.inputs(), std::move(attributes));
  const std::vector<int64_t> axis = TakeInts(attributes, "axis").value_or(std::vector<int64_t>{1});
  const ValueId id = c.AddConstant(Tensor::Of(DataType::kI64, {}, axis));
  return c.Final("DFT", WithInput(c.inputs(), 2, id), std::move(attributes));
}

// In inference the data goes through and the mask says that all of it did.
absl::Status ConvertDropout(Converter& c) {
  if (c.has(2)) {
    const Tensor* training = c.constant(c.in(2));
    const bool ratio_zero = c.has(1) && c.constant(c.in(1)) != nullptr &&
                            c.constant(c.in(1))->size() == 1 &&
                            c.constant(c.in(1))->FloatAt(0) == 0;
    // The caller of a run decides: the run refuses to train.
    if (!ratio_zero && training == nullptr) return c.Final("Dropout", c.inputs());
    if (!ratio_zero && training->size() == 1 && training->IntAt(0) != 0) {
      c.Warn(
          "`training_mode` is true, which is for training and drops at random; compiled as in "
          "inference, where nothing is dropped");
    }
  }
  if (!c.IsUsed(1)) {
    if (c.num_outputs() < 2) return c.Final("Identity", {c.in(0)});
    return c.FinalValues({c.Emit("Identity", {c.in(0)}), kNone});
  }
  // The mask had the type of the data before opset 10.
  DataType mask_type = DataType::kBool;
  if (c.version() < 10) {
    QUENCH_RETURN_IF_ERROR(c.RequireDataType(0));
    mask_type = c.type(c.in(0)).dtype;
  }
  Tensor ones = Tensor::Of(DataType::kBool, {1}, std::vector<uint8_t>{1});
  const ValueId mask = c.Emit("ConstantOfShape", {c.Emit("Shape", {c.in(0)})}, {{"value", ones}});
  const ValueId typed = mask_type == DataType::kBool
                            ? mask
                            : c.Emit("Cast", {mask}, {{"to", static_cast<int64_t>(mask_type)}});
  return c.FinalValues({c.Emit("Identity", {c.in(0)}), typed});
}

// Up to opset 6 C only broadcast if `broadcast` said so; now it does where it has to.
absl::Status ConvertGemm(Converter& c) {
  Attributes attributes = Own(c);
  if (c.version() < 7) attributes.erase("broadcast");
  return c.Final("Gemm", c.inputs(), std::move(attributes));
}

absl::Status ConvertGridSample(Converter& c) {
  Attributes attributes = Own(c);
  if (const std::string mode = c.node().String("mode", "");
      mode == "bilinear" || mode == "bicubic") {
    attributes["mode"] = std::string(mode == "bilinear" ? "linear" : "cubic");
  }
  return c.Final("GridSample", c.inputs(), std::move(attributes));
}

// Up to opset 20 scale and bias had one entry per group: each is repeated for the channels of its
// group.
absl::Status ConvertGroupNormalization(Converter& c) {
  Attributes attributes = Own(c);
  if (c.version() >= 21) return c.Final("GroupNormalization", c.inputs(), std::move(attributes));
  const int64_t groups = c.node().Int("num_groups", 0);
  if (groups < 1) return c.Error(fmt::format("`num_groups` is {}, expected at least 1", groups));
  const ValueId channels = c.Emit("Shape", {c.in(0)}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  const ValueId count = c.Ints({groups});
  const ValueId shape =
      c.Emit("Concat", {count, c.Emit("Div", {channels, count})}, {{"axis", int64_t{0}}});
  const auto repeated = [&](ValueId per_group) {
    const ValueId column = c.Emit("Unsqueeze", {per_group, c.Ints({1})});
    return c.Emit("Reshape", {c.Emit("Expand", {column, shape}), c.Ints({-1})});
  };
  const ValueId scale = repeated(c.in(1));
  return c.Final("GroupNormalization", {c.in(0), scale, repeated(c.in(2))}, std::move(attributes));
}

// Up to opset 10.
absl::Status ConvertPad(Converter& c) {
  Attributes attributes = Own(c);
  std::vector<ValueId> inputs = c.inputs();
  std::optional<std::vector<int64_t>> pads = TakeInts(attributes, "pads");
  if (!pads) pads = TakeInts(attributes, "paddings");
  if (pads) inputs = WithInput(std::move(inputs), 1, c.Ints(*pads));
  if (const std::optional<double> value = TakeFloat(attributes, "value"); value && *value != 0) {
    QUENCH_RETURN_IF_ERROR(c.RequireDataType(0));
    inputs = WithInput(std::move(inputs), 2, c.Scalar(c.type(c.in(0)).dtype, *value));
  }
  return c.Final("Pad", std::move(inputs), std::move(attributes));
}

// `output_sequence` only said that output 0 would be wanted.
absl::Status ConvertRecurrent(Converter& c) {
  Attributes attributes = Own(c);
  if (c.version() < 7) attributes.erase("output_sequence");
  return c.Final(c.node().op, c.inputs(), std::move(attributes));
}

absl::Status ConvertReshape(Converter& c) {
  Attributes attributes = Own(c);
  std::vector<ValueId> inputs = c.inputs();
  if (const auto shape = TakeInts(attributes, "shape"))
    inputs = WithInput(std::move(inputs), 1, c.Ints(*shape));
  return c.Final("Reshape", std::move(inputs), std::move(attributes));
}

namespace {

// Opset 10: the nearest element is the previous one along axes that grow, the next one along axes
// that shrink. Both need two resizes, which do not mind each other: their axes differ.
absl::Status ConvertResize10(Converter& c) {
  Attributes attributes = Own(c);
  attributes["coordinate_transformation_mode"] = std::string("asymmetric");
  attributes["nearest_mode"] = std::string("floor");
  const Tensor* scales = c.constant(c.in(1));
  ValueId x = c.in(0), growing = c.in(1);
  if (c.node().String("mode", "nearest") == "nearest" && scales != nullptr) {
    std::vector<float> smaller, larger;
    for (int64_t i = 0; i < scales->size(); ++i) {
      const auto scale = static_cast<float>(scales->FloatAt(i));
      smaller.push_back(std::min(scale, 1.0F));
      larger.push_back(std::max(scale, 1.0F));
    }
    if (std::ranges::any_of(smaller, [](float scale) { return scale < 1; })) {
      Attributes shrink = attributes;
      shrink["nearest_mode"] = std::string("ceil");
      x = c.Emit("Resize",
                 {x, kNone, c.AddConstant(Tensor::Of(DataType::kF32, scales->dims(), smaller))},
                 std::move(shrink));
      growing = c.AddConstant(Tensor::Of(DataType::kF32, scales->dims(), larger));
    }
  }
  return c.Final("Resize", {x, kNone, growing}, std::move(attributes));
}

}  // namespace

absl::Status ConvertResize(Converter& c) {
  if (c.version() < 11) return ConvertResize10(c);
  Attributes attributes = Own(c);
  std::vector<ValueId> inputs = c.inputs();
  for (int i = 1; i < static_cast<int>(inputs.size()); ++i) {
    if (IsEmptyConstant(c, i)) inputs[static_cast<size_t>(i)] = kNone;
  }
  return c.Final("Resize", std::move(inputs), std::move(attributes));
}

absl::Status ConvertRoiAlign(Converter& c) {
  Attributes attributes = Own(c);
  if (c.version() < 16)
    attributes.emplace("coordinate_transformation_mode", std::string("output_half_pixel"));
  return c.Final("RoiAlign", c.inputs(), std::move(attributes));
}

absl::Status ConvertScan(Converter& c) {
  if (c.version() < 9)
    return c.Unsupported("the form of opset 8, with a batch axis; opset 9 and newer are read");
  return c.FinalControl();
}

absl::Status ConvertScatter(Converter& c) { return c.Final("ScatterElements", c.inputs(), Own(c)); }

// Opset 1 to 9.
absl::Status ConvertSlice(Converter& c) {
  Attributes attributes = Own(c);
  std::vector<ValueId> inputs = c.inputs();
  const auto starts = TakeInts(attributes, "starts"), ends = TakeInts(attributes, "ends");
  const auto axes = TakeInts(attributes, "axes");
  if (starts) inputs = WithInput(std::move(inputs), 1, c.Ints(*starts));
  if (ends) inputs = WithInput(std::move(inputs), 2, c.Ints(*ends));
  if (axes) inputs = WithInput(std::move(inputs), 3, c.Ints(*axes));
  return c.Final("Slice", std::move(inputs), std::move(attributes));
}

// Softmax, LogSoftmax and Hardmax up to opset 12 see the input as a matrix: dims before `axis` by
// dims from `axis` on.
absl::Status ConvertSoftmax(Converter& c) {
  const std::string& op = c.node().op;
  Attributes attributes = Own(c);
  if (c.version() >= 13) return c.Final(op, c.inputs(), std::move(attributes));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  const int rank = c.Rank(c.in(0));
  const int64_t axis = c.node().Int("axis", 1);
  const int64_t normal = axis < 0 ? axis + rank : axis;
  if (normal < 0 || normal > rank)
    return c.Error(fmt::format("axis {} is outside of the input's rank {}", axis, rank));
  attributes["axis"] = int64_t{-1};
  if (normal == rank - 1) return c.Final(op, c.inputs(), std::move(attributes));
  const ValueId matrix = c.Emit("Flatten", {c.in(0)}, {{"axis", normal}});
  const ValueId result = c.Emit(op, {matrix}, std::move(attributes));
  return c.Final("Reshape", {result, c.Emit("Shape", {c.in(0)})});
}

// `split` up to opset 11; without it the parts are equal, and opset 18 wants to hear how many.
absl::Status ConvertSplit(Converter& c) {
  Attributes attributes = Own(c);
  std::vector<ValueId> inputs = c.inputs();
  if (const auto split = TakeInts(attributes, "split"))
    inputs = WithInput(std::move(inputs), 1, c.Ints(*split));
  const bool sized = inputs.size() > 1 && inputs[1] != kNone;
  if (!sized) attributes.emplace("num_outputs", static_cast<int64_t>(c.num_outputs()));
  return c.Final("Split", std::move(inputs), std::move(attributes));
}

absl::Status ConvertTopK(Converter& c) {
  Attributes attributes = Own(c);
  std::vector<ValueId> inputs = c.inputs();
  if (const auto k = TakeInts(attributes, "k"))
    inputs = WithInput(std::move(inputs), 1, c.Ints(*k));
  return c.Final("TopK", std::move(inputs), std::move(attributes));
}

// Opset 1: height_scale and width_scale; 7: scales; 9: input 1. Pixels are repeated from the top
// left corner.
absl::Status ConvertUpsample(Converter& c) {
  Attributes attributes = Own(c);
  ValueId scales = c.in(1);
  const auto height = TakeFloat(attributes, "height_scale"),
             width = TakeFloat(attributes, "width_scale");
  std::vector<double> given = c.node().Floats("scales");
  attributes.erase("scales");
  if (height && width) given = {1, 1, *height, *width};
  if (!given.empty()) {
    const std::vector<float> floats(given.begin(), given.end());
    scales =
        c.AddConstant(Tensor::Of(DataType::kF32, {static_cast<int64_t>(floats.size())}, floats));
  }
  if (scales == kNone) return c.Error("has no scales");
  if (c.node().String("mode", "nearest") == "bilinear") attributes["mode"] = std::string("linear");
  attributes["coordinate_transformation_mode"] = std::string("asymmetric");
  attributes["nearest_mode"] = std::string("floor");
  return c.Final("Resize", {c.in(0), kNone, scales}, std::move(attributes));
}

}  // namespace quench::importer
