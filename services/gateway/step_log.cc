#include "services/gateway/step_log.h"

#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "common/base/printable.h"
#include "services/gateway/job_store.h"

namespace quench::gateway {

constexpr char kWaits[] = "waits: ";

void AddLogLine(const std::string& text, int64_t now_us, v1::Step* step) {
  auto& log = *step->mutable_log();
  v1::LogLine* line = log.Add();
  *line->mutable_time() = TimestampOf(now_us);
  line->set_attempt(step->attempt());
  line->set_text(Printable(text.substr(0, kLongestLogLine)));
  size_t bytes = 0;
  int kept = 0;
  for (int i = log.size() - 1; i >= 0 && kept < kMostLogLines; --i, ++kept) {
    bytes += log[i].ByteSizeLong();
    if (bytes > kMostLogBytes) break;
  }
  log.DeleteSubrange(0, log.size() - kept);
}

void AddWaitLine(const std::string& why, int64_t now_us, v1::Step* step) {
  auto& log = *step->mutable_log();
  const bool waited = !log.empty() && log.rbegin()->attempt() == step->attempt() &&
                      log.rbegin()->text().starts_with(kWaits);
  if (waited) log.RemoveLast();
  AddLogLine(kWaits + why, now_us, step);
}

int64_t AddLogOf(const step::v1::Progress& progress, int64_t seen, int64_t now_us, v1::Step* step) {
  if (!progress.stage().empty() && progress.stage() != step->progress().stage()) {
    const std::string detail = progress.detail().empty() ? "" : ": " + progress.detail();
    AddLogLine(progress.stage() + detail, now_us, step);
  }
  if (progress.log_size() > 0 && progress.log_lines() < seen) seen = 0;
  const int64_t fresh = std::max<int64_t>(0, progress.log_lines() - seen);
  const int told = static_cast<int>(std::min<int64_t>(fresh, progress.log_size()));
  if (told < fresh) AddLogLine(fmt::format("stderr: ... {} lines", fresh - told), now_us, step);
  for (int i = progress.log_size() - told; i < progress.log_size(); ++i)
    AddLogLine("stderr: " + progress.log(i), now_us, step);
  return seen + fresh;
}

std::string LogTextOf(const step::v1::Execution& execution) {
  if (execution.cache_hit()) return "taken from the cache";
  const double seconds =
      static_cast<double>(
          google::protobuf::util::TimeUtil::DurationToMilliseconds(execution.cpu_time())) /
      1000;
  return fmt::format("done in {:.2f} s of CPU time, at most {} MiB", seconds,
                     execution.peak_memory_bytes() >> 20);
}

}  // namespace quench::gateway
