// The common part of kernels of q.attention for all targets: which operands they take, where these lie, and what
// scores become.
#pragma once

#include <optional>
#include <vector>

#include "common/ops/q_attention.h"
#include "services/codegen/kernels/epilogue.h"

namespace quench::codegen {

struct AttentionOperands {
  ops::AttentionShape shape;
  std::vector<Dim> mask_dims;  // four, where there is a mask
  DataType mask_type = DataType::kF32;
};

// Reads a group that is a q.attention of floats whose types tell that all operands fit: kernels check nothing while
// they run, the nest does.
std::optional<AttentionOperands> ReadAttention(const Group& group);

// Addresses in operands and the result.
class AttentionPlaces {
 public:
  // All but `b` is copied.
  AttentionPlaces(VectorBuilder& b, const Group& group, const BufferMap& buffers,
                  AttentionOperands operands);

  static int64_t Bytes(DataType type) { return DataTypeBits(type) / 8; }
  // From a step to the next one, of queries, keys or values.
  int64_t StepBytes(int i) const;
  Ptr StepAt(int i, Int batch, Int head, Int step);
  Ptr ResultAt(Int batch, Int head, Int step);
  // The mask for a key.
  Ptr MaskAt(Int batch, Int head, Int step, Int key);
  // Key number of a batch entry's lengths.
  Int LengthOf(Int batch);

 private:
  Ptr Input(int i) { return b_.Buffer(inputs_[static_cast<size_t>(i)]); }

  VectorBuilder& b_;
  const AttentionOperands operands_;
  std::vector<int> inputs_;  // their buffers
  int output_ = 0;
};

// cap * tanh(score / cap).
loops::ScalarFunction CappedScore(double cap);
// The score where the mask, of bool, holds.
loops::ScalarFunction FilledScore(double fill);
// 1 / sum.
loops::ScalarFunction InverseSum(bool of_zero_is_zero);

}  // namespace quench::codegen
