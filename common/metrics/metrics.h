// Metrics: metrics.def is their table, this is how code reaches them.
//
//   registry.Get(metrics::kStepRetries, Stage::kImport, RetryReason::kShed).Increment();
//
// Labels are types: a missing, extra or swapped one does not compile.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/metrics/exemplar.h"

namespace quench::metrics {

using prometheus::Counter;
using prometheus::Gauge;

// Times, in buckets that all histograms share. Thread-safe.
class Histogram {
 public:
  static constexpr prometheus::MetricType metric_type = prometheus::MetricType::Histogram;

  explicit Histogram(prometheus::Histogram& counts);
  // `traceparent`: of the work that took so long. If its trace is sampled, the work is its bucket's exemplar.
  void Observe(double seconds, const std::string& traceparent = {});
  // By bucket; the last is of those above all bounds.
  std::vector<Exemplar> exemplars() const;

 private:
  prometheus::Histogram& counts_;
  mutable std::mutex mutex_;  // of `exemplars_`
  std::vector<Exemplar> exemplars_;
};

// A closed label is an enum, an open one a string of its own type.
#define QUENCH_VALUE(name, text) name,
#define QUENCH_LABEL(type, text, values) enum class type { values };
#define QUENCH_OPEN_LABEL(type, text, most)               \
  struct type {                                           \
    explicit type(std::string v) : value(std::move(v)) {} \
    std::string value;                                    \
  };
#define QUENCH_METRIC(name, type, text, labels, help)
#define QUENCH_PROCESS_METRIC(field, type, text, help)
#include "common/metrics/metrics.def"
#undef QUENCH_VALUE
#undef QUENCH_LABEL
#undef QUENCH_OPEN_LABEL
#undef QUENCH_METRIC

namespace internal {

enum LabelIndex {
#define QUENCH_LABEL(type, text, values) kLabel##type,
#define QUENCH_OPEN_LABEL(type, text, most) kLabel##type,
#define QUENCH_METRIC(name, type, text, labels, help)
#include "common/metrics/metrics.def"
  kLabelCount
};
#undef QUENCH_LABEL
#undef QUENCH_OPEN_LABEL
#undef QUENCH_METRIC

// A label's index as a type's property, and its values as text.
template <typename Label>
struct LabelOf;
#define QUENCH_LABEL(type, text, values)               \
  template <>                                          \
  struct LabelOf<type> {                               \
    static constexpr LabelIndex kIndex = kLabel##type; \
    static std::string Text(type value);               \
  };
#define QUENCH_OPEN_LABEL(type, text, most)                            \
  template <>                                                          \
  struct LabelOf<type> {                                               \
    static constexpr LabelIndex kIndex = kLabel##type;                 \
    static std::string Text(const type& value) { return value.value; } \
  };
#define QUENCH_METRIC(name, type, text, labels, help)
#include "common/metrics/metrics.def"
#undef QUENCH_LABEL
#undef QUENCH_OPEN_LABEL
#undef QUENCH_METRIC

enum RowIndex {
#define QUENCH_LABEL(type, text, values)
#define QUENCH_OPEN_LABEL(type, text, most)
#define QUENCH_METRIC(name, type, text, labels, help) kRow##name,
#include "common/metrics/metrics.def"
  kRowCount
};
#undef QUENCH_METRIC

}  // namespace internal

// A row of the table: `Signature` is void(labels...).
template <typename Type, typename Signature>
struct Metric {
  internal::RowIndex row;
};

#define QUENCH_METRIC(name, type, text, labels, help) \
  inline constexpr Metric<type, void labels> k##name{internal::kRow##name};
#include "common/metrics/metrics.def"
#undef QUENCH_LABEL
#undef QUENCH_OPEN_LABEL
#undef QUENCH_METRIC
#undef QUENCH_PROCESS_METRIC

// The series of one process. Thread-safe. Counters and gauges whose labels are all closed exist from the
// start, at 0, so that their first increment is one to an alert; others, and histograms, which take 20
// lines each, exist from their first Get.
class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // The series with these label values; it lives as long as the registry, so that hot paths keep
  // the reference. A value of an open label beyond the label's bound is counted as "other".
  template <typename Type, typename... Labels>
  Type& Get(Metric<Type, void(Labels...)> metric, const std::type_identity_t<Labels>&... values) {
    return Series<Type>(metric.row, {internal::LabelOf<Labels>::Text(values)...});
  }

  // Calls `refresh` before each collection, for gauges that are computed when they are read, until
  // what this returns is gone. The registry must outlive that.
  using Refresh = std::shared_ptr<void>;
  Refresh AddRefresh(std::function<void()> refresh);

  // All series and the process's own numbers, by name and labels.
  std::vector<prometheus::MetricFamily> Collect() const;
  // The same in Prometheus's text format.
  std::string Text() const;
  // The same in OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec), with exemplars.
  std::string OpenMetrics() const;

 private:
  struct Families;
  template <typename Type>
  Type& Series(internal::RowIndex row, std::vector<std::string> values);
  void Initialise(internal::RowIndex row, std::vector<std::string>* values);

  std::unique_ptr<Families> families_;
};

// The registry of this process. Never destroyed.
Registry& Global();

}  // namespace quench::metrics
