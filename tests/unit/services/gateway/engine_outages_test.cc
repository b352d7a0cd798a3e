// Outages of the gateway itself, or of another's step, cost no work.
#include <gtest/gtest.h>

#include "services/gateway/engine.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/engine_harness.h"

namespace quench::gateway::engine_outages_test {
namespace {

using metrics::Stage;
using quench::testing::HasSubstr;

class EngineOutagesTest : public ::testing::Test, protected EngineHarness {
 protected:
  static v1::WorkflowSpec OneImport(int timeout_seconds = 0) {
    v1::WorkflowSpec spec;
    v1::StepSpec* step = AddImport(&spec, "import", "model");
    if (timeout_seconds > 0) step->mutable_timeout()->set_seconds(timeout_seconds);
    return spec;
  }
  std::string MessageOfStep(const std::string& id) {
    return StepOf(id, "import").error().message();
  }
};

TEST_F(EngineOutagesTest, AResultThatTheStoreRefusesIsKeptUntilItIsStored) {
  runner.behave = [](const StepCall&) {
    Behaviour refused;
    refused.refused_stores = 20;
    return refused;
  };
  const std::string id = Create(OneImport(5));
  loop.RunFor(milliseconds(60'000));  // longer than silence and the step's timeout
  const v1::Step step = StepOf(id, "import");
  EXPECT_EQ(step.state(), v1::STATE_RUNNING);
  EXPECT_EQ(step.progress().stage(), "wait for the store");
  EXPECT_EQ(step.progress().detail(), "the disk is full");
  loop.RunFor(milliseconds(120'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(id, "import").attempt(), 1);
  EXPECT_EQ(runner.calls.size(), 1u);
  EXPECT_EQ(runner.stored_again, 20);
}

TEST_F(EngineOutagesTest, PatienceWithTheStoreEnds) {
  runner.behave = [](const StepCall&) {
    Behaviour refused;
    refused.refused_stores = 1000;
    return refused;
  };
  v1::WorkflowSpec spec = OneImport();
  spec.mutable_patience()->set_seconds(40);
  const std::string id = Create(spec);
  const std::string follower = Create(OneImport());
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_THAT(MessageOfStep(id), HasSubstr("the disk is full"));
  EXPECT_EQ(StateOf(follower), v1::STATE_RUNNING);  // it waits longer, and began anew
  EXPECT_EQ(runner.calls.size(), 2u);
  EXPECT_EQ(Cancel(follower), absl::OkStatus());
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(StateOf(follower), v1::STATE_CANCELLED);
  EXPECT_EQ(runner.running(), 0u);
}

TEST_F(EngineOutagesTest, AMergedStepHasItsOwnTimeout) {
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(20'000), {}, 10}; };
  const std::string hurried = Create(OneImport(5)), patient = Create(OneImport());
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(runner.calls.size(), 1u);
  loop.RunFor(milliseconds(6'000));
  EXPECT_EQ(StateOf(hurried), v1::STATE_FAILED);
  EXPECT_EQ(StateOf(patient), v1::STATE_RUNNING);
  loop.RunFor(milliseconds(25'000));
  EXPECT_EQ(StateOf(patient), v1::STATE_SUCCEEDED);
  EXPECT_EQ(runner.calls.size(), 2u);
}

TEST_F(EngineOutagesTest, AFollowersTimeoutStrikesWhereItsLeaderHasNone) {
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(20'000), {}, 10}; };
  const std::string patient = Create(OneImport()), hurried = Create(OneImport(5));
  loop.RunFor(milliseconds(7'000));
  EXPECT_EQ(StateOf(hurried), v1::STATE_FAILED);
  EXPECT_THAT(MessageOfStep(hurried), HasSubstr("has not ended within 5 s"));
  loop.RunFor(milliseconds(15'000));
  EXPECT_EQ(StateOf(patient), v1::STATE_SUCCEEDED);
  EXPECT_EQ(runner.calls.size(), 1u);
}

TEST_F(EngineOutagesTest, APauseOfTheGatewayCostsNoAttempt) {
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(100'000), {}, 100}; };
  const std::string id = Create(OneImport());
  for (int pause = 0; pause < 3; ++pause) {
    loop.RunFor(milliseconds(5'000));
    loop.StandStill(milliseconds(35'000));
  }
  loop.RunFor(milliseconds(100'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(id, "import").attempt(), 1);
}

}  // namespace
}  // namespace quench::gateway::engine_outages_test
