// Limits, fairness, what a restart takes up, what is kept.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "services/gateway/engine.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/engine_harness.h"

namespace quench::gateway::engine_limits_test {
namespace {

using metrics::Stage;
using quench::testing::ElementsAre;
using quench::testing::HasSubstr;

class EngineLimitsTest : public ::testing::Test, protected EngineHarness {
 protected:
  // The calls so far, as METHOD.
  std::vector<std::string> Methods() {
    std::vector<std::string> methods;
    for (const StepCall& call : runner.calls) methods.push_back(call.row->method);
    return methods;
  }
  static v1::WorkflowSpec OneImport(const std::string& model = "model") {
    v1::WorkflowSpec spec;
    AddImport(&spec, "import", model);
    return spec;
  }
};

TEST_F(EngineLimitsTest, TheTenantsLimitOfQueuedSteps) {
  Options().max_queued_steps = 5;
  runner.behave = [](const StepCall&) { return Hangs(); };
  const std::string first = Create(ChainSpec());
  absl::Status status;
  CreateAs("x", ChainSpec("b"), "t", &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(rpc::ReasonOf(status), "QUOTA_EXCEEDED");
  EXPECT_EQ(rpc::RetryAfterOf(status), std::nullopt);
  ASSERT_EQ(rpc::QuotasOf(status).size(), 1u);
  EXPECT_EQ(rpc::QuotasOf(status)[0].subject, "tenant:t");
  Create(ChainSpec("b"), "u");
  EXPECT_EQ(Cancel(first), absl::OkStatus());
  Create(ChainSpec("b"));
}

TEST_F(EngineLimitsTest, TheTenantsLimitOfBytes) {
  Options().max_queued_bytes = 7000;
  runner.behave = [](const StepCall&) { return Hangs(); };
  const std::string first = Create(ChainSpec());
  v1::WorkflowSpec large = ChainSpec("b");
  large.mutable_steps()->mutable_steps(0)->mutable_import_model()->mutable_model()->set_name(
      std::string(5000, 'n'));
  absl::Status status;
  CreateAs("x", large, "t", &status);
  EXPECT_EQ(rpc::ReasonOf(status), "QUOTA_EXCEEDED") << status;
  EXPECT_THAT(status.ToString(), HasSubstr("exceed the limit of 7000"));
  Boot();  // a restart forgets none of it
  CreateAs("y", large, "t", &status);
  EXPECT_EQ(rpc::ReasonOf(status), "QUOTA_EXCEEDED") << status;
  EXPECT_EQ(Cancel(first), absl::OkStatus());
  loop.RunFor(milliseconds(10));
  Create(large);
}

TEST_F(EngineLimitsTest, ATenantRunsAtMostSoManySteps) {
  Options().max_running_steps = 3;
  v1::WorkflowSpec spec;
  for (int i = 0; i < 20; ++i) AddImport(&spec, std::to_string(i), std::to_string(i));
  const std::string id = Create(spec);
  loop.RunFor(milliseconds(10'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(runner.most_at_once, 3u);
}

TEST_F(EngineLimitsTest, TenantsTakeTurns) {
  runner.behave = [this](const StepCall&) {
    if (runner.running() >= 4)
      return Behaviour{false, milliseconds(0), ShedFor(milliseconds(60'000))};
    return Behaviour{true, milliseconds(100), {}};
  };
  v1::WorkflowSpec big, small;
  for (int i = 0; i < 200; ++i) AddImport(&big, std::to_string(i), "big" + std::to_string(i));
  for (int i = 0; i < 20; ++i) AddImport(&small, std::to_string(i), "small" + std::to_string(i));
  Create(big, "heavy");
  loop.RunFor(milliseconds(1'000));  // it has all slots
  const size_t before = runner.calls.size();
  const std::string light = Create(small, "light");
  loop.RunFor(milliseconds(1'300));
  EXPECT_EQ(Get(light, "light").state(), v1::STATE_SUCCEEDED);
  int heavy = 0, last_light = 0;
  for (size_t i = before; i < runner.calls.size(); ++i) {
    const auto& request = static_cast<const importer::v1::ImportRequest&>(*runner.calls[i].request);
    if (request.step().tenant() == "light") last_light = static_cast<int>(i - before);
  }
  for (int i = 0; i < last_light; ++i) {
    const auto& request =
        static_cast<const importer::v1::ImportRequest&>(*runner.calls[before + i].request);
    if (request.step().tenant() == "heavy") ++heavy;
  }
  EXPECT_LE(heavy, 30);  // 20 steps of the other's: as many turns, and the slots that ended first
}

TEST_F(EngineLimitsTest, RunningStepsAreReclaimedAtBoot) {
  runner.behave = [](const StepCall& call) {
    return call.row->method == "Transform" ? Hangs() : Behaviour();
  };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(1'000));
  const int64_t revision = Get(id).revision();
  runner.behave = [](const StepCall&) { return Behaviour(); };
  Boot();
  EXPECT_GT(Get(id).revision(), revision);
  EXPECT_TRUE(pins->IsPinned(StepOf(id, "import").outputs(1).digest().hash()));
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_THAT(Methods(), ElementsAre("Import", "Transform", "Transform", "Compile"));
  const v1::Step transform = StepOf(id, "transform");
  EXPECT_EQ(transform.attempt(), 2);
  ASSERT_EQ(transform.failed_attempts_size(), 1);
  EXPECT_THAT(transform.failed_attempts(0).error().message(), HasSubstr("the gateway ended"));
  EXPECT_LE(transform.attempt(), transform.max_attempts());
}

TEST_F(EngineLimitsTest, AStepThatBringsTheGatewayDownEnds) {
  runner.behave = [](const StepCall&) { return Hangs(); };
  const std::string id = Create(OneImport());
  for (int i = 0; i < 10; ++i) {
    loop.RunFor(milliseconds(1'000));
    ASSERT_EQ(StateOf(id), v1::STATE_RUNNING) << i;
    Boot();
  }
  loop.RunFor(milliseconds(1'000));
  Boot();
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_THAT(Get(id).error().message(), HasSubstr("the gateway has ended 11 times"));
}

TEST_F(EngineLimitsTest, EndedWorkflowsExpire) {
  Options().keep_workflows = std::chrono::hours(1);
  const std::string id = Create(OneImport());
  loop.RunFor(std::chrono::minutes(59));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  loop.RunFor(std::chrono::minutes(3));
  EXPECT_EQ(store.Get("t", id).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EngineLimitsTest, ADrainLetsRunningStepsEndAndBeginsNone) {
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(1000), {}}; };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(500));
  bool drained = false;
  engine->Drain([&] { drained = true; });
  loop.RunFor(milliseconds(100));
  EXPECT_FALSE(drained);
  absl::Status status;
  CreateAs("x", OneImport("b"), "t", &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(rpc::RetryAfterOf(status), std::nullopt);
  loop.RunFor(milliseconds(2'000));
  EXPECT_TRUE(drained);
  EXPECT_EQ(StepOf(id, "import").state(), v1::STATE_SUCCEEDED);
  EXPECT_THAT(Methods(), ElementsAre("Import"));
  Boot();
  loop.RunFor(milliseconds(5'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
}

TEST_F(EngineLimitsTest, QueueMetricsFollowTheQueue) {
  Options().max_running_steps = 1;
  runner.behave = [](const StepCall&) { return Hangs(); };
  v1::WorkflowSpec spec;
  for (int i = 0; i < 4; ++i) AddImport(&spec, std::to_string(i), std::to_string(i));
  const std::string id = Create(spec);
  loop.RunFor(milliseconds(12'000));
  EXPECT_EQ(registry.Get(metrics::kQueueDepth, Stage::kImport).Value(), 3);
  EXPECT_GE(registry.Get(metrics::kQueueOldestAge, Stage::kImport).Value(), 10);
  EXPECT_EQ(registry.Get(metrics::kWorkflows, metrics::WorkflowState::kRunning).Value(), 1);
  EXPECT_EQ(Cancel(id), absl::OkStatus());
  EXPECT_EQ(registry.Get(metrics::kQueueDepth, Stage::kImport).Value(), 0);
}

TEST_F(EngineLimitsTest, OutputsAreKeptUntilTheWorkflowExpires) {
  Options().keep_workflows = std::chrono::hours(2);
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(1'000));
  const v1::Workflow done = Get(id);
  ASSERT_EQ(done.state(), v1::STATE_SUCCEEDED);
  EXPECT_EQ(done.outputs_expire_time().seconds(), done.expire_time().seconds());
  const std::string library = done.steps(2).outputs(0).digest().hash();
  const std::string input = DigestOf("model").hash();
  EXPECT_TRUE(pins->IsPinned(library));
  EXPECT_FALSE(pins->IsPinned(input));
  Boot();
  EXPECT_TRUE(pins->IsPinned(library)) << "a promise outlives its gateway";
  loop.RunFor(std::chrono::minutes(115));
  EXPECT_TRUE(pins->IsPinned(library));
  loop.RunFor(std::chrono::minutes(10));
  EXPECT_FALSE(pins->IsPinned(library));
  EXPECT_EQ(pins->size(), 0u);
}

TEST_F(EngineLimitsTest, WorkflowsThatEndedFirstAreForgottenAboveTheirLimit) {
  Options().ended.workflows = 2;
  std::vector<std::string> ids, libraries;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(Create(ChainSpec("model" + std::to_string(i))));
    loop.RunFor(milliseconds(500));
    EXPECT_EQ(StateOf(ids.back()), v1::STATE_SUCCEEDED);
    libraries.push_back(StepOf(ids.back(), "compile").outputs(0).digest().hash());
  }
  loop.RunFor(std::chrono::seconds(3));
  EXPECT_EQ(store.Get("t", ids[0]).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(pins->IsPinned(libraries[0]));
  for (const int i : {1, 2}) {
    EXPECT_TRUE(store.Get("t", ids[i]).ok());
    EXPECT_TRUE(pins->IsPinned(libraries[i]));
  }
}

TEST_F(EngineLimitsTest, AClockThatIsSetAheadExpiresNothingUntilItHasStayedThere) {
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(1'000));
  ASSERT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  constexpr int64_t kTenDays = int64_t{10} * 24 * 3600 * 1'000'000;
  loop.set_ahead_us = kTenDays;
  loop.RunFor(std::chrono::minutes(30));
  EXPECT_TRUE(store.Get("t", id).ok());
  loop.set_ahead_us = 0;
  loop.RunFor(std::chrono::minutes(90));
  EXPECT_TRUE(store.Get("t", id).ok());
  loop.set_ahead_us = kTenDays;
  loop.RunFor(std::chrono::minutes(90));
  EXPECT_FALSE(store.Get("t", id).ok());
}

TEST(FairQueueTest, WhatRunsElsewhereTakesNoTurn) {
  FairQueue queue;
  queue.Started("busy", metrics::Service::kImporter);
  queue.Started("busy", metrics::Service::kImporter);
  queue.Started("other", metrics::Service::kCodegen);
  uint64_t order = 0;
  for (const std::string tenant : {"other", "busy"}) {
    queue.Add({{tenant, 0},
               metrics::Service::kCodegen,
               metrics::Stage::kCompile,
               tenant,
               ++order,
               static_cast<int64_t>(100 - order)});
  }
  EXPECT_EQ(queue.OldestReady(metrics::Stage::kCompile), 98);
  EXPECT_EQ(queue.Pop(metrics::Service::kCodegen)->tenant, "busy");
  EXPECT_EQ(queue.OldestReady(metrics::Stage::kCompile), 99);
  EXPECT_EQ(queue.Pop(metrics::Service::kCodegen)->tenant, "other");
  EXPECT_EQ(queue.OldestReady(metrics::Stage::kCompile), std::nullopt);
}

TEST(PinsTest, WhatIsKeptHasLimits) {
  Pins pins({100, 150});
  const BlobId a{"a", 60}, b{"b", 50}, c{"c", 40};
  EXPECT_TRUE(pins.Keep("1", "red", {a, a}, 10));
  EXPECT_FALSE(pins.Keep("2", "red", {b}, 20)) << "110 of 100";
  EXPECT_TRUE(pins.Keep("3", "red", {a, c}, 30)) << "a is there already";
  EXPECT_FALSE(pins.Keep("4", "blue", {a}, 40)) << "160 of 150 in all";
  EXPECT_TRUE(pins.Keep("5", "blue", {b}, 50));
  EXPECT_EQ(pins.kept_bytes(), 150u);
  pins.Expire(10);
  EXPECT_TRUE(pins.IsPinned("a"));
  pins.Release("3");
  EXPECT_FALSE(pins.IsPinned("a") || pins.IsPinned("c"));
  pins.Add("3", {"a"});
  EXPECT_TRUE(pins.IsPinned("a"));
  pins.KeepPromised("6", "red", {a, b, c}, 60);
  EXPECT_EQ(pins.kept_bytes(), 200u);
  pins.Expire(60);
  pins.Remove("3");
  EXPECT_EQ(pins.kept_bytes(), 0u);
  EXPECT_EQ(pins.size(), 0u);
  EXPECT_FALSE(pins.IsPinned("a"));
  pins.SetLoading(true);
  EXPECT_TRUE(pins.IsPinned("a")) << "somebody may have been promised it";
  pins.Release("7");
  pins.KeepPromised("7", "red", {a}, 70);
  pins.SetLoading(false);
  EXPECT_FALSE(pins.IsPinned("a")) << "7 was deleted meanwhile";
}

TEST(PinsTest, TenantsMayHaveLimitsOfTheirOwn) {
  Pins pins({50, 300, {{"red", 120}, {"none", 10}}});
  EXPECT_TRUE(pins.Keep("1", "red", {{"a", 110}}, 10));
  EXPECT_FALSE(pins.Keep("2", "blue", {{"b", 60}}, 10));
  EXPECT_FALSE(pins.Keep("3", "none", {{"c", 11}}, 10));
  EXPECT_EQ(pins.kept_by_tenant(), (std::map<std::string, uint64_t>{{"red", 110}}));
  EXPECT_EQ(pins.LimitOf("blue"), 50u);
}

// Adopting many takes a while, and clients of the gateway before are back at once.
TEST_F(EngineLimitsTest, WhatIsRecoveredCanBeWatchedBeforeItIsAdopted) {
  class Ear : public Watcher {
   public:
    void OnView(const ViewPtr& view) override { ended = view->ended(); }
    bool ended = false;
  };
  const std::string id = Create(ChainSpec());
  BootWithoutJobs();
  const auto ear = std::make_shared<Ear>();
  EXPECT_NE(board->Watch("t", id, ear).view, nullptr);
  loop.RunFor(milliseconds(5'000));
  EXPECT_TRUE(ear->ended);
}

TEST_F(EngineLimitsTest, WatchersSeeEveryChangeInTheEnd) {
  class Follower : public Watcher {
   public:
    void OnView(const ViewPtr& view) override {
      const v1::WatchWorkflowEvent event = EventSince(*view, revision);
      if (event.has_snapshot()) {
        steps.clear();
        for (const v1::Step& step : event.snapshot().steps()) steps[step.name()] = step;
      }
      for (const v1::Step& step : event.change().steps()) steps[step.name()] = step;
      EXPECT_GT(event.revision(), revision);
      revision = event.revision();
      ended = view->ended();
    }
    int64_t revision = 0;
    bool ended = false;
    std::map<std::string, v1::Step> steps;
  };
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(1000), {}, 5}; };
  const std::string id = Create(ChainSpec());
  const auto follower = std::make_shared<Follower>();
  follower->OnView(board->Watch("t", id, follower).view);
  loop.RunFor(milliseconds(1'500));
  EXPECT_GE(follower->steps["transform"].progress().done(), 1);
  EXPECT_FALSE(follower->ended);
  loop.RunFor(milliseconds(5'000));
  EXPECT_TRUE(follower->ended);
  const v1::Workflow workflow = Get(id);
  for (const v1::Step& step : workflow.steps()) {
    EXPECT_EQ(follower->steps[step.name()].SerializeAsString(), step.SerializeAsString());
  }
}

}  // namespace
}  // namespace quench::gateway::engine_limits_test
