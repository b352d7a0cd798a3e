#include "common/steps/memory_budget.h"

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::steps {

MemoryBudget::MemoryBudget(int64_t bytes, std::shared_ptr<MemoryBook> book,
                           metrics::Registry* registry)
    : total_(bytes),
      book_(std::move(book)),
      reserved_gauge_(registry->Get(metrics::kStepMemory, metrics::MemoryState::kReserved)),
      free_gauge_(registry->Get(metrics::kStepMemory, metrics::MemoryState::kFree)) {
  Show();
}

void MemoryBudget::Show() const {
  reserved_gauge_.Set(static_cast<double>(reserved_));
  free_gauge_.Set(static_cast<double>(total_ - reserved_));
}

void MemoryBudget::Enter(Place* place, int64_t bytes) {
  place->bytes_ = bytes;
  reserved_ += bytes;
  places_.insert(place);
  if (places_.size() > 1) {
    for (Place* each : places_) each->had_company_ = true;
  }
  Show();
}

void MemoryBudget::Leave(Place* place) {
  if (places_.erase(place) == 0) return;
  if (place->beside_turn_ != 0 && place->beside_turn_ == turn_) beside_ -= place->bytes_;
  place->beside_turn_ = 0;
  reserved_ -= std::exchange(place->bytes_, 0);
  Show();
  changed_.notify_all();
}

// A new turn begins where another step is the first. Steps that were admitted before may run on for any time: only what is
// admitted from then on counts as beside its step, which fits at the latest when all of them have ended.
const MemoryBudget::Waiting* MemoryBudget::TurnAt(Time now) {
  std::erase_if(waiting_, [now](const Waiting& each) { return now >= each.until; });
  const Waiting* const first = waiting_.empty() ? nullptr : &waiting_.front();
  if (first != nullptr && first->key != turn_key_) {
    turn_key_ = first->key;
    ++turn_;
    beside_ = 0;
  }
  return first;
}

void MemoryBudget::Remember(const std::string& key, int64_t bytes, Time now) {
  constexpr size_t kMostRemembered = 1000;
  auto found = std::ranges::find(waiting_, key, &Waiting::key);
  if (found == waiting_.end()) {
    if (waiting_.size() >= kMostRemembered) return;
    found = waiting_.insert(found, {key, 0, {}});
  }
  found->bytes = bytes;
  found->until = now + kTurn;
}

void MemoryBudget::Forgo(const std::string& key) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&key](const Waiting& each) { return each.key == key; });
}

absl::StatusOr<std::unique_ptr<MemoryBudget::Place>> MemoryBudget::Reserve(const std::string& key,
                                                                           int64_t bytes) {
  const int64_t asked = std::clamp(bytes, int64_t{0}, total_);
  const std::lock_guard lock(mutex_);
  const Time now = std::chrono::steady_clock::now();
  const Waiting* const first = TurnAt(now);
  const bool is_beside = first != nullptr && first->key != key;
  const int64_t kept = is_beside ? first->bytes : 0;
  const bool fits = asked <= total_ - reserved_ && (!is_beside || beside_ + asked + kept <= total_);
  if (to_be_alone_ == 0 && fits) {
    std::unique_ptr<Place> place(new Place(this));
    Enter(place.get(), asked);
    if (is_beside) {
      place->beside_turn_ = turn_;
      beside_ += asked;
    }
    std::erase_if(waiting_, [&key](const Waiting& each) { return each.key == key; });
    return place;
  }
  Remember(key, asked, now);
  const std::string why =
      to_be_alone_ > 0 ? "a step that needs it all comes first"
      : kept > 0       ? fmt::format("{} MiB are kept for a step that came before", kept >> 20)
                       : fmt::format("{} MiB are free", (total_ - reserved_) >> 20);
  return rpc::WithRetryAfter(
      rpc::Error(rpc::Reason::kMemoryFull,
                 fmt::format("the step will need about {} MiB of the {} MiB for steps, and {}",
                             bytes >> 20, total_ >> 20, why)),
      kRetryAfter);
}

MemoryBudget::Place::~Place() {
  const std::lock_guard lock(budget_->mutex_);
  budget_->Leave(this);
}

bool MemoryBudget::Place::had_company() const {
  const std::lock_guard lock(budget_->mutex_);
  return had_company_;
}

absl::Status MemoryBudget::Place::TakeAll(const StepContext& context) {
  std::unique_lock lock(budget_->mutex_);
  budget_->Leave(this);
  ++budget_->to_be_alone_;
  const auto is_alone = [this] { return budget_->places_.empty(); };
  const std::stop_token stop = context.cancel_token()->stop_token();
  const bool alone = context.deadline()
                         ? budget_->changed_.wait_until(lock, stop, *context.deadline(), is_alone)
                         : budget_->changed_.wait(lock, stop, is_alone);
  --budget_->to_be_alone_;
  if (!alone) {
    lock.unlock();
    const absl::Status why = context.Check();
    return why.ok() ? absl::DeadlineExceededError("deadline exceeded") : why;
  }
  had_company_ = false;
  budget_->Enter(this, budget_->total_);
  return absl::OkStatus();
}

}  // namespace quench::steps
