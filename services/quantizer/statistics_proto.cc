#include "services/quantizer/statistics_proto.h"

#include <cmath>

#include "common/base/status.h"

namespace quench::quantizer {
namespace {

absl::Status Check(const v1::ValueStatistics& message, const TensorStatistics& value) {
  const auto wrong = [&](std::string_view what) {
    return InvalidArgument("value `{}`: {}", message.value(), what);
  };
  if (value.samples < 1 || value.elements < value.samples) return wrong("no samples");
  if (!std::isfinite(value.low) || !std::isfinite(value.high) || value.low > value.high)
    return wrong("its extrema are not a range");
  for (const double sum :
       {value.sum_of_lows, value.sum_of_highs, value.sum, value.sum_of_squares}) {
    if (!std::isfinite(sum)) return wrong("its sums are not finite");
  }
  if (value.histogram.total() != static_cast<uint64_t>(value.elements))
    return wrong("its histogram has not as many elements as it");
  return absl::OkStatus();
}

TensorStatistics ValueFromProto(const v1::ValueStatistics& message) {
  TensorStatistics value;
  value.samples = message.samples();
  value.elements = message.elements();
  value.low = message.low();
  value.high = message.high();
  value.sum_of_lows = message.sum_of_lows();
  value.sum_of_highs = message.sum_of_highs();
  value.sum = message.sum();
  value.sum_of_squares = message.sum_of_squares();
  const v1::Histogram& histogram = message.histogram();
  value.histogram = Histogram::FromParts(histogram.exponent(), histogram.first_bin(),
                                         {histogram.counts().begin(), histogram.counts().end()});
  for (const v1::ChannelStatistics& channel : message.channels()) {
    value.channels.push_back({channel.low(), channel.high(), channel.sum(), channel.elements()});
  }
  return value;
}

}  // namespace

v1::Statistics ToProto(const Statistics& statistics) {
  v1::Statistics message;
  message.set_fingerprint(statistics.fingerprint);
  message.set_samples(statistics.samples);
  message.set_random(statistics.random);
  for (const std::string& name : statistics.not_finite) message.add_not_finite(name);
  for (const auto& [name, value] : statistics.values) {
    v1::ValueStatistics& added = *message.add_values();
    added.set_value(name);
    added.set_samples(value.samples);
    added.set_elements(value.elements);
    added.set_low(value.low);
    added.set_high(value.high);
    added.set_sum_of_lows(value.sum_of_lows);
    added.set_sum_of_highs(value.sum_of_highs);
    added.set_sum(value.sum);
    added.set_sum_of_squares(value.sum_of_squares);
    v1::Histogram& histogram = *added.mutable_histogram();
    histogram.set_exponent(value.histogram.exponent());
    histogram.set_first_bin(value.histogram.first_bin());
    histogram.mutable_counts()->Assign(value.histogram.counts().begin(),
                                       value.histogram.counts().end());
    for (const ChannelStatistics& channel : value.channels) {
      v1::ChannelStatistics& entry = *added.add_channels();
      entry.set_low(channel.low);
      entry.set_high(channel.high);
      entry.set_sum(channel.sum);
      entry.set_elements(channel.elements);
    }
  }
  return message;
}

absl::StatusOr<Statistics> FromProto(const v1::Statistics& message) {
  Statistics statistics;
  statistics.fingerprint = message.fingerprint();
  statistics.samples = message.samples();
  statistics.random = message.random();
  statistics.not_finite = {message.not_finite().begin(), message.not_finite().end()};
  StatusCollector problems;
  if (message.samples() < 1 || message.fingerprint().empty()) {
    problems.Add(InvalidArgument("{} samples of module `{}`: nothing was calibrated",
                                 message.samples(), message.fingerprint().substr(0, 16)));
  }
  for (const v1::ValueStatistics& each : message.values()) {
    const auto [place, fresh] = statistics.values.emplace(each.value(), ValueFromProto(each));
    if (!fresh) problems.Add(InvalidArgument("value `{}` comes twice", each.value()));
    problems.Add(Check(each, place->second));
  }
  if (!problems.ok()) return problems.Finish();
  return statistics;
}

}  // namespace quench::quantizer
