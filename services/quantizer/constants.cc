#include "services/quantizer/constants.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/status.h"

namespace quench::quantizer {
namespace {

// Position along `axis` of a row-major element: one channel for axis -1.
class ChannelIndex {
 public:
  ChannelIndex(const Tensor& tensor, int axis) {
    if (axis < 0) return;
    count_ = tensor.dims()[static_cast<size_t>(axis)];
    inner_ = 1;
    for (int i = axis + 1; i < tensor.rank(); ++i) inner_ *= tensor.dims()[static_cast<size_t>(i)];
  }
  int64_t count() const { return count_; }
  size_t of(int64_t element) const {
    return static_cast<size_t>(inner_ == 0 ? 0 : element / inner_ % count_);
  }

 private:
  int64_t count_ = 1, inner_ = 0;
};

std::vector<int64_t> ScaleDims(int axis, int64_t channels) {
  return axis < 0 ? std::vector<int64_t>() : std::vector<int64_t>{channels};
}

}  // namespace

absl::Status CheckFinite(const Tensor& tensor) {
  if (tensor.dtype() != DataType::kF32) return absl::OkStatus();
  int64_t nans = 0, infinities = 0;
  for (const float value : tensor.as<float>()) {
    nans += std::isnan(value) ? 1 : 0;
    infinities += std::isinf(value) ? 1 : 0;
  }
  if (nans == 0 && infinities == 0) return absl::OkStatus();
  return InvalidArgument("{} NaN and {} infinite of {} elements", nans, infinities, tensor.size());
}

void StoreInteger(Tensor& tensor, int64_t index, int32_t value) {
  std::byte* const bytes = tensor.mutable_bytes();
  switch (tensor.dtype()) {
    case DataType::kI8:
      reinterpret_cast<int8_t*>(bytes)[index] = static_cast<int8_t>(value);
      break;
    case DataType::kU8:
      reinterpret_cast<uint8_t*>(bytes)[index] = static_cast<uint8_t>(value);
      break;
    case DataType::kI4:
    case DataType::kU4: {
      const int64_t place = index % 2 * 4;
      const auto other = bytes[index / 2] & static_cast<std::byte>(0xF0 >> place);
      bytes[index / 2] = other | static_cast<std::byte>((value & 15) << place);
      break;
    }
    default:
      reinterpret_cast<int32_t*>(bytes)[index] = value;
  }
}

absl::StatusOr<QuantizedConstant> QuantizeKernel(const Tensor& kernel, int axis,
                                                 const Scheme& scheme) {
  QUENCH_RETURN_IF_ERROR(CheckFinite(kernel));
  const ChannelIndex channels(kernel, axis);
  const std::span<const float> values = kernel.as<float>();
  std::vector<double> largest(static_cast<size_t>(channels.count()), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    double& bound = largest[channels.of(static_cast<int64_t>(i))];
    bound = std::max(bound, std::abs(double{values[i]}));
  }
  Scheme symmetric = scheme;
  symmetric.symmetric = true;
  const double widest = largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
  std::vector<Affine> affines;
  for (const double bound : largest) {
    const double used = bound == 0 ? widest : bound;
    affines.push_back(AffineFor({-used, used}, symmetric));
  }
  QuantizedConstant result;
  result.integers = Tensor::Zeros(scheme.dtype, kernel.dims());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    StoreInteger(result.integers, index, Quantized(values[i], affines[channels.of(index)]));
  }
  const std::vector<int64_t> dims = ScaleDims(axis, channels.count());
  std::vector<float> scales;
  for (const Affine& affine : affines) scales.push_back(affine.scale);
  result.scale = Tensor::Of(DataType::kF32, dims, scales);
  result.zero_point = Tensor::Zeros(scheme.dtype, dims);
  for (size_t i = 0; i < affines.size(); ++i) {
    StoreInteger(result.zero_point, static_cast<int64_t>(i), affines[i].zero_point);
  }
  return result;
}

namespace {

double SquaredError(std::span<const float> values, const Affine& affine) {
  double error = 0;
  for (const float value : values) {
    const double off = value - Dequantized(Quantized(value, affine), affine);
    error += off * off;
  }
  return error;
}

Affine AffineOfBlock(std::span<const float> values, const Scheme& scheme, bool least_error) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  Affine best = AffineFor({*low, *high}, scheme);
  constexpr int kSteps = 6;  // of a twentieth
  double error = least_error ? SquaredError(values, best) : 0;
  for (int step = 1; least_error && step <= kSteps; ++step) {
    const double part = 1 - 0.05 * step;
    const Affine narrower = AffineFor({*low * part, *high * part}, scheme);
    const double other = SquaredError(values, narrower);
    if (other >= error) continue;
    best = narrower;
    error = other;
  }
  return best;
}

}  // namespace

absl::StatusOr<QuantizedConstant> QuantizeBlocks(const Tensor& matrix, int axis, int64_t block,
                                                 const Scheme& scheme, bool least_error,
                                                 const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(CheckFinite(matrix));
  Scheme used = scheme;
  used.symmetric = IsSigned(scheme.dtype);
  const int64_t columns = matrix.dims()[1];
  const int64_t length = matrix.dims()[static_cast<size_t>(axis)];
  const int64_t others = matrix.dims()[static_cast<size_t>(1 - axis)];
  const int64_t blocks = (length + block - 1) / block;
  std::vector<int64_t> dims = matrix.dims();
  dims[static_cast<size_t>(axis)] = blocks;
  QuantizedConstant result{Tensor::Zeros(scheme.dtype, matrix.dims()),
                           Tensor::Zeros(DataType::kF32, dims), Tensor::Zeros(scheme.dtype, dims)};
  const std::span<const float> all = matrix.as<float>();
  auto* scales = reinterpret_cast<float*>(result.scale.mutable_bytes());
  std::vector<float> values;
  for (int64_t other = 0; other < others; ++other) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    for (int64_t b = 0; b < blocks; ++b) {
      const auto place = [&](int64_t i) {
        return axis == 0 ? i * columns + other : other * columns + i;
      };
      const int64_t end = std::min(length, (b + 1) * block);
      values.clear();
      for (int64_t i = b * block; i < end; ++i)
        values.push_back(all[static_cast<size_t>(place(i))]);
      const Affine affine = AffineOfBlock(values, used, least_error);
      for (int64_t i = b * block; i < end; ++i)
        StoreInteger(result.integers, place(i),
                     Quantized(values[static_cast<size_t>(i - b * block)], affine));
      const int64_t at = axis == 0 ? b * others + other : other * blocks + b;
      scales[at] = affine.scale;
      StoreInteger(result.zero_point, at, affine.zero_point);
    }
  }
  return result;
}

absl::StatusOr<QuantizedConstant> QuantizeBias(const Tensor& bias, float input_scale,
                                               const Tensor& kernel_scale) {
  QUENCH_RETURN_IF_ERROR(CheckFinite(bias));
  QuantizedConstant result;
  result.integers = Tensor::Zeros(DataType::kI32, bias.dims());
  const bool per_channel = kernel_scale.rank() == 1;
  std::vector<float> scales;
  for (const float scale : kernel_scale.as<float>()) {
    scales.push_back(std::max(input_scale * scale, std::numeric_limits<float>::min()));
  }
  const std::span<const float> values = bias.as<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double steps =
        std::nearbyint(double{values[i]} / double{scales[per_channel ? i % scales.size() : 0]});
    if (std::abs(steps) > std::numeric_limits<int32_t>::max()) {
      return absl::FailedPreconditionError(fmt::format(
          "element {} is {:g}, {:g} steps of the sums it is added to: no 32-bit integer", i,
          values[i], steps));
    }
    StoreInteger(result.integers, static_cast<int64_t>(i), static_cast<int32_t>(steps));
  }
  result.scale = Tensor::Of(DataType::kF32, kernel_scale.dims(), scales);
  result.zero_point = Tensor::Zeros(DataType::kI32, kernel_scale.dims());
  return result;
}

std::vector<double> ExpectedShift(const Tensor& kernel, const QuantizedConstant& quantized,
                                  int axis, const KernelLayout& layout,
                                  std::span<const double> input_means) {
  const ChannelIndex channels(kernel, axis);
  const std::span<const float> real = kernel.as<float>();
  const std::span<const float> scale = quantized.scale.as<float>();
  const int64_t per_group = layout.inputs / layout.groups;
  const int64_t outputs_of_group = layout.outputs / layout.groups;
  std::vector<double> shift(static_cast<size_t>(layout.outputs), 0);
  for (int64_t i = 0; i < kernel.size(); ++i) {
    const size_t c = channels.of(i);
    const int64_t zero = quantized.zero_point.IntAt(static_cast<int64_t>(c));
    const double used = static_cast<double>(quantized.integers.IntAt(i) - zero) * scale[c];
    int64_t output = i % layout.outputs, input = i / layout.outputs;  // [K, N]
    if (!layout.inputs_first) {
      output = i / layout.spatial / per_group;
      input = output / outputs_of_group * per_group + i / layout.spatial % per_group;
    }
    shift[static_cast<size_t>(output)] +=
        (used - real[static_cast<size_t>(i)]) * input_means[static_cast<size_t>(input)];
  }
  return shift;
}

double LargestAccumulator(const QuantizedConstant& kernel, int axis, int64_t outputs,
                          const std::function<int64_t(int64_t)>& output_of, const Affine& input,
                          const Tensor* bias) {
  const ChannelIndex channels(kernel.integers, axis);
  std::vector<double> sums(static_cast<size_t>(outputs), 0);
  for (int64_t i = 0; i < kernel.integers.size(); ++i) {
    const int64_t zero = kernel.zero_point.IntAt(static_cast<int64_t>(channels.of(i)));
    sums[static_cast<size_t>(output_of(i))] +=
        std::abs(static_cast<double>(kernel.integers.IntAt(i) - zero));
  }
  // Kernels multiply the integers as they are, or minus their zero point: the larger of both.
  const double most =
      std::max({std::abs(double(input.least)), std::abs(double(input.greatest)),
                double(input.greatest - input.zero_point), double(input.zero_point - input.least)});
  double largest = 0;
  for (size_t c = 0; c < sums.size(); ++c) {
    const bool own = bias != nullptr && bias->size() == outputs;
    const double added =
        own ? std::abs(static_cast<double>(bias->IntAt(static_cast<int64_t>(c)))) : 0;
    largest = std::max(largest, sums[c] * most + added);
  }
  return largest;
}

}  // namespace quench::quantizer
