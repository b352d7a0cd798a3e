// What happens to workflows when processes die, stop and restart.
//
// QUENCH_FAULTS=full (scripts/test --full) makes the runs as many as the project promises.
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
constexpr char kCompile[] = "compile";

void Bind(pb::StepSpec& step, pb::Port input, const std::string& from, pb::Port output) {
  pb::Binding* binding = step.add_bindings();
  binding->set_input(input);
  binding->set_step(from);
  binding->set_output(output);
}

// A step of every kind that a workflow may have, with its service.
const std::vector<std::pair<std::string, std::string>>& AllSteps() {
  static const auto* const steps = new std::vector<std::pair<std::string, std::string>>{
      {"import", "importer"},    {"transform", "importer"},  {"export", "importer"},
      {"analyse", "analyser"},   {"introspect", "analyser"}, {"partition", "analyser"},
      {"infer", "analyser"},     {"diff", "analyser"},       {"tile", "analyser"},
      {"edit", "analyser"},      {kCompile, "codegen"},      {"verify", "analyser"},
      {"benchmark", "analyser"}, {"package", "codegen"},     {"equalize", "quantizer"},
      {"outliers", "quantizer"}, {"split", "quantizer"},     {"calibrate", "quantizer"},
      {"round", "quantizer"},    {"select", "quantizer"},    {"quantize", "quantizer"},
      {"compare", "analyser"}};
  return *steps;
}

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
    client_ = *cli::GatewayClient::Open(options, local_, {});
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
    std::map<std::string, pb::StepSpec*> steps;
    const auto add = [&](const std::string& name) {
      steps[name] = spec.mutable_steps()->add_steps();
      steps[name]->set_name(name);
    };
    for (const auto& [name, service] : AllSteps()) add(name);
    for (const char* name : {"fixed", "taps", "switched", "trials", "int8"}) add(name);
    *steps["import"]->mutable_import_model()->mutable_model() = model_.model();
    steps["transform"]->mutable_transform();
    Bind(*steps["transform"], pb::PORT_MODULE, "import", pb::PORT_CANONICAL);
    steps["export"]->mutable_export_model();
    Bind(*steps["export"], pb::PORT_MODULE, "import", pb::PORT_CANONICAL);
    steps["analyse"]->mutable_analyse();
    Bind(*steps["analyse"], pb::PORT_IMPORTED, "import", pb::PORT_IMPORTED);
    Bind(*steps["analyse"], pb::PORT_CANONICAL, "import", pb::PORT_CANONICAL);
    steps["introspect"]->mutable_introspect();
    steps["partition"]->mutable_partition()->set_backend("tensorrt");
    steps["infer"]->mutable_infer()->set_seed(1);
    steps["edit"]->mutable_edit()->set_script("remove relu3");
    for (const char* name : {"introspect", "partition", "infer", "edit"})
      Bind(*steps[name], pb::PORT_MODULE, "import", pb::PORT_CANONICAL);
    for (analyser::v1::ProductSizes* sizes : {steps["tile"]->mutable_tile()->mutable_limits(),
                                              steps["tile"]->mutable_tile()->mutable_gemm()}) {
      sizes->set_m(4);
      sizes->set_n(4);
      sizes->set_k(8);
    }
    steps["diff"]->mutable_diff();
    Bind(*steps["diff"], pb::PORT_REFERENCE, "import", pb::PORT_CANONICAL);
    Bind(*steps["diff"], pb::PORT_MODULE, "transform", pb::PORT_MODULE);
    steps[kCompile]->mutable_compile()->mutable_target()->set_name("x86-64-v2");
    Bind(*steps[kCompile], pb::PORT_MODULE, "transform", pb::PORT_MODULE);
    steps["verify"]->mutable_verify();
    Bind(*steps["verify"], pb::PORT_CANONICAL, "import", pb::PORT_CANONICAL);
    Bind(*steps["verify"], pb::PORT_LIBRARY, kCompile, pb::PORT_LIBRARY);
    steps["benchmark"]->mutable_benchmark()->mutable_options()->mutable_time()->set_nanos(
        50'000'000);
    Bind(*steps["benchmark"], pb::PORT_LIBRARY, kCompile, pb::PORT_LIBRARY);
    steps["package"]->mutable_package_library()->set_uuid("00000000-0000-0000-0000-000000000001");
    Bind(*steps["package"], pb::PORT_LIBRARY, kCompile, pb::PORT_LIBRARY);
    Bind(*steps["package"], pb::PORT_HEADER, kCompile, pb::PORT_HEADER);
    AddQuantization(steps);
    return spec;
  }

  // From `fixed`, the module for one image, to integers and how far they are from it.
  static void AddQuantization(std::map<std::string, pb::StepSpec*>& steps) {
    const auto follow = [&](const std::string& name, const std::string& from) {
      Bind(*steps[name], pb::PORT_MODULE, from, pb::PORT_MODULE);
    };
    const auto build = [&](const std::string& name, const std::string& from) {
      auto* compile = steps[name]->mutable_compile();
      compile->mutable_target()->set_name("x86-64-v2");
      compile->mutable_options()->set_taps(true);
      compile->mutable_options()->set_opt_level(2);
      follow(name, from);
    };
    steps["fixed"]->mutable_transform()->mutable_options()->set_batch(1);
    Bind(*steps["fixed"], pb::PORT_MODULE, "import", pb::PORT_CANONICAL);
    steps["equalize"]->mutable_equalize();
    follow("equalize", "fixed");
    steps["outliers"]->mutable_split_outliers()->set_share(0.1);
    follow("outliers", "equalize");
    steps["split"]->mutable_split_tensors()->set_least_gain(0.01);
    follow("split", "outliers");
    build("taps", "split");
    steps["calibrate"]->mutable_calibrate()->mutable_samples()->set_random(4);
    follow("calibrate", "split");
    Bind(*steps["calibrate"], pb::PORT_TAP_LIBRARY, "taps", pb::PORT_LIBRARY);
    steps["round"]->mutable_adapt_rounding()->mutable_samples()->set_random(2);
    follow("round", "split");
    Bind(*steps["round"], pb::PORT_TAP_LIBRARY, "taps", pb::PORT_LIBRARY);
    steps["switched"]->mutable_quantize()->mutable_options()->set_switches(true);
    follow("switched", "split");
    Bind(*steps["switched"], pb::PORT_STATISTICS, "calibrate", pb::PORT_STATISTICS);
    build("trials", "switched");
    steps["select"]->mutable_select()->mutable_samples()->set_random(4);
    steps["select"]->mutable_select()->mutable_budget()->set_min_sqnr_db(-100);
    follow("select", "switched");
    Bind(*steps["select"], pb::PORT_LIBRARY, "trials", pb::PORT_LIBRARY);
    steps["quantize"]->mutable_quantize();
    follow("quantize", "split");
    Bind(*steps["quantize"], pb::PORT_STATISTICS, "calibrate", pb::PORT_STATISTICS);
    Bind(*steps["quantize"], pb::PORT_SELECTION, "select", pb::PORT_SELECTION);
    Bind(*steps["quantize"], pb::PORT_ROUNDING, "round", pb::PORT_ROUNDING);
    build("int8", "quantize");
    steps["compare"]->mutable_compare()->mutable_samples()->set_random(2);
    Bind(*steps["compare"], pb::PORT_REFERENCE_LIBRARY, "taps", pb::PORT_LIBRARY);
    Bind(*steps["compare"], pb::PORT_LIBRARY, "int8", pb::PORT_LIBRARY);
  }
  absl::StatusOr<std::string> Create(const pb::WorkflowSpec& spec, const std::string& id) {
    return client_->Create(spec, id, {});
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

const pb::Step& StepOf(const pb::Workflow& workflow, const std::string& name) {
  const auto found = std::find_if(workflow.steps().begin(), workflow.steps().end(),
                                  [&](const pb::Step& step) { return step.name() == name; });
  QUENCH_CHECK(found != workflow.steps().end());
  return *found;
}

// The steps that did not succeed, for the whole of a workflow is longer than what a test's log keeps.
std::string Failures(const pb::Workflow& workflow) {
  std::string text = workflow.name() + ", " + pb::State_Name(workflow.state()) + "\n";
  for (const pb::Step& step : workflow.steps())
    if (step.state() == pb::STATE_FAILED || step.failed_attempts_size() > 0)
      text += step.DebugString();
  return text;
}

// `faults`: of servers while the workflow ran, each of which may cost a step one attempt.
void ExpectDone(const absl::StatusOr<pb::Workflow>& workflow, const std::string& library,
                int faults) {
  ASSERT_TRUE(workflow.ok()) << workflow.status();
  ASSERT_EQ(workflow->state(), pb::STATE_SUCCEEDED) << Failures(*workflow);
  EXPECT_EQ(LibraryOf(*workflow), library);
  for (const pb::Step& step : workflow->steps())
    EXPECT_LE(step.attempt(), 1 + faults) << step.DebugString();
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

// The service of a step is killed while the step runs: it is done once more, by name of each step.
TEST(FaultsTest, AServiceKilledInAnyOfItsStepsCostsOneAttempt) {
  Cluster cluster;
  User user(cluster);
  const auto reference = user.client().Run(user.Spec("reference"), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::string library = LibraryOf(*reference);
  for (const auto& [step, service] : AllSteps()) {
    SCOPED_TRACE(step);
    bool hit = false;
    // A step that had ended before the signal came is no case of this: the next has another salt.
    for (int round = 0; round < 20 && !hit; ++round) {
      const std::string id = fmt::format("{}-{}", step, round);
      const auto name = user.Create(user.Spec(id), id);
      ASSERT_TRUE(name.ok()) << name.status();
      ASSERT_TRUE(WaitFor([&] {
        const auto now = user.client().Get(*name, {});
        return now.ok() && StepOf(*now, step).state() != pb::STATE_QUEUED;
      }));
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

// The client retries as tests/clients/README.md says; it sees no error.
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
  ASSERT_TRUE(WaitFor([&] {
    const auto now = user.client().Get(*name, {});
    return now.ok() && StepOf(*now, kCompile).state() == pb::STATE_RUNNING;
  }));
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
}  // namespace quench::testing
