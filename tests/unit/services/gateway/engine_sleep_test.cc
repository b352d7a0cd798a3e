// Workflows that wait in the store because memory has no room for them, priorities, and events.
#include <gtest/gtest.h>

#include "services/gateway/cloud_event.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/engine_harness.h"

namespace quench::gateway::engine_sleep_test {
namespace {

using quench::testing::ElementsAre;
using quench::testing::HasSubstr;

class EngineSleepTest : public ::testing::Test, protected EngineHarness {
 protected:
  static v1::WorkflowSpec OneImport(const std::string& model, int priority = 0) {
    v1::WorkflowSpec spec;
    AddImport(&spec, "import", model);
    spec.set_title(model);
    spec.set_priority(priority);
    return spec;
  }
  static int64_t BytesOfOne() { return BytesOf(*Expand(OneImport("0")), 0); }
  bool InMemory(const std::string& id) { return board->Find(id) != nullptr; }
  std::vector<std::string> Titles() {
    std::vector<std::string> titles;
    for (const StepCall& call : runner.calls) {
      titles.push_back(Get(call.request_id.substr(0, call.request_id.find('.'))).title());
    }
    return titles;
  }
};

TEST_F(EngineSleepTest, MemoryHoldsWhatHasRoomAndNothingIsLost) {
  Options().max_live_bytes = 3 * BytesOfOne() + 10;
  std::vector<std::string> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(Create(OneImport(std::to_string(i))));
  EXPECT_TRUE(InMemory(ids[2]));
  EXPECT_FALSE(InMemory(ids[3]));
  EXPECT_EQ(StateOf(ids[30]), v1::STATE_QUEUED);
  loop.RunFor(milliseconds(10'000));
  for (const std::string& id : ids) EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED) << id;
  EXPECT_LE(runner.most_at_once, 3u);
  std::vector<std::string> in_turn;
  for (int i = 0; i < 40; ++i) in_turn.push_back(std::to_string(i));
  EXPECT_EQ(Titles(), in_turn);
}

TEST_F(EngineSleepTest, ARestartLeavesThemAsleep) {
  Options().max_live_bytes = 2 * BytesOfOne() + 10;
  runner.behave = [](const StepCall&) { return Hangs(); };
  std::vector<std::string> ids;
  for (int i = 0; i < 10; ++i) ids.push_back(Create(OneImport(std::to_string(i))));
  runner.behave = [](const StepCall&) { return Behaviour(); };
  Boot();
  EXPECT_TRUE(InMemory(ids[0]));
  EXPECT_FALSE(InMemory(ids[5]));
  EXPECT_TRUE(pins->IsPinned(DigestOf("5").hash()));
  loop.RunFor(milliseconds(20'000));
  for (const std::string& id : ids) EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED) << id;
}

TEST_F(EngineSleepTest, EachTenantHasOneInMemory) {
  Options().max_live_bytes = 10;
  runner.behave = [](const StepCall&) { return Hangs(); };
  const std::string first = Create(OneImport("0")), second = Create(OneImport("1"));
  const std::string other = Create(OneImport("2"), "u");
  EXPECT_TRUE(InMemory(first));
  EXPECT_FALSE(InMemory(second));
  EXPECT_TRUE(InMemory(other));
  EXPECT_EQ(Cancel(first), absl::OkStatus());
  EXPECT_TRUE(InMemory(second));
}

TEST_F(EngineSleepTest, AnUrgentOneNeedsNoRoom) {
  Options().max_live_bytes = 10;
  runner.behave = [](const StepCall&) { return Hangs(); };
  Create(OneImport("0", -10));
  const std::string patient = Create(OneImport("1", -10));
  const std::string urgent = Create(OneImport("2", 0));
  EXPECT_FALSE(InMemory(patient));
  EXPECT_TRUE(InMemory(urgent));
  EXPECT_FALSE(InMemory(Create(OneImport("3", 0))));
}

TEST_F(EngineSleepTest, AFleetLeavesRoomForOthersAndForWhatIsUrgent) {
  Options().max_live_bytes = 8 * BytesOfOne() + 60;
  runner.behave = [](const StepCall&) { return Hangs(); };
  for (int i = 0; i < 20; ++i) Create(OneImport(std::to_string(i), -10));
  const auto in_memory = [this](const std::string& tenant, int priority) {
    int count = 0;
    for (int i = 0; i < 5; ++i) {
      const std::string id = fmt::format("{}.{}.{}", tenant, priority, i);
      absl::Status status;
      CreateAs(id, OneImport(id, priority), tenant, &status);
      EXPECT_EQ(status, absl::OkStatus());
      count += InMemory(id) ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(in_memory("t", -10), 0) << "no more of the fleet";
  EXPECT_EQ(in_memory("t", 0), 2) << "a quarter for what is more urgent";
  EXPECT_EQ(in_memory("u", 0), 2);
  EXPECT_EQ(in_memory("v", 0), 2);
  EXPECT_EQ(in_memory("w", 0), 2);
  EXPECT_EQ(in_memory("x", 0), 1) << "above twice the limit each has its first";
}

TEST_F(EngineSleepTest, ADrainAnswersWhoCancelsASleeper) {
  std::vector<std::function<void()>> reads;  // of a store that is slow
  Options().max_live_bytes = 10;
  Options().read = [&reads](std::function<void()> job) { reads.push_back(std::move(job)); };
  runner.behave = [](const StepCall&) { return Hangs(); };
  Create(OneImport("0"));
  std::vector<std::string> asleep;
  for (int i = 1; i <= 6; ++i) asleep.push_back(Create(OneImport(std::to_string(i))));
  std::map<std::string, absl::Status> answers;
  const auto cancel = [&](const std::string& id) {
    engine->Cancel("t", id, [&answers, id](const absl::Status& status) { answers[id] = status; });
  };
  for (int i = 0; i < 5; ++i) cancel(asleep[static_cast<size_t>(i)]);
  loop.RunJobs();
  EXPECT_TRUE(answers.empty());
  engine->Drain([] {});
  loop.RunJobs();
  EXPECT_FALSE(answers.empty()) << "those whose turn had not come";
  cancel(asleep[5]);
  for (const auto& read : std::exchange(reads, {})) read();
  loop.RunJobs();
  EXPECT_EQ(answers.size(), 6u);
  EXPECT_EQ(answers[asleep[0]], absl::OkStatus());
  EXPECT_EQ(answers[asleep[5]].code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineSleepTest, OneThatIsBeingReadIsNotRetried) {
  std::vector<std::function<void()>> reads;
  Options().max_live_bytes = 10;
  Options().read = [&reads](std::function<void()> job) { reads.push_back(std::move(job)); };
  runner.behave = [](const StepCall&) { return Fails(absl::InvalidArgumentError("bad")); };
  const std::string failed = Create(OneImport("0"));
  loop.RunFor(milliseconds(100));
  const auto before = store.Get("t", failed);
  runner.behave = [](const StepCall&) { return Hangs(); };
  const std::string first = Create(OneImport("1"));
  EXPECT_EQ(Retry(failed), absl::OkStatus());
  EXPECT_FALSE(InMemory(failed)) << "there is no room";
  EXPECT_EQ(Cancel(first), absl::OkStatus());
  ASSERT_FALSE(reads.empty());
  absl::Status again = absl::UnknownError("never answered");
  engine->Retry(*before, {}, [&again](const absl::Status& status) { again = status; });
  loop.RunJobs();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition) << again;
  for (const auto& read : std::exchange(reads, {})) read();
  loop.RunFor(milliseconds(100));
  EXPECT_EQ(StateOf(failed), v1::STATE_RUNNING);
}

TEST_F(EngineSleepTest, SleepersAreCancelled) {
  Options().max_live_bytes = 10;
  runner.behave = [](const StepCall&) { return Hangs(); };
  Create(OneImport("0"));
  const std::string asleep = Create(OneImport("1"));
  EXPECT_EQ(Cancel(asleep, "u").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Cancel(asleep), absl::OkStatus());
  EXPECT_EQ(StateOf(asleep), v1::STATE_CANCELLED);
  EXPECT_EQ(Get(asleep).counts().cancelled(), 1);
  EXPECT_FALSE(pins->IsPinned(DigestOf("1").hash()));
}

TEST_F(EngineSleepTest, SleepersEndInTime) {
  Options().max_live_bytes = 10;
  runner.behave = [](const StepCall&) { return Hangs(); };
  Create(OneImport("0"));
  v1::WorkflowSpec spec = OneImport("1");
  spec.mutable_timeout()->set_seconds(20);
  const std::string asleep = Create(spec);
  loop.RunFor(milliseconds(19'000));
  EXPECT_EQ(StateOf(asleep), v1::STATE_QUEUED);
  loop.RunFor(milliseconds(2'000));
  EXPECT_EQ(StateOf(asleep), v1::STATE_FAILED);
  EXPECT_THAT(Get(asleep).error().message(), HasSubstr("has not ended within 20 s"));
}

TEST_F(EngineSleepTest, WatchersOfASleeperAreTold) {
  struct Heard final : Watcher {
    void OnView(const ViewPtr& view) override { states.push_back(view->header.state()); }
    std::vector<v1::State> states;
  };
  Options().max_live_bytes = 10;
  runner.behave = [](const StepCall&) { return Hangs(); };
  const std::string first = Create(OneImport("0")), asleep = Create(OneImport("1"));
  const auto heard = std::make_shared<Heard>();
  EXPECT_FALSE(board->Watch("u", asleep, heard).watching);
  const Board::Watched watched = board->Watch("t", asleep, heard);
  EXPECT_TRUE(watched.watching);
  EXPECT_EQ(watched.view, nullptr);
  EXPECT_EQ(Cancel(first), absl::OkStatus());
  runner.Finish(runner.calls.back().run);
  loop.RunJobs();
  ASSERT_FALSE(heard->states.empty());
  EXPECT_EQ(heard->states.back(), v1::STATE_SUCCEEDED);
}

TEST_F(EngineSleepTest, StepsOfHigherPriorityRunFirst) {
  runner.behave = [](const StepCall& call) {
    return call.run <= 1 ? Behaviour{true, milliseconds(500), {}}
                         : Fails(ShedFor(milliseconds(100)), false);
  };
  Create(OneImport("first", -10));
  for (const int priority : {-10, 0, 5}) Create(OneImport(std::to_string(priority), priority));
  runner.behave = [](const StepCall&) { return Behaviour(); };
  const size_t before = runner.calls.size();
  loop.RunFor(milliseconds(2'000));
  std::vector<std::string> later = Titles();
  later.erase(later.begin(), later.begin() + static_cast<std::ptrdiff_t>(before));
  EXPECT_THAT(later, ElementsAre("5", "0", "-10"));
}

// The services take two steps at a time.
TEST_F(EngineSleepTest, AFleetIsDoneModelByModel) {
  v1::WorkflowSpec spec;
  for (const std::string model : {"a", "b", "c", "d"}) {
    AddTransform(&spec, model + "/o/transform", "import", v1::PORT_CANONICAL);
    AddTransform(&spec, model + "/o/again", model + "/o/transform");
  }
  AddImport(&spec, "import");
  spec.mutable_fleet()->set_fleet("f");
  spec.mutable_fleet()->set_shards(1);
  std::vector<std::string> begun;  // positions of steps
  runner.behave = [this, &begun](const StepCall& call) {
    if (runner.running() >= 2) return Fails(ShedFor(milliseconds(1)), false);
    const size_t start = call.request_id.find('.') + 1;
    begun.push_back(call.request_id.substr(start, call.request_id.find('.', start) - start));
    return Behaviour();
  };
  const std::string id = Create(spec);
  loop.RunFor(milliseconds(5'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  // The import is 0; then each model has two steps.
  const auto place = [&begun](const std::string& step) {
    return std::find(begun.begin(), begun.end(), step) - begun.begin();
  };
  EXPECT_LT(place("2"), place("7")) << "the first model's last step, the last model's first";
}

TEST_F(EngineSleepTest, EventsTellOfEnds) {
  int told = 0;
  Options().on_events = [&told] { ++told; };
  v1::WorkflowSpec spec = ChainSpec();
  spec.add_webhooks()->set_url("http://a");
  v1::Webhook* second = spec.add_webhooks();
  second->set_url("http://b");
  second->set_steps(true);
  spec.mutable_fleet()->set_fleet("f");
  spec.mutable_fleet()->set_shards(1);
  Create(spec);
  loop.RunFor(milliseconds(1'000));
  const auto due = store.DueEvents(loop.UnixMicroseconds(), 100);
  ASSERT_TRUE(due.ok()) << due.status();
  std::map<std::string, int> kinds;
  for (const QueuedEvent& event : *due) {
    for (const std::string kind : {kWorkflowEnded, kStepEnded, kFleetEnded}) {
      if (event.body.find(kind) != std::string::npos) ++kinds[event.url + " " + kind];
    }
  }
  EXPECT_EQ(kinds["http://a quench.workflow.ended"], 1);
  EXPECT_EQ(kinds["http://b quench.workflow.ended"], 1);
  EXPECT_EQ(kinds["http://b quench.step.ended"], 3);
  EXPECT_EQ(kinds["http://a quench.fleet.ended"], 1);
  EXPECT_EQ(kinds.size(), 5u);
  EXPECT_GT(told, 0);
}

}  // namespace
}  // namespace quench::gateway::engine_sleep_test
