// Weights and biases as integers.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <span>
#include <vector>

#include "common/base/context.h"
#include "common/ir/tensor.h"
#include "services/quantizer/scheme.h"

namespace quench::quantizer {

struct QuantizedConstant {
  Tensor integers;
  Tensor scale;       // f32: a scalar, or one per channel
  Tensor zero_point;  // of the integers' dtype, shaped as the scale
};

// INVALID_ARGUMENT with the counts of NaN and infinity in an f32 tensor; OK for other dtypes.
absl::Status CheckFinite(const Tensor& tensor);

// Puts an integer into a tensor of i8, u8, i4, u4 or i32; it fits. `index` is row-major.
void StoreInteger(Tensor& tensor, int64_t index, int32_t value);

// Symmetric, so that sums over a kernel need no correction for its zero point: scale =
// max |w| / 127, over the whole tensor (axis -1) or along `axis`; a channel of zeros has the largest
// scale of the others, so that its bias has steps like theirs. NaN and infinity are
// INVALID_ARGUMENT with their counts.
absl::StatusOr<QuantizedConstant> QuantizeKernel(const Tensor& kernel, int axis,
                                                 const Scheme& scheme);

// The same with a range for each `block` elements along `axis` and each index of the other one: scale
// and zero point have ceil(size / block) there. Unsigned integers have asymmetric ranges. With
// `least_error`, ranges from 70 % to 100 % of each block's own are tried, and the one with the
// smallest squared error is kept.
absl::StatusOr<QuantizedConstant> QuantizeBlocks(const Tensor& matrix, int axis, int64_t block,
                                                 const Scheme& scheme, bool least_error,
                                                 const StepContext& context = {});

// A bias that is added to sums of products: integers in steps of input_scale * kernel_scale[c], as
// i32. FAILED_PRECONDITION if one does not fit.
absl::StatusOr<QuantizedConstant> QuantizeBias(const Tensor& bias, float input_scale,
                                               const Tensor& kernel_scale);

// The layout of a kernel of Conv or Gemm.
struct KernelLayout {
  int64_t outputs = 1, inputs = 1, groups = 1;
  int64_t spatial = 1;        // elements for each pair of channels
  bool inputs_first = false;  // Gemm's [K, N]
};

// The mean error that rounding the kernel adds to each output channel, given the mean of each input
// channel:
//   sum_i mean(x_i) * sum_k (quantized w - w)[c, i, k]
// (Nagel et al. 2019, arXiv 1906.04721, section 4.2). Where padding is read instead of x it is a
// little too large. `axis` is that of the scale.
std::vector<double> ExpectedShift(const Tensor& kernel, const QuantizedConstant& quantized,
                                  int axis, const KernelLayout& layout,
                                  std::span<const double> input_means);

// The largest sum of products that inputs between the ends of `input` can give with the kernel,
// biases included, so that an accumulator can be checked. `output_of` maps an element of the kernel
// to one of `outputs`.
double LargestAccumulator(const QuantizedConstant& kernel, int axis, int64_t outputs,
                          const std::function<int64_t(int64_t)>& output_of, const Affine& input,
                          const Tensor* bias);

}  // namespace quench::quantizer
