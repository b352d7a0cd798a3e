#include "services/quantizer/weights.h"

#include <fmt/format.h>

#include <cmath>

#include "common/base/status.h"
#include "services/quantizer/operands.h"

namespace quench::quantizer {
namespace {

constexpr int64_t kDefaultBlock = 32;  // of four bits

DataType KernelType(const QuantizeOptions& options) {
  return options.kernel_dtype == DataType::kUndefined ? options.activation_dtype
                                                      : options.kernel_dtype;
}

// 0: all that is summed for an output.
int64_t BlockOf(const QuantizeOptions& options, DataType dtype) {
  const bool in_blocks = DataTypeBits(dtype) == 4 && !options.per_channel;
  return options.block_size.value_or(in_blocks ? kDefaultBlock : 0);
}

}  // namespace

WeightScheme SchemeOfKernel(const Node& root, const Tensor& kernel,
                            const QuantizeOptions& options) {
  return {{KernelType(options), true, options.power_of_two},
          options.per_channel ? ChannelAxis(root, kernel) : -1,
          0,
          false};
}

WeightScheme SchemeOfMatrix(const Node& node, const Tensor& matrix, bool bytes,
                            const QuantizeOptions& options) {
  DataType dtype = KernelType(options);
  if (bytes && DataTypeBits(dtype) < 8) dtype = IsSigned(dtype) ? DataType::kI8 : DataType::kU8;
  const int axis = node.op == "Gather" || node.Int("transB", 0) != 0 ? 1 : 0;
  const int64_t length = matrix.dims()[static_cast<size_t>(axis)];
  const int64_t wanted = BlockOf(options, dtype);
  return {{dtype, true, options.power_of_two},
          axis,
          wanted > 0 && wanted < length ? wanted : length,
          options.method == "mse"};
}

WeightScheme SchemeOfRecurrent(const QuantizeOptions& options) {
  DataType dtype = KernelType(options);
  if (DataTypeBits(dtype) < 8) dtype = IsSigned(dtype) ? DataType::kI8 : DataType::kU8;
  return {{dtype, true, options.power_of_two}, 1, 0, false};
}

std::string SchemeWords(const QuantizeOptions& options) {
  const DataType dtype = KernelType(options);
  std::string words(DataTypeName(dtype));
  if (options.source == RangeSource::kWeights) {
    const int64_t block = BlockOf(options, dtype);
    words += block > 0 ? fmt::format(", {} to a scale", block) : ", a scale for each channel";
    words += options.method == "mse" ? ", of least error, weights alone" : ", weights alone";
  } else {
    words += options.per_channel ? ", a scale for each channel" : ", one scale for a kernel";
  }
  return words + (options.power_of_two ? ", powers of two" : "");
}

absl::StatusOr<QuantizedConstant> ToIntegers(const Tensor& weights, const WeightScheme& scheme,
                                             const StepContext& context) {
  if (scheme.block == 0) return QuantizeKernel(weights, scheme.axis, scheme.scheme);
  return QuantizeBlocks(weights, scheme.axis, scheme.block, scheme.scheme, scheme.least_error,
                        context);
}

Neighbours::Neighbours(const Tensor& weights, const WeightScheme& scheme,
                       const QuantizedConstant& nearest)
    : weights_(weights.as<float>()),
      scales_(nearest.scale.as<float>()),
      nearest_(nearest),
      least_(IsSigned(scheme.scheme.dtype) ? -(1 << (DataTypeBits(scheme.scheme.dtype) - 1)) : 0),
      greatest_(least_ + (1 << DataTypeBits(scheme.scheme.dtype)) - 1) {
  const std::vector<int64_t>& dims = weights.dims();
  if (scheme.block > 0) {
    block_ = scheme.block;
    along_rows_ = scheme.axis == 1;
    columns_ = dims[1];
    count_ = nearest.scale.dims()[1];
  } else if (scheme.axis >= 0) {
    count_ = dims[static_cast<size_t>(scheme.axis)];
    inner_ = 1;
    for (size_t i = static_cast<size_t>(scheme.axis) + 1; i < dims.size(); ++i) inner_ *= dims[i];
  }
}

size_t Neighbours::ScaleIndex(int64_t element) const {
  if (block_ > 0) {
    const int64_t row = element / columns_, column = element % columns_;
    return static_cast<size_t>(along_rows_ ? row * count_ + column / block_
                                           : row / block_ * count_ + column);
  }
  return static_cast<size_t>(inner_ == 0 ? 0 : element / inner_ % count_);
}

float Neighbours::Scale(int64_t element) const { return scales_[ScaleIndex(element)]; }

float Neighbours::Error(int64_t element) const {
  const auto scale = static_cast<int64_t>(ScaleIndex(element));
  const int64_t steps = nearest_.integers.IntAt(element) - nearest_.zero_point.IntAt(scale);
  return static_cast<float>(static_cast<double>(steps) * scales_[static_cast<size_t>(scale)] -
                            weights_[static_cast<size_t>(element)]);
}

int Neighbours::Step(int64_t element) const {
  const float error = Error(element);
  if (error == 0) return 0;
  const int step = error < 0 ? 1 : -1;
  const int64_t other = nearest_.integers.IntAt(element) + step;
  // A clipped weight lies between no two integers.
  const bool clipped = std::abs(error) > Scale(element);
  return clipped || other < least_ || other > greatest_ ? 0 : step;
}

void RoundOtherwise(const Tensor& weights, const WeightScheme& scheme, const std::string& otherwise,
                    QuantizedConstant& constant) {
  const QuantizedConstant nearest = constant;
  const Neighbours neighbours(weights, scheme, nearest);
  for (int64_t i = 0; i < weights.size(); ++i) {
    const auto bits = static_cast<unsigned char>(otherwise[static_cast<size_t>(i / 8)]);
    if ((bits >> (i % 8) & 1) == 0) continue;
    StoreInteger(constant.integers, i,
                 static_cast<int32_t>(nearest.integers.IntAt(i)) + neighbours.Step(i));
  }
}

}  // namespace quench::quantizer
