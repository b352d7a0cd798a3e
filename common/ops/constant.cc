#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// More than this belongs in a constant of the graph, which is where the importer puts every
// Constant node.
constexpr int64_t kMaxInline = 1024;

Tensor FloatTensor(std::vector<int64_t> dims, const std::vector<double>& values) {
  return Tensor::Of(DataType::kF32, std::move(dims),
                    std::vector<float>(values.begin(), values.end()));
}

// The one value attribute of the node as a tensor.
absl::StatusOr<Tensor> ValueOf(const OpContext& ctx) {
  const Node& node = ctx.node();
  if (node.attributes.size() != 1) {
    return ctx.Error(
        fmt::format("has {} value attributes, Constant takes exactly one", node.attributes.size()));
  }
  const auto& [name, attribute] = *node.attributes.begin();
  if (name == "value") return std::get<Tensor>(attribute);
  if (name == "value_int")
    return Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{std::get<int64_t>(attribute)});
  if (name == "value_ints") return Tensor::I64(std::get<std::vector<int64_t>>(attribute));
  if (name == "value_float") return FloatTensor({}, {std::get<double>(attribute)});
  const auto& floats = std::get<std::vector<double>>(attribute);
  return FloatTensor({static_cast<int64_t>(floats.size())}, floats);
}

absl::Status InferConstant(InferContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const Tensor value, ValueOf(ctx));
  ctx.SetOutput(0, value.dtype(), {value.dims().begin(), value.dims().end()});
  if (value.rank() <= 1 && IsInteger(value.dtype()) && value.size() <= kMaxInline) {
    const std::vector<int64_t> elements = value.ToInts();
    ctx.SetElements(0, {elements.begin(), elements.end()});
  }
  return absl::OkStatus();
}

absl::Status LowerConstant(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const Tensor value, ValueOf(ctx));
  if (value.size() > kMaxInline) {
    return ctx.UnsupportedError(
        fmt::format("has {} elements, more than {} are kept as a constant of the graph",
                    value.size(), kMaxInline));
  }
  Builder& b = ctx.b();
  const DataType type = loops::ComputeType(value.dtype());
  std::vector<int64_t> index(value.dims().size(), 0);
  for (int64_t i = 0; i < value.size(); ++i) {
    std::vector<E> at;
    for (int64_t k : index) at.push_back(b.I(k));
    b.Store(ctx.out(0), at,
            IsFloat(type) ? b.F(value.FloatAt(i), type) : b.Int(value.IntAt(i), type));
    for (size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < value.dims()[axis]) break;
      index[axis] = 0;
    }
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& ConstantOp() {
  static const OpDef op = {.name = "Constant",
                           .summary = "a tensor written in the node",
                           .min_inputs = 0,
                           .max_inputs = 0,
                           .attributes = {{"value", AttributeSpec::kTensor},
                                          {"value_int", AttributeSpec::kInt},
                                          {"value_ints", AttributeSpec::kInts},
                                          {"value_float", AttributeSpec::kFloat},
                                          {"value_floats", AttributeSpec::kFloats}},
                           .infer = InferConstant,
                           .lower = LowerConstant};
  return op;
}

}  // namespace quench::ops
