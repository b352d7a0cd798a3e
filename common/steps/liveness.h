// Tells whether a step's process is still working.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace quench::child::v1 {
class Pulse;
}

namespace quench::steps {

// A process works if it reports progress, if it uses at least a fiftieth of a CPU between two pulses, or
// if it accesses the disk. A process that waits for a lock that is never released does none of these;
// one that spins does, and ends at the limits of CPU and wall time instead.
class Liveness {
 public:
  using Clock = std::chrono::steady_clock;
  // `limit`: longest time without work; 0: no limit.
  Liveness(std::chrono::milliseconds limit, Clock::time_point now) : limit_(limit), seen_(now) {}

  // It has reported progress.
  void OnProgress() { idle_ = std::chrono::milliseconds(0); }
  void OnPulse(const child::v1::Pulse& pulse, Clock::time_point now);
  // Must be called at least every PulsePeriod(limit): time in which this process itself was stopped does
  // not count.
  bool IsStalled(Clock::time_point now);
  // The process waits for its turn, and is checked again after a tenth of the limit.
  void Spare() { idle_ -= limit_ / 10; }

 private:
  const std::chrono::milliseconds limit_;
  Clock::duration idle_{};
  Clock::time_point seen_, pulsed_;
  int64_t cpu_microseconds_ = 0, disk_accesses_ = 0;
};

// Whether, according to the kernel, a thread of a group of processes runs, waits for a CPU or waits for a
// disk: on an overloaded machine, a process may work without progress.
bool HasThreadInTurn(pid_t group);

// Whether any process of the group still runs; zombies do not count.
bool HasProcesses(pid_t group);

}  // namespace quench::steps
