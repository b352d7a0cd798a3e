// What happens to workflows when processes die, stop and restart.
//
// QUENCH_FAULTS=full (scripts/test --full) makes the runs as many as the project promises.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/status.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "tests/service/cluster.h"
#include "tests/support/wait.h"

namespace quench::testing {
namespace {

namespace pb = ::quench::gateway::v1;

const std::string kDigits = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits.onnx";
constexpr char kCompile[] = "model/plain/x86-64-v2/compile";

bool Full() {
  const char* faults = std::getenv("QUENCH_FAULTS");
  return faults != nullptr && std::string(faults) == "full";
}

class User {
 public:
  explicit User(const Cluster& cluster) {
    local_ = *LocalBlobStore::Open(cluster.folder() / "user");
    cli::GatewayOptions options;
    options.address = cluster.gateway();
    client_ = *cli::GatewayClient::Open(options, local_);
    cli::ModelOptions model;
    model.model = kDigits;
    const auto uploaded = cli::UploadModel(model, *client_, {});
    EXPECT_TRUE(uploaded.ok()) << uploaded.status();
    model_ = *uploaded;
  }

  // Equal salts are answered from the cache.
  pb::WorkflowSpec Spec(const std::string& salt) const {
    pb::WorkflowSpec spec;
    spec.set_salt(salt);
    *spec.mutable_compile()->add_models() = model_;
    spec.mutable_compile()->add_choices()->set_name("plain");
    spec.mutable_compile()->add_targets()->set_name("x86-64-v2");
    return spec;
  }
  // As the documented retry policy says: what is UNAVAILABLE is tried again.
  absl::StatusOr<std::string> Create(const pb::WorkflowSpec& spec, const std::string& id) {
    absl::StatusOr<std::string> name = absl::UnavailableError("");
    EXPECT_TRUE(WaitFor([&] {
      name = client_->Create(spec, id, {});
      return !absl::IsUnavailable(name.status());
    })) << name.status();
    return name;
  }
  cli::GatewayClient& client() { return *client_; }

 private:
  std::shared_ptr<LocalBlobStore> local_;
  std::unique_ptr<cli::GatewayClient> client_;
  pb::BatchModel model_;
};

std::string LibraryOf(const pb::Workflow& workflow) {
  const auto digest = cli::OutputOf(workflow, kCompile, "library");
  EXPECT_TRUE(digest.ok()) << digest.status();
  return digest.ok() ? digest->hash() : "";
}

void ExpectDone(const absl::StatusOr<pb::Workflow>& workflow, const std::string& library) {
  ASSERT_TRUE(workflow.ok()) << workflow.status();
  ASSERT_EQ(workflow->state(), pb::STATE_SUCCEEDED) << workflow->DebugString();
  EXPECT_EQ(LibraryOf(*workflow), library);
  for (const pb::Step& step : workflow->steps()) EXPECT_LE(step.attempt(), step.max_attempts());
}

TEST(FaultsTest, ServicesThatReachBlobsOverTheNetworkGiveTheSame) {
  Cluster shared, remote(true);
  User here(shared), there(remote);
  const auto first = here.client().Run(here.Spec(""), {});
  const auto second = there.client().Run(there.Spec(""), {});
  ASSERT_TRUE(first.ok()) << first.status();
  ExpectDone(second, LibraryOf(*first));
  const auto cached = there.client().Run(there.Spec(""), {});
  ASSERT_TRUE(cached.ok()) << cached.status();
  EXPECT_EQ(cached->counts().cache_hits(), cached->steps_size());
}

// Whatever is killed whenever: one terminal state, the same bytes, attempts within their limit.
TEST(FaultsTest, KilledProcessesCostAttemptsAndNothingElse) {
  Cluster cluster;
  User user(cluster);
  const auto reference = user.client().Run(user.Spec("reference"), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::string library = LibraryOf(*reference);
  const int runs = Full() ? 100 : 8;
  std::vector<std::string> names = Cluster::Services();
  names.emplace_back("gateway");
  for (int seed = 0; seed < runs; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(static_cast<uint32_t>(seed));
    const std::string victim = names[static_cast<size_t>(seed) % names.size()];
    const auto when = std::chrono::milliseconds(random() % 500);
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
    ExpectDone(workflow, library);
    if (::testing::Test::HasFailure()) break;
    // The same request is the same workflow, before and after.
    EXPECT_EQ(*user.Create(user.Spec(id), id), *name);
  }
}

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
        ExpectDone(user.client().Watch(*name, {}), library);
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
  ASSERT_TRUE(WaitFor([&] {
    const auto now = user.client().Get(*name, {});
    return now.ok() && now->steps_size() == 3 && now->steps(2).state() == pb::STATE_RUNNING;
  }));
  cluster.process("codegen").Signal(SIGSTOP);
  std::thread resume([&] {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    cluster.process("codegen").Signal(SIGCONT);
  });
  const auto workflow = user.client().Watch(*name, {});
  resume.join();
  ExpectDone(workflow, LibraryOf(*reference));
  bool again = false;
  for (const pb::Step& step : workflow->steps()) again = again || step.failed_attempts_size() > 0;
  EXPECT_TRUE(again) << workflow->DebugString();
}

}  // namespace
}  // namespace quench::testing
