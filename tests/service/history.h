// Observations of workflows by clients, and whether a gateway that keeps its promises can have
// answered like that.
//
// In the manner of checkers for distributed stores: clients note each call with the times between which it took effect;
// afterwards every pair of answers of which one was there before the other was asked for must agree.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "quench/gateway/v1/workflows.pb.h"

namespace quench::testing {

struct Event {
  enum class Kind {
    kCreated,  // by `request`
    kRead,     // also the end of a watch
    kMissing,  // a read that found nothing
    kCancelled,
    kDeleted,
  };
  Kind kind = Kind::kRead;
  std::chrono::steady_clock::time_point begin, end;
  std::string request, workflow;
  // Set for reads.
  gateway::v1::State state = gateway::v1::STATE_UNSPECIFIED;
  int64_t revision = 0;
  bool is_within_attempts = true;  // each of its steps
  std::string library;             // of a workflow that succeeded
  std::string detail;              // of one that failed
};

// The author's expectation of a request.
struct Expectation {
  gateway::v1::State end = gateway::v1::STATE_SUCCEEDED;
  std::string library;
};

class History {
 public:
  // Called by the author of the request, before it is sent.
  void Expect(const std::string& request, const Expectation& expectation);
  void Add(Event event);
  size_t size() const;

  // Contradictions, a line each; none when all of it can be true:
  // - a request is one workflow, and a workflow of one request;
  // - revisions never go back, equal ones show the same state, and an ended workflow stays as it ended;
  // - a workflow that was created is found until somebody deletes it, and never after that;
  // - nothing is cancelled that nobody cancels, and the rest ends as expected, with the expected library, within its
  //   attempts.
  std::vector<std::string> Problems() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  std::map<std::string, Expectation> expected_;  // by request
};

}  // namespace quench::testing
