#include "services/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace quench::cli {
namespace {

constexpr auto kBarInterval = std::chrono::milliseconds(50);
constexpr auto kClockInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(2);
constexpr int kBarWidth = 28;
constexpr std::string_view kClearLine = "\r\033[K";

ProgressDisplay* the_display = nullptr;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Fraction(const Progress& progress) {
  if (progress.total <= 0) return 0;
  return std::clamp(static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0,
                    1.0);
}

ssize_t WriteAll(int descriptor, std::string_view text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(descriptor, text.data() + written, text.size() - written);
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  return written == text.size() ? static_cast<ssize_t>(written)
                                : 0;  // 0 is an error to fopencookie
}

}  // namespace

Plan ImportPlan() { return {{"import", 4}, {"infer types", 2}, {"passes", 4}}; }

Plan BuildPlan(double share) {
  // As measured on convolutional nets.
  return {{"kernels", 0.25 * share},
          {"weights", 0.04 * share},
          {"optimise", 0.04 * share},
          {"machine code", 0.65 * share},
          {"link", 0.02 * share}};
}

Plan& operator+=(Plan& plan, const Plan& more) {
  plan.insert(plan.end(), more.begin(), more.end());
  return plan;
}

ProgressDisplay::ProgressDisplay(const std::string& mode)
    : start_(std::chrono::steady_clock::now()), last_(start_ - std::chrono::hours(1)) {
  the_display = this;
  if (mode == "tty" || (mode == "auto" && isatty(STDERR_FILENO))) {
    mode_ = Mode::kTty;
    stdout_ = stdout;
    stderr_ = stderr;
    if (isatty(STDOUT_FILENO)) stdout = Guarded(stdout, STDOUT_FILENO);
    stderr = Guarded(stderr, STDERR_FILENO);
    clock_ = std::jthread([this](const std::stop_token& stop) { Tick(stop); });
  } else if (mode == "json") {
    mode_ = Mode::kJson;
  } else if (mode == "none") {
    mode_ = Mode::kNone;
  } else {
    mode_ = Mode::kPlain;
  }
}

// A stream onto `descriptor` that clears the bar first; `stream` itself where there is no memory for one.
std::FILE* ProgressDisplay::Guarded(std::FILE* stream, int descriptor) {
  const auto write_results = [](void* display, const char* data, size_t size) -> ssize_t {
    const std::lock_guard lock(static_cast<ProgressDisplay*>(display)->mutex_);
    static_cast<ProgressDisplay*>(display)->ClearBar();
    return WriteAll(STDOUT_FILENO, {data, size});
  };
  const auto write_messages = [](void* display, const char* data, size_t size) -> ssize_t {
    const std::lock_guard lock(static_cast<ProgressDisplay*>(display)->mutex_);
    static_cast<ProgressDisplay*>(display)->ClearBar();
    return WriteAll(STDERR_FILENO, {data, size});
  };
  std::fflush(stream);
  cookie_io_functions_t functions = {};
  functions.write = descriptor == STDOUT_FILENO ? +write_results : +write_messages;
  std::FILE* guarded = fopencookie(this, "w", functions);
  if (guarded == nullptr) return stream;
  std::setvbuf(guarded, nullptr, descriptor == STDOUT_FILENO ? _IOLBF : _IONBF, BUFSIZ);
  return guarded;
}

ProgressSink ProgressDisplay::sink() {
  return [this](const Progress& progress) { Show(progress); };
}

void ProgressDisplay::SetPlan(Plan plan) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
  stage_ = 0;
  share_ = 0;
}

void ProgressDisplay::Advance(const Progress& progress) {
  if (plan_.empty()) {
    share_ = progress.total > 0 ? Fraction(progress) : -1;
    return;
  }
  const auto found = std::find_if(plan_.begin() + static_cast<std::ptrdiff_t>(stage_), plan_.end(),
                                  [&](const auto& each) { return each.stage == progress.stage; });
  if (found == plan_.end()) return;
  stage_ = static_cast<size_t>(found - plan_.begin());
  double before = 0, all = 0;
  for (size_t i = 0; i < plan_.size(); ++i) {
    if (i < stage_) before += plan_[i].share;
    all += plan_[i].share;
  }
  // A stage may come more than once: the bar never goes back.
  share_ = std::max(share_, (before + found->share * Fraction(progress)) / all);
}

void ProgressDisplay::Show(const Progress& progress) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  const bool new_stage = progress.stage != current_.stage;
  const auto now = std::chrono::steady_clock::now();
  const bool last_of_stage = progress.total > 0 && progress.done >= progress.total;
  const auto interval =
      mode_ == Mode::kPlain ? std::chrono::milliseconds(kPlainInterval) : kBarInterval;
  if (!new_stage && !last_of_stage && now - last_ < interval) return;
  // The end of a stage that had none in sight: a step of a gateway that turned out to be cached, say.
  const bool ended = last_of_stage && last_total_ == 0;
  Advance(progress);
  if (mode_ == Mode::kPlain && !new_stage && !ended && now - last_ < interval) return;
  last_ = now;
  last_total_ = progress.total;
  current_ = progress;
  switch (mode_) {
    case Mode::kNone:
      return;
    case Mode::kTty:
      return DrawBar();
    case Mode::kPlain:
      fmt::print(stderr, "[{:6.1f} s] {}{}{}\n", SecondsSince(start_), progress.stage,
                 progress.total > 0 ? fmt::format(" {}/{}", progress.done, progress.total) : "",
                 progress.detail.empty() ? "" : " " + progress.detail);
      return;
    case Mode::kJson: {
      nlohmann::json line = {{"stage", progress.stage},
                             {"detail", progress.detail},
                             {"done", progress.done},
                             {"total", progress.total},
                             {"seconds", SecondsSince(start_)}};
      if (!plan_.empty()) line["share"] = share_;
      fmt::print(stderr, "{}\n",
                 line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      return;
    }
  }
}

void ProgressDisplay::DrawBar() {
  std::string bar;
  if (share_ >= 0) {
    const int filled = static_cast<int>(share_ * kBarWidth);
    bar = fmt::format(" [{:#<{}}{:.<{}}] {:3.0f} %", "", filled, "", kBarWidth - filled,
                      share_ * 100);
  }
  const std::string line = fmt::format("{}{:6.1f} s {} {:<14} {}", kClearLine, SecondsSince(start_),
                                       bar, current_.stage, current_.detail.substr(0, 24));
  WriteAll(STDERR_FILENO, line);
  bar_shown_ = true;
}

void ProgressDisplay::ClearBar() {
  if (bar_shown_) WriteAll(STDERR_FILENO, kClearLine);
  bar_shown_ = false;
}

// The clock runs while nothing is reported.
void ProgressDisplay::Tick(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, stop, kClockInterval, [&] { return stop.stop_requested(); })) {
    if (bar_shown_) DrawBar();
  }
}

void ProgressDisplay::Finish() {
  clock_.request_stop();
  if (clock_.joinable()) clock_.join();
  for (auto [guarded, original] : {std::pair{&stdout, &stdout_}, {&stderr, &stderr_}}) {
    if (*original == nullptr) continue;
    std::fflush(*guarded);
    if (*guarded != *original) std::fclose(std::exchange(*guarded, *original));
    *original = nullptr;
  }
  const std::lock_guard lock(mutex_);
  finished_ = true;
  ClearBar();
  if (the_display == this) the_display = nullptr;
}

void PlanProgress(Plan plan) {
  if (the_display != nullptr) the_display->SetPlan(std::move(plan));
}

}  // namespace quench::cli
