// How busy the machine is with other programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace quench {

// Ticks that the CPUs of these numbers have worked for, or have been kept from working by a hypervisor, as the lines
// `cpu0 ...` of /proc/stat say; nullopt where they do not have all of them.
std::optional<int64_t> BusyTicks(const std::string& stat, const std::set<int>& cpus);

// Watches the cores that this process may run on, from its making on.
class MachineLoad {
 public:
  MachineLoad();
  // Cores that other programs took on average, out of `cores()`. Nothing where the system does not say, or has counted
  // for so short a time that it cannot.
  std::optional<double> Taken() const;
  int cores() const { return static_cast<int>(cpus_.size()); }

 private:
  std::set<int> cpus_;
  std::optional<int64_t> busy_;
  double own_ = 0;  // seconds
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace quench
