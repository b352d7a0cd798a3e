// The numbers inside a tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ir/tensor.h"

namespace quench::analyser {

struct TensorStatistics {
  int64_t elements = 0, zeros = 0;
  int64_t nan = 0, infinite = 0;  // left out of the following
  double min = 0, max = 0, mean = 0, std = 0;
  std::vector<int64_t> histogram;  // 20 equal parts of [min, max]; empty if no element is finite
};

// For strings and complex numbers, only `elements` is set.
TensorStatistics StatisticsOf(const Tensor& tensor);

}  // namespace quench::analyser
