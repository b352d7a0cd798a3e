#include "services/cli/remote/workflow_logs.h"

#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "services/cli/remote/fleet_table.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;
using google::protobuf::util::TimeUtil;

constexpr auto kLookAgain = std::chrono::milliseconds(500);
constexpr int kMostNamed = 20;

struct Line {
  std::string step;
  pb::LogLine line;
};

absl::Status CheckStep(const pb::Workflow& workflow, const std::string& name) {
  std::vector<std::string> names;
  for (const pb::Step& step : workflow.steps()) {
    if (step.name() == name) return absl::OkStatus();
    if (static_cast<int>(names.size()) < kMostNamed) names.push_back(step.name());
  }
  if (workflow.steps_size() > kMostNamed) names.emplace_back("...");
  return absl::NotFoundError(
      fmt::format("{} has no step `{}`: it has {}", workflow.name(), name, fmt::join(names, ", ")));
}

// Lines that were not printed yet: those after the last one of their step.
class NewLines {
 public:
  std::vector<Line> Take(const pb::Workflow& workflow, const std::string& only) {
    std::vector<Line> lines;
    for (const pb::Step& step : workflow.steps()) {
      if (step.log().empty() || (!only.empty() && step.name() != only)) continue;
      std::string& last = last_[step.name()];
      int begin = 0;
      for (int i = 0; i < step.log_size(); ++i) {
        if (step.log(i).SerializeAsString() == last) begin = i + 1;
      }
      for (int i = begin; i < step.log_size(); ++i) lines.push_back({step.name(), step.log(i)});
      last = step.log(step.log_size() - 1).SerializeAsString();
    }
    std::stable_sort(lines.begin(), lines.end(), [](const Line& one, const Line& other) {
      return one.line.time() < other.line.time();
    });
    return lines;
  }

 private:
  std::map<std::string, std::string> last_;  // by step
};

void Print(const Line& line, const LogsJob& job) {
  const std::string time = TimeUtil::ToString(line.line.time());
  if (job.json) {
    const nlohmann::json object = {{"time", time},
                                   {"step", line.step},
                                   {"attempt", line.line.attempt()},
                                   {"text", line.line.text()}};
    fmt::print("{}\n", object.dump());
  } else {
    fmt::print("{:<27} {}#{} {}\n", time, line.step, line.line.attempt(), line.line.text());
  }
}

}  // namespace

absl::Status PrintLogs(const LogsJob& job, GatewayClient& client, const StepContext& context) {
  NewLines lines;
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, client.Get(job.workflow, context));
    if (!job.step.empty()) QUENCH_RETURN_IF_ERROR(CheckStep(workflow, job.step));
    for (const Line& line : lines.Take(workflow, job.step)) Print(line, job);
    std::fflush(stdout);
    if (!job.follow) return absl::OkStatus();
    if (HasEnded(workflow.state())) {
      fmt::print(stderr, "{} {}\n", workflow.name(), StateText(workflow.state()));
      return absl::OkStatus();
    }
    wake.wait_for(lock, context.cancel_token()->stop_token(), kLookAgain, [] { return false; });
    QUENCH_RETURN_IF_ERROR(context.Check());
  }
}

}  // namespace quench::cli
