#include "common/steps/liveness.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "common/steps/child_internal.h"
#include "quench/child/v1/child.pb.h"

namespace quench::steps {
namespace {

// What threads use that wake up now and then, and do nothing, is far below.
constexpr int kLeastShareOfCpu = 50;

// R, S, D, T, ...: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
char StateOf(const std::filesystem::path& stat) {
  std::ifstream file(stat);
  std::string line;
  std::getline(file, line);
  const size_t name = line.rfind(") ");  // names may have spaces and parentheses
  return name == std::string::npos || name + 2 >= line.size() ? '?' : line[name + 2];
}

}  // namespace

void Liveness::OnPulse(const child::v1::Pulse& pulse, Clock::time_point now) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(now - pulsed_).count();
  const int64_t cpu =
      pulse.cpu_microseconds() - std::exchange(cpu_microseconds_, pulse.cpu_microseconds());
  const int64_t disk = pulse.disk_accesses() - std::exchange(disk_accesses_, pulse.disk_accesses());
  const bool first = pulsed_ == Clock::time_point();
  pulsed_ = now;
  if (first || disk > 0 || cpu * kLeastShareOfCpu >= since) idle_ = {};
}

bool Liveness::IsStalled(Clock::time_point now) {
  if (limit_.count() == 0) return false;
  const auto passed = now - std::exchange(seen_, now);
  idle_ += std::min<Clock::duration>(passed, 2 * PulsePeriod(limit_));
  return idle_ >= limit_;
}

bool HasThreadInTurn(pid_t process) {
  std::error_code ignored;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", ignored)) {
    const char state = StateOf(thread.path() / "stat");
    if (state == 'R' || state == 'D') return true;
  }
  return false;
}

}  // namespace quench::steps
