#include "common/steps/memory_book.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::steps {
namespace {

constexpr int64_t kAssumedBase = int64_t{256} << 20;
constexpr int64_t kAssumedMultiple = 4;
constexpr int64_t kLargestInput = int64_t{1} << 50;
constexpr double kMargin = 1.25;  // equal models differ by what else they find in their caches
constexpr double kForget = 1.0 / 8;
constexpr double kWorthSaving = 1.0 / 16;
constexpr double kLargestMultiple = 1e6;
constexpr int64_t kMost = int64_t{1} << 60;  // of bytes: twice as many still are a number
constexpr size_t kMostSteps = 64, kLongestName = 128, kLargestFile = size_t{1} << 20;
constexpr char kFirstLine[] = "quench memory book 1";
constexpr char kLastLine[] = "end";

// The first is that of inputs next to which the program itself is large.
constexpr double kFirstClass = 1 << 20;
constexpr double kClassesPerDoubling = 4;

int64_t Clamped(int64_t input_bytes) { return std::clamp(input_bytes, int64_t{0}, kLargestInput); }

size_t ClassOf(int64_t input_bytes) {
  const double size = static_cast<double>(input_bytes) / kFirstClass;
  return size < 1 ? 0 : 1 + static_cast<size_t>(std::log2(size) * kClassesPerDoubling);
}
int64_t SmallestOf(size_t number) {
  if (number == 0) return 0;
  return std::llround(kFirstClass *
                      std::exp2(static_cast<double>(number - 1) / kClassesPerDoubling));
}

double TakenBy(double multiple, int64_t input_bytes) {
  return multiple * static_cast<double>(AssumedMemory(input_bytes));
}
// The multiple of AssumedMemory for the smallest inputs of the class: no input of it takes less.
double MultipleOf(double taken, int64_t input_bytes) {
  return taken / static_cast<double>(AssumedMemory(SmallestOf(ClassOf(Clamped(input_bytes)))));
}

}  // namespace

int64_t AssumedMemory(int64_t input_bytes) {
  return kAssumedBase + kAssumedMultiple * Clamped(input_bytes);
}

MemoryBook::MemoryBook(std::filesystem::path file) : file_(std::move(file)) {
  if (!file_.empty()) Read();
}

MemoryNeed MemoryBook::Predict(const std::string& step, int64_t input_bytes) const {
  const int64_t input = Clamped(input_bytes);
  const size_t own = ClassOf(input);
  double below = 0;  // the multiple of the next smaller class
  MemoryNeed need;
  const std::lock_guard lock(mutex_);
  const auto found = steps_.find(step);
  const Classes classes = found == steps_.end() ? Classes{} : found->second;
  for (size_t i = 0; i <= own; ++i) {
    need.too_small_limit = std::max(need.too_small_limit, classes[i].too_small_limit);
    if (classes[i].multiple > 0) below = classes[i].multiple;
  }
  double taken = TakenBy(classes[own].multiple, input);
  if (taken == 0) {
    taken = TakenBy(std::max(1.0, below), input);
    const auto above = std::find_if(classes.begin() + static_cast<ptrdiff_t>(own), classes.end(),
                                    [](const Class& each) { return each.multiple > 0; });
    if (above != classes.end()) {
      const auto number = static_cast<size_t>(above - classes.begin());
      taken = std::min(taken, TakenBy(above->multiple, SmallestOf(number)));
    }
  }
  need.resident_bytes = std::llround(std::min(kMargin * taken, double{kMost}));
  return need;
}

void MemoryBook::Learn(const std::string& step, int64_t input_bytes, int64_t peak_bytes) {
  Change(step, input_bytes, {MultipleOf(static_cast<double>(peak_bytes), input_bytes), 0});
}

void MemoryBook::LearnTooSmall(const std::string& step, int64_t input_bytes, int64_t peak_bytes,
                               int64_t limit) {
  const MemoryNeed known = Predict(step, input_bytes);
  // As much as one thought, or more; in terms of the smallest inputs of its class, of which `known` is no multiple.
  const double thought =
      static_cast<double>(known.resident_bytes) / kMargin *
      static_cast<double>(AssumedMemory(SmallestOf(ClassOf(Clamped(input_bytes))))) /
      static_cast<double>(AssumedMemory(input_bytes));
  Change(step, input_bytes,
         {MultipleOf(std::max(static_cast<double>(peak_bytes), thought), input_bytes), limit});
}

void MemoryBook::Change(const std::string& step, int64_t input_bytes, const Class& learnt) {
  if (learnt.multiple <= 0) return;  // nobody measured it
  {
    const std::lock_guard lock(mutex_);
    if (steps_.size() >= kMostSteps && !steps_.contains(step)) return;
    Class& known = steps_[step][ClassOf(Clamped(input_bytes))];
    known.too_small_limit = std::clamp(learnt.too_small_limit, known.too_small_limit, kMost);
    known.multiple = learnt.multiple >= known.multiple
                         ? std::min(learnt.multiple, kLargestMultiple)
                         : known.multiple + (learnt.multiple - known.multiple) * kForget;
  }
  if (!file_.empty()) Save();
}

// Whole or not at all. Where several processes share the file, the last one's stays.
void MemoryBook::Save() {
  const std::lock_guard saving(save_mutex_);
  std::map<std::string, Classes> now;
  {
    const std::lock_guard lock(mutex_);
    now = steps_;
  }
  const auto is_near = [](const Class& one, const Class& other) {
    return one.too_small_limit == other.too_small_limit &&
           std::abs(one.multiple - other.multiple) <= kWorthSaving * other.multiple;
  };
  const bool is_saved = std::equal(now.begin(), now.end(), saved_.begin(), saved_.end(),
                                   [&](const auto& one, const auto& other) {
                                     return one.first == other.first &&
                                            std::equal(one.second.begin(), one.second.end(),
                                                       other.second.begin(), is_near);
                                   });
  if (is_saved) return;
  std::string text = std::string(kFirstLine) + "\n";
  for (const auto& [step, classes] : now) {
    for (size_t i = 0; i < classes.size(); ++i) {
      if (classes[i].multiple == 0) continue;
      text += fmt::format("{} {} {:.6g} {}\n", step, i, classes[i].multiple,
                          classes[i].too_small_limit);
    }
  }
  const absl::Status status = WriteFileAtomically(file_, text + kLastLine + "\n");
  if (status.ok()) saved_ = std::move(now);
  if (std::exchange(cannot_save_, !status.ok()) || status.ok()) return;
  spdlog::warn("what steps take of memory is not kept: {}", MessageOf(status));
}

void MemoryBook::Read() {
  const absl::StatusOr<std::string> text = ReadFile(file_, kLargestFile);
  if (absl::IsNotFound(text.status())) return;
  std::istringstream lines(text.ok() ? *text : "");
  std::string line;
  bool is_good = std::getline(lines, line) && line == kFirstLine, has_end = false;
  std::map<std::string, Classes> read;
  while (is_good && std::getline(lines, line)) {
    has_end = line == kLastLine;
    if (has_end) break;
    std::istringstream words(line);
    std::string step;
    size_t number = 0;
    Class known;
    is_good = (words >> step >> number >> known.multiple >> known.too_small_limit) && words.eof() &&
              step.size() <= kLongestName && number <= ClassOf(kLargestInput) &&
              known.multiple > 0 && known.multiple <= kLargestMultiple &&
              known.too_small_limit >= 0 && known.too_small_limit <= kMost &&
              (read.contains(step) || read.size() < kMostSteps);
    if (is_good) read[step][number] = known;
  }
  if (!is_good || !has_end) {
    spdlog::warn("{}: what steps take of memory is learnt anew: {}", file_.string(),
                 text.ok() ? "the file is damaged" : MessageOf(text.status()));
    return;
  }
  steps_ = read;
  saved_ = std::move(read);
}

}  // namespace quench::steps
