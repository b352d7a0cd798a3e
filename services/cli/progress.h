// Progress on stderr: a bar on a terminal, plain lines elsewhere, JSON lines for scripts.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/context.h"

namespace quench::cli {

// A stage that work is expected to go through, and about how much of the time it takes.
struct PlannedStage {
  std::string stage;
  double share = 1;
};
using Plan = std::vector<PlannedStage>;

// Plans of what commands are made of; they are joined with +=.
Plan ImportPlan();
Plan BuildPlan(double share = 90);  // of a library, without its check
Plan& operator+=(Plan& plan, const Plan& more);

// One a process. While it shows a bar, stdout and stderr are streams that clear the bar before they write.
class ProgressDisplay {
 public:
  // mode: "auto" (tty on a terminal, else plain), "tty", "plain", "json", "none".
  explicit ProgressDisplay(const std::string& mode);
  ~ProgressDisplay() { Finish(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  ProgressSink sink();
  // Stages to come, so that one bar shows how much of all is done. Stages that do not come are skipped, others are
  // named and do not move the bar.
  void SetPlan(Plan plan);
  // Clears the bar for good. Idempotent.
  void Finish();

 private:
  enum class Mode { kTty, kPlain, kJson, kNone };
  void Show(const Progress& progress);
  void Advance(const Progress& progress);
  void DrawBar();
  void ClearBar();
  void Tick(const std::stop_token& stop);
  std::FILE* Guarded(std::FILE* stream, int descriptor);

  Mode mode_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  Progress current_;
  int64_t last_total_ = 0;
  Plan plan_;
  size_t stage_ = 0;  // of the plan, that work is in
  double share_ =
      -1;  // done of the plan, 0 to 1, or of the current stage where there is no plan; -1: not known
  bool bar_shown_ = false;
  bool finished_ = false;
  std::FILE *stdout_ = nullptr, *stderr_ = nullptr;  // as they were, while a bar guards them
  std::condition_variable_any wake_;
  std::jthread clock_;
};

// The plan of the display that this process has; without one nothing happens.
void PlanProgress(Plan plan);

}  // namespace quench::cli
