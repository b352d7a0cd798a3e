// A runner and the memory of its steps: real processes that reach their limits.
#include <gtest/gtest.h>

#include <future>

#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/steps/runner.h"
#include "common/steps/storage.h"
#include "tests/support/captured_log.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/common/steps/test_steps.h"

namespace quench::steps::runner_memory_test {
namespace {

using codegen::v1::PackageRequest;
using codegen::v1::PackageResult;
using testing::CapturedLog;
using testing::HasSubstr;
using testing::WaitFor;

constexpr int64_t kMib = int64_t{1} << 20, kGib = int64_t{1} << 30;
constexpr int64_t kUsual = 80 * kMib;  // taken by steps before the tests

class RunnerMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the sanitizer reserves more address space than any limit allows";
#endif
    config::v1::BlobStore blobs;
    blobs.set_folder((folder_.path() / "store").string());
    storage_ = *OpenStorage(blobs, true);
    Serve(400 * kMib, 4 * kGib);
  }

  // A server whose steps may take `usual` bytes, and if they need more up to `most`.
  void Serve(int64_t usual, int64_t most) {
    RunnerOptions options;
    options.program = STEP_PROGRAM;
    options.scratch = folder_.path() / "scratch";
    options.server = "test";
    options.registry = &registry_;
    options.limits.memory_bytes = usual;
    options.limits.most_memory_bytes = most;
    memory_ = std::make_shared<MemoryBudget>(4 * kGib, std::make_shared<MemoryBook>(), &registry_);
    options.memory = memory_;
    runner_ = *StepRunner::Create(options, storage_);
    memory_->book().Learn(TestStep().method, 0, kUsual);
  }

  absl::StatusOr<PackageResult> Run(const std::string& what, const StepContext& context = {}) {
    const PackageRequest request = TestRequest(what);
    PackageResult result;
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<MemoryBudget::Place> place,
                            runner_->Admit(TestStep(), request, context, &result));
    QUENCH_RETURN_IF_ERROR(runner_->Run(TestStep(), request, context, &result, place.get()));
    return result;
  }
  MemoryNeed Need() { return memory_->book().Predict(TestStep().method, 0); }
  double Alone() { return registry_.Get(metrics::kStepsRunAlone).Value(); }

  TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  StepRunner::StorageOf storage_;
  std::shared_ptr<MemoryBudget> memory_;
  std::unique_ptr<StepRunner> runner_;
};

TEST_F(RunnerMemoryTest, LearnsWhatStepsTake) {
  const int64_t before = Need().resident_bytes;
  ASSERT_TRUE(Run("echo:x").ok());
  EXPECT_LT(Need().resident_bytes, before);
  const auto large = Run("memory:150");
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_GT(Need().resident_bytes, 150 * kMib);
  EXPECT_LT(Need().resident_bytes, 300 * kMib);
}

TEST_F(RunnerMemoryTest, WhatReachesItsLimitRunsAgainAloneWithMore) {
  std::vector<std::string> stages;
  const StepContext context(std::make_shared<CancelToken>(), [&](const Progress& progress) {
    stages.push_back(progress.stage + " " + progress.detail);
  });
  CapturedLog log;
  const auto result = Run("memory:500", context);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->library().hash(), Sha256Hex("500"));
  EXPECT_GT(result->execution().peak_memory_bytes(), 500 * kMib);
  EXPECT_EQ(Alone(), 1);
  EXPECT_EQ(stages, std::vector<std::string>{"wait for memory to run again alone"});
  EXPECT_THAT(log.Take(), HasSubstr("runs again alone: the step needed more than the 400 MiB"));
  // The next one gets it at once.
  EXPECT_GT(Need().resident_bytes, 500 * kMib);
  EXPECT_EQ(Need().too_small_limit, 400 * kMib);
  EXPECT_TRUE(Run("memory:501").ok());
  EXPECT_EQ(Alone(), 1);
}

// The files of a model are mapped: the kernel refuses, and nothing throws.
TEST_F(RunnerMemoryTest, WhatCannotBeMappedRunsAgainAloneToo) {
  const auto result = Run("map:600");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->library().hash(), Sha256Hex("600"));
  EXPECT_EQ(Alone(), 1);
  Serve(400 * kMib, 500 * kMib);
  EXPECT_EQ(rpc::ReasonOf(Run("map:601").status()), "RESOURCE_LIMIT") << "no fault of the machine";
}

TEST_F(RunnerMemoryTest, ItWaitsForOthersAndNobodyComesBetween) {
  auto other = *memory_->Reserve("other", kGib);
  auto running = std::async(std::launch::async, [&] { return Run("memory:500"); });
  ASSERT_TRUE(WaitFor([&] { return Alone() == 1; }));
  ASSERT_TRUE(WaitFor([&] { return !memory_->Reserve("new", 1).ok(); }));
  EXPECT_EQ(rpc::ReasonOf(Run("echo:x").status()), "MEMORY_FULL");
  other.reset();
  const auto result = running.get();
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(Run("echo:x").ok());
}

TEST_F(RunnerMemoryTest, TheLastErrorSaysWhatItHadAndWhatToRaise) {
  Serve(400 * kMib, 500 * kMib);
  const absl::Status status = Run("memory:800").status();
  EXPECT_EQ(rpc::ReasonOf(status), "RESOURCE_LIMIT") << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("on `test`, where it ran alone with the 4096 MiB"));
  EXPECT_THAT(MessageOf(status), HasSubstr("`steps.memory_bytes`"));
  EXPECT_THAT(MessageOf(status), HasSubstr("more than the 500 MiB that it may take"));
  EXPECT_THAT(MessageOf(status), HasSubstr("`steps.max_memory_bytes`"));
  EXPECT_FALSE(rpc::RetryAfterOf(status)) << "it is final";
  EXPECT_EQ(Alone(), 1);
  EXPECT_EQ(rpc::ReasonOf(Run("memory:800").status()), "RESOURCE_LIMIT");
  EXPECT_EQ(Alone(), 1) << "it had all at once";
}

TEST_F(RunnerMemoryTest, TheOperatorsLimitIsNotExceeded) {
  Serve(400 * kMib, 400 * kMib);
  const absl::Status status = Run("memory:500").status();
  EXPECT_EQ(rpc::ReasonOf(status), "RESOURCE_LIMIT") << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("on `test`: the step needed more than the 400 MiB"));
  EXPECT_EQ(Alone(), 0);
}

TEST_F(RunnerMemoryTest, WhatTheKernelEndsBesideOthersRunsAgainAlone) {
  auto other = *memory_->Reserve("other", kGib);
  auto running = std::async(std::launch::async, [&] { return Run("killed"); });
  ASSERT_TRUE(WaitFor([&] { return Alone() == 1; }));
  other.reset();
  const absl::Status status = running.get().status();
  EXPECT_EQ(rpc::ReasonOf(status), "NODE_FAULT") << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("where it ran alone"));
  EXPECT_EQ(rpc::ReasonOf(Run("killed").status()), "NODE_FAULT");
  EXPECT_EQ(Alone(), 1) << "it was alone: another machine may have more";
}

TEST_F(RunnerMemoryTest, WhatIsCachedNeedsNone) {
  ASSERT_TRUE(Run("echo:x").ok());
  const auto all = *memory_->Reserve("other", 4 * kGib);
  const auto cached = Run("echo:x");
  ASSERT_TRUE(cached.ok()) << cached.status();
  EXPECT_TRUE(cached->execution().cache_hit());
  const absl::Status refused = Run("echo:y").status();
  EXPECT_EQ(rpc::ReasonOf(refused), "MEMORY_FULL") << refused;
  EXPECT_TRUE(rpc::RetryAfterOf(refused));
  EXPECT_THAT(MessageOf(refused), HasSubstr("test: the step will need about"));
  EXPECT_EQ(registry_.Get(metrics::kStepsRefusedForMemory).Value(), 1);
  EXPECT_EQ(registry_.Get(metrics::kActionCacheRequests, metrics::CacheResult::kHit).Value(), 1)
      << "a look-up of a refused step is not counted";
}

TEST_F(RunnerMemoryTest, TellsWhatWasReservedAndTaken) {
  ASSERT_TRUE(Run("echo:x").ok());
  const auto value = [&](const auto& metric) { return registry_.Get(metric).Value(); };
  EXPECT_EQ(value(metrics::kStepMemoryPredicted), 1.25 * kUsual);
  EXPECT_GT(value(metrics::kStepMemoryTaken), 0);
  EXPECT_LT(value(metrics::kStepMemoryTaken), 1.25 * kUsual);
  EXPECT_EQ(value(metrics::kStepsOverPrediction), 0);
  CapturedLog log;
  ASSERT_TRUE(Run("memory:150").ok());
  EXPECT_EQ(value(metrics::kStepsOverPrediction), 1);
  EXPECT_THAT(log.Take(), HasSubstr("MiB taken, for 0 MiB of input"));
}

}  // namespace
}  // namespace quench::steps::runner_memory_test
