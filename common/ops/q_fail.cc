#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// Index of the runtime size of an axis of an output.
int SizeIndex(int output, int axis) { return 64 * output + axis; }

// Outputs of the declared types, of sizes that no run ever gets to know.
absl::Status InferQFail(InferContext& ctx) {
  const auto& dtypes = std::get<std::vector<std::string>>(*ctx.node().Find("dtypes"));
  const auto& ranks = std::get<std::vector<int64_t>>(*ctx.node().Find("ranks"));
  const auto count = static_cast<size_t>(ctx.num_outputs());
  if (dtypes.size() != count || ranks.size() != count) {
    return ctx.Error(
        fmt::format("has {} outputs, {} dtypes and {} ranks", count, dtypes.size(), ranks.size()));
  }
  for (size_t i = 0; i < count; ++i) {
    const std::optional<DataType> dtype = ParseDataType(dtypes[i]);
    if (!dtype) return ctx.Error(fmt::format("`{}` is not a dtype", dtypes[i]));
    if (ranks[i] < 0 || ranks[i] > 64)
      return ctx.Error(fmt::format("a rank is {}, 0 to 64 are possible", ranks[i]));
    const auto output = static_cast<int>(i);
    std::vector<Dim> dims;
    for (int axis = 0; axis < ranks[i]; ++axis)
      dims.push_back(ctx.RuntimeDim(SizeIndex(output, axis), std::nullopt));
    ctx.SetOutput(output, *dtype, std::move(dims));
  }
  return absl::OkStatus();
}

absl::Status LowerQFail(LowerContext& ctx) {
  ctx.b().Check(ctx.b().Bool(false), ctx.node().String("message", ""));
  return absl::OkStatus();
}

absl::Status LowerSizesOfQFail(LowerContext& ctx) {
  QUENCH_RETURN_IF_ERROR(LowerQFail(ctx));
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    if (!ctx.has_output(i)) continue;
    for (const Dim dim : ctx.output(i).dims) SetRuntimeDim(ctx, dim, ctx.b().I(0));
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& QFailOp() {
  static const OpDef op = {.name = "q.fail",
                           .summary = "fails the run: what a branch becomes that cannot run",
                           .min_inputs = 0,
                           .max_inputs = 0,
                           .min_outputs = 1,
                           .max_outputs = -1,
                           .attributes = {{"message", AttributeSpec::kString, true},
                                          {"dtypes", AttributeSpec::kStrings, true},
                                          {"ranks", AttributeSpec::kInts, true}},
                           .infer = InferQFail,
                           .lower = LowerQFail,
                           .lower_sizes = LowerSizesOfQFail};
  return op;
}

}  // namespace quench::ops
