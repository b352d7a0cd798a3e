// Tenants: their use of the gateway, their limits, and the account of the time that services spend on their steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace quench::gateway {

// Limits of one tenant; 0: none.
struct TenantLimits {
  int weight = 1;
  int max_queued_steps = 0;  // waiting or running
  int max_running_steps = 0;
  int64_t max_queued_bytes = 0;
  int64_t max_step_seconds = 0;  // in a day of UTC
};

struct TenantUsage {
  int open_steps = 0;  // waiting or running
  int running_steps = 0;
  int workflows = 0;  // that have not ended
  int64_t bytes = 0;  // as max_queued_bytes counts them
  double step_seconds = 0;
};

// A row of the job store.
struct StepSecondsRow {
  std::string tenant;
  int64_t day = 0;  // since 1970-01-01, UTC
  double seconds = 0;
  bool operator==(const StepSecondsRow&) const = default;
};

// Step-seconds of the present day by tenant. Times are Unix microseconds.
class StepSeconds {
 public:
  static int64_t DayOf(int64_t now_us);
  static int64_t StartOf(int64_t day);

  // Counts of another day are ignored.
  void Load(const std::vector<StepSecondsRow>& rows, int64_t now_us);
  void Count(const std::string& tenant, double seconds, int64_t now_us);
  double Of(const std::string& tenant, int64_t now_us) const;
  const std::map<std::string, double>& All(int64_t now_us);
  // The counts that have changed since the last call.
  std::vector<StepSecondsRow> TakeChanged();
  bool changed() const { return !changed_.empty(); }

 private:
  void Turn(int64_t now_us);

  int64_t day_ = 0;
  std::map<std::string, double> seconds_;
  std::map<std::string, StepSecondsRow> changed_;  // by tenant
};

}  // namespace quench::gateway
