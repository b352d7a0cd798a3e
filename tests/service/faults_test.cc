// The fate of workflows when processes die, stop and restart.
//
// QUENCH_FULL=1 (scripts/test --full) makes the runs as many as the project promises.
#include <google/protobuf/util/time_util.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "quench/gateway/v1/workflows.pb.h"
#include "tests/service/cluster.h"
#include "tests/service/user.h"
#include "tests/support/sample.h"
#include "tests/support/wait.h"

namespace quench::testing::faults_test {
namespace {

namespace pb = ::quench::gateway::v1;

// `faults`: of servers while the workflow ran, each of which may cost a step one attempt.
void ExpectDone(const absl::StatusOr<pb::Workflow>& workflow, const std::string& library,
                int faults) {
  ASSERT_TRUE(workflow.ok()) << workflow.status();
  ASSERT_EQ(workflow->state(), pb::STATE_SUCCEEDED) << Failures(*workflow);
  EXPECT_EQ(LibraryOf(*workflow), library);
  for (const pb::Step& step : workflow->steps())
    EXPECT_LE(step.attempt(), 1 + faults) << step.DebugString();
}

// Waits until `step` is in a state that `accepts` takes, as long as its workflow runs: the step may be
// the last, and under sanitizers beside other tests that takes half a minute.
template <typename Accepts>
bool ReachesState(User& user, const std::string& name, const std::string& step, Accepts accepts) {
  bool reached = false;
  const bool ended = WaitFor(
      [&] {
        const auto now = user.client().Get(name, {});
        if (!now.ok()) return false;
        reached = accepts(StepOf(*now, step).state());
        return reached || now->has_end_time();
      },
      std::chrono::minutes(5));
  return ended && reached;
}

int FailedAttempts(const pb::Workflow& workflow) {
  int failed = 0;
  for (const pb::Step& step : workflow.steps()) failed += step.failed_attempts_size();
  return failed;
}

TEST(FaultsTest, EveryKindOfStepIsThere) {
  Cluster cluster;
  const User user(cluster);
  const pb::WorkflowSpec spec = user.Spec("");
  std::set<int> kinds, all;
  for (const pb::StepSpec& step : spec.steps().steps()) {
    const bool listed = std::any_of(AllSteps().begin(), AllSteps().end(),
                                    [&](const auto& each) { return each.first == step.name(); });
    if (listed) kinds.insert(step.request_case());
  }
  const auto* requests = pb::StepSpec::descriptor()->FindOneofByName("request");
  for (int i = 0; i < requests->field_count(); ++i) all.insert(requests->field(i)->number());
  EXPECT_EQ(kinds, all);
}

TEST(FaultsTest, ServicesThatReachBlobsOverTheNetworkGiveTheSame) {
  ClusterOptions over_network;
  over_network.remote = true;
  Cluster shared, remote(over_network);
  User here(shared), there(remote);
  const auto first = here.client().Run(here.Spec(""), {});
  const auto second = there.client().Run(there.Spec(""), {});
  ASSERT_TRUE(first.ok()) << first.status();
  ExpectDone(second, LibraryOf(*first), 0);
  const auto cached = there.client().Run(there.Spec(""), {});
  ASSERT_TRUE(cached.ok()) << cached.status();
  for (const pb::Step& step : cached->steps()) {
    EXPECT_EQ(step.cache_hit(), step.name() != "benchmark" && step.name() != "package")
        << step.name();
  }
}

// The service of a step is killed while the step runs: it is done once more, by name of each step. One in
// three of them, of each service at least one, unless all are asked for.
TEST(FaultsTest, AServiceKilledInAnyOfItsStepsCostsOneAttempt) {
  Cluster cluster;
  User user(cluster);
  const auto reference = user.client().Run(user.Spec("reference"), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::string library = LibraryOf(*reference);
  for (size_t i = Full() ? 0 : 1; i < AllSteps().size(); i += Full() ? 1 : 3) {
    const auto& [step, service] = AllSteps()[i];
    SCOPED_TRACE(step);
    bool hit = false;
    // A step that had ended before the signal came is not a case of this: the next has another salt.
    for (int round = 0; round < 20 && !hit; ++round) {
      const std::string id = fmt::format("{}-{}", step, round);
      const auto name = user.Create(user.Spec(id), id);
      ASSERT_TRUE(name.ok()) << name.status();
      ASSERT_TRUE(
          ReachesState(user, *name, step, [](auto state) { return state != pb::STATE_QUEUED; }));
      cluster.Kill(service);
      cluster.Start(service);
      const auto workflow = user.client().Watch(*name, {});
      ExpectDone(workflow, library, 1);
      if (::testing::Test::HasFailure()) return;
      hit = StepOf(*workflow, step).failed_attempts_size() > 0;
      EXPECT_LE(StepOf(*workflow, step).failed_attempts_size(), 1) << Failures(*workflow);
    }
    EXPECT_TRUE(hit);
  }
}

// Whatever is killed whenever: one terminal state, the same bytes, attempts within their limit.
TEST(FaultsTest, KilledProcessesCostAttemptsAndNothingElse) {
  Cluster cluster;
  User user(cluster);
  const auto reference = user.client().Run(user.Spec("reference"), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::string library = LibraryOf(*reference);
  // As long as it takes, and some more: nothing runs at the end.
  const auto longest = google::protobuf::util::TimeUtil::DurationToMilliseconds(
      reference->end_time() - reference->create_time());
  const int runs = Full() ? 100 : 8;
  std::vector<std::string> names = Cluster::Services();
  names.emplace_back("gateway");
  // Until they have been as many as they should, and one of them has hit a step that ran.
  int hits = 0;
  for (int seed = 0; seed < runs || (hits == 0 && seed < 10 * runs); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(static_cast<uint32_t>(seed));
    const std::string victim = names[static_cast<size_t>(seed) % names.size()];
    const auto when = std::chrono::milliseconds(random() % (longest * 5 / 4));
    const std::string id = "run-" + std::to_string(seed);
    const auto name = user.Create(user.Spec(id), id);
    ASSERT_TRUE(name.ok()) << name.status();
    std::thread killer([&] {
      std::this_thread::sleep_for(when);  // the seed's choice, not a wait for something
      cluster.Kill(victim);
      cluster.Start(victim);
    });
    const auto workflow = user.client().Watch(*name, {});
    killer.join();
    ExpectDone(workflow, library, 1);
    if (::testing::Test::HasFailure()) break;
    hits += FailedAttempts(*workflow) > 0 ? 1 : 0;
    // The same request is the same workflow, before and after.
    EXPECT_EQ(*user.Create(user.Spec(id), id), *name);
  }
  EXPECT_GT(hits, 0);
}

// The client retries as examples/clients/README.md says; it sees no error.
TEST(FaultsTest, RestartsUnderLoadLoseNothing) {
  Cluster cluster;
  User user(cluster);
  const auto reference = user.client().Run(user.Spec("reference"), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::string library = LibraryOf(*reference);
  std::atomic<bool> stop{false};
  std::atomic<int> done{0};
  std::vector<std::thread> load;
  for (int worker = 0; worker < 2; ++worker) {
    load.emplace_back([&, worker] {
      for (int i = 0; !stop; ++i) {
        const std::string id = fmt::format("load-{}-{}", worker, i);
        const auto name = user.Create(user.Spec(id), id);
        ASSERT_TRUE(name.ok()) << name.status();
        // One that begins late in a restart may see the end of it, and the whole of the next.
        ExpectDone(user.client().Watch(*name, {}), library, 3);
        ++done;
      }
    });
  }
  std::vector<std::string> names = Cluster::Services();
  names.emplace_back("gateway");
  const int restarts = Full() ? 50 : 4;
  for (int i = 0; i < restarts; ++i) {
    const int before = done;
    const std::string& name = names[static_cast<size_t>(i) % names.size()];
    EXPECT_EQ(cluster.Drain(name), 0) << name;
    cluster.Start(name);
    EXPECT_TRUE(WaitFor([&] { return done > before; }, std::chrono::seconds(60))) << name;
    if (::testing::Test::HasFailure()) break;
  }
  stop = true;
  for (std::thread& each : load) each.join();
}

// A service that is stopped for longer than its silence may last: another attempt does the step,
// and what the first one gives later is refused.
TEST(FaultsTest, AStoppedServiceIsGivenUp) {
  if (!Full()) GTEST_SKIP() << "takes a minute: scripts/test --full";
  Cluster cluster;
  User user(cluster);
  const auto reference = user.client().Run(user.Spec("reference"), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  const auto name = user.Create(user.Spec("stopped"), "stopped");
  ASSERT_TRUE(name.ok()) << name.status();
  // In the middle of the step: one that has not begun waits, and costs no attempt.
  ASSERT_TRUE(ReachesState(user, *name, kCompileStep,
                           [](auto state) { return state == pb::STATE_RUNNING; }));
  cluster.process("codegen").Signal(SIGSTOP);
  std::thread resume([&] {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    cluster.process("codegen").Signal(SIGCONT);
  });
  const auto workflow = user.client().Watch(*name, {});
  resume.join();
  ExpectDone(workflow, LibraryOf(*reference), 1);
  bool again = false;
  for (const pb::Step& step : workflow->steps()) again = again || step.failed_attempts_size() > 0;
  EXPECT_TRUE(again) << Failures(*workflow);
}

}  // namespace
}  // namespace quench::testing::faults_test
