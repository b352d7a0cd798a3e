// The text format of OpenMetrics 1.0: what prometheus-cpp, which writes Prometheus's older format only, lacks.
#pragma once

#include <prometheus/labels.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <string>
#include <vector>

#include "common/metrics/exemplar.h"

namespace quench::metrics {

// Exemplars of a histogram's series, by bucket; fewer than it has buckets: the others have none.
using ExemplarsOf =
    std::function<std::vector<Exemplar>(const std::string& name, const prometheus::Labels& labels)>;

// Counters, gauges and histograms, in the order given, each bucket with its exemplar.
// Format: https://prometheus.io/docs/specs/om/open_metrics_spec
std::string ToOpenMetrics(const std::vector<prometheus::MetricFamily>& families,
                          const ExemplarsOf& exemplars_of);

}  // namespace quench::metrics
