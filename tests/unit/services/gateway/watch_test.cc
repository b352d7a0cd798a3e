#include "services/gateway/watch.h"

#include <gtest/gtest.h>

#include "common/rpc/errors.h"
#include "tests/unit/services/gateway/sample_specs.h"

namespace quench::gateway::watch_test {
namespace {

using std::chrono::milliseconds;

// A reader that takes events when the test says so.
class Wire final : public rpc::EventTransport<v1::WatchWorkflowEvent> {
 public:
  void Write(const v1::WatchWorkflowEvent* event) override {
    EXPECT_FALSE(busy) << "one write at a time";
    busy = true;
    events.push_back(*event);
  }
  void End(const absl::Status& status) override {
    EXPECT_FALSE(ended);
    ended = status;
  }
  void Break() override {
    EXPECT_FALSE(ended);
    ++broken;
  }
  int broken = 0;
  bool busy = false;
  std::vector<v1::WatchWorkflowEvent> events;
  std::optional<absl::Status> ended;
};

ViewPtr View(int64_t revision, v1::State state, std::vector<int64_t> steps,
             int64_t known_since = 1) {
  auto view = std::make_shared<WorkflowView>();
  view->header.set_name("workflows/a");
  view->header.set_state(state);
  view->header.set_revision(revision);
  view->known_since = known_since;
  for (size_t i = 0; i < steps.size(); ++i) {
    auto step = std::make_shared<v1::Step>();
    step->set_name(std::to_string(i));
    view->steps.push_back({step, steps[i]});
  }
  return view;
}

class WatchTest : public ::testing::Test {
 protected:
  void Take() {
    wire_.busy = false;
    sender_->OnWritten(true);
  }
  void Pass(milliseconds time) { sender_->Tick(now_ += time); }

  Wire wire_;
  const std::shared_ptr<WatchSender> sender_ =
      std::make_shared<WatchSender>(&wire_, WatchSender::Options{});
  WatchSender::Clock::time_point now_ = WatchSender::Clock::now();
};

TEST_F(WatchTest, ASnapshotThenChangesThenTheEnd) {
  sender_->Start(0, View(1, v1::STATE_QUEUED, {1, 1}));
  ASSERT_EQ(wire_.events.size(), 1u);
  EXPECT_EQ(wire_.events[0].snapshot().steps_size(), 2);
  EXPECT_EQ(wire_.events[0].revision(), 1);
  Take();
  sender_->OnView(View(2, v1::STATE_RUNNING, {1, 2}));
  Pass(milliseconds(200));
  ASSERT_EQ(wire_.events.size(), 2u);
  ASSERT_EQ(wire_.events[1].change().steps_size(), 1);
  EXPECT_EQ(wire_.events[1].change().steps(0).name(), "1");
  EXPECT_EQ(wire_.events[1].change().workflow().state(), v1::STATE_RUNNING);
  Take();
  sender_->OnView(View(3, v1::STATE_SUCCEEDED, {3, 2}));
  Pass(milliseconds(200));
  ASSERT_EQ(wire_.events.size(), 3u);
  EXPECT_FALSE(wire_.ended);
  Take();
  EXPECT_EQ(wire_.ended, absl::OkStatus());
}

TEST_F(WatchTest, AReaderThatTakesNothingIsGivenUp) {
  WatchSender::Options options;
  options.idle = milliseconds(60'000);
  WatchSender sender(&wire_, options);
  sender.Start(0, View(1, v1::STATE_RUNNING, {1}));
  sender.Tick(now_ + milliseconds(59'000));
  EXPECT_EQ(wire_.broken, 0);
  sender.Tick(now_ + milliseconds(61'000));
  sender.Tick(now_ + milliseconds(62'000));
  EXPECT_EQ(wire_.broken, 1);
  EXPECT_FALSE(wire_.ended) << "the write is still there";
  sender.OnWritten(false);
  ASSERT_TRUE(wire_.ended);
  EXPECT_EQ(rpc::ReasonOf(*wire_.ended), "STREAM_IDLE");
}

TEST_F(WatchTest, ASlowReaderSkips) {
  sender_->Start(0, View(1, v1::STATE_RUNNING, {1, 1, 1}));
  for (int64_t revision = 2; revision <= 1000; ++revision) {
    sender_->OnView(View(revision, v1::STATE_RUNNING, {revision, 500, 1}));
    Pass(milliseconds(1000));
  }
  EXPECT_EQ(wire_.events.size(), 1u);
  Take();
  Pass(milliseconds(1000));
  ASSERT_EQ(wire_.events.size(), 2u);
  EXPECT_EQ(wire_.events[1].revision(), 1000);
  EXPECT_EQ(wire_.events[1].change().steps_size(), 2);
}

TEST_F(WatchTest, AtMostTenEventsASecondAndOneInFive) {
  sender_->Start(0, View(1, v1::STATE_RUNNING, {1}));
  Take();
  for (int64_t revision = 2; revision <= 201; ++revision) {  // a change every 10 ms
    sender_->OnView(View(revision, v1::STATE_RUNNING, {revision}));
    Pass(milliseconds(10));
    if (wire_.busy) Take();
  }
  EXPECT_LE(wire_.events.size(), 22u);
  EXPECT_GE(wire_.events.size(), 15u);
  Pass(milliseconds(200));
  Take();
  const size_t before = wire_.events.size();
  Pass(milliseconds(4900));
  EXPECT_EQ(wire_.events.size(), before);
  Pass(milliseconds(200));
  ASSERT_EQ(wire_.events.size(), before + 1);
  EXPECT_TRUE(wire_.events.back().has_change());
  EXPECT_FALSE(wire_.events.back().change().has_workflow());
  EXPECT_EQ(wire_.events.back().revision(), 201);
}

TEST_F(WatchTest, TheEndDoesNotWaitForItsTurn) {
  sender_->Start(0, View(1, v1::STATE_QUEUED, {1}));
  Take();
  sender_->OnView(View(2, v1::STATE_RUNNING, {2}));
  EXPECT_EQ(wire_.events.size(), 1u);
  sender_->OnView(View(3, v1::STATE_SUCCEEDED, {3}));
  ASSERT_EQ(wire_.events.size(), 2u);
  EXPECT_EQ(wire_.events[1].revision(), 3);
  Take();
  EXPECT_EQ(wire_.ended, absl::OkStatus());
}

TEST_F(WatchTest, ResumesByRevision) {
  sender_->Start(5, View(9, v1::STATE_RUNNING, {1, 6, 9, 5}));
  ASSERT_EQ(wire_.events.size(), 1u);
  ASSERT_TRUE(wire_.events[0].has_change());
  EXPECT_EQ(wire_.events[0].change().steps_size(), 2);
}

TEST_F(WatchTest, WhatIsTooLongAgoStartsWithASnapshot) {
  sender_->Start(5, View(9, v1::STATE_RUNNING, {6, 9}, 6));
  EXPECT_TRUE(wire_.events.at(0).has_snapshot());
}

TEST_F(WatchTest, ARevisionThatNeverWasStartsWithASnapshot) {
  sender_->Start(100, View(9, v1::STATE_RUNNING, {6, 9}));
  EXPECT_TRUE(wire_.events.at(0).has_snapshot());
}

TEST_F(WatchTest, AReaderThatIsUpToDateWaits) {
  sender_->Start(9, View(9, v1::STATE_RUNNING, {6, 9}));
  EXPECT_TRUE(wire_.events.empty());
  sender_->OnView(View(10, v1::STATE_RUNNING, {10, 9}));
  Pass(milliseconds(200));
  ASSERT_EQ(wire_.events.size(), 1u);
  EXPECT_EQ(wire_.events[0].change().steps_size(), 1);
}

TEST_F(WatchTest, AWorkflowThatHasEndedIsToldOnce) {
  sender_->Start(9, View(9, v1::STATE_FAILED, {9}, 9));
  ASSERT_EQ(wire_.events.size(), 1u);
  EXPECT_EQ(wire_.events[0].change().workflow().state(), v1::STATE_FAILED);
  Take();
  EXPECT_EQ(wire_.ended, absl::OkStatus());
  Pass(milliseconds(10'000));
  EXPECT_EQ(wire_.events.size(), 1u);
}

TEST_F(WatchTest, AViewBeforeTheStartIsNotLost) {
  sender_->OnView(View(3, v1::STATE_SUCCEEDED, {3}));
  EXPECT_TRUE(wire_.events.empty());
  sender_->Start(0, View(2, v1::STATE_RUNNING, {2}));
  EXPECT_EQ(wire_.events.at(0).snapshot().state(), v1::STATE_SUCCEEDED);
}

TEST_F(WatchTest, ABrokenWriteEndsIt) {
  sender_->Start(0, View(1, v1::STATE_RUNNING, {1}));
  sender_->OnWritten(false);
  EXPECT_TRUE(wire_.ended);
  sender_->OnView(View(2, v1::STATE_RUNNING, {2}));
  EXPECT_EQ(wire_.events.size(), 1u);
}

TEST(BoardTest, TellsNobodyOfAnotherTenant) {
  class Ear : public Watcher {
   public:
    void OnView(const ViewPtr&) override { ++heard; }
    int heard = 0;
  };
  Board board;
  auto view = std::make_shared<WorkflowView>(*View(1, v1::STATE_RUNNING, {1}));
  view->header.set_tenant("red");
  board.Publish("a", view);
  const auto red = std::make_shared<Ear>(), blue = std::make_shared<Ear>();
  EXPECT_NE(board.Watch("red", "a", red).view, nullptr);
  EXPECT_EQ(board.Watch("blue", "a", blue).view, nullptr);
  board.Publish("a", view);
  EXPECT_EQ(red->heard, 1);
  EXPECT_EQ(blue->heard, 0);
}

TEST(ViewTest, AFullMessageFitsIntoOne) {
  WorkflowView view;
  view.header.set_name("workflows/a");
  for (int i = 0; i < 2000; ++i) {
    auto step = std::make_shared<v1::Step>();
    step->set_name(std::string(200, 'n') + std::to_string(i));
    for (int k = 0; k < 10; ++k) {
      step->add_failed_attempts()->mutable_error()->set_message(std::string(500, 'e'));
    }
    v1::StepOutput* output = step->add_outputs();
    output->set_name("canonical");
    for (int k = 0; k < 50; ++k) *output->mutable_module()->add_blobs() = DigestOf("b");
    view.steps.push_back({step, 1});
  }
  const v1::Workflow message = FullMessage(view);
  EXPECT_LE(message.ByteSizeLong(), kMostBytes);
  EXPECT_EQ(message.steps_size(), 2000);
  EXPECT_EQ(message.steps(1999).outputs(0).name(), "canonical");
  EXPECT_TRUE(message.steps_truncated());
  const v1::Workflow few = FullMessage(view, 10'000);  // not even the steps' names
  EXPECT_LE(few.ByteSizeLong(), 10'000u);
  EXPECT_TRUE(few.steps_truncated() && few.steps_size() > 0);
}

}  // namespace
}  // namespace quench::gateway::watch_test
