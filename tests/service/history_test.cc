#include "tests/service/history.h"

#include <gtest/gtest.h>

namespace quench::testing::history_test {
namespace {

using Kind = Event::Kind;
namespace pb = ::quench::gateway::v1;

class HistoryTest : public ::testing::Test {
 protected:
  HistoryTest() {
    history_.Expect("r", {pb::STATE_SUCCEEDED, "library"});
    Add(Kind::kCreated, 0, 1);
  }
  // Between the seconds `begin` and `end`.
  Event& Add(Kind kind, int begin, int end, const std::string& workflow = "w") {
    Event event;
    event.kind = kind;
    event.begin += std::chrono::seconds(begin);
    event.end += std::chrono::seconds(end);
    event.workflow = workflow;
    event.request = "r";
    events_.push_back(event);
    return events_.back();
  }
  void Read(int begin, int end, int64_t revision, pb::State state,
            const std::string& library = "library", bool is_within_attempts = true) {
    Event& event = Add(Kind::kRead, begin, end);
    event.revision = revision;
    event.state = state;
    event.library = state == pb::STATE_SUCCEEDED ? library : "";
    event.is_within_attempts = is_within_attempts;
  }
  // Each has the text of its place.
  void ExpectProblems(const std::vector<std::string>& texts) {
    for (const Event& event : events_) history_.Add(event);
    const std::vector<std::string> problems = history_.Problems();
    ASSERT_EQ(problems.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_NE(problems[i].find(texts[i]), std::string::npos) << problems[i];
    }
  }

 private:
  std::vector<Event> events_;
  History history_;
};

TEST_F(HistoryTest, WhatAGatewayMayAnswer) {
  Add(Kind::kCreated, 2, 3);  // once more
  Read(4, 5, 1, pb::STATE_QUEUED);
  Read(4, 9, 2, pb::STATE_RUNNING);
  Read(6, 7, 3, pb::STATE_RUNNING);  // beside the one before
  Add(Kind::kCancelled, 10, 11);
  Read(11, 12, 9, pb::STATE_SUCCEEDED);  // it had ended
  Read(13, 14, 9, pb::STATE_SUCCEEDED);
  Add(Kind::kDeleted, 20, 22);
  Add(Kind::kMissing, 20, 21);
  Add(Kind::kMissing, 30, 31);
  ExpectProblems({});
}

TEST_F(HistoryTest, OneRequestIsOneWorkflow) {
  Add(Kind::kCreated, 2, 3, "another");
  ExpectProblems({"request `r` is both w and another"});
}

TEST_F(HistoryTest, RevisionsDoNotGoBack) {
  Read(2, 3, 5, pb::STATE_RUNNING);
  Read(4, 5, 4, pb::STATE_RUNNING);
  ExpectProblems({"went back from revision 5 to 4"});
}

TEST_F(HistoryTest, OneRevisionIsOneState) {
  Read(2, 5, 5, pb::STATE_RUNNING);
  Read(2, 5, 5, pb::STATE_QUEUED);
  ExpectProblems({"revision 5 shows"});
}

TEST_F(HistoryTest, WhatHasEndedStays) {
  Read(2, 3, 5, pb::STATE_SUCCEEDED);
  Read(4, 5, 6, pb::STATE_RUNNING);
  ExpectProblems({"had ended as STATE_SUCCEEDED, is STATE_RUNNING"});
}

TEST_F(HistoryTest, NothingIsLostOrComesBack) {
  Add(Kind::kMissing, 2, 3);
  Add(Kind::kDeleted, 4, 5);
  Read(6, 7, 5, pb::STATE_RUNNING);
  ExpectProblems({"is missing, and nobody deleted it", "is read after it was deleted"});
}

TEST_F(HistoryTest, EndsAreAsExpected) {
  Read(2, 3, 5, pb::STATE_SUCCEEDED, "another");
  ExpectProblems({"made library `another`, not `library`"});
}

TEST_F(HistoryTest, AttemptsHaveALimit) {
  Read(2, 3, 5, pb::STATE_SUCCEEDED, "library", false);
  ExpectProblems({"more attempts than it may have"});
}

TEST_F(HistoryTest, NothingFailsOrIsCancelledByItself) {
  Read(2, 3, 5, pb::STATE_CANCELLED);
  ExpectProblems({"is cancelled, and nobody did it"});
}

TEST_F(HistoryTest, NothingFails) {
  Read(2, 3, 5, pb::STATE_FAILED);
  ExpectProblems({"ended as STATE_FAILED, not STATE_SUCCEEDED"});
}

}  // namespace
}  // namespace quench::testing::history_test
