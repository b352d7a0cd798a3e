// Pools and senders without a transport: what races between a handler, the wire and the ticker is
// here, where a thread sanitizer sees all of it.
#include "common/rpc/event_sender.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "common/rpc/errors.h"
#include "quench/codegen/v1/codegen.pb.h"
#include "tests/support/wait.h"

namespace quench::rpc::event_sender_test {
namespace {

using ::quench::codegen::v1::CompileEvent;
using ::quench::testing::WaitFor;
using Clock = std::chrono::steady_clock;

// Keeps what is written; the test says when a write is done.
struct Recorder : EventTransport<CompileEvent> {
  void Write(const CompileEvent* event) override {
    EXPECT_EQ(outstanding++, 0);
    EXPECT_EQ(ended, 0);
    events.push_back(*event);
  }
  void End(const absl::Status& s) override {
    EXPECT_EQ(outstanding, 0);
    ++ended;
    status = s;
  }
  void Break() override {
    EXPECT_EQ(ended, 0);
    ++broken;
  }
  void Done(EventSender<CompileEvent>& sender, bool ok = true) {
    --outstanding;
    sender.OnWritten(ok);
  }
  std::vector<CompileEvent> events;
  int outstanding = 0, ended = 0, broken = 0;
  absl::Status status;
};

CompileEvent Accepted() {
  CompileEvent event;
  event.mutable_accepted();
  return event;
}
CompileEvent ProgressOf(int64_t done) {
  CompileEvent event;
  event.mutable_progress()->set_done(done);
  return event;
}
CompileEvent Result() {
  CompileEvent event;
  event.mutable_result();
  return event;
}

class EventSenderTest : public ::testing::Test {
 protected:
  EventSenderTest() {
    options_.registry = &registry_;
    options_.progress_gap = std::chrono::milliseconds(0);
    options_.stream_idle = std::chrono::milliseconds(0);
  }
  double Count(metrics::EventFate fate) {
    return registry_.Get(metrics::kStreamEvents, fate).Value();
  }
  metrics::Registry registry_;
  CallPool::Options options_;
  Recorder wire_;
};

TEST_F(EventSenderTest, KeepsTheOrderAndOneWriteOutstanding) {
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  sender.Report(ProgressOf(1));
  sender.Close(absl::OkStatus(), Result());
  ASSERT_EQ(wire_.events.size(), 1u);
  wire_.Done(sender);
  wire_.Done(sender);
  EXPECT_EQ(wire_.ended, 0);
  wire_.Done(sender);
  ASSERT_EQ(wire_.events.size(), 3u);
  EXPECT_TRUE(wire_.events[0].has_accepted());
  EXPECT_EQ(wire_.events[1].progress().done(), 1);
  EXPECT_TRUE(wire_.events[2].has_result());
  EXPECT_EQ(wire_.ended, 1);
  EXPECT_TRUE(wire_.status.ok());
}

TEST_F(EventSenderTest, ASlowReaderGetsTheNewest) {
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  for (int i = 1; i <= 1000; ++i) sender.Report(ProgressOf(i));
  wire_.Done(sender);
  ASSERT_EQ(wire_.events.size(), 2u);
  EXPECT_EQ(wire_.events[1].progress().done(), 1000);
  EXPECT_EQ(Count(metrics::EventFate::kConflated), 999);
  EXPECT_EQ(Count(metrics::EventFate::kSent), 2);
}

TEST_F(EventSenderTest, ProgressKeepsItsGap) {
  options_.progress_gap = std::chrono::milliseconds(100);
  options_.heartbeat = std::chrono::hours(1);
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  wire_.Done(sender);
  sender.Report(ProgressOf(1));
  wire_.Done(sender);
  ASSERT_EQ(wire_.events.size(), 2u);
  const Clock::time_point later = Clock::now() + std::chrono::seconds(60);
  sender.Report(ProgressOf(2));
  sender.Report(ProgressOf(3));
  sender.Tick(later);
  ASSERT_GE(wire_.events.size(), 3u);  // a slow machine may have sent 2 by itself
  EXPECT_LE(wire_.events.size(), 4u);
  EXPECT_GE(wire_.events.back().progress().done(), 2);
}

TEST_F(EventSenderTest, RepeatsTheNewestWhenThereIsNoNews) {
  options_.heartbeat = std::chrono::milliseconds(0);
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Tick(Clock::now());
  EXPECT_TRUE(wire_.events.empty()) << "before it was accepted";
  sender.Accept(Accepted());
  sender.Tick(Clock::now());
  EXPECT_EQ(wire_.events.size(), 1u) << "while a write is outstanding";
  wire_.Done(sender);
  sender.Tick(Clock::now());
  ASSERT_EQ(wire_.events.size(), 2u);
  EXPECT_TRUE(wire_.events[1].has_progress());
  wire_.Done(sender);
  sender.Report(ProgressOf(7));
  wire_.Done(sender);
  sender.Tick(Clock::now());
  ASSERT_EQ(wire_.events.size(), 4u);
  EXPECT_EQ(wire_.events[3].progress().done(), 7);
  EXPECT_EQ(Count(metrics::EventFate::kHeartbeat), 2);
}

TEST_F(EventSenderTest, ThereIsNoHeartbeatBeforeItIsDue) {
  options_.heartbeat = std::chrono::hours(1);
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  wire_.Done(sender);
  sender.Tick(Clock::now() + std::chrono::minutes(59));
  EXPECT_EQ(wire_.events.size(), 1u);
  sender.Tick(Clock::now() + std::chrono::minutes(61));
  EXPECT_EQ(wire_.events.size(), 2u);
}

TEST_F(EventSenderTest, AnErrorEndsTheCallAfterTheWriteThatIsOut) {
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  sender.Report(ProgressOf(1));
  sender.Close(absl::InternalError("x"), std::nullopt);
  EXPECT_EQ(wire_.ended, 0);
  wire_.Done(sender);
  EXPECT_EQ(wire_.events.size(), 1u);
  EXPECT_EQ(wire_.ended, 1);
  EXPECT_EQ(wire_.status, absl::InternalError("x"));
  sender.Report(ProgressOf(2));
  sender.Tick(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(wire_.events.size(), 1u);
  EXPECT_EQ(wire_.ended, 1);
}

TEST_F(EventSenderTest, LinesOfAProcessThatFailedAreToldBeforeTheError) {
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  CompileEvent last = ProgressOf(1);
  last.mutable_progress()->add_log("LLVM ERROR: out of registers");
  sender.Report(last);
  sender.Close(absl::InternalError("x"), std::nullopt);
  wire_.Done(sender);
  ASSERT_EQ(wire_.events.size(), 2u);
  EXPECT_EQ(wire_.events[1].progress().log_size(), 1);
  EXPECT_EQ(wire_.ended, 0);
  wire_.Done(sender);
  EXPECT_EQ(wire_.ended, 1);
  EXPECT_EQ(wire_.status, absl::InternalError("x"));
}

TEST_F(EventSenderTest, LinesStayWhenOtherProgressComes) {
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  CompileEvent lines = ProgressOf(1);
  lines.mutable_progress()->add_log("a warning");
  lines.mutable_progress()->set_log_lines(1);
  sender.Report(lines);
  sender.Report(ProgressOf(2));  // of an upload
  wire_.Done(sender);
  ASSERT_EQ(wire_.events.size(), 2u);
  EXPECT_EQ(wire_.events[1].progress().done(), 2);
  ASSERT_EQ(wire_.events[1].progress().log_size(), 1);
  EXPECT_EQ(wire_.events[1].progress().log_lines(), 1);
}

TEST_F(EventSenderTest, NothingIsWrittenToAReaderThatHasGone) {
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  wire_.Done(sender, false);
  sender.Report(ProgressOf(1));
  sender.Tick(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(wire_.ended, 0) << "the handler still runs";
  sender.Close(absl::OkStatus(), Result());
  EXPECT_EQ(wire_.events.size(), 1u);
  EXPECT_EQ(wire_.ended, 1);
}

TEST_F(EventSenderTest, AReaderThatTakesNothingIsGivenUp) {
  options_.stream_idle = std::chrono::seconds(10);
  EventSender<CompileEvent> sender(&wire_, options_);
  sender.Accept(Accepted());
  sender.Close(absl::OkStatus(), Result());
  const auto now = Clock::now();
  sender.Tick(now + std::chrono::seconds(9));
  EXPECT_EQ(wire_.broken, 0);
  sender.Tick(now + std::chrono::seconds(11));
  sender.Tick(now + std::chrono::seconds(12));
  EXPECT_EQ(wire_.broken, 1);
  EXPECT_EQ(wire_.ended, 0) << "the write is still there";
  wire_.Done(sender, false);
  EXPECT_EQ(wire_.ended, 1);
}

// A wire of its own thread, as gRPC's is: completes writes, and breaks at some point or never.
class BusyWire : public EventTransport<CompileEvent> {
 public:
  explicit BusyWire(int break_after) : break_after_(break_after), thread_([this] { Loop(); }) {}
  ~BusyWire() override { thread_.join(); }
  void Bind(EventSender<CompileEvent>* sender) { sender_ = sender; }
  void Write(const CompileEvent* event) override {
    last_result_ = event->has_result();
    EXPECT_FALSE(pending_.exchange(true));
  }
  void End(const absl::Status&) override { EXPECT_EQ(ended_.fetch_add(1), 0); }
  void Break() override { EXPECT_EQ(ended_, 0); }
  bool ended() const { return ended_ == 1; }
  bool last_result() const { return last_result_; }

 private:
  void Loop() {
    for (int writes = 0; !ended();) {
      if (!pending_.exchange(false)) {
        std::this_thread::yield();
        continue;
      }
      sender_.load()->OnWritten(++writes != break_after_);
    }
  }
  const int break_after_;
  std::atomic<EventSender<CompileEvent>*> sender_{nullptr};
  std::atomic<bool> pending_{false}, last_result_{false};
  std::atomic<int> ended_{0};
  std::thread thread_;
};

TEST_F(EventSenderTest, EndsOnceUnderRaces) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int break_after = round % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 10);
    BusyWire wire(break_after);
    EventSender<CompileEvent> sender(&wire, options_);
    wire.Bind(&sender);
    std::atomic<bool> stop{false};
    std::thread ticker([&] {
      while (!stop) sender.Tick(Clock::now() + std::chrono::hours(1));
    });
    sender.Accept(Accepted());
    for (int i = 0; i < 20; ++i) sender.Report(ProgressOf(i));
    sender.Close(absl::OkStatus(), Result());
    EXPECT_TRUE(WaitFor([&] { return wire.ended(); }));
    stop = true;
    ticker.join();
    EXPECT_TRUE(break_after != 0 || wire.last_result());
  }
}

TEST(CallPoolTest, AdmitsSlotsAndQueueAndNoMore) {
  metrics::Registry registry;
  CallPool::Options options;
  options.threads = 2;
  options.queue = 1;
  options.retry_after = std::chrono::milliseconds(1500);
  options.registry = &registry;
  options.slots_of = metrics::Service::kCodegen;
  CallPool pool(options);
  const auto slots = [&](metrics::SlotState state) {
    return registry.Get(metrics::kSlots, metrics::Service::kCodegen, state).Value();
  };
  EXPECT_EQ(slots(metrics::SlotState::kFree), 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Admit("a").ok());
  EXPECT_EQ(slots(metrics::SlotState::kBusy), 2);
  const absl::Status shed = pool.Admit("b");
  EXPECT_EQ(shed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(shed), "SLOTS_FULL");
  EXPECT_EQ(RetryAfterOf(shed), std::chrono::milliseconds(1500));
  pool.Release("a");
  EXPECT_TRUE(pool.Admit("a").ok());
  for (int i = 0; i < 3; ++i) pool.Release("a");
  EXPECT_EQ(slots(metrics::SlotState::kFree), 2);
}

TEST(CallPoolTest, ClientsThatShareLeaveRoomForOthers) {
  CallPool::Options options;
  options.threads = 2;
  options.queue = 10;
  options.shared = true;
  CallPool pool(options);
  const auto take_all = [&](const std::string& client) {
    int taken = 0;
    while (pool.Admit(client).ok()) ++taken;
    return taken;
  };
  EXPECT_EQ(take_all("a"), 6);  // half, for one alone
  EXPECT_EQ(take_all("b"), 3);  // as many as it leaves
  EXPECT_TRUE(pool.Admit("c").ok());
  const absl::Status refused = pool.Admit("a");
  EXPECT_EQ(ReasonOf(refused), "SLOTS_FULL");
  EXPECT_TRUE(RetryAfterOf(refused));
  EXPECT_EQ(MessageOf(refused), "this client has 6 calls here, its share of 12 slots");
  for (int i = 0; i < 6; ++i) pool.Release("a");
  EXPECT_TRUE(pool.Admit("b").ok());
  EXPECT_TRUE(pool.Admit("a").ok());
}

TEST(CallPoolTest, RunsJobsAtOnceAndWaitsForThem) {
  std::atomic<int> running{0}, done{0};
  {
    CallPool::Options options;
    options.threads = 3;
    CallPool pool(options);
    for (int i = 0; i < 3; ++i) {
      pool.Run([&] {
        ++running;
        EXPECT_TRUE(WaitFor([&] { return running == 3; }));
        ++done;
      });
    }
  }
  EXPECT_EQ(done, 3);
}

TEST(CallPoolTest, TicksWhatLives) {
  struct Counted : Ticked {
    void Tick(Clock::time_point) override { ++count; }
    std::atomic<int> count{0};
  };
  CallPool::Options options;
  options.threads = 1;
  options.progress_gap = std::chrono::milliseconds(1);
  CallPool pool(options);
  auto first = std::make_shared<Counted>();
  auto second = std::make_shared<Counted>();
  pool.Watch(first);
  pool.Watch(second);
  EXPECT_TRUE(WaitFor([&] { return first->count >= 3 && second->count >= 3; }));
  const std::weak_ptr<Counted> gone = first;
  first.reset();
  EXPECT_TRUE(WaitFor([&] { return gone.expired(); }));
  const int before = second->count;
  EXPECT_TRUE(WaitFor([&] { return second->count > before + 2; }));
}

}  // namespace
}  // namespace quench::rpc::event_sender_test
