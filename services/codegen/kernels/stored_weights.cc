#include "services/codegen/kernels/stored_weights.h"

#include <fmt/format.h>

namespace quench::codegen {
namespace {

// What an integer of `dtype` is less the one that is stored for it: i8 as they are, u8 less 128, i4
// plus 8, u4 as they are.
int64_t StoredShift(DataType dtype) {
  if (dtype == DataType::kU8) return 128;
  return dtype == DataType::kI4 ? -8 : 0;
}

bool AnyOffset(DataType dtype, const Constant* zero) {
  if (zero == nullptr) return StoredShift(dtype) != 0;
  for (int64_t i = 0; i < zero->tensor.size(); ++i) {
    if (zero->tensor.IntAt(i) != StoredShift(dtype)) return true;
  }
  return false;
}

}  // namespace

std::string StoredWeights::ToString() const {
  return blocked ? fmt::format("i{} weights in blocks of {}", bits, block)
                 : fmt::format("i{} weights", bits);
}

std::vector<std::vector<Vec>> StoredReader::Read(Ptr weights) const {
  const int shared = stored_.rows_per_byte();
  const Vec width = b_.Constant(DataType::kI32, 4, lanes_);
  std::vector<std::vector<Vec>> rows(static_cast<size_t>(shared));
  for (int v = 0; v < vectors_; ++v) {
    const Vec word = b_.ToI32(b_.Load(weights + int64_t{v} * lanes_, lanes_, stored_.load_type()));
    rows[0].push_back(Real(shared == 1 ? b_.ToF32(word) : b_.LowBitsToF32(word), v));
    if (shared > 1) rows[1].push_back(Real(b_.ToF32(b_.Apply(VecOp::kShiftRight, word, width)), v));
  }
  return rows;
}

Vec StoredReader::Real(Vec whole, int vector) const {
  if (!scales_.valid()) return whole;
  const int64_t at = int64_t{4} * lanes_ * vector;
  const Vec scale = b_.Load(scales_ + at, lanes_);
  if (!offsets_.valid()) return b_.Apply(VecOp::kMul, whole, scale);
  return b_.Fma(whole, scale, b_.Load(offsets_ + at, lanes_));
}

std::optional<StoredWeights> ReadStoredWeights(const KernelRequest& request, const Group& group) {
  const Constant* weights = ConstantInput(request, group, 1);
  const Constant* scale = ConstantInput(request, group, 2);
  const Constant* zero = group.HasInput(3) ? ConstantInput(request, group, 3) : nullptr;
  if (weights == nullptr || scale == nullptr || (group.HasInput(3) && zero == nullptr))
    return std::nullopt;
  StoredWeights stored;
  stored.bits = DataTypeBits(weights->tensor.dtype());
  stored.block = group.root->Int("block_size", 1);
  stored.blocked = stored.block < weights->tensor.dims()[0];
  if (stored.blocked && stored.block % 2 != 0) return std::nullopt;
  stored.offsets = AnyOffset(weights->tensor.dtype(), zero);
  return stored;
}

void AddStoredPacks(const KernelRequest& request, const Group& group, const StoredWeights& stored,
                    int lanes, int vectors, Candidate& candidate) {
  const auto value = [&](int i) {
    return request.node.inputs[static_cast<size_t>(group.inputs[static_cast<size_t>(i)])];
  };
  for (const int i : {1, 2, 3}) {
    if (group.HasInput(i))
      candidate.packed[static_cast<size_t>(group.inputs[static_cast<size_t>(i)])] = true;
  }
  const std::map<std::string, int64_t> panels = {{"lanes", lanes}, {"vectors", vectors}};
  candidate.packs.push_back({"gemm_panels_stored", panels, {value(1)}});
  candidate.packs.push_back({"gemm_scales", panels, {value(2)}});
  if (!stored.offsets) return;
  PackSpec offsets{"gemm_offsets", panels, {value(2)}};
  offsets.params["shift"] = StoredShift(request.graph.value(value(1)).constant->tensor.dtype());
  if (group.HasInput(3)) offsets.sources.push_back(value(3));
  candidate.packs.push_back(std::move(offsets));
}

}  // namespace quench::codegen
