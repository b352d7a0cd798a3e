#include "services/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace quench::cli {
namespace {

constexpr auto kBarInterval = std::chrono::milliseconds(50);
constexpr auto kPlainInterval = std::chrono::seconds(2);
constexpr int kBarWidth = 28;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

ProgressDisplay::ProgressDisplay(const std::string& mode)
    : start_(std::chrono::steady_clock::now()), last_(start_ - std::chrono::hours(1)) {
  if (mode == "tty" || (mode == "auto" && isatty(STDERR_FILENO))) {
    mode_ = Mode::kTty;
  } else if (mode == "json") {
    mode_ = Mode::kJson;
  } else if (mode == "none") {
    mode_ = Mode::kNone;
  } else {
    mode_ = Mode::kPlain;
  }
}

ProgressSink ProgressDisplay::sink() {
  return [this](const Progress& progress) { Show(progress); };
}

void ProgressDisplay::Show(const Progress& progress) {
  const std::lock_guard lock(mutex_);
  const bool new_stage = progress.stage != last_stage_;
  const auto now = std::chrono::steady_clock::now();
  const bool last_of_stage = progress.total > 0 && progress.done >= progress.total;
  const auto interval =
      mode_ == Mode::kPlain ? std::chrono::milliseconds(kPlainInterval) : kBarInterval;
  if (!new_stage && !last_of_stage && now - last_ < interval) return;
  // What had no end in sight is over: a step of a gateway that turned out to be cached, say.
  const bool ended = last_of_stage && last_total_ == 0;
  if (mode_ == Mode::kPlain && !new_stage && !ended && now - last_ < interval) return;
  last_ = now;
  last_stage_ = progress.stage;
  last_total_ = progress.total;
  switch (mode_) {
    case Mode::kNone:
      return;
    case Mode::kTty:
      return ShowBar(progress);
    case Mode::kPlain:
      fmt::print(stderr, "[{:6.1f} s] {}{}{}\n", SecondsSince(start_), progress.stage,
                 progress.total > 0 ? fmt::format(" {}/{}", progress.done, progress.total) : "",
                 progress.detail.empty() ? "" : " " + progress.detail);
      return;
    case Mode::kJson: {
      const nlohmann::json line = {{"stage", progress.stage},
                                   {"detail", progress.detail},
                                   {"done", progress.done},
                                   {"total", progress.total},
                                   {"seconds", SecondsSince(start_)}};
      fmt::print(stderr, "{}\n",
                 line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      return;
    }
  }
}

void ProgressDisplay::ShowBar(const Progress& progress) {
  std::string bar;
  if (progress.total > 0) {
    const double share = std::clamp(
        static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0);
    const int filled = static_cast<int>(share * kBarWidth);
    bar =
        fmt::format(" [{:#<{}}{:.<{}}] {:3.0f} %", "", filled, "", kBarWidth - filled, share * 100);
  }
  fmt::print(stderr, "\r\033[K{:6.1f} s  {:<16}{} {}", SecondsSince(start_), progress.stage, bar,
             progress.detail.substr(0, 40));
  std::fflush(stderr);
  bar_shown_ = true;
}

void ProgressDisplay::Finish() {
  const std::lock_guard lock(mutex_);
  if (!bar_shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  bar_shown_ = false;
}

}  // namespace quench::cli
