#include "tests/service/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace quench::testing {

namespace pb = ::quench::gateway::v1;

namespace {

using Kind = Event::Kind;

bool IsEnd(pb::State state) {
  return state == pb::STATE_SUCCEEDED || state == pb::STATE_FAILED || state == pb::STATE_CANCELLED;
}

// Checks one workflow, by the ends of its events.
class Checker {
 public:
  Checker(const std::vector<const Event*>& events, const Expectation* expectation,
          std::vector<std::string>& problems)
      : events_(events), expectation_(expectation), problems_(problems) {}

  void Check() {
    for (const Event* event : events_) {
      if (event->kind == Kind::kRead) CheckRead(*event);
      if (event->kind == Kind::kMissing) CheckMissing(*event);
    }
    CheckOrder();
  }

 private:
  void Say(const std::string& what) {
    problems_.push_back(fmt::format("{}: {}", events_.front()->workflow, what));
  }
  bool HasBegun(Kind kind, std::chrono::steady_clock::time_point before) const {
    return std::any_of(events_.begin(), events_.end(), [&](const Event* each) {
      return each->kind == kind && each->begin < before;
    });
  }

  void CheckRead(const Event& read) {
    for (const Event* each : events_) {
      if (each->kind == Kind::kDeleted && each->end < read.begin)
        Say("is read after it was deleted");
    }
    if (!IsEnd(read.state) || expectation_ == nullptr) return;
    if (!read.is_within_attempts) Say("a step had more attempts than it may have");
    if (read.state == pb::STATE_CANCELLED) {
      if (!HasBegun(Kind::kCancelled, read.end)) Say("is cancelled, and nobody did it");
      return;
    }
    if (read.state != expectation_->end) {
      Say(fmt::format("ended as {}, not {}: {}", pb::State_Name(read.state),
                      pb::State_Name(expectation_->end), read.detail));
    } else if (read.library != expectation_->library) {
      Say(fmt::format("made library `{}`, not `{}`", read.library, expectation_->library));
    }
  }

  void CheckMissing(const Event& read) {
    if (!HasBegun(Kind::kDeleted, read.end)) Say("is missing, and nobody deleted it");
  }

  // Reads of which one ended before the other began; events_ are sorted by their ends.
  void CheckOrder() {
    std::map<int64_t, pb::State> states;
    for (const Event* event : events_) {
      if (event->kind != Kind::kRead) continue;
      const auto [known, is_new] = states.emplace(event->revision, event->state);
      if (!is_new && known->second != event->state) {
        Say(fmt::format("revision {} shows {} and {}", event->revision,
                        pb::State_Name(known->second), pb::State_Name(event->state)));
      }
    }
    for (const Event* later : events_) {
      if (later->kind != Kind::kRead) continue;
      const Event* before = nullptr;  // that shows the most, of those that had ended
      for (const Event* each : events_) {
        if (each->end >= later->begin) break;
        if (each->kind != Kind::kRead) continue;
        if (before == nullptr || each->revision > before->revision) before = each;
      }
      if (before == nullptr) continue;
      if (later->revision < before->revision) {
        Say(fmt::format("went back from revision {} to {}", before->revision, later->revision));
      }
      if (IsEnd(before->state) && later->state != before->state) {
        Say(fmt::format("had ended as {}, is {} later", pb::State_Name(before->state),
                        pb::State_Name(later->state)));
      }
    }
  }

  const std::vector<const Event*>& events_;
  const Expectation* const expectation_;
  std::vector<std::string>& problems_;
};

}  // namespace

void History::Expect(const std::string& request, const Expectation& expectation) {
  const std::lock_guard lock(mutex_);
  expected_[request] = expectation;
}

void History::Add(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

size_t History::size() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

std::vector<std::string> History::Problems() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> problems;
  std::map<std::string, std::string> workflow_of, request_of;
  std::map<std::string, std::vector<const Event*>> by_workflow;
  for (const Event& event : events_) {
    by_workflow[event.workflow].push_back(&event);
    if (event.kind != Kind::kCreated) continue;
    const auto [workflow, is_first] = workflow_of.emplace(event.request, event.workflow);
    if (!is_first && workflow->second != event.workflow) {
      problems.push_back(fmt::format("request `{}` is both {} and {}", event.request,
                                     workflow->second, event.workflow));
    }
    const auto [request, is_new] = request_of.emplace(event.workflow, event.request);
    if (!is_new && request->second != event.request) {
      problems.push_back(fmt::format("{} is of both requests `{}` and `{}`", event.workflow,
                                     request->second, event.request));
    }
  }
  for (auto& [workflow, events] : by_workflow) {
    std::stable_sort(events.begin(), events.end(),
                     [](const Event* a, const Event* b) { return a->end < b->end; });
    const auto request = request_of.find(workflow);
    const auto expected =
        request == request_of.end() ? expected_.end() : expected_.find(request->second);
    Checker(events, expected == expected_.end() ? nullptr : &expected->second, problems).Check();
  }
  return problems;
}

}  // namespace quench::testing
