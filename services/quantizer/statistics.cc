#include "services/quantizer/statistics.h"

#include <algorithm>
#include <cmath>

#include "common/base/status.h"

namespace quench::quantizer {
namespace {

// The tensor's elements as f32: its own bytes, or converted into `converted`.
std::span<const float> Floats(const Tensor& tensor, std::vector<float>& converted) {
  if (tensor.dtype() == DataType::kF32) return tensor.as<float>();
  converted.resize(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < converted.size(); ++i) {
    converted[i] = static_cast<float>(tensor.FloatAt(static_cast<int64_t>(i)));
  }
  return converted;
}

absl::Status CheckFinite(std::span<const float> values) {
  int64_t nans = 0, infinities = 0;
  for (const float value : values) {
    nans += std::isnan(value) ? 1 : 0;
    infinities += std::isinf(value) ? 1 : 0;
  }
  if (nans == 0 && infinities == 0) return absl::OkStatus();
  return InvalidArgument("{} NaN and {} infinite of {} elements", nans, infinities, values.size());
}

// Magnitudes from here on are not results of arithmetic but stand for infinity: masks and paddings are
// written with the least float of a type, or with 1e30. No steps of a range so wide tell other numbers
// apart.
float LeastUnbounded(DataType dtype) { return dtype == DataType::kF16 ? 65504.0F : 1e30F; }

void AddTo(ChannelStatistics& channel, std::span<const float> values) {
  if (values.empty()) return;
  float low = channel.elements == 0 ? values[0] : channel.low;
  float high = channel.elements == 0 ? values[0] : channel.high;
  double sum = 0;
  for (const float value : values) {
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
  }
  channel.low = low;
  channel.high = high;
  channel.sum += sum;
  channel.elements += static_cast<int64_t>(values.size());
}

void MergeInto(ChannelStatistics& channel, const ChannelStatistics& other) {
  if (other.elements == 0) return;
  channel.low = channel.elements == 0 ? other.low : std::min(channel.low, other.low);
  channel.high = channel.elements == 0 ? other.high : std::max(channel.high, other.high);
  channel.sum += other.sum;
  channel.elements += other.elements;
}

}  // namespace

absl::Status TensorStatistics::Add(const Tensor& tensor, int axis) {
  std::vector<float> converted;
  const std::span<const float> all = Floats(tensor, converted);
  if (all.empty()) return absl::OkStatus();
  // A sum that is finite has finite terms; one that is not may have overflowed.
  double total = 0, squares = 0;
  float least = all[0], greatest = all[0];
  for (const float value : all) {
    total += value;
    squares += double{value} * value;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  if (!std::isfinite(total)) QUENCH_RETURN_IF_ERROR(CheckFinite(all));
  if (std::max(-least, greatest) >= LeastUnbounded(tensor.dtype())) {
    return absl::OutOfRangeError(
        fmt::format("{} stands for infinity", -least > greatest ? least : greatest));
  }
  const bool has_channels = axis >= 0 && axis < tensor.rank();
  const int64_t count = has_channels ? tensor.dims()[static_cast<size_t>(axis)] : 0;
  if (samples > 0 && channels.size() != static_cast<size_t>(count)) {
    return absl::FailedPreconditionError(
        fmt::format("{} channels, samples before had {}", count, channels.size()));
  }
  channels.resize(static_cast<size_t>(count));
  if (count > 0) {
    int64_t inner = 1;
    for (int i = axis + 1; i < tensor.rank(); ++i) inner *= tensor.dims()[static_cast<size_t>(i)];
    const auto run = static_cast<size_t>(inner);
    for (size_t begin = 0, c = 0; begin < all.size(); begin += run, ++c) {
      AddTo(channels[c % channels.size()], all.subspan(begin, run));
    }
  }
  low = samples == 0 ? least : std::min(low, least);
  high = samples == 0 ? greatest : std::max(high, greatest);
  sum_of_lows += least;
  sum_of_highs += greatest;
  sum += total;
  sum_of_squares += squares;
  histogram.Add(all, least, greatest);
  ++samples;
  elements += static_cast<int64_t>(all.size());
  return absl::OkStatus();
}

absl::Status TensorStatistics::Merge(const TensorStatistics& other) {
  if (other.samples == 0) return absl::OkStatus();
  if (samples == 0) {
    *this = other;
    return absl::OkStatus();
  }
  if (channels.size() != other.channels.size()) {
    return absl::FailedPreconditionError(
        fmt::format("{} channels here, {} there", channels.size(), other.channels.size()));
  }
  for (size_t i = 0; i < channels.size(); ++i) MergeInto(channels[i], other.channels[i]);
  low = std::min(low, other.low);
  high = std::max(high, other.high);
  sum_of_lows += other.sum_of_lows;
  sum_of_highs += other.sum_of_highs;
  sum += other.sum;
  sum_of_squares += other.sum_of_squares;
  histogram.Merge(other.histogram);
  samples += other.samples;
  elements += other.elements;
  return absl::OkStatus();
}

double TensorStatistics::mean() const {
  return elements == 0 ? 0 : sum / static_cast<double>(elements);
}

double TensorStatistics::variance() const {
  if (elements == 0) return 0;
  return std::max(0.0, sum_of_squares / static_cast<double>(elements) - mean() * mean());
}

absl::Status Statistics::Merge(const Statistics& other) {
  if (fingerprint != other.fingerprint) {
    return absl::FailedPreconditionError(
        fmt::format("statistics of module `{}` cannot be merged with those of module `{}`",
                    fingerprint.substr(0, 16), other.fingerprint.substr(0, 16)));
  }
  for (const auto& [name, value] : other.values) {
    QUENCH_RETURN_IF_ERROR(Annotate(values[name].Merge(value), fmt::format("value `{}`", name)));
  }
  not_finite.insert(other.not_finite.begin(), other.not_finite.end());
  for (const std::string& name : not_finite) values.erase(name);
  samples += other.samples;
  random = random || other.random;
  return absl::OkStatus();
}

absl::Status CheckStatisticsOf(const Statistics& statistics, const std::string& fingerprint) {
  if (statistics.fingerprint == fingerprint) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the statistics are of module `{}`, this is `{}`: another model, or other passes; "
      "calibrate again",
      statistics.fingerprint.substr(0, 16), fingerprint.substr(0, 16)));
}

}  // namespace quench::quantizer
