#include "services/gateway/tenant_usage.h"

namespace quench::gateway {
namespace {

constexpr int64_t kDayUs = int64_t{24} * 3600 * 1'000'000;

}  // namespace

int64_t StepSeconds::DayOf(int64_t now_us) { return now_us / kDayUs; }

int64_t StepSeconds::StartOf(int64_t day) { return day * kDayUs; }

void StepSeconds::Turn(int64_t now_us) {
  const int64_t day = DayOf(now_us);
  if (day == day_) return;
  day_ = day;
  seconds_.clear();
}

void StepSeconds::Load(const std::vector<StepSecondsRow>& rows, int64_t now_us) {
  Turn(now_us);
  for (const StepSecondsRow& row : rows) {
    if (row.day == day_) seconds_[row.tenant] += row.seconds;
  }
}

void StepSeconds::Count(const std::string& tenant, double seconds, int64_t now_us) {
  Turn(now_us);
  double& sum = seconds_[tenant];
  sum += seconds;
  changed_[tenant] = {tenant, day_, sum};
}

double StepSeconds::Of(const std::string& tenant, int64_t now_us) const {
  const auto found = seconds_.find(tenant);
  return found == seconds_.end() || DayOf(now_us) != day_ ? 0 : found->second;
}

const std::map<std::string, double>& StepSeconds::All(int64_t now_us) {
  Turn(now_us);
  return seconds_;
}

std::vector<StepSecondsRow> StepSeconds::TakeChanged() {
  std::vector<StepSecondsRow> rows;
  for (const auto& [tenant, row] : changed_) rows.push_back(row);
  changed_.clear();
  return rows;
}

}  // namespace quench::gateway
