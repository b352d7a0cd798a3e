// Random workflows, failures, cancels and restarts: what holds whatever happens.
#include <gtest/gtest.h>

#include <random>

#include "tests/support/sample.h"
#include "tests/unit/services/gateway/engine_harness.h"

namespace quench::gateway::engine_random_test {
namespace {

const absl::Status kLost = rpc::Error(rpc::Reason::kUnavailable, "socket closed");
const absl::Status kCrash = rpc::Error(rpc::Reason::kStepCrashed, "signal 11");

// Whatever services, callers and gateways do: a workflow ends once, and attempts stay in limits.
class RandomRun : public ::testing::TestWithParam<int>, protected EngineHarness {};

TEST_P(RandomRun, EveryWorkflowEndsOnce) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto draw = [&](int below) { return static_cast<int>(random() % below); };
  Options().max_running_steps = 6;
  Options().seed = static_cast<uint64_t>(GetParam());
  runner.behave = [&](const StepCall& call) -> Behaviour {
    const milliseconds after(draw(2000));
    switch (draw(16)) {
      case 14:
        return {true, after, rpc::Error(rpc::Reason::kServerDrained, "drained")};
      case 15:
        return {draw(2) == 0, after, rpc::Error(rpc::Reason::kNodeFault, "no space left")};
      case 0:
        return {true, after, kLost};
      case 1:
        return {true, after, kCrash};
      case 2:
        return {false, milliseconds(0), ShedFor(milliseconds(1 + draw(2000)))};
      case 3:
        return {false, after, kLost};
      case 4:
        return draw(3) == 0 ? Hangs() : Behaviour{true, after, {}};
      case 5: {
        const std::vector<Digest> inputs = DigestsIn(*call.request);
        return {draw(2) == 0, after, Missing(inputs[draw(static_cast<int>(inputs.size()))].hash())};
      }
      case 6:
        return {true, after, absl::InvalidArgumentError("bad")};
      case 7: {
        Behaviour late = Hangs();
        late.ignores_cancel = true;
        late.after = milliseconds(draw(90'000));
        return late;
      }
      default:
        return {true, after, {}, draw(5)};
    }
  };
  std::map<std::string, std::string> tenants;  // by id
  std::map<std::string, std::string> ended;
  for (int turn = 0; turn < 300; ++turn) {
    if (tenants.size() < 40 && draw(3) == 0) {
      v1::WorkflowSpec spec;
      const int chains = 1 + draw(4);
      for (int c = 0; c < chains; ++c) {
        const std::string name = std::to_string(c);
        AddImport(&spec, name + "/i", "model" + std::to_string(draw(5)));
        AddTransform(&spec, name + "/t", name + "/i", v1::PORT_CANONICAL);
        for (int k = draw(3); k >= 0; --k) {
          AddCompile(&spec, name + "/c" + std::to_string(k), name + "/t");
        }
      }
      spec.set_fail_fast(draw(4) == 0);
      const std::string tenant = "t" + std::to_string(draw(3));
      tenants[Create(spec, tenant)] = tenant;
    }
    loop.RunFor(milliseconds(draw(1500)));
    if (!tenants.empty() && draw(12) == 0) {
      auto some = tenants.begin();
      std::advance(some, draw(static_cast<int>(tenants.size())));
      Cancel(some->first, some->second).IgnoreError();  // it may have ended
    }
    if (draw(40) == 0) Boot();
    if (!tenants.empty() && draw(10) == 0) {
      auto some = tenants.begin();
      std::advance(some, draw(static_cast<int>(tenants.size())));
      const v1::State state = Get(some->first, some->second).state();
      const bool retried = Retry(some->first, some->second).ok();
      EXPECT_EQ(retried, HasEnded(state) && state != v1::STATE_SUCCEEDED);
      if (retried) ended[some->first].clear();
    }
    for (const auto& [id, tenant] : tenants) {
      const v1::Workflow workflow = Get(id, tenant);
      if (!ended[id].empty()) {
        ASSERT_EQ(workflow.SerializeAsString(), ended[id]) << "changed after its end";
      } else if (HasEnded(workflow.state())) {
        ended[id] = workflow.SerializeAsString();
      }
    }
  }
  loop.RunFor(std::chrono::hours(2));
  pins->Expire(std::numeric_limits<int64_t>::max());  // what is kept of those that have ended
  EXPECT_EQ(pins->size(), 0u);
  for (const auto& [id, tenant] : tenants) {
    const v1::Workflow workflow = Get(id, tenant);
    EXPECT_TRUE(HasEnded(workflow.state())) << workflow.DebugString();
    EXPECT_EQ(board->Find(id), nullptr);
    for (const v1::Step& step : workflow.steps()) {
      EXPECT_TRUE(HasEnded(step.state())) << step.DebugString();
      EXPECT_LE(step.attempt(), step.max_attempts()) << step.DebugString();
      EXPECT_EQ(step.state() == v1::STATE_SUCCEEDED, step.outputs_size() > 0);
    }
    const v1::Counts& counts = workflow.counts();
    EXPECT_EQ(counts.queued() + counts.running(), 0);
    EXPECT_EQ(counts.succeeded() + counts.failed() + counts.cancelled(), workflow.steps_size());
    if (workflow.state() == v1::STATE_SUCCEEDED) {
      EXPECT_EQ(counts.succeeded(), workflow.steps_size());
    } else {
      EXPECT_TRUE(workflow.has_error());
    }
  }
  EXPECT_EQ(registry.Get(metrics::kWorkflows, metrics::WorkflowState::kQueued).Value() +
                registry.Get(metrics::kWorkflows, metrics::WorkflowState::kRunning).Value(),
            0);
}

// scripts/test --full looks longer.
INSTANTIATE_TEST_SUITE_P(Seeds, RandomRun, ::testing::Range(1, testing::Full() ? 31 : 7));

}  // namespace
}  // namespace quench::gateway::engine_random_test
