#include "common/steps/runner.h"

#include <gtest/gtest.h>

#include "common/base/build_id.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/tokens.h"
#include "common/steps/storage.h"
#include "tests/support/matchers.h"
#include "tests/unit/common/steps/test_steps.h"

namespace quench::steps::runner_test {
namespace {

using codegen::v1::PackageRequest;
using codegen::v1::PackageResult;

// Each test runs with steps in processes and on threads.
class RunnerTest : public ::testing::TestWithParam<bool> {
 protected:
  RunnerTest() {
    config::v1::BlobStore blobs;
    blobs.set_folder((folder_.path() / "store").string());
    storage_ = *OpenStorage(blobs, true);
    RunnerOptions options;
    options.in_process = GetParam();
    options.program = STEP_PROGRAM;
    options.scratch = folder_.path() / "scratch";
    options.server = "test";
    options.registry = &registry_;
    runner_ = *StepRunner::Create(options, storage_);
  }

  absl::StatusOr<PackageResult> Run(const PackageRequest& request, const StepContext& context = {},
                                    const Step& step = TestStep()) {
    step::v1::Accepted accepted;
    QUENCH_RETURN_IF_ERROR(runner_->Accept(step, request, context, &accepted));
    PackageResult result;
    QUENCH_RETURN_IF_ERROR(runner_->Run(step, request, context, &result));
    EXPECT_EQ(accepted.step_key(), result.execution().step_key());
    return result;
  }
  double Looked(metrics::CacheResult result) {
    return registry_.Get(metrics::kActionCacheRequests, result).Value();
  }

  TempDir folder_ = *TempDir::Create();
  metrics::Registry registry_;
  StepRunner::StorageOf storage_;
  std::unique_ptr<StepRunner> runner_;
};

TEST_P(RunnerTest, DescribesWhatWasDone) {
  const auto result = Run(TestRequest("echo:x"));
  ASSERT_TRUE(result.ok()) << result.status();
  const step::v1::Execution& execution = result->execution();
  EXPECT_EQ(result->library().hash(), Sha256Hex("x"));
  EXPECT_FALSE(execution.cache_hit());
  EXPECT_EQ(execution.build_id(), BuildId());
  EXPECT_EQ(execution.server(), "test");
  EXPECT_TRUE(execution.phases().has_accepted());
  EXPECT_TRUE(execution.phases().has_started());
  EXPECT_TRUE(execution.phases().has_outputs_stored());
  EXPECT_EQ(execution.peak_memory_bytes() > 0, !GetParam());
  EXPECT_EQ(registry_.Get(metrics::kStepPeakMemory, TestStep().stage).Value(),
            static_cast<double>(execution.peak_memory_bytes()));
  // Only the lock remains.
  size_t entries = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder_.path() / "scratch")) {
    entries += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(entries, 1u);
}

TEST_P(RunnerTest, AnEqualRequestIsAnsweredFromTheCache) {
  const auto first = Run(TestRequest("echo:x"));
  const auto second = Run(TestRequest("echo:x"));
  ASSERT_TRUE(first.ok() && second.ok()) << second.status();
  EXPECT_TRUE(second->execution().cache_hit());
  EXPECT_EQ(second->library().hash(), first->library().hash());
  EXPECT_EQ(second->execution().phases().started().seconds(),
            first->execution().phases().started().seconds());
  EXPECT_EQ(Looked(metrics::CacheResult::kMiss), 1);
  EXPECT_EQ(Looked(metrics::CacheResult::kHit), 1);
  EXPECT_FALSE(Run(TestRequest("echo:y"))->execution().cache_hit());
}

TEST_P(RunnerTest, CacheModesDoAsTheySay) {
  PackageRequest request = TestRequest("echo:x");
  request.mutable_step()->set_cache(step::v1::CACHE_MODE_OFF);
  EXPECT_FALSE(Run(request)->execution().cache_hit());
  EXPECT_FALSE(Run(request)->execution().cache_hit());
  EXPECT_EQ(Looked(metrics::CacheResult::kMiss), 0);
  request.mutable_step()->set_cache(step::v1::CACHE_MODE_REFRESH);
  EXPECT_FALSE(Run(request)->execution().cache_hit());
  EXPECT_FALSE(Run(request)->execution().cache_hit());
  request.mutable_step()->set_cache(step::v1::CACHE_MODE_USE);
  EXPECT_TRUE(Run(request)->execution().cache_hit());
  request.mutable_step()->set_salt("disowned");
  EXPECT_FALSE(Run(request)->execution().cache_hit());
  EXPECT_FALSE(Run(request, {}, UncachedTestStep())->execution().cache_hit());
}

TEST_P(RunnerTest, AHitCountsOnlyIfItIsOfThisStep) {
  const auto other = Run(TestRequest("echo:other"));
  step::v1::Accepted accepted;
  ASSERT_TRUE(runner_->Accept(TestStep(), TestRequest("echo:x"), {}, &accepted).ok());
  const auto storage = *storage_("default");
  ActionCache* const cache = storage->actions();
  const auto theirs = *cache->Get(other->execution().step_key(), {});
  // As of a server that leaves stdout out, and of one that mixes things up.
  for (const std::string& wrong : {std::string(), *theirs}) {
    ASSERT_TRUE(cache->Put(accepted.step_key(), wrong, {}).ok());
    const auto result = Run(TestRequest("echo:x"));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->execution().cache_hit());
    EXPECT_EQ(result->library().hash(), Sha256Hex("x"));
  }
  EXPECT_TRUE(Run(TestRequest("echo:x"))->execution().cache_hit());
}

TEST_P(RunnerTest, AHitCountsOnlyIfItsBlobsExist) {
  const auto first = Run(TestRequest("echo:x"));
  ASSERT_TRUE(first.ok());
  const auto storage = *storage_("default");
  std::filesystem::remove(storage->local().PathOf(first->library().hash()));
  const auto second = Run(TestRequest("echo:x"));
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(second->execution().cache_hit());
  EXPECT_TRUE(storage->local().Contains(second->library().hash()));
  EXPECT_EQ(Looked(metrics::CacheResult::kIncomplete), 1);
}

TEST_P(RunnerTest, FailuresAreNotCached) {
  EXPECT_FALSE(Run(TestRequest("fail")).ok());
  EXPECT_EQ(Run(TestRequest("fail")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Looked(metrics::CacheResult::kMiss), 2);
}

TEST_P(RunnerTest, InputsMustBeThere) {
  PackageRequest request = TestRequest("echo:x");
  request.mutable_library()->set_hash(Sha256Hex("nowhere"));
  request.mutable_header()->set_hash(Sha256Hex("neither"));
  const absl::Status status = Run(request).status();
  EXPECT_EQ(rpc::ReasonOf(status), "BLOB_MISSING");
  EXPECT_EQ(rpc::PreconditionsOf(status).size(), 2u);
}

TEST_P(RunnerTest, TimeAndSilenceHaveLimits) {
  if (GetParam()) GTEST_SKIP() << "a thread that hangs cannot be ended";
  RunnerOptions options;
  options.program = STEP_PROGRAM;
  options.scratch = folder_.path() / "scratch";
  options.registry = &registry_;
  options.max_wall_time = std::chrono::milliseconds(300);
  runner_.reset();
  runner_ = *StepRunner::Create(options, storage_);
  absl::Status status = Run(TestRequest("spin")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(rpc::ReasonOf(status), "STEP_TIMED_OUT");
  EXPECT_THAT(MessageOf(status), testing::HasSubstr("within 0.3 s"));
  options.max_wall_time = std::chrono::milliseconds(0);
  options.max_stall_time = std::chrono::milliseconds(300);
  runner_.reset();
  runner_ = *StepRunner::Create(options, storage_);
  EXPECT_EQ(rpc::ReasonOf(Run(TestRequest("hang")).status()), "STEP_STALLED");
}

TEST_P(RunnerTest, NothingIsSharedBetweenTenants) {
  PackageRequest request = TestRequest("echo:x");
  const auto first = Run(request);
  request.mutable_step()->set_tenant("other");
  const auto other = Run(request);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(other->execution().cache_hit());
  request.mutable_step()->set_tenant("third");
  *request.mutable_library() = first->library();
  EXPECT_EQ(rpc::ReasonOf(Run(request).status()), "BLOB_MISSING");
}

TEST_P(RunnerTest, ATokenIsGoodForItsTenantOnly) {
  StepContext context;
  context.set_tenant("mine");
  PackageRequest request = TestRequest("echo:x");
  EXPECT_TRUE(Run(request, context).ok());
  request.mutable_step()->set_tenant("theirs");
  EXPECT_EQ(Run(request, context).status().code(), absl::StatusCode::kPermissionDenied);
  context.set_tenant(rpc::kGatewayTenant);
  EXPECT_TRUE(Run(request, context).ok());
}

TEST_P(RunnerTest, EveryWrongOptionIsNamed) {
  PackageRequest request = TestRequest("echo:x");
  request.mutable_step()->set_tenant("Not A Tenant");
  request.mutable_step()->set_salt(std::string(200, 's'));
  request.mutable_step()->set_request_id("two words");
  EXPECT_EQ(rpc::FieldsOf(Run(request).status()).size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Isolation, RunnerTest, ::testing::Values(false, true),
                         [](const auto& isolation) {
                           return isolation.param ? "OnThreads" : "InProcesses";
                         });

}  // namespace
}  // namespace quench::steps::runner_test
