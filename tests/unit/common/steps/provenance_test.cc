#include "common/steps/provenance.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/files.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/steps/runner.h"
#include "common/steps/storage.h"
#include "tests/support/matchers.h"
#include "tests/unit/common/steps/test_steps.h"

namespace quench::steps::provenance_test {
namespace {

using codegen::v1::PackageRequest;
using codegen::v1::PackageResult;
using testing::HasSubstr;

class ProvenanceTest : public ::testing::Test {
 protected:
  TempDir folder_ = *TempDir::Create();
  std::shared_ptr<ActionCache> records_ = *LocalActionCache::Open(folder_.path() / "records");
  const BlobId library_{Sha256Hex("library"), 7};
};

TEST_F(ProvenanceTest, ARecordIsOfOneTenantOneDigestAndOneKey) {
  const Provenance ours(std::string(32, 'k')), others(std::string(32, 'l'));
  EXPECT_FALSE(*ours.Knows("a", library_, *records_, {}));
  ASSERT_TRUE(ours.Attest("a", library_, *records_, {}).ok());
  EXPECT_TRUE(*ours.Knows("a", library_, *records_, {}));
  EXPECT_FALSE(*ours.Knows("b", library_, *records_, {}));
  EXPECT_FALSE(*ours.Knows("a", {Sha256Hex("another"), 7}, *records_, {}));
  EXPECT_FALSE(*others.Knows("a", library_, *records_, {}));
}

TEST_F(ProvenanceTest, TheKeyIsMadeOnceForItsOwner) {
  const std::filesystem::path file = folder_.path() / "store" / "library.key";
  std::vector<std::thread> services;
  for (int i = 0; i < 8; ++i) {
    services.emplace_back([&] { EXPECT_TRUE(Provenance::Open(file, true).ok()); });
  }
  for (std::thread& service : services) service.join();
  ASSERT_TRUE((*Provenance::Open(file, true))->Attest("a", library_, *records_, {}).ok());
  EXPECT_TRUE(*(*Provenance::Open(file, false))->Knows("a", library_, *records_, {}));
  struct stat info{};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_size, 32);
  size_t files = 0;
  for (const auto& each : std::filesystem::directory_iterator(file.parent_path())) {
    files += each.exists() ? 1 : 0;
  }
  EXPECT_EQ(files, 1u);
}

TEST_F(ProvenanceTest, AKeyIsThereAndLongEnough) {
  const std::filesystem::path file = folder_.path() / "key";
  EXPECT_EQ(Provenance::Open(file, false).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(file, "short").ok());
  EXPECT_THAT(MessageOf(Provenance::Open(file, true).status()), HasSubstr("has 5 bytes"));
}

// A step that gives a library, and takes one.
class LibrariesTest : public ProvenanceTest {
 protected:
  LibrariesTest()
      : makes_(MakesLibraries(TestStep(), {"library"})),
        takes_(TakesLibraries(UncachedTestStep(), {"library"})) {
    config::v1::BlobStore blobs;
    blobs.set_folder((folder_.path() / "store").string());
    storage_ = *OpenStorage(blobs, true);
    RunnerOptions options;
    options.program = STEP_PROGRAM;
    options.registry = &registry_;
    options.scratch = folder_.path() / "scratch";
    options.provenance = std::make_shared<const Provenance>(std::string(32, 'k'));
    runner_ = *StepRunner::Create(options, storage_);
  }

  absl::StatusOr<PackageResult> Run(const Step& step, const PackageRequest& request) {
    PackageResult result;
    QUENCH_RETURN_IF_ERROR(runner_->Run(step, request, {}, &result));
    return result;
  }
  PackageRequest Taking(const std::string& hash, int64_t size) {
    PackageRequest request = TestRequest("input");
    request.mutable_library()->set_hash(hash);
    request.mutable_library()->set_size_bytes(size);
    return request;
  }

  const Step makes_, takes_;
  metrics::Registry registry_;
  StepRunner::StorageOf storage_;
  std::unique_ptr<StepRunner> runner_;
};

TEST_F(LibrariesTest, WhatWasUploadedIsRefused) {
  const std::string uploaded =
      *(*storage_("default"))->local().Put(std::as_bytes(std::span("native", 6)));
  const absl::Status refused = Run(takes_, Taking(uploaded, 6)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(MessageOf(refused),
              HasSubstr("was not compiled by these services for tenant `default`"));
  ASSERT_EQ(rpc::FieldsOf(refused).size(), 1u);
  EXPECT_EQ(rpc::FieldsOf(refused)[0].field, "library");
}

TEST_F(LibrariesTest, WhatAStepMadeIsRunForItsTenantAlone) {
  const auto made = Run(makes_, TestRequest("echo:native"));
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(Run(takes_, Taking(made->library().hash(), 6)).ok());
  ASSERT_TRUE((*storage_("other"))->local().Put(std::as_bytes(std::span("native", 6))).ok());
  PackageRequest theirs = Taking(made->library().hash(), 6);
  theirs.mutable_step()->set_tenant("other");
  EXPECT_THAT(MessageOf(Run(takes_, theirs).status()), HasSubstr("for tenant `other`"));
}

// Where clients may write results of actions, these make no library.
TEST_F(LibrariesTest, AForgedResultIsNoHit) {
  const PackageRequest request = TestRequest("echo:native");
  const auto made = Run(makes_, request);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(Run(makes_, request)->execution().cache_hit());
  const auto storage = *storage_("default");
  PackageResult forged = *made;
  const std::string uploaded = *storage->local().Put(std::as_bytes(std::span("forged", 6)));
  forged.mutable_library()->set_hash(uploaded);
  build::bazel::remote::execution::v2::ActionResult action;
  action.set_stdout_raw(forged.SerializeAsString());
  const std::string& key = made->execution().step_key();
  ASSERT_TRUE(storage->actions()->Put(key, action.SerializeAsString(), {}).ok());
  const auto again = Run(makes_, request);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->execution().cache_hit());
  EXPECT_EQ(again->library().hash(), Sha256Hex("native"));
  EXPECT_FALSE(Run(takes_, Taking(uploaded, 6)).ok());
}

}  // namespace
}  // namespace quench::steps::provenance_test
