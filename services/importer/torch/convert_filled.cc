// Tensors that are filled with numbers, or made of nothing.
#include "common/base/status.h"
#include "services/importer/torch/converters.h"

namespace quench::importer::torch_ops {

absl::Status CopyFrom(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(Broadcast(n, n.Operand("src", n.TypeOf(x)), n.ShapeOf(x)));
}

absl::Status Fill(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  return n.Finish(Broadcast(n, n.Operand("value", n.TypeOf(x)), n.ShapeOf(x)));
}

absl::Status Triangle(Converter& c) {
  AtenNode n(c);
  const bool upper = c.node().op == "triu";
  return n.Finish(n.Emit(
      "Trilu", {n.In("self"), c.Scalar(DataType::kI64, static_cast<double>(n.Int("diagonal")))},
      {{"upper", int64_t{upper}}}));
}

// ---- Made of nothing ----

static DataType DefaultOf(const AtenNode& n, DataType fallback) {
  const Attribute* value = n.c.node().Find("fill_value");
  if (value != nullptr && std::holds_alternative<int64_t>(*value) && fallback == DataType::kF32)
    return DataType::kI64;
  return fallback;
}

absl::Status Filled(Converter& c) {
  AtenNode n(c);
  const ValueId like = n.In("self");
  const DataType fallback = like != kNone ? n.TypeOf(like) : DefaultOf(n, DataType::kF32);
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", fallback));
  const bool ones = c.node().op.find("ones") != std::string::npos;
  const ValueId value =
      n.Has("fill_value") ? n.Operand("fill_value", dtype) : c.Scalar(dtype, ones ? 1 : 0);
  return n.Finish(Broadcast(n, value, n.Sizes("size")));
}

absl::Status ScalarTensor(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", DataType::kF32));
  return n.Finish(n.Emit("Identity", {n.Operand("s", dtype)}));
}

absl::Status FilledLike(Converter& c) {
  AtenNode n(c);
  const ValueId x = n.In("self");
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", n.TypeOf(x)));
  const bool ones = c.node().op.starts_with("ones");
  const ValueId value =
      n.Has("fill_value") ? n.Operand("fill_value", dtype) : c.Scalar(dtype, ones ? 1 : 0);
  return n.Finish(Broadcast(n, value, n.ShapeOf(x)));
}

absl::Status Eye(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", DataType::kF32));
  const std::optional<int64_t> rows = n.KnownInt("n");
  const std::optional<int64_t> columns = n.Has("m") ? n.KnownInt("m") : rows;
  if (!rows || !columns) return c.Unsupported("sizes that only a run knows");
  const ValueId zeros = Broadcast(n, c.Scalar(DataType::kF32, 0), c.Ints({*rows, *columns}));
  return n.Finish(n.Cast(n.Emit("EyeLike", {zeros}), dtype));
}

// Counted from the nearer end, so that both are exact.
absl::Status Linspace(Converter& c) {
  AtenNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype, n.Dtype("dtype", DataType::kF32));
  const std::optional<int64_t> steps = n.KnownInt("steps");
  const bool known = n.In("start") == kNone && n.In("end") == kNone;
  if (!known || !steps) return c.Unsupported("numbers that only a run knows");
  constexpr int64_t kMostSteps = 1 << 20;
  if (*steps < 0 || *steps > kMostSteps)
    return c.Unsupported(fmt::format("{} steps, at most {} are taken", *steps, kMostSteps));
  const double first = n.Number("start"), last = n.Number("end");
  const double step = *steps > 1 ? (last - first) / static_cast<double>(*steps - 1) : 0;
  std::vector<float> values;
  for (int64_t i = 0; i < *steps; ++i) {
    const bool near = i < *steps / 2 || *steps == 1;
    values.push_back(static_cast<float>(near ? first + step * static_cast<double>(i)
                                             : last - step * static_cast<double>(*steps - 1 - i)));
  }
  return n.Finish(n.Cast(c.AddConstant(Tensor::Of(DataType::kF32, {*steps}, values)), dtype));
}

absl::Status Arange(Converter& c) {
  AtenNode n(c);
  bool real = false;
  for (const char* name : {"start", "end", "step"}) {
    const Attribute* value = c.node().Find(name);
    real = real || (value != nullptr && std::holds_alternative<double>(*value)) ||
           (n.In(name) != kNone && IsFloat(n.TypeOf(n.In(name))));
  }
  QUENCH_ASSIGN_OR_RETURN(const DataType dtype,
                          n.Dtype("dtype", real ? DataType::kF32 : DataType::kI64));
  const DataType counted = IsFloat(dtype) ? DataType::kF32 : DataType::kI64;
  const auto number = [&](const char* name, double fallback) {
    return n.Has(name) ? n.Operand(name, counted) : c.Scalar(counted, fallback);
  };
  const ValueId y = n.Emit("Range", {number("start", 0), number("end", 0), number("step", 1)});
  return n.Finish(n.Cast(y, dtype));
}

}  // namespace quench::importer::torch_ops
