#include "services/codegen/kernels/stored_operands.h"

namespace quench::codegen {
namespace {

// An integer of `dtype` minus the one that is stored for it: i8 are stored as they are, u8 minus
// 128, i4 plus 8, u4 as they are.
int64_t StoredShift(DataType dtype) {
  if (dtype == DataType::kU8) return 128;
  return dtype == DataType::kI4 ? -8 : 0;
}

// The zero point of all columns and blocks, if they have one.
std::optional<int64_t> CommonZero(const Constant* zero) {
  if (zero == nullptr) return 0;
  if (zero->tensor.size() == 0) return std::nullopt;
  for (int64_t i = 1; i < zero->tensor.size(); ++i) {
    if (zero->tensor.IntAt(i) != zero->tensor.IntAt(0)) return std::nullopt;
  }
  return zero->tensor.IntAt(0);
}

}  // namespace

std::optional<StoredWeights> ReadStoredWeights(const KernelRequest& request, const Group& group) {
  const Constant* weights = ConstantInput(request, group, 1);
  const Constant* scale = ConstantInput(request, group, 2);
  const Constant* zero = group.HasInput(3) ? ConstantInput(request, group, 3) : nullptr;
  if (weights == nullptr || scale == nullptr || (group.HasInput(3) && zero == nullptr))
    return std::nullopt;
  StoredWeights stored;
  stored.bits = DataTypeBits(weights->tensor.dtype());
  const int64_t k = weights->tensor.dims()[0];
  stored.block = group.root->Int("block_size", 1);
  stored.blocked = stored.block < k;
  if (!stored.blocked) stored.block = std::max<int64_t>(k, 1);
  const std::optional<int64_t> common = CommonZero(zero);
  const int64_t shift = StoredShift(weights->tensor.dtype()) - common.value_or(0);
  stored.zeros = !common || (stored.bits == 8 && shift != 0);
  if (stored.bits == 4 && common) stored.shift = shift;
  return stored;
}

void AddScales(const KernelRequest& request, const Group& group, const StoredWeights& stored,
               int lanes, int vectors, Candidate& candidate) {
  const auto input = [&](int i) { return group.inputs[static_cast<size_t>(i)]; };
  for (const int i : {2, 3}) {
    if (group.HasInput(i)) candidate.packed[static_cast<size_t>(input(i))] = true;
  }
  const std::map<std::string, int64_t> panels = {{"lanes", lanes}, {"vectors", vectors}};
  candidate.packs.push_back({"gemm_scales", panels, {input(2)}});
  if (!stored.zeros) return;
  PackSpec zeros{"gemm_zeros", panels, {input(2)}};
  zeros.params["shift"] = StoredShift(ConstantInput(request, group, 1)->tensor.dtype());
  if (group.HasInput(3)) zeros.inputs.push_back(input(3));
  candidate.packs.push_back(std::move(zeros));
}

}  // namespace quench::codegen
