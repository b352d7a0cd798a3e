// Metrics of the process itself, read from /proc at each scrape.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace quench::metrics {

struct ProcessStats {
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_fds = 0;
  double max_fds = 0;
  double start_time_seconds = 0;
};

// Numbers that cannot be read are 0.
ProcessStats ReadProcessStats();

std::vector<prometheus::MetricFamily> CollectProcess();

}  // namespace quench::metrics
