#include "common/metrics/process.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace quench::metrics {
namespace {

// Files of /proc have no size that could be asked for.
std::string Contents(const char* path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// Fields of /proc/self/stat from the third on: the second is a name that may hold anything.
std::vector<double> StatFields() {
  std::vector<double> fields;
  const std::string stat = Contents("/proc/self/stat");
  std::istringstream rest(stat.substr(stat.rfind(')') + 1));
  std::string field;
  while (rest >> field) fields.push_back(std::strtod(field.c_str(), nullptr));
  return fields;
}

double BootTime() {
  const std::string stat = Contents("/proc/stat");
  const size_t at = stat.find("\nbtime ");
  return at == std::string::npos ? 0 : std::strtod(stat.c_str() + at + 7, nullptr);
}

double CountOpenFiles() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // without the one that lists them
}

prometheus::MetricFamily Family(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  metric.counter.value = value;
  metric.gauge.value = value;
  return {name, help, type, {metric}};
}

}  // namespace

// Field numbers: proc(5).
ProcessStats ReadProcessStats() {
  ProcessStats stats;
  const std::vector<double> fields = StatFields();
  const auto field = [&](size_t number) {
    return number - 3 < fields.size() ? fields[number - 3] : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  stats.cpu_seconds = (field(14) + field(15)) / ticks;
  stats.start_time_seconds = BootTime() + field(22) / ticks;
  stats.virtual_bytes = field(23);
  stats.resident_bytes = field(24) * static_cast<double>(sysconf(_SC_PAGESIZE));
  stats.open_fds = CountOpenFiles();
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<double>(limit.rlim_cur);
  return stats;
}

std::vector<prometheus::MetricFamily> CollectProcess() {
  const ProcessStats stats = ReadProcessStats();
  return {
#define QUENCH_VALUE(name, text)
#define QUENCH_LABEL(type, text, values)
#define QUENCH_OPEN_LABEL(type, text, most)
#define QUENCH_METRIC(name, type, text, labels, help)
#define QUENCH_PROCESS_METRIC(field, type, text, help) \
  Family(text, help, prometheus::type::metric_type, stats.field),
#include "common/metrics/metrics.def"
  };
}

}  // namespace quench::metrics
