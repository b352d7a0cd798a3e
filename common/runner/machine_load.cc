#include "common/runner/machine_load.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "common/base/files.h"

namespace quench {
namespace {

constexpr double kLeastSeconds = 0.3;  // of a hundred ticks a second

double ProcessSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::set<int> OwnCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.insert(cpu);
  }
  return cpus;
}

std::optional<int64_t> BusyNow(const std::set<int>& cpus) {
  const absl::StatusOr<std::string> stat = ReadFile("/proc/stat");
  return stat.ok() ? BusyTicks(*stat, cpus) : std::nullopt;
}

}  // namespace

std::optional<int64_t> BusyTicks(const std::string& stat, const std::set<int>& cpus) {
  // user nice system idle iowait irq softirq steal; what guests take is in `user`.
  constexpr size_t kIdle = 4, kWaits = 5, kSteal = 8;
  int64_t busy = 0;
  size_t found = 0;
  for (const absl::string_view line : absl::StrSplit(stat, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int cpu = 0;
    if (words.size() <= kSteal || !absl::StartsWith(words[0], "cpu") ||
        !absl::SimpleAtoi(words[0].substr(3), &cpu) || !cpus.contains(cpu))
      continue;
    ++found;
    for (size_t i = 1; i <= kSteal; ++i) {
      int64_t ticks = 0;
      if (!absl::SimpleAtoi(words[i], &ticks)) return std::nullopt;
      if (i != kIdle && i != kWaits) busy += ticks;
    }
  }
  // Sandboxes show a file of zeros.
  if (found != cpus.size() || busy == 0) return std::nullopt;
  return busy;
}

MachineLoad::MachineLoad()
    : cpus_(OwnCpus()),
      busy_(BusyNow(cpus_)),
      own_(ProcessSeconds()),
      begin_(std::chrono::steady_clock::now()) {}

std::optional<double> MachineLoad::Taken() const {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const std::optional<int64_t> busy = BusyNow(cpus_);
  if (!busy_ || !busy || seconds < kLeastSeconds) return std::nullopt;
  const double all =
      static_cast<double>(*busy - *busy_) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return std::clamp((all - (ProcessSeconds() - own_)) / seconds, 0.0, static_cast<double>(cores()));
}

}  // namespace quench
