// The memory that the steps of a server may take together. Each reserves what past runs say that it will take, so that
// a slot is a share of the machine and not only a number.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/metrics/metrics.h"
#include "common/steps/memory_book.h"

namespace quench::steps {

// Thread-safe. A step that does not fit is refused, since another server may have room, and not made to wait here. For
// kTurn after each time that it was refused it is remembered, and the one that was first refused has a turn: the memory
// that becomes free is kept for it, since a stream of small steps would keep a large one out for ever. Steps that fit
// beside it, once those are gone that ran before its turn, are admitted meanwhile.
class MemoryBudget {
 public:
  static constexpr std::chrono::milliseconds kRetryAfter{1000}, kTurn{5000};

  MemoryBudget(int64_t bytes, std::shared_ptr<MemoryBook> book, metrics::Registry* registry);

  // A step's reservation, until it is destroyed, which must be before the budget.
  class Place {
   public:
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    int64_t bytes() const { return bytes_; }
    // Whether another step has had a place at any time since this one was given.
    bool had_company() const;
    // Gives the reservation back, waits until no other step has one, and takes the whole budget. Nothing is admitted
    // meanwhile. CANCELLED or DEADLINE_EXCEEDED as of the context; the place then has nothing.
    absl::Status TakeAll(const StepContext& context);

   private:
    friend class MemoryBudget;
    explicit Place(MemoryBudget* budget) : budget_(budget) {}
    MemoryBudget* const budget_;
    int64_t bytes_ = 0;
    uint64_t beside_turn_ = 0;  // in which it was admitted beside another; 0: in none
    bool had_company_ = false;
  };

  // A place for `bytes`, at most the whole budget: a step that needs more runs alone. Else RESOURCE_EXHAUSTED with
  // MEMORY_FULL and RetryInfo. `key` tells the step that has a turn from others.
  absl::StatusOr<std::unique_ptr<Place>> Reserve(const std::string& key, int64_t bytes);

  // The step will not ask again: nothing is kept for it.
  void Forgo(const std::string& key);

  int64_t bytes() const { return total_; }
  MemoryBook& book() const { return *book_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  // With mutex_.
  void Enter(Place* place, int64_t bytes);
  void Leave(Place* place);
  void Show() const;
  struct Waiting {
    std::string key;
    int64_t bytes;
    Time until;  // it is forgotten then
  };
  // The step whose turn it is; null: there is none.
  const Waiting* TurnAt(Time now);
  void Remember(const std::string& key, int64_t bytes, Time now);

  const int64_t total_;
  const std::shared_ptr<MemoryBook> book_;
  metrics::Gauge& reserved_gauge_;
  metrics::Gauge& free_gauge_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::set<Place*> places_;       // that have reserved something
  int64_t reserved_ = 0;          // by all of them
  int to_be_alone_ = 0;           // that wait for all others to end
  std::vector<Waiting> waiting_;  // that were refused, in the order of their first refusal
  std::string turn_key_;          // of the step whose turn it is
  uint64_t turn_ = 0;             // counts turns
  int64_t beside_ = 0;  // reserved by steps that were admitted in this turn, beside its step
};

}  // namespace quench::steps
