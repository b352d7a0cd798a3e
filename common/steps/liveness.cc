#include "common/steps/liveness.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/steps/child_agreement.h"
#include "quench/child/v1/child.pb.h"

namespace quench::steps {
namespace {

// Threads that wake up now and then, and do nothing, use far less.
constexpr int kLeastShareOfCpu = 50;

struct Stat {
  char state =
      '?';  // R, S, D, T, Z, ...: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
  pid_t group = -1;
};

// Reads the state of a process or thread.
Stat StatOf(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string line;
  std::getline(file, line);
  Stat stat;
  const size_t name = line.rfind(") ");  // names may have spaces and parentheses
  if (name == std::string::npos) return stat;
  std::istringstream rest(line.substr(name + 2));
  pid_t parent = 0;
  rest >> stat.state >> parent >> stat.group;
  return stat;
}

// The folders of a group's processes that are not zombies: those wait for whoever inherited them.
std::vector<std::filesystem::path> ProcessesOf(pid_t group) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
    if (process.path().filename().string().find_first_not_of("0123456789") != std::string::npos)
      continue;
    const Stat stat = StatOf(process.path());
    if (stat.group == group && stat.state != 'Z' && stat.state != 'X')
      found.push_back(process.path());
  }
  return found;
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

bool HasThreadInTurn(pid_t group) {
  std::error_code ignored;
  for (const std::filesystem::path& process : ProcessesOf(group)) {
    for (const auto& thread : std::filesystem::directory_iterator(process / "task", ignored)) {
      const char state = StatOf(thread.path()).state;
      if (state == 'R' || state == 'D') return true;
    }
  }
  return false;
}

bool HasProcesses(pid_t group) { return !ProcessesOf(group).empty(); }

}  // namespace quench::steps
