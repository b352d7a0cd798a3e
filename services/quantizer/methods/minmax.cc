// MinMax: everything that was seen; nothing is clipped, and one outlier costs all others their
// resolution.
//   low = min x      high = max x
#include "services/quantizer/methods/method.h"

namespace quench::quantizer {

Range MinMax(const TensorStatistics& statistics, const MethodOptions&) {
  return {statistics.low, statistics.high};
}

}  // namespace quench::quantizer
