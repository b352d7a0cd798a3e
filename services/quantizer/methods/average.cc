// Average: the mean, over samples, of each sample's extrema. One odd sample in n moves an end by a
// n-th of its excess.
//   low = 1/n * sum_i min(x_i)      high = 1/n * sum_i max(x_i)
#include "services/quantizer/methods/method.h"

namespace quench::quantizer {

Range Average(const TensorStatistics& statistics, const MethodOptions&) {
  const auto samples = static_cast<double>(statistics.samples);
  return {statistics.sum_of_lows / samples, statistics.sum_of_highs / samples};
}

}  // namespace quench::quantizer
