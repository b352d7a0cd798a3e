// Weights of convolutions and products as integers, the way options ask for.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <string>

#include "common/base/context.h"
#include "common/ir/graph.h"
#include "services/quantizer/constants.h"
#include "services/quantizer/options.h"

namespace quench::quantizer {

// How one constant becomes integers.
struct WeightScheme {
  Scheme scheme;
  // Without blocks: that of output channels, -1 for one scale of all. With blocks: the one that is
  // summed over.
  int axis = -1;
  int64_t block = 0;  // elements along `axis` that share a scale; 0: there are no blocks
  bool least_error = false;
};
// For a kernel whose activations are integers too.
WeightScheme SchemeOfKernel(const Node& root, const Tensor& kernel, const QuantizeOptions& options);
// For a matrix that floats are multiplied with, or a table that rows are taken from. `bytes`: at
// least eight bits.
WeightScheme SchemeOfMatrix(const Node& node, const Tensor& matrix, bool bytes,
                            const QuantizeOptions& options);
// For W and R of a recurrent layer, at least eight bits: a scale for each gate's unit of each
// direction, whatever kernels have, because it costs nothing where only weights are integers.
WeightScheme SchemeOfRecurrent(const QuantizeOptions& options);
// Their parameters, in words: options with the same words give the same schemes.
std::string SchemeWords(const QuantizeOptions& options);

// Rounds to the nearest integers. For blocks, scale and zero point are matrices (QuantizeBlocks).
absl::StatusOr<QuantizedConstant> ToIntegers(const Tensor& weights, const WeightScheme& scheme,
                                             const StepContext& context = {});

// The two integers that a weight lies between: the nearest one, and the other.
class Neighbours {
 public:
  // All must outlive this.
  Neighbours(const Tensor& weights, const WeightScheme& scheme, const QuantizedConstant& nearest);
  // The value of the nearest integer minus the weight.
  float Error(int64_t element) const;
  // The other integer, minus the nearest: 1, -1, or 0 where the weight lies on an integer or the other
  // one has no place in the dtype.
  int Step(int64_t element) const;
  float Scale(int64_t element) const;

 private:
  size_t ScaleIndex(int64_t element) const;

  std::span<const float> weights_, scales_;
  const QuantizedConstant& nearest_;
  int64_t least_, greatest_;
  int64_t inner_ = 0, count_ = 1;    // without blocks: elements of an index along the axis
  int64_t columns_ = 0, block_ = 0;  // with blocks
  bool along_rows_ = false;          // blocks lie within rows
};
// The integers that `otherwise` names (a bit each, lowest first) become the other neighbour.
void RoundOtherwise(const Tensor& weights, const WeightScheme& scheme, const std::string& otherwise,
                    QuantizedConstant& constant);

}  // namespace quench::quantizer
