#include "services/gateway/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "common/steps/gpus.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/engine_harness.h"

namespace quench::gateway::engine_test {
namespace {

using metrics::RetryReason;
using metrics::Stage;
using quench::testing::ElementsAre;
using quench::testing::HasSubstr;

const absl::Status kLost = rpc::Error(rpc::Reason::kUnavailable, "socket closed");
const absl::Status kCrash = rpc::Error(rpc::Reason::kStepCrashed, "signal 11");

class EngineTest : public ::testing::Test, protected EngineHarness {
 protected:
  // The calls so far, as METHOD.
  std::vector<std::string> Methods() {
    std::vector<std::string> methods;
    for (const StepCall& call : runner.calls) methods.push_back(call.row->method);
    return methods;
  }
  double Retries(Stage stage, RetryReason reason) {
    return registry.Get(metrics::kStepRetries, stage, reason).Value();
  }
  static v1::WorkflowSpec OneImport(const std::string& model = "model") {
    v1::WorkflowSpec spec;
    AddImport(&spec, "import", model);
    return spec;
  }
};

TEST_F(EngineTest, StepsRunInOrderAndPassOutputsOn) {
  const std::string id = Create(ChainSpec());
  EXPECT_EQ(Get(id).steps_size(), 3);
  loop.RunFor(milliseconds(500));
  const v1::Workflow workflow = Get(id);
  EXPECT_EQ(workflow.state(), v1::STATE_SUCCEEDED) << workflow.DebugString();
  EXPECT_THAT(Methods(), ElementsAre("Import", "Transform", "Compile"));
  EXPECT_EQ(workflow.counts().succeeded(), 3);
  EXPECT_TRUE(workflow.has_start_time() && workflow.has_end_time());
  EXPECT_EQ(Microseconds(workflow.expire_time()) - Microseconds(workflow.end_time()),
            int64_t{7} * 24 * 3600 * 1'000'000);
  const auto& transform =
      static_cast<const importer::v1::TransformRequest&>(*runner.calls[1].request);
  EXPECT_EQ(transform.module().digest().hash(), workflow.steps(0).outputs(1).digest().hash());
  EXPECT_EQ(transform.step().tenant(), "t");
  EXPECT_EQ(transform.step().request_id(), id + ".1.1");
  EXPECT_EQ(workflow.steps(2).attempt(), 1);
  EXPECT_EQ(registry.Get(metrics::kWorkflowsEnded, metrics::Result::kOk).Value(), 1);
  EXPECT_EQ(registry.Get(metrics::kWorkflows, metrics::WorkflowState::kRunning).Value(), 0);
  EXPECT_EQ(board->Find(id), nullptr);
}

TEST_F(EngineTest, PinsWhatLiveWorkflowsNeed) {
  runner.behave = [](const StepCall& call) {
    return call.row->method == "Compile" ? Hangs() : Behaviour();
  };
  const std::string id = Create(ChainSpec());
  EXPECT_TRUE(pins->IsPinned(DigestOf("model").hash()));
  loop.RunFor(milliseconds(500));
  const std::string canonical = StepOf(id, "import").outputs(1).digest().hash();
  EXPECT_TRUE(pins->IsPinned(canonical));
  EXPECT_EQ(Cancel(id), absl::OkStatus());
  EXPECT_FALSE(pins->IsPinned(canonical));
  EXPECT_EQ(pins->size(), 0u);
}

TEST_F(EngineTest, ALostWorkerHasThreeAttempts) {
  runner.behave = [](const StepCall&) { return Fails(kLost); };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(60'000));
  const v1::Workflow workflow = Get(id);
  EXPECT_EQ(workflow.state(), v1::STATE_FAILED);
  EXPECT_EQ(workflow.error().message(), "step `import`: socket closed");
  EXPECT_EQ(runner.calls.size(), 3u);
  EXPECT_EQ(workflow.steps(0).attempt(), 3);
  EXPECT_EQ(workflow.steps(0).failed_attempts_size(), 3);
  EXPECT_EQ(workflow.steps(0).failed_attempts(0).server(), "fake");
  EXPECT_EQ(workflow.steps(1).state(), v1::STATE_CANCELLED);
  EXPECT_THAT(workflow.steps(1).error().message(), HasSubstr("step `import` failed"));
  EXPECT_EQ(Retries(Stage::kImport, RetryReason::kWorkerLost), 2);
}

TEST_F(EngineTest, AnotherAttemptMaySucceed) {
  runner.behave = [this](const StepCall&) {
    return runner.calls.size() < 3 ? Fails(kLost) : Behaviour();
  };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(id, "import").attempt(), 3);
}

TEST_F(EngineTest, ACrashHasTwoAttempts) {
  runner.behave = [](const StepCall&) { return Fails(kCrash); };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_EQ(runner.calls.size(), 2u);
  EXPECT_EQ(Get(id).error().code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_EQ(Retries(Stage::kImport, RetryReason::kCrashed), 1);
}

TEST_F(EngineTest, AProcessThatHangsHasTwoAttemptsToo) {
  runner.behave = [](const StepCall&) {
    return Fails(rpc::Error(rpc::Reason::kStepStalled, "hung"));
  };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_EQ(runner.calls.size(), 2u);
  EXPECT_EQ(Retries(Stage::kImport, RetryReason::kCrashed), 1);
}

TEST_F(EngineTest, OtherFailuresAreFinal) {
  for (const absl::Status& status :
       {rpc::Error(rpc::Reason::kResourceLimit, "out of memory"), absl::InvalidArgumentError("bad"),
        absl::UnimplementedError("no such operator"),
        rpc::Error(rpc::Reason::kInternal, "a defect"),
        rpc::Error(rpc::Reason::kStepTimedOut, "late"),
        absl::FailedPreconditionError("cpu lacks avx512f")}) {
    runner.calls.clear();
    runner.behave = [&](const StepCall&) { return Fails(status); };
    const std::string id = Create(OneImport());
    loop.RunFor(milliseconds(60'000));
    EXPECT_EQ(StateOf(id), v1::STATE_FAILED) << status;
    EXPECT_EQ(runner.calls.size(), 1u) << status;
    EXPECT_EQ(Get(id).error().code(), static_cast<int>(status.code()));
    EXPECT_EQ(Get(id).steps(0).failed_attempts_size(), 1);
  }
}

TEST_F(EngineTest, SilenceIsALostWorkerAndItsLateCompletionIsRefused) {
  runner.behave = [this](const StepCall&) {
    Behaviour hangs = Hangs();
    hangs.ignores_cancel = true;
    return runner.calls.size() == 1 ? hangs : Behaviour();
  };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(29'000));
  EXPECT_EQ(StateOf(id), v1::STATE_RUNNING);
  EXPECT_EQ(runner.calls.size(), 1u);
  loop.RunFor(milliseconds(5'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(id, "import").attempt(), 2);
  const std::string stored = Get(id).SerializeAsString();
  runner.End(runner.calls[0].run, absl::OkStatus());
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(registry.Get(metrics::kStepsRefused, Stage::kImport).Value(), 1);
  EXPECT_EQ(Get(id).SerializeAsString(), stored);
}

TEST_F(EngineTest, ProgressKeepsAWorkerAlive) {
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(200'000), {}, 20}; };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(100'000));
  EXPECT_EQ(runner.calls.size(), 1u);
  EXPECT_GT(StepOf(id, "import").progress().done(), 5);
  loop.RunFor(milliseconds(110'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
}

TEST_F(EngineTest, AStepsLogTellsOfAllAttempts) {
  runner.behave = [this](const StepCall&) {
    return runner.calls.size() == 1 ? Fails(kLost) : Behaviour();
  };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(60'000));
  std::vector<std::string> lines;
  const v1::Step step = StepOf(id, "import");
  for (const v1::LogLine& line : step.log())
    lines.push_back(fmt::format("{} {}", line.attempt(), line.text()));
  EXPECT_THAT(lines, ElementsAre("1 taken by fake", "1 attempt failed: socket closed",
                                 "2 taken by fake", "2 done in 0.00 s of CPU time, at most 0 MiB"));
}

TEST_F(EngineTest, AStepsLogTellsWhyItWasCancelled) {
  runner.behave = [](const StepCall&) { return Fails(absl::InvalidArgumentError("bad")); };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(StepOf(id, "import").log().rbegin()->text(), "failed: bad");
  ASSERT_EQ(StepOf(id, "transform").log_size(), 1);
  EXPECT_EQ(StepOf(id, "transform").log(0).text(),
            "cancelled: step `import` failed, which it needs");
  EXPECT_EQ(StepOf(id, "transform").log(0).attempt(), 0);
}

// A large model waits for memory, and others go on meanwhile.
TEST_F(EngineTest, AStepThatLacksMemoryWaitsAside) {
  bool is_free = false;
  runner.behave = [&](const StepCall& call) {
    const bool is_large =
        call.request_id.starts_with(runner.calls.front().request_id.substr(0, 32));
    return is_large && !is_free ? Fails(MemoryFullFor(milliseconds(1000)), false) : Behaviour();
  };
  const std::string large = Create(OneImport("large"));
  loop.RunFor(milliseconds(100));
  for (int i = 0; i < 20; ++i) {
    const std::string small = Create(OneImport(fmt::format("small{}", i)));
    loop.RunFor(milliseconds(50));
    EXPECT_EQ(StateOf(small), v1::STATE_SUCCEEDED);
  }
  EXPECT_EQ(StateOf(large), v1::STATE_QUEUED);
  EXPECT_EQ(StepOf(large, "import").waiting_reason(), "service `importer`: memory is reserved");
  EXPECT_LE(runner.calls.size(), 26u) << "asked as often as it was told to";
  is_free = true;
  loop.RunFor(milliseconds(2000));
  EXPECT_EQ(StateOf(large), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(large, "import").attempt(), 1);
  EXPECT_EQ(StepOf(large, "import").waiting_reason(), "");
}

TEST_F(EngineTest, StepsThatShareItsResultWaitAsideWithIt) {
  bool is_free = false;
  std::set<std::string> large;
  for (int i = 1; i <= 3; ++i) large.insert(fmt::format("{:032x}", i));
  runner.behave = [&](const StepCall& call) {
    return large.contains(call.request_id.substr(0, 32)) && !is_free
               ? Fails(MemoryFullFor(milliseconds(1000)), false)
               : Behaviour();
  };
  for (const std::string& id : large) EXPECT_EQ(Create(OneImport("large")), id);
  loop.RunFor(milliseconds(100));
  for (int i = 0; i < 40; ++i) {
    const std::string small = Create(OneImport(fmt::format("small{}", i)));
    loop.RunFor(milliseconds(50));
    EXPECT_EQ(StateOf(small), v1::STATE_SUCCEEDED) << i;
  }
  EXPECT_GE(registry.Get(metrics::kQueueDepth, metrics::Stage::kImport).Value(), 1);
  EXPECT_GT(registry.Get(metrics::kQueueOldestAge, metrics::Stage::kImport).Value(), 0.5);
  is_free = true;
  loop.RunFor(milliseconds(3000));
  for (const std::string& id : large) EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(registry.Get(metrics::kStepsMerged, metrics::Stage::kImport).Value(), 2);
  EXPECT_EQ(registry.Get(metrics::kQueueDepth, metrics::Stage::kImport).Value(), 0);
}

// A service whose process was taken over says so.
TEST_F(EngineTest, NoServiceIsLeftAloneForLongBecauseItSaysSo) {
  runner.behave = [this](const StepCall&) {
    return runner.calls.size() == 1 ? Fails(ShedFor(std::chrono::hours(8760))) : Behaviour();
  };
  const std::string id = Create(OneImport());
  loop.RunFor(std::chrono::minutes(2));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
}

TEST_F(EngineTest, EachServerIsAskedForMemory) {
  std::vector<std::string> asked;
  runner.behave = [&asked](const StepCall&) {
    asked.push_back(asked.size() % 2 == 0 ? "one" : "two");
    return Fails(steps::FromServer(MemoryFullFor(milliseconds(1000)), rpc::Reason::kMemoryFull,
                                   asked.back()),
                 false);
  };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(900));
  EXPECT_THAT(asked, ElementsAre("one", "two", "one")) << "then there is a pause";
  loop.RunFor(milliseconds(1000));
  EXPECT_EQ(asked.size(), 6u);
  EXPECT_EQ(StateOf(id), v1::STATE_QUEUED);
}

// Where all are large, memory is what there are slots of: nobody asks in vain again and again.
TEST_F(EngineTest, StepsThatLackMemoryHoldUpTheQueue) {
  runner.behave = [this](const StepCall&) {
    return runner.running() >= 2 ? Fails(MemoryFullFor(milliseconds(1000)), false)
                                 : Behaviour{true, milliseconds(5000), {}};
  };
  std::vector<std::string> all;
  for (int i = 0; i < 12; ++i) all.push_back(Create(OneImport(fmt::format("large{}", i))));
  loop.RunFor(milliseconds(60'000));
  for (const std::string& id : all) {
    EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
    EXPECT_EQ(StepOf(id, "import").attempt(), 1);
  }
  EXPECT_LE(runner.calls.size(), 12u + 2 * 60u);
}

TEST_F(EngineTest, SheddingCostsNoAttempt) {
  runner.behave = [this](const StepCall&) {
    return runner.calls.size() <= 20 ? Fails(ShedFor(milliseconds(1000)), false) : Behaviour();
  };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(10'000));
  EXPECT_LE(runner.calls.size(), 11u);  // asked as often as it was told to
  EXPECT_EQ(StateOf(id), v1::STATE_QUEUED);
  loop.RunFor(milliseconds(30'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(id, "import").attempt(), 1);
  EXPECT_EQ(Retries(Stage::kImport, RetryReason::kShed), 20);
}

TEST_F(EngineTest, LearnsHowManyRunAtOnce) {
  v1::WorkflowSpec spec;
  for (int i = 0; i < 200; ++i) AddImport(&spec, std::to_string(i), std::to_string(i));
  runner.behave = [this](const StepCall&) {
    if (runner.running() >= 2)
      return Behaviour{false, milliseconds(0), ShedFor(milliseconds(1000))};
    return Behaviour{true, milliseconds(100), {}};
  };
  const std::string id = Create(spec);
  loop.RunFor(milliseconds(20'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  // Two at a time take 10 s; a probe each second finds that there are no more slots.
  EXPECT_LT(runner.calls.size(), 300u);
}

TEST_F(EngineTest, AServiceThatNobodyAnswersForIsWaitedFor) {
  runner.behave = [](const StepCall&) { return Fails(kLost, false); };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StateOf(id), v1::STATE_QUEUED);
  runner.behave = [](const StepCall&) { return Behaviour(); };
  loop.RunFor(milliseconds(10'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(id, "import").attempt(), 1);
  runner.behave = [](const StepCall&) { return Fails(kLost, false); };
  const std::string other = Create(OneImport("other"));
  v1::WorkflowSpec hasty = OneImport("hasty");
  hasty.mutable_patience()->set_seconds(120);
  const std::string impatient = Create(hasty);
  loop.RunFor(milliseconds(200'000));
  EXPECT_EQ(StateOf(impatient), v1::STATE_FAILED);
  EXPECT_THAT(Get(impatient).error().message(),
              HasSubstr("step `import`: service `importer` has done nothing for 120 s"));
  loop.RunFor(std::chrono::hours(25));
  EXPECT_EQ(StateOf(other), v1::STATE_QUEUED);
  runner.behave = [](const StepCall&) { return Behaviour(); };
  loop.RunFor(milliseconds(10'000));
  EXPECT_EQ(StateOf(other), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(other, "import").attempt(), 1);
}

TEST_F(EngineTest, PatienceIsConfigured) {
  Options().patience = milliseconds(10'000);
  runner.behave = [](const StepCall&) { return Fails(kLost, false); };
  const std::string id = Create(OneImport());
  v1::WorkflowSpec patient = OneImport("patient");
  patient.mutable_patience()->set_seconds(1000);
  const std::string other = Create(patient);
  loop.RunFor(milliseconds(20'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_EQ(StateOf(other), v1::STATE_QUEUED);
}

// A rotated token, or a replica of before that lacks a method: nothing is lost until it is mended.
TEST_F(EngineTest, RefusedCredentialsStopTheServiceNotTheSteps) {
  for (const absl::Status& refusal :
       {rpc::Error(rpc::Reason::kTokenInvalid, "no such token"),
        absl::PermissionDeniedError("not yours"), absl::UnimplementedError("unknown method"),
        rpc::Error(rpc::Reason::kUnknownField, "newer")}) {
    runner.calls.clear();
    runner.behave = [&](const StepCall&) { return Fails(refusal, false); };
    const std::string id = Create(OneImport(refusal.ToString()));
    loop.RunFor(std::chrono::minutes(30));
    EXPECT_EQ(StateOf(id), v1::STATE_QUEUED) << refusal;
    EXPECT_LE(runner.calls.size(), 1000u);
    runner.behave = [](const StepCall&) { return Behaviour(); };
    loop.RunFor(milliseconds(10'000));
    EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED) << refusal;
    EXPECT_EQ(StepOf(id, "import").attempt(), 1);
  }
  // Failures of a step that was accepted are its own.
  runner.behave = [](const StepCall&) { return Fails(absl::PermissionDeniedError("no")); };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(1000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
}

TEST_F(EngineTest, DrainsCostNoAttempt) {
  runner.behave = [this](const StepCall&) {
    return runner.calls.size() <= 5 ? Fails(rpc::Error(rpc::Reason::kServerDrained, "drained"))
                                    : Behaviour();
  };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(id, "import").attempt(), 6);
  EXPECT_EQ(StepOf(id, "import").max_attempts(), kLostAttempts + 5);
  EXPECT_EQ(Retries(Stage::kImport, RetryReason::kDrained), 5);
}

TEST_F(EngineTest, FaultsOfTheNodeAreRetriedElsewhere) {
  const absl::Status fault = rpc::Error(rpc::Reason::kNodeFault, "no space left");
  runner.behave = [&](const StepCall&) {
    return runner.calls.size() < kNodeFaults ? Fails(fault) : Behaviour();
  };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(3000));
  Boot();  // what it has seen so far is remembered
  loop.RunFor(std::chrono::minutes(10));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_GE(Retries(Stage::kImport, RetryReason::kNodeFault), kNodeFaults - 2);
  // A step that fills the disk of every server is not repeated for ever.
  runner.calls.clear();
  runner.behave = [&](const StepCall&) { return Fails(fault); };
  const std::string poison = Create(OneImport("poison"));
  loop.RunFor(std::chrono::minutes(30));
  EXPECT_EQ(StateOf(poison), v1::STATE_FAILED);
  EXPECT_EQ(runner.calls.size(), size_t{kNodeFaults});
  EXPECT_THAT(Get(poison).error().message(), HasSubstr("10 times in turn"));
}

// A server that is out of service says so before it accepts a step, which costs nothing but time.
TEST_F(EngineTest, ServersOutOfServiceAreWaitedFor) {
  const absl::Status out = rpc::WithRetryAfter(
      rpc::Error(rpc::Reason::kNodeFault, "out of service: disk full"), milliseconds(1000));
  runner.behave = [&](const StepCall&) { return Fails(out, false); };
  v1::WorkflowSpec hasty = OneImport("hasty");
  hasty.mutable_patience()->set_seconds(60);
  const std::string impatient = Create(hasty);
  loop.RunFor(std::chrono::minutes(2));
  EXPECT_EQ(StateOf(impatient), v1::STATE_FAILED);
  EXPECT_THAT(Get(impatient).error().message(), HasSubstr("disk full"));
  const std::string id = Create(OneImport());
  loop.RunFor(std::chrono::hours(2));
  EXPECT_EQ(StateOf(id), v1::STATE_QUEUED);
  EXPECT_EQ(Retries(Stage::kImport, RetryReason::kNodeFault), 0);
  EXPECT_GT(Retries(Stage::kImport, RetryReason::kOutOfService), 1000);
  runner.behave = [](const StepCall&) { return Behaviour(); };
  loop.RunFor(milliseconds(5'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(id, "import").attempt(), 1);
}

TEST_F(EngineTest, StepsAndWorkflowsHaveTimeouts) {
  runner.behave = [](const StepCall& call) {
    return call.row->method == "Import" ? Behaviour{true, milliseconds(-1), {}, 0} : Behaviour();
  };
  v1::WorkflowSpec spec = ChainSpec();
  spec.mutable_step_timeout()->set_seconds(5);
  AddImport(&spec, "long", "other")->mutable_timeout()->set_seconds(8);
  const std::string id = Create(spec);
  loop.RunFor(milliseconds(4'000));
  EXPECT_EQ(StepOf(id, "import").state(), v1::STATE_RUNNING);
  loop.RunFor(milliseconds(2'500));
  EXPECT_EQ(StepOf(id, "import").state(), v1::STATE_FAILED);
  EXPECT_EQ(StepOf(id, "import").error().code(),
            static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(StepOf(id, "long").state(), v1::STATE_RUNNING);
  loop.RunFor(milliseconds(4'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_EQ(runner.running(), 0u);

  v1::WorkflowSpec whole = ChainSpec("whole");
  whole.mutable_timeout()->set_seconds(20);
  const std::string second = Create(whole);
  loop.RunFor(milliseconds(10'000));
  Boot();
  loop.RunFor(milliseconds(9'000));
  EXPECT_EQ(StateOf(second), v1::STATE_RUNNING);
  loop.RunFor(milliseconds(2'000));
  EXPECT_EQ(StateOf(second), v1::STATE_FAILED);
  EXPECT_EQ(Get(second).error().message(), "the workflow has not ended within 20 s");
}

TEST_F(EngineTest, RetryRunsWhatFailedAndWhatDependsOnIt) {
  Options().keep_workflows = std::chrono::hours(1);
  runner.behave = [](const StepCall& call) {
    return call.row->method == "Transform" ? Fails(absl::InvalidArgumentError("bad")) : Behaviour();
  };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(1000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  const v1::Step import = StepOf(id, "import");
  runner.calls.clear();
  EXPECT_EQ(Retry(id), absl::OkStatus());
  EXPECT_FALSE(HasEnded(StateOf(id)));
  EXPECT_FALSE(Get(id).has_error() || Get(id).has_end_time() || Get(id).has_expire_time());
  EXPECT_TRUE(Get(id).has_retry_time());
  EXPECT_EQ(Retry(id).code(), absl::StatusCode::kFailedPrecondition);  // it is live
  loop.RunFor(milliseconds(1000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_THAT(Methods(), ElementsAre("Transform"));

  runner.behave = [](const StepCall&) { return Behaviour(); };
  runner.calls.clear();
  EXPECT_EQ(Retry(id), absl::OkStatus());
  Boot();  // it is durable; what had begun is begun again
  loop.RunFor(milliseconds(1000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED) << Get(id).DebugString();
  EXPECT_THAT(Methods(), ElementsAre("Transform", "Transform", "Compile"));
  EXPECT_EQ(StepOf(id, "import").SerializeAsString(), import.SerializeAsString());
  EXPECT_EQ(Get(id).counts().succeeded(), 3);
  EXPECT_EQ(Get(id).counts().failed() + Get(id).counts().cancelled(), 0);
  EXPECT_THAT(Retry(id).ToString(), HasSubstr("nothing to retry"));
  EXPECT_GT(pins->size(), 0u);
  loop.RunFor(std::chrono::hours(1) + std::chrono::minutes(2));
  EXPECT_EQ(pins->size(), 0u);
}

TEST_F(EngineTest, ARetriedStepHasAllItsAttemptsAgain) {
  runner.behave = [](const StepCall&) { return Fails(kLost); };
  const std::string id = Create(OneImport());
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StepOf(id, "import").attempt(), 3);
  EXPECT_EQ(StepOf(id, "import").max_attempts(), 3);
  EXPECT_EQ(Retry(id), absl::OkStatus());
  EXPECT_EQ(StepOf(id, "import").max_attempts(), 6);
  Boot();  // costs one more, that does not count
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(StepOf(id, "import").attempt(), 7);
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
}

TEST_F(EngineTest, AServiceThatIsNotConfiguredFailsItsSteps) {
  runner.serves = [](metrics::Service service) { return service != metrics::Service::kCodegen; };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_EQ(Get(id).error().message(),
            "step `compile`: service `codegen` is not configured at this gateway");
  EXPECT_EQ(Get(id).error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
}

TEST_F(EngineTest, AMissingBlobIsMadeAgainOnce) {
  std::string hash;
  int losses = 1;
  runner.behave = [&](const StepCall& call) {
    if (call.row->method != "Compile" || losses-- <= 0) return Behaviour();
    hash = static_cast<const codegen::v1::CompileRequest&>(*call.request).module().digest().hash();
    return Fails(Missing(hash));
  };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(5'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED) << Get(id).DebugString();
  EXPECT_THAT(Methods(), ElementsAre("Import", "Transform", "Compile", "Transform", "Compile"));
  EXPECT_EQ(StepOf(id, "transform").attempt(), 2);
  EXPECT_EQ(StepOf(id, "compile").attempt(), 2);
  EXPECT_EQ(Retries(Stage::kCompile, RetryReason::kMissingBlob), 1);

  runner.calls.clear();
  losses = 1000;
  const std::string hopeless = Create(ChainSpec("another"));
  loop.RunFor(milliseconds(5'000));
  EXPECT_EQ(StateOf(hopeless), v1::STATE_FAILED);
  EXPECT_THAT(Methods(), ElementsAre("Import", "Transform", "Compile", "Transform", "Compile"));
}

TEST_F(EngineTest, ProducersOfProducersRunAgainToo) {
  int losses = 1;
  runner.behave = [&](const StepCall& call) {
    if (call.row->method == "Compile" && losses == 1) {
      ++losses;
      return Fails(Missing(
          static_cast<const codegen::v1::CompileRequest&>(*call.request).module().digest().hash()));
    }
    if (call.row->method == "Transform" && losses == 2) {
      ++losses;
      return Fails(Missing(static_cast<const importer::v1::TransformRequest&>(*call.request)
                               .module()
                               .digest()
                               .hash()));
    }
    return Behaviour();
  };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(5'000));
  EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED) << Get(id).DebugString();
  EXPECT_THAT(Methods(), ElementsAre("Import", "Transform", "Compile", "Transform", "Import",
                                     "Transform", "Compile"));
  EXPECT_EQ(StepOf(id, "import").state(), v1::STATE_SUCCEEDED);
}

TEST_F(EngineTest, ABlobThatNoStepGaveFailsAtOnce) {
  runner.behave = [](const StepCall&) { return Fails(Missing(DigestOf("model").hash())); };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(5'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_EQ(runner.calls.size(), 1u);
}

TEST_F(EngineTest, IdenticalStepsOfATenantMerge) {
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(1000), {}}; };
  const std::string a = Create(OneImport()), b = Create(OneImport());
  const std::string other_tenant = Create(OneImport(), "u");
  v1::WorkflowSpec off = OneImport();
  off.set_cache(step::v1::CACHE_MODE_OFF);
  const std::string c = Create(off), d = Create(off);
  loop.RunFor(milliseconds(3'000));
  EXPECT_EQ(runner.calls.size(), 4u);
  for (const std::string& id : {a, b, c, d}) EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
  EXPECT_EQ(Get(other_tenant, "u").state(), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(b, "import").outputs(0).digest().hash(),
            StepOf(a, "import").outputs(0).digest().hash());
  EXPECT_EQ(StepOf(b, "import").attempt(), 1);
  EXPECT_EQ(registry.Get(metrics::kStepsMerged, Stage::kImport).Value(), 1);
}

// One identity of a step: what a service would answer from its cache is the same step here.
TEST_F(EngineTest, StepsAreIdenticalAsServicesSeeThem) {
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(1000), {}}; };
  const auto transform = [&](const std::string& fingerprint, const std::string& salt) {
    v1::WorkflowSpec spec;
    spec.set_salt(salt);
    v1::StepSpec* step = spec.mutable_steps()->add_steps();
    step->set_name("transform");
    step::v1::Module* module = step->mutable_transform()->mutable_module();
    *module->mutable_digest() = DigestOf("module");
    module->set_fingerprint(fingerprint);
    return Create(spec);
  };
  const std::string a = transform("", ""), b = transform("known", ""), c = transform("", "other");
  v1::WorkflowSpec again = OneImport();
  again.set_cache(step::v1::CACHE_MODE_REFRESH);
  const std::string d = Create(OneImport()), e = Create(again), f = Create(again);
  loop.RunFor(milliseconds(3'000));
  EXPECT_EQ(runner.calls.size(), 4u);  // a, c, d, e
  for (const std::string& id : {a, b, c, d, e, f}) EXPECT_EQ(StateOf(id), v1::STATE_SUCCEEDED);
}

TEST_F(EngineTest, ACancelledFirstDoesNotFailTheSecond) {
  runner.behave = [](const StepCall&) { return Behaviour{true, milliseconds(1000), {}}; };
  const std::string a = Create(OneImport()), b = Create(OneImport()), c = Create(OneImport());
  loop.RunFor(milliseconds(100));
  EXPECT_EQ(runner.calls.size(), 1u);
  EXPECT_EQ(Cancel(a), absl::OkStatus());
  loop.RunFor(milliseconds(3'000));
  EXPECT_EQ(StateOf(a), v1::STATE_CANCELLED);
  EXPECT_EQ(StateOf(b), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StateOf(c), v1::STATE_SUCCEEDED);
  EXPECT_EQ(runner.calls.size(), 2u);
  // A follower that is cancelled leaves the first alone.
  const std::string d = Create(OneImport("m")), e = Create(OneImport("m"));
  EXPECT_EQ(Cancel(e), absl::OkStatus());
  loop.RunFor(milliseconds(3'000));
  EXPECT_EQ(StateOf(d), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StateOf(e), v1::STATE_CANCELLED);
}

TEST_F(EngineTest, TwinsInOneWorkflowShareAFailure) {
  v1::WorkflowSpec spec;
  AddImport(&spec, "a");
  AddImport(&spec, "b");
  spec.set_fail_fast(true);
  runner.behave = [](const StepCall&) { return Fails(absl::InvalidArgumentError("bad")); };
  const std::string id = Create(spec);
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(StateOf(id), v1::STATE_FAILED);
  EXPECT_EQ(runner.calls.size(), 1u);
  EXPECT_EQ(Get(id).counts().failed(), 1);
  EXPECT_EQ(Get(id).counts().cancelled(), 1);
}

TEST_F(EngineTest, OneFailureLeavesTheRestToRunUnlessFailFast) {
  v1::WorkflowSpec spec;
  AddImport(&spec, "bad", "bad");
  AddTransform(&spec, "after_bad", "bad", v1::PORT_CANONICAL);
  AddImport(&spec, "good", "good");
  AddTransform(&spec, "after_good", "good", v1::PORT_CANONICAL);
  runner.behave = [](const StepCall& call) {
    if (call.row->method != "Import") return Behaviour{true, milliseconds(100), {}};
    const auto& request = static_cast<const importer::v1::ImportRequest&>(*call.request);
    return request.model().file().hash() == DigestOf("bad").hash()
               ? Fails(absl::InvalidArgumentError("bad"))
               : Behaviour();
  };
  const std::string patient = Create(spec);
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(StateOf(patient), v1::STATE_FAILED);
  EXPECT_EQ(StepOf(patient, "after_good").state(), v1::STATE_SUCCEEDED);
  EXPECT_EQ(StepOf(patient, "after_bad").state(), v1::STATE_CANCELLED);
  spec.set_fail_fast(true);
  spec.set_salt("again");
  const std::string fast = Create(spec);
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(StateOf(fast), v1::STATE_FAILED);
  EXPECT_EQ(StepOf(fast, "after_good").state(), v1::STATE_CANCELLED);
  EXPECT_EQ(Get(fast).error().message(), "step `bad`: bad");
}

TEST_F(EngineTest, CancelEndsAWorkflowForGood) {
  runner.behave = [](const StepCall& call) {
    return call.row->method == "Transform" ? Hangs() : Behaviour();
  };
  const std::string id = Create(ChainSpec());
  loop.RunFor(milliseconds(1'000));
  EXPECT_EQ(Cancel(id, "u").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Cancel("nobody").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Cancel(id), absl::OkStatus());
  const v1::Workflow workflow = Get(id);
  EXPECT_EQ(workflow.state(), v1::STATE_CANCELLED);
  EXPECT_EQ(workflow.error().code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_EQ(workflow.counts().succeeded(), 1);
  EXPECT_EQ(workflow.counts().cancelled(), 2);
  EXPECT_EQ(runner.cancelled.size(), 1u);
  loop.RunFor(milliseconds(60'000));
  EXPECT_EQ(Get(id).SerializeAsString(), workflow.SerializeAsString());
  EXPECT_EQ(runner.calls.size(), 2u);
  EXPECT_EQ(registry.Get(metrics::kWorkflowsEnded, metrics::Result::kCancelled).Value(), 1);
}

}  // namespace
}  // namespace quench::gateway::engine_test
