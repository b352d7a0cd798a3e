// Progress on stderr: a bar on a terminal, plain lines elsewhere, JSON lines for scripts.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "common/base/context.h"

namespace quench::cli {

class ProgressDisplay {
 public:
  // mode: "auto" (tty on a terminal, else plain), "tty", "plain", "json", "none".
  explicit ProgressDisplay(const std::string& mode);
  ~ProgressDisplay() { Finish(); }
  ProgressSink sink();
  // Clears the bar. Idempotent.
  void Finish();

 private:
  enum class Mode { kTty, kPlain, kJson, kNone };
  void Show(const Progress& progress);
  void ShowBar(const Progress& progress);

  Mode mode_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  std::string last_stage_;
  int64_t last_total_ = 0;
  bool bar_shown_ = false;
};

}  // namespace quench::cli
