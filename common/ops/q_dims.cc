#include "common/ops/nest.h"

namespace quench::ops {
namespace {

// The attribute `dims`: expressions over the symbols of the module.
absl::StatusOr<std::vector<Dim>> ParsedDims(const OpContext& ctx) {
  std::vector<Dim> dims;
  for (const std::string& text : std::get<std::vector<std::string>>(*ctx.node().Find("dims"))) {
    absl::StatusOr<Dim> dim = ctx.symbols().Parse(text);
    if (!dim.ok())
      return ctx.Error(fmt::format("dims has `{}`: {}", text, MessageOf(dim.status())));
    dims.push_back(*dim);
  }
  return dims;
}

absl::Status InferQDims(InferContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(std::vector<Dim> dims, ParsedDims(ctx));
  ctx.SetOutput(0, DataType::kI64, {static_cast<int64_t>(dims.size())});
  ctx.SetElements(0, std::move(dims));
  return absl::OkStatus();
}

absl::Status LowerQDims(LowerContext& ctx) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Dim> dims, ParsedDims(ctx));
  for (size_t i = 0; i < dims.size(); ++i) {
    ctx.b().Store(ctx.out(0), {ctx.b().I(static_cast<int64_t>(i))}, ctx.Extent(dims[i]));
  }
  return absl::OkStatus();
}

}  // namespace

const OpDef& QDimsOp() {
  static const OpDef op = {.name = "q.dims",
                           .summary = "dims of the run as i64: what shape arithmetic folds to",
                           .min_inputs = 0,
                           .max_inputs = 0,
                           .attributes = {{"dims", AttributeSpec::kStrings, true}},
                           .infer = InferQDims,
                           .lower = LowerQDims};
  return op;
}

}  // namespace quench::ops
