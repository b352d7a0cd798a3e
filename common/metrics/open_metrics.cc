#include "common/metrics/open_metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string_view>

namespace quench::metrics {
namespace {

constexpr std::string_view kTotal = "_total";

void AppendEscaped(std::string_view text, std::string* out) {
  for (const char c : text) {
    if (c == '\n') {
      *out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') *out += '\\';
    *out += c;
  }
}

// Whole numbers have a decimal point, as the format asks of bounds.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class Writer {
 public:
  explicit Writer(const ExemplarsOf& exemplars_of) : exemplars_of_(exemplars_of) {}

  void Write(const prometheus::MetricFamily& family) {
    const bool counter = family.type == prometheus::MetricType::Counter;
    name_ = family.name;
    if (counter && name_.ends_with(kTotal)) name_.resize(name_.size() - kTotal.size());
    out_ += "# HELP " + name_ + " ";
    AppendEscaped(family.help, &out_);
    out_ += "\n# TYPE " + name_ + " " + TypeText(family.type) + "\n";
    for (const prometheus::ClientMetric& metric : family.metric) {
      if (family.type == prometheus::MetricType::Histogram) {
        WriteHistogram(metric);
      } else if (counter) {
        WriteSample(kTotal, metric, NumberText(metric.counter.value));
        out_ += '\n';
      } else {
        WriteSample("", metric, NumberText(metric.gauge.value));
        out_ += '\n';
      }
    }
  }

  std::string Finish() && { return std::move(out_) + "# EOF\n"; }

 private:
  static const char* TypeText(prometheus::MetricType type) {
    switch (type) {
      case prometheus::MetricType::Counter:
        return "counter";
      case prometheus::MetricType::Histogram:
        return "histogram";
      default:
        return "gauge";
    }
  }

  void WriteHistogram(const prometheus::ClientMetric& metric) {
    prometheus::Labels labels;
    for (const auto& label : metric.label) labels[label.name] = label.value;
    const std::vector<Exemplar> exemplars = exemplars_of_(name_, labels);
    const std::vector<prometheus::ClientMetric::Bucket>& buckets = metric.histogram.bucket;
    for (size_t i = 0; i < buckets.size(); ++i) {
      WriteSample("_bucket", metric, std::to_string(buckets[i].cumulative_count),
                  NumberText(buckets[i].upper_bound));
      if (i < exemplars.size() && !exemplars[i].trace_id.empty()) {
        fmt::format_to(std::back_inserter(out_), " # {{trace_id=\"{}\"}} {} {:.3f}",
                       exemplars[i].trace_id, NumberText(exemplars[i].seconds),
                       exemplars[i].unix_seconds);
      }
      out_ += '\n';
    }
    WriteSample("_count", metric, std::to_string(metric.histogram.sample_count));
    out_ += '\n';
    WriteSample("_sum", metric, NumberText(metric.histogram.sample_sum));
    out_ += '\n';
  }

  // Without the line's end. `bound`: of a bucket, or empty.
  void WriteSample(std::string_view suffix, const prometheus::ClientMetric& metric,
                   const std::string& value, const std::string& bound = {}) {
    out_ += name_;
    out_ += suffix;
    char before = '{';
    const auto write_label = [&](std::string_view name, std::string_view text) {
      out_ += before;
      out_ += name;
      out_ += "=\"";
      AppendEscaped(text, &out_);
      out_ += '"';
      before = ',';
    };
    for (const auto& label : metric.label) write_label(label.name, label.value);
    if (!bound.empty()) write_label("le", bound);
    if (before == ',') out_ += '}';
    out_ += ' ';
    out_ += value;
  }

  const ExemplarsOf& exemplars_of_;
  std::string name_;  // of the family
  std::string out_;
};

}  // namespace

std::string ToOpenMetrics(const std::vector<prometheus::MetricFamily>& families,
                          const ExemplarsOf& exemplars_of) {
  Writer writer(exemplars_of);
  for (const prometheus::MetricFamily& family : families) writer.Write(family);
  return std::move(writer).Finish();
}

}  // namespace quench::metrics
