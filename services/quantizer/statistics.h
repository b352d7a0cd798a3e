// Statistics of a model's values from calibration: as much as every method of choosing ranges
// needs, in memory that does not grow with the number of samples.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/ir/tensor.h"
#include "services/quantizer/histogram.h"

namespace quench::quantizer {

struct ChannelStatistics {
  float low = 0, high = 0;
  double sum = 0;
  int64_t elements = 0;
};

// Statistics of one value, over `samples` runs of the model.
struct TensorStatistics {
  int64_t samples = 0;   // runs that gave elements
  int64_t elements = 0;  // in all of them
  float low = 0, high = 0;
  double sum_of_lows = 0, sum_of_highs = 0;  // of each sample's extrema
  double sum = 0, sum_of_squares = 0;
  Histogram histogram;
  std::vector<ChannelStatistics> channels;  // along the value's channel axis; empty: it has none

  // A float tensor. `axis` is that of channels, -1 for none. NaN and infinity are
  // INVALID_ARGUMENT that says how many of each there are; numbers that stand for infinity, as the
  // least float does in masks and paddings, are OUT_OF_RANGE. Nothing is added then.
  absl::Status Add(const Tensor& tensor, int axis);
  // FAILED_PRECONDITION when the two have different numbers of channels.
  absl::Status Merge(const TensorStatistics& other);

  double mean() const;
  double variance() const;
};

struct Statistics {
  std::string fingerprint;  // of the module that was calibrated
  int64_t samples = 0;
  bool random = false;  // from random inputs: ranges may differ on real data
  std::map<std::string, TensorStatistics> values;
  std::set<std::string>
      not_finite;  // values that were NaN or as good as infinite: without statistics

  // Statistics of the same module, from other samples. FAILED_PRECONDITION for another module's.
  absl::Status Merge(const Statistics& other);
};

// FAILED_PRECONDITION unless the statistics are of the module with this fingerprint.
absl::Status CheckStatisticsOf(const Statistics& statistics, const std::string& fingerprint);

}  // namespace quench::quantizer
