// An example of what a histogram's bucket counts.
#pragma once

#include <string>

namespace quench::metrics {

// The latest work of a bucket whose trace is recorded.
struct Exemplar {
  std::string trace_id;  // 32 hexadecimal digits; empty: there was none
  double seconds = 0;
  double unix_seconds = 0;  // when it was counted
};

}  // namespace quench::metrics
