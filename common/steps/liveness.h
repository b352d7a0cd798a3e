// Whether a step's process still works.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace quench::child::v1 {
class Pulse;
}

namespace quench::steps {

// A process works when it says something new, when it uses at least a fiftieth of a CPU between two
// pulses, or when it asks the disk for something. One that waits for a lock that nobody gives back
// does none of that; one that spins does, and meets the limits of CPU and wall time instead.
class Liveness {
 public:
  using Clock = std::chrono::steady_clock;
  // `limit`: of the time in which nothing is done; 0: none.
  Liveness(std::chrono::milliseconds limit, Clock::time_point now) : limit_(limit), seen_(now) {}

  // It has reported progress.
  void OnProgress() { idle_ = std::chrono::milliseconds(0); }
  void OnPulse(const child::v1::Pulse& pulse, Clock::time_point now);
  // To be asked at least every PulsePeriod(limit): time in which we ourselves were stopped does not
  // count.
  bool IsStalled(Clock::time_point now);
  // It waits for its turn, and is asked about again after a tenth of the limit.
  void Spare() { idle_ -= limit_ / 10; }

 private:
  const std::chrono::milliseconds limit_;
  Clock::duration idle_{};
  Clock::time_point seen_, pulsed_;
  int64_t cpu_microseconds_ = 0, disk_accesses_ = 0;
};

// Whether the kernel says that a thread of a group of processes runs, waits for a CPU or waits for a
// disk: on a machine that is overloaded, a process may work without getting anywhere.
bool HasThreadInTurn(pid_t group);

// Whether any process of the group still runs: none that has ended and waits for its parent.
bool HasProcesses(pid_t group);

}  // namespace quench::steps
