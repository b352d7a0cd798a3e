#include "common/metrics/metrics.h"

#include <prometheus/family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <variant>

#include "common/base/status.h"
#include "common/base/trace_context.h"
#include "common/metrics/open_metrics.h"
#include "common/metrics/process.h"

namespace quench::metrics {
namespace internal {
namespace {

struct Label {
  const char* name;
  std::vector<const char*> texts;  // empty: open
  size_t most;                     // values of an open label
};

// Indexed by LabelIndex.
const std::vector<Label>& LabelTable() {
  static const auto* table = new std::vector<Label>{
#define QUENCH_VALUE(name, text) text,
#define QUENCH_LABEL(type, text, values) {text, {values}, 0},
#define QUENCH_OPEN_LABEL(type, text, most) {text, {}, most},
#define QUENCH_METRIC(name, type, text, labels, help)
#define QUENCH_PROCESS_METRIC(field, type, text, help)
#include "common/metrics/metrics.def"
#undef QUENCH_LABEL
#undef QUENCH_OPEN_LABEL
#undef QUENCH_METRIC
  };
  return *table;
}

template <typename... Labels>
std::vector<LabelIndex> IndicesOf(void (*)(Labels...)) {
  return {LabelOf<Labels>::kIndex...};
}

struct Row {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  std::vector<LabelIndex> labels;
};

// Indexed by RowIndex.
const std::vector<Row>& RowTable() {
  static const auto* table = new std::vector<Row>{
#define QUENCH_LABEL(type, text, values)
#define QUENCH_OPEN_LABEL(type, text, most)
#define QUENCH_METRIC(name, type, text, labels, help) \
  {text, help, type::metric_type, IndicesOf(static_cast<void(*) labels>(nullptr))},
#include "common/metrics/metrics.def"
#undef QUENCH_METRIC
  };
  return *table;
}

constexpr bool NameFits(std::string_view name, prometheus::MetricType type) {
  const bool total = name.ends_with("_total");
  if (type == prometheus::MetricType::Counter) return total;
  if (type == prometheus::MetricType::Histogram) return name.ends_with("_seconds");
  return !total;
}
#define QUENCH_METRIC(name, type, text, labels, help)                 \
  static_assert(NameFits(text, type::metric_type) && help[0] != '\0', \
                "counters end in _total, histograms in _seconds; all have help");
#undef QUENCH_PROCESS_METRIC
#define QUENCH_PROCESS_METRIC(field, type, text, help) QUENCH_METRIC(field, type, text, (), help)
#include "common/metrics/metrics.def"
#undef QUENCH_LABEL
#undef QUENCH_OPEN_LABEL
#undef QUENCH_METRIC
#undef QUENCH_PROCESS_METRIC
#undef QUENCH_VALUE

// From a cached answer to the longest step: calls and steps share them, so that they compare.
const std::vector<double>& Buckets() {
  static const auto* buckets = new std::vector<double>{
      0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200};
  return *buckets;
}

}  // namespace

#define QUENCH_VALUE(name, text)
#define QUENCH_LABEL(type, text, values)                              \
  std::string LabelOf<type>::Text(type value) {                       \
    return LabelTable()[kIndex].texts.at(static_cast<size_t>(value)); \
  }
#define QUENCH_OPEN_LABEL(type, text, most)
#define QUENCH_METRIC(name, type, text, labels, help)
#define QUENCH_PROCESS_METRIC(field, type, text, help)
#include "common/metrics/metrics.def"

}  // namespace internal

namespace {

using AnyFamily = std::variant<prometheus::Family<Counter>*, prometheus::Family<Gauge>*,
                               prometheus::Family<prometheus::Histogram>*>;

AnyFamily Build(const internal::Row& row, prometheus::Registry& registry) {
  const auto build = [&](auto builder) -> AnyFamily {
    return &builder.Name(row.name).Help(row.help).Register(registry);
  };
  switch (row.type) {
    case prometheus::MetricType::Counter:
      return build(prometheus::BuildCounter());
    case prometheus::MetricType::Gauge:
      return build(prometheus::BuildGauge());
    default:
      return build(prometheus::BuildHistogram());
  }
}

}  // namespace

Histogram::Histogram(prometheus::Histogram& counts)
    : counts_(counts), exemplars_(internal::Buckets().size() + 1) {}

void Histogram::Observe(double seconds, const std::string& traceparent) {
  counts_.Observe(seconds);
  std::optional<TraceContext> trace = ParseTraceparent(traceparent);
  if (!trace || !trace->sampled) return;
  const std::vector<double>& bounds = internal::Buckets();
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin();
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const std::lock_guard lock(mutex_);
  exemplars_[static_cast<size_t>(bucket)] = {std::move(trace->trace_id), seconds, now.count()};
}

std::vector<Exemplar> Histogram::exemplars() const {
  const std::lock_guard lock(mutex_);
  return exemplars_;
}

struct Registry::Families {
  prometheus::Registry registry;
  std::vector<AnyFamily> rows;
  std::mutex mutex;  // of `open` and `histograms`
  std::array<std::set<std::string>, internal::kLabelCount> open;
  std::map<std::pair<std::string, prometheus::Labels>, Histogram> histograms;  // by name and labels
  std::mutex refresh_mutex;  // held while hooks run: one that is removed has returned
  std::list<std::function<void()>> refresh;

  // The value itself while the label has room for it.
  std::string Bounded(internal::LabelIndex index, std::string value) {
    const internal::Label& label = internal::LabelTable()[index];
    if (!label.texts.empty()) return value;
    const std::lock_guard lock(mutex);
    std::set<std::string>& seen = open[index];
    if (seen.contains(value)) return value;
    if (seen.size() >= label.most) return "other";
    seen.insert(value);
    return value;
  }
};

template <typename Type>
Type& Registry::Series(internal::RowIndex row, std::vector<std::string> values) {
  const std::vector<internal::LabelIndex>& indices = internal::RowTable()[row].labels;
  prometheus::Labels labels;
  for (size_t i = 0; i < indices.size(); ++i) {
    labels[internal::LabelTable()[indices[i]].name] =
        families_->Bounded(indices[i], std::move(values[i]));
  }
  if constexpr (std::is_same_v<Type, Histogram>) {
    auto& family = *std::get<prometheus::Family<prometheus::Histogram>*>(families_->rows[row]);
    prometheus::Histogram& counts = family.Add(labels, internal::Buckets());
    const std::lock_guard lock(families_->mutex);
    return families_->histograms
        .try_emplace({internal::RowTable()[row].name, std::move(labels)}, counts)
        .first->second;
  } else {
    return std::get<prometheus::Family<Type>*>(families_->rows[row])->Add(labels);
  }
}
template Counter& Registry::Series(internal::RowIndex, std::vector<std::string>);
template Gauge& Registry::Series(internal::RowIndex, std::vector<std::string>);
template Histogram& Registry::Series(internal::RowIndex, std::vector<std::string>);

// Every combination of closed values after those in `values`, of a counter or gauge.
void Registry::Initialise(internal::RowIndex row, std::vector<std::string>* values) {
  const internal::Row& what = internal::RowTable()[row];
  if (values->size() == what.labels.size()) {
    if (what.type == prometheus::MetricType::Counter) {
      Series<Counter>(row, *values);
    } else {
      Series<Gauge>(row, *values);
    }
    return;
  }
  for (const char* value : internal::LabelTable()[what.labels[values->size()]].texts) {
    values->push_back(value);
    Initialise(row, values);
    values->pop_back();
  }
}

Registry::Registry() : families_(std::make_unique<Families>()) {
  for (const internal::Row& row : internal::RowTable()) {
    families_->rows.push_back(Build(row, families_->registry));
  }
  for (int row = 0; row < internal::kRowCount; ++row) {
    if (internal::RowTable()[static_cast<size_t>(row)].type == prometheus::MetricType::Histogram)
      continue;
    std::vector<std::string> values;
    Initialise(static_cast<internal::RowIndex>(row), &values);
  }
}

Registry::~Registry() = default;

Registry::Refresh Registry::AddRefresh(std::function<void()> refresh) {
  const std::lock_guard lock(families_->refresh_mutex);
  const auto at = families_->refresh.insert(families_->refresh.end(), std::move(refresh));
  const auto remove = [this, at](void*) {
    const std::lock_guard removing(families_->refresh_mutex);
    families_->refresh.erase(at);
  };
  return Refresh(this, remove);
}

std::vector<prometheus::MetricFamily> Registry::Collect() const {
  {
    const std::lock_guard lock(families_->refresh_mutex);
    for (const std::function<void()>& refresh : families_->refresh) refresh();
  }
  std::vector<prometheus::MetricFamily> families = families_->registry.Collect();
  for (prometheus::MetricFamily& family : CollectProcess()) families.push_back(std::move(family));
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (prometheus::MetricFamily& family : families) {
    std::sort(family.metric.begin(), family.metric.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
  }
  return families;
}

std::string Registry::OpenMetrics() const {
  return ToOpenMetrics(Collect(),
                       [this](const std::string& name, const prometheus::Labels& labels) {
                         const std::lock_guard lock(families_->mutex);
                         const auto found = families_->histograms.find({name, labels});
                         return found == families_->histograms.end() ? std::vector<Exemplar>()
                                                                     : found->second.exemplars();
                       });
}

std::string Registry::Text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collect());
  return out.str();
}

Registry& Global() {
  static auto* const registry = new Registry();
  return *registry;
}

}  // namespace quench::metrics
