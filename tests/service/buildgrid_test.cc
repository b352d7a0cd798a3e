// A store of the Remote Execution API that is not ours: BuildGrid.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/remote_action_cache.h"
#include "common/rpc/remote_blobs.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "tests/service/cluster.h"

namespace quench::testing::buildgrid_test {
namespace {

namespace pb = ::quench::gateway::v1;
namespace reapi = ::build::bazel::remote::execution::v2;

constexpr char kConfig[] = R"(
server:
  - !channel
    address: {}
    insecure-mode: true
description: a store for tests
authorization:
  method: none
monitoring:
  enabled: false
storages:
  - !lru-storage &cas
    size: 512M
caches:
  - !lru-action-cache &ac
    storage: *cas
    max-cached-refs: 1000
    allow-updates: true
instances:
  - name: ''
    description: of all
    services:
      - !cas
        storage: *cas
      - !bytestream
        storage: *cas
      - !action-cache
        cache: *ac
thread-pool-size: 50
)";

std::string RandomText(uint32_t seed, size_t size) {
  std::mt19937 random(seed);
  std::string text(size, 0);
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

BlobId Put(LocalBlobStore& store, const std::string& text) {
  return {*store.Put(std::as_bytes(std::span(text))), text.size()};
}

class BuildGridTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(QUENCH_BUILDGRID, X_OK) != 0) {
      GTEST_SKIP() << "no BuildGrid: scripts/test --label service installs it";
    }
    const std::filesystem::path config = folder_.path() / "buildgrid.yml";
    address_ = "unix:" + (folder_.path() / "s").string();
    ASSERT_TRUE(WriteFileAtomically(config, fmt::format(kConfig, address_)).ok());
    server_ = std::make_unique<Background>(
        std::vector<std::string>{QUENCH_BUILDGRID, "server", "start", "-v", config.string()},
        folder_.path() / "buildgrid.log");
    rpc::ChannelOptions options;
    options.address = address_;
    channel_ = *rpc::Channel::Open(options);
    rpc::RemoteBlobs remote(channel_, {});
    const absl::Status reached = remote.Reach({}, std::chrono::seconds(90));
    ASSERT_EQ(reached, absl::OkStatus()) << server_->Log();
  }

  const TempDir folder_ = *TempDir::Create();
  std::string address_;
  std::unique_ptr<Background> server_;
  std::shared_ptr<rpc::Channel> channel_;
};

TEST_F(BuildGridTest, BlobsThereAndBack) {
  const auto local = *LocalBlobStore::Open(folder_.path() / "local", nullptr);
  const auto back = *LocalBlobStore::Open(folder_.path() / "back", nullptr);
  std::vector<BlobId> ids;
  for (const size_t size : {1U, 1000U, 300'000U, 3'000'000U, 20'000'000U}) {
    ids.push_back(Put(*local, RandomText(static_cast<uint32_t>(size), size)));
  }
  for (uint32_t i = 0; i < 50; ++i) ids.push_back(Put(*local, RandomText(i, 5000 + i)));
  rpc::RemoteBlobs remote(channel_, {});
  EXPECT_EQ(remote.FindMissing(ids, {})->size(), ids.size());
  ASSERT_EQ(remote.Upload(*local, ids, {}), absl::OkStatus());
  EXPECT_EQ(remote.FindMissing(ids, {})->size(), 0u);
  ASSERT_EQ(remote.Download(ids, *back, {}), absl::OkStatus());
  for (const BlobId& id : ids) EXPECT_EQ(back->SizeOf(id.hash), id.size);
  const absl::Status missing = remote.Download({{Sha256Hex("nobody's"), 8}}, *back, {});
  EXPECT_EQ(rpc::ReasonOf(missing), rpc::ReasonName(rpc::Reason::kBlobMissing)) << missing;
}

TEST_F(BuildGridTest, ResultsAreKnown) {
  rpc::RemoteActionCache cache(channel_, "");
  const std::string key = Sha256Hex("key");
  const auto unknown = cache.Get(key, {});
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_EQ(*unknown, std::nullopt);
  const auto local = *LocalBlobStore::Open(folder_.path() / "local", nullptr);
  const BlobId library = Put(*local, "library");
  rpc::RemoteBlobs remote(channel_, {});
  ASSERT_EQ(remote.Upload(*local, {library}, {}), absl::OkStatus());
  reapi::ActionResult result;
  auto& file = *result.add_output_files();
  file.set_path(library.hash);
  file.mutable_digest()->set_hash(library.hash);
  file.mutable_digest()->set_size_bytes(static_cast<int64_t>(library.size));
  result.set_stdout_raw("what the step gave");
  ASSERT_EQ(cache.Put(key, result.SerializeAsString(), {}), absl::OkStatus());
  const auto known = cache.Get(key, {});
  ASSERT_TRUE(known.ok() && *known) << known.status();
  reapi::ActionResult read;
  ASSERT_TRUE(read.ParseFromString(**known));
  EXPECT_EQ(read.stdout_raw(), "what the step gave");
  EXPECT_EQ(read.output_files(0).digest().hash(), library.hash);
}

pb::WorkflowSpec ImportAndCompile(const pb::BatchModel& model) {
  pb::WorkflowSpec spec;
  pb::StepSpec& import = *spec.mutable_steps()->add_steps();
  import.set_name("import");
  *import.mutable_import_model()->mutable_model() = model.model();
  pb::StepSpec& compile = *spec.mutable_steps()->add_steps();
  compile.set_name("compile");
  compile.mutable_compile()->mutable_target()->set_name("x86-64-v2");
  pb::Binding& module = *compile.add_bindings();
  module.set_input(pb::PORT_MODULE);
  module.set_step("import");
  module.set_output(pb::PORT_CANONICAL);
  return spec;
}

// A gateway and its services that have nothing but copies, as the image runs them. Results that one
// cluster compiled are found by another.
TEST_F(BuildGridTest, AClusterThatHasItsBlobsThereCompiles) {
  ClusterOptions options;
  options.store = address_;
  options.as_in_image = Cluster::CanRunAsInImage();
  if (!options.as_in_image) std::puts("no right to mount: not as in the image");
  std::string first;
  for (const bool again : {false, true}) {
    Cluster cluster(options);
    ASSERT_FALSE(HasFatalFailure());
    const auto local = *LocalBlobStore::Open(cluster.folder() / "user");
    cli::GatewayOptions gateway;
    gateway.address = cluster.gateway();
    const auto client = *cli::GatewayClient::Open(gateway, local, {});
    cli::ModelOptions model;
    model.model = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits.onnx";
    const auto uploaded = cli::UploadModel(model, *client, {});
    ASSERT_TRUE(uploaded.ok()) << uploaded.status();
    const auto done = client->Run(ImportAndCompile(*uploaded), {});
    ASSERT_TRUE(done.ok()) << done.status() << cluster.process("importer").Log();
    ASSERT_EQ(done->state(), pb::STATE_SUCCEEDED) << done->DebugString();
    for (const pb::Step& step : done->steps()) EXPECT_EQ(step.cache_hit(), again) << step.name();
    const auto library = cli::OutputOf(*done, "compile", "library");
    ASSERT_TRUE(library.ok()) << library.status();
    if (!again) first = library->hash();
    EXPECT_EQ(library->hash(), first);
    rpc::ChannelOptions channel;
    channel.address = cluster.gateway();
    rpc::RemoteBlobs through(*rpc::Channel::Open(channel), {});
    const BlobId id{library->hash(), static_cast<uint64_t>(library->size_bytes())};
    EXPECT_EQ(through.Download({id}, *local, {}), absl::OkStatus());
    EXPECT_TRUE(std::filesystem::exists(cluster.folder() / "scratch-codegen" / "blobs"));
    EXPECT_EQ(cluster.Drain("gateway"), 0);
  }
}

}  // namespace
}  // namespace quench::testing::buildgrid_test
