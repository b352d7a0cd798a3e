// Blobs of a gateway on the same machine, from both sides: where it says they lie, and what a client does
// with the answer.
#include "services/cli/remote/nearby_blobs.h"

#include <sys/stat.h>

#include <fstream>

#include "common/blobs/file_blobs.h"
#include "common/rpc/callers.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::nearby_blobs_test {
namespace {

constexpr size_t kSize = 20'000'001;  // some pieces, and a last one

class NearbyBlobsTest : public BlobServerTest {
 protected:
  BlobId Put(const std::string& text, const std::string& tenant = rpc::kDefaultTenant) {
    EXPECT_TRUE((*server_->folders->Of(tenant))->store->Put(Bytes(text)).ok());
    return IdOf(text);
  }
  std::filesystem::path Output() const { return folder_->path() / "out" / "library"; }
  absl::StatusOr<bool> Copy(const BlobId& id, const std::string& address) {
    std::filesystem::create_directories(Output().parent_path());
    return cli::NearbyBlobs(server_->channel, address)
        .Copy(id, [this] { return FileBlobWriter::Create(Output()); }, {});
  }
  absl::StatusOr<bool> Copy(const BlobId& id) { return Copy(id, server_->server->address()); }
  bool NothingIsThere() const { return std::filesystem::is_empty(Output().parent_path()); }
  absl::StatusOr<std::string> Locate(const BlobId& id, const std::string& instance = "",
                                     const std::filesystem::path& token = {}) {
    QUENCH_ASSIGN_OR_RETURN(const auto channel, server_->Connect(token));
    rpc::ClientCall call(*channel, {});
    local::v1::LocateBlobRequest request;
    request.set_instance_name(instance);
    request.mutable_digest()->set_hash(id.hash);
    request.mutable_digest()->set_size_bytes(static_cast<int64_t>(id.size));
    local::v1::LocateBlobResponse response;
    QUENCH_RETURN_IF_ERROR(rpc::FromGrpc(local::v1::LocalBlobs::NewStub(channel->grpc())
                                             ->LocateBlob(call.context(), request, &response)));
    return response.path();
  }
};

TEST_F(NearbyBlobsTest, AreCopiedPastTheSocket) {
  for (const std::string& listen :
       {std::string("127.0.0.1:0"), "unix:" + (folder_->path() / "socket").string()}) {
    server_->server_options.listen = listen;
    ASSERT_EQ(server_->Start(), absl::OkStatus());
    const std::string text = RandomText(1, kSize);
    const BlobId id = Put(text);
    const auto copied = Copy(id);
    ASSERT_TRUE(copied.ok() && *copied) << copied.status();
    EXPECT_TRUE(*ReadFile(Output()) == text);
    struct stat theirs{}, ours{};
    ASSERT_EQ(::stat(server_->store().PathOf(id.hash).c_str(), &theirs), 0);
    ASSERT_EQ(::stat(Output().c_str(), &ours), 0);
    EXPECT_NE(ours.st_ino, theirs.st_ino);  // the user may do with it what they like
    EXPECT_EQ(ours.st_mode & 0777U, 0644U);
    EXPECT_EQ(server_->Count(metrics::CasOp::kRead), 0);
    server_->Stop();
  }
}

TEST_F(NearbyBlobsTest, IntoAStoreToo) {
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const std::string text = RandomText(2, kSize);
  const BlobId id = Put(text);
  const auto space = std::make_shared<BlobSpace>(uint64_t{1} << 30);
  const auto local = *LocalBlobStore::Open(folder_->path() / "local", space);
  cli::NearbyBlobs nearby(server_->channel, server_->server->address());
  const auto copied = nearby.Copy(id, [&] { return local->Create(); }, {});
  ASSERT_TRUE(copied.ok() && *copied) << copied.status();
  const auto file = local->Open(id.hash);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(std::ranges::equal((*file)->bytes(), Bytes(text)));
  EXPECT_EQ(space->used(), kSize);
}

TEST_F(NearbyBlobsTest, WhatIsNotTheBlobLeavesNothingBehind) {
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const std::string text = RandomText(3, kSize);
  const BlobId id = Put(text);
  const std::filesystem::path path = server_->store().PathOf(id.hash);
  EXPECT_FALSE(*Copy(id, "10.0.0.1:7450"));  // not asked
  EXPECT_FALSE(*Copy({Sha256Hex("other"), kSize}));
  EXPECT_FALSE(*Copy(Put("small")));
  EXPECT_TRUE(NothingIsThere());
  std::string wrong = text;
  wrong.back() ^= 1;
  ASSERT_TRUE(WriteFileAtomically(path, wrong).ok());
  EXPECT_FALSE(*Copy(id));
  EXPECT_TRUE(NothingIsThere());
  // The gateway finds it by itself then.
  EXPECT_TRUE(absl::IsNotFound(server_->Read(ReadName(id)).status()));
  // The entry there is not a regular file.
  ASSERT_TRUE(WriteFileAtomically(folder_->path() / "secret", text).ok());
  std::filesystem::create_symlink(folder_->path() / "secret", path);
  EXPECT_FALSE(*Copy(id));
  EXPECT_TRUE(NothingIsThere());
  const StepContext cancelled;
  cancelled.cancel_token()->Cancel();
  EXPECT_TRUE(absl::IsCancelled(
      cli::NearbyBlobs(server_->channel, server_->server->address())
          .Copy(
              Put(text), [this] { return FileBlobWriter::Create(Output()); }, cancelled)
          .status()));
  EXPECT_TRUE(NothingIsThere());
}

TEST_F(NearbyBlobsTest, ATenantLearnsWhereItsOwnBlobsLie) {
  const std::filesystem::path& path = folder_->path();
  std::ofstream(path / "tokens") << "red " << Sha256Hex("red-token") << "\n";
  std::ofstream(path / "red") << "red-token";
  const auto tokens = *rpc::Callers::Open({path / "tokens", {}, false});
  server_->pool_options.callers = tokens.get();
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const BlobId red = Put("theirs", "red"), other = Put("other");
  const auto located = Locate(red, "", path / "red");
  ASSERT_TRUE(located.ok()) << located.status();
  EXPECT_EQ(*located, (*server_->folders->Of("red"))->store->PathOf(red.hash));
  EXPECT_EQ(*Locate(other, "", path / "red"), "");
  EXPECT_EQ(*Locate({red.hash, red.size + 1}, "", path / "red"), "");
  EXPECT_TRUE(absl::IsPermissionDenied(Locate(other, "blue", path / "red").status()));
  EXPECT_TRUE(absl::IsUnauthenticated(Locate(red).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Locate({"../x", 1}, "", path / "red").status()));
}

}  // namespace
}  // namespace quench::gateway::nearby_blobs_test
