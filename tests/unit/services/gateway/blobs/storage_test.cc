#include "services/gateway/blobs/storage.h"

#include <grpcpp/grpcpp.h>

#include <fstream>

#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::storage_test {
namespace {

using absl::StatusCode;
using quench::testing::HasSubstr;

class StorageTest : public BlobServerTest {
 protected:
  void SetUp() override {
    BlobServerTest::SetUp();
    server_->options.max_batch_bytes = 1000;
    ASSERT_EQ(server_->Start(), absl::OkStatus());
  }

  template <typename Request>
  static Request RequestFor(const std::vector<std::string>& texts, auto add) {
    Request request;
    for (const std::string& text : texts) {
      auto* digest = add(request);
      digest->set_hash(Sha256Hex(text));
      digest->set_size_bytes(static_cast<int64_t>(text.size()));
    }
    return request;
  }
  absl::StatusOr<reapi::FindMissingBlobsResponse> Find(
      const reapi::FindMissingBlobsRequest& request) {
    rpc::ClientCall call(*server_->channel, {});
    reapi::FindMissingBlobsResponse response;
    QUENCH_RETURN_IF_ERROR(
        rpc::FromGrpc(server_->storage->FindMissingBlobs(call.context(), request, &response)));
    return response;
  }
  absl::StatusOr<reapi::BatchUpdateBlobsResponse> Update(
      const reapi::BatchUpdateBlobsRequest& request) {
    rpc::ClientCall call(*server_->channel, {});
    reapi::BatchUpdateBlobsResponse response;
    QUENCH_RETURN_IF_ERROR(
        rpc::FromGrpc(server_->storage->BatchUpdateBlobs(call.context(), request, &response)));
    return response;
  }
  absl::StatusOr<reapi::BatchReadBlobsResponse> ReadAll(
      const reapi::BatchReadBlobsRequest& request) {
    rpc::ClientCall call(*server_->channel, {});
    reapi::BatchReadBlobsResponse response;
    QUENCH_RETURN_IF_ERROR(
        rpc::FromGrpc(server_->storage->BatchReadBlobs(call.context(), request, &response)));
    return response;
  }
  static reapi::FindMissingBlobsRequest Asking(const std::vector<std::string>& texts) {
    return RequestFor<reapi::FindMissingBlobsRequest>(
        texts, [](auto& request) { return request.add_blob_digests(); });
  }
  static reapi::BatchReadBlobsRequest Reading(const std::vector<std::string>& texts) {
    return RequestFor<reapi::BatchReadBlobsRequest>(
        texts, [](auto& request) { return request.add_digests(); });
  }
  // `digests` of one text each, with another one's data where they differ.
  static reapi::BatchUpdateBlobsRequest Writing(const std::vector<std::string>& digests,
                                                const std::vector<std::string>& data) {
    auto request = RequestFor<reapi::BatchUpdateBlobsRequest>(
        digests, [](auto& each) { return each.add_requests()->mutable_digest(); });
    for (size_t i = 0; i < data.size(); ++i) {
      request.mutable_requests(static_cast<int>(i))->set_data(data[i]);
    }
    return request;
  }
};

TEST_F(StorageTest, FindsWhatIsMissing) {
  ASSERT_TRUE(server_->store().Put(Bytes("here")).ok());
  auto request = Asking({"here", "gone", "", "gone"});
  auto* wrong_size = request.add_blob_digests();
  wrong_size->set_hash(Sha256Hex("here"));
  wrong_size->set_size_bytes(5);
  const auto response = Find(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->missing_blob_digests_size(), 2);
  EXPECT_EQ(response->missing_blob_digests(0).hash(), Sha256Hex("gone"));
  EXPECT_EQ(response->missing_blob_digests(1).size_bytes(), 5);
}

TEST_F(StorageTest, MalformedDigestsNameTheirField) {
  auto request = Asking({"here", "x"});
  request.mutable_blob_digests(1)->set_hash("XYZ");
  absl::Status status = Find(request).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(rpc::FieldsOf(status).size(), 1u);
  EXPECT_EQ(rpc::FieldsOf(status)[0].field, "blob_digests[1].hash");
  request = Asking({"here"});
  request.mutable_blob_digests(0)->set_size_bytes(-1);
  EXPECT_EQ(rpc::FieldsOf(Find(request).status())[0].field, "blob_digests[0].size_bytes");
  request = Asking({});
  request.set_instance_name("Main");
  EXPECT_EQ(rpc::FieldsOf(Find(request).status())[0].field, "instance_name");
  request = Asking({});
  request.set_digest_function(reapi::DigestFunction::BLAKE3);
  EXPECT_EQ(rpc::FieldsOf(Find(request).status())[0].field, "digest_function");
}

TEST_F(StorageTest, BatchesAreWrittenAndReadBlobByBlob) {
  auto writing = Writing({"one", "two", "three", "four"}, {"one", "TWO", "three", "four"});
  writing.mutable_requests(3)->set_compressor(reapi::Compressor::ZSTD);
  const auto written = Update(writing);
  ASSERT_TRUE(written.ok()) << written.status();
  ASSERT_EQ(written->responses_size(), 4);
  EXPECT_EQ(written->responses(0).status().code(), 0);
  EXPECT_EQ(written->responses(1).status().code(), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_EQ(written->responses(1).digest().hash(), Sha256Hex("two"));
  EXPECT_EQ(written->responses(2).status().code(), 0);
  EXPECT_EQ(written->responses(3).status().code(), static_cast<int>(StatusCode::kUnimplemented));
  const auto read = ReadAll(Reading({"one", "two", "three"}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->responses(0).data(), "one");
  EXPECT_EQ(read->responses(1).status().code(), static_cast<int>(StatusCode::kNotFound));
  EXPECT_EQ(read->responses(2).data(), "three");
  EXPECT_EQ(server_->Count(metrics::CasOp::kWritten), 8);
  EXPECT_EQ(server_->Count(metrics::CasOp::kRead), 8);
  EXPECT_EQ(server_->Unfinished(), 0u);
}

TEST_F(StorageTest, BatchesBeyondTheLimitAreRefusedAsAWhole) {
  const std::string big(600, 'a'), other(600, 'b');
  const absl::Status written = Update(Writing({big, other}, {big, other})).status();
  EXPECT_EQ(written.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(written), HasSubstr("1200 bytes, at most 1000"));
  EXPECT_FALSE(server_->store().Contains(Sha256Hex(big)));
  EXPECT_TRUE(Update(Writing({big}, {big})).ok());
  EXPECT_EQ(ReadAll(Reading({big, other})).status().code(), StatusCode::kInvalidArgument);
  auto overflowing = Reading({"a", "b", "c"});
  for (auto& digest : *overflowing.mutable_digests()) digest.set_size_bytes(int64_t{1} << 62);
  EXPECT_EQ(ReadAll(overflowing).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(StorageTest, AFullStoreIsSaidBlobByBlob) {
  server_->Stop();
  server_->max_bytes = 500;
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const std::string big(400, 'a'), other(400, 'b');
  const auto written = Update(Writing({big, other}, {big, other}));
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->responses(0).status().code(), 0);
  EXPECT_EQ(written->responses(1).status().code(),
            static_cast<int>(StatusCode::kResourceExhausted));
  EXPECT_EQ(server_->Write(WriteName(IdOf(other)), other).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(*server_->Read(ReadName(IdOf(big))), big);
  EXPECT_EQ(server_->Unfinished(), 0u);
}

TEST_F(StorageTest, TreesAndChunksAreNotServed) {
  rpc::ClientCall tree(*server_->channel, {}), split(*server_->channel, {}),
      splice(*server_->channel, {});
  const auto reader = server_->storage->GetTree(tree.context(), {});
  reapi::GetTreeResponse page;
  EXPECT_FALSE(reader->Read(&page));
  reapi::SplitBlobResponse split_response;
  reapi::SpliceBlobResponse splice_response;
  for (const absl::Status& status :
       {rpc::FromGrpc(reader->Finish()),
        rpc::FromGrpc(server_->storage->SplitBlob(split.context(), {}, &split_response)),
        rpc::FromGrpc(server_->storage->SpliceBlob(splice.context(), {}, &splice_response))}) {
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(MessageOf(status), HasSubstr("not s"));
  }
}

TEST_F(StorageTest, CapabilitiesAreTheLimits) {
  const auto stub = reapi::Capabilities::NewStub(server_->channel->grpc());
  rpc::ClientCall call(*server_->channel, {});
  reapi::ServerCapabilities response;
  ASSERT_TRUE(stub->GetCapabilities(call.context(), {}, &response).ok());
  const auto& cache = response.cache_capabilities();
  ASSERT_EQ(cache.digest_functions_size(), 1);
  EXPECT_EQ(cache.digest_functions(0), reapi::DigestFunction::SHA256);
  EXPECT_EQ(cache.max_batch_total_size_bytes(), 1000);
  EXPECT_EQ(cache.max_cas_blob_size_bytes(), int64_t{1} << 39);
  EXPECT_FALSE(cache.action_cache_update_capabilities().update_enabled());
  EXPECT_EQ(cache.supported_compressors_size(), 0);
  EXPECT_FALSE(response.has_execution_capabilities());
  EXPECT_EQ(response.low_api_version().major(), 2);
}

// Neither blobs nor results of one tenant can be seen by another.
TEST_F(StorageTest, TenantsSeeNothingOfEachOther) {
  server_->Stop();
  const auto path = folder_->path();
  std::ofstream(path / "tokens") << "red " << Sha256Hex("red-token") << "\nblue "
                                 << Sha256Hex("blue-token") << "\n";
  std::ofstream(path / "tokens", std::ios::app) << "gateway " << Sha256Hex("gateway-token") << "\n";
  std::ofstream(path / "gateway") << "gateway-token";
  std::ofstream(path / "red") << "red-token";
  std::ofstream(path / "blue") << "blue-token";
  const auto tokens = *rpc::Callers::Open({path / "tokens", {}, false});
  server_->pool_options.callers = tokens.get();
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  EXPECT_EQ(Find(Asking({})).status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(server_->Read(ReadName(IdOf(""))).status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(server_->Write(WriteName(IdOf("x")), "x").status().code(),
            StatusCode::kUnauthenticated);

  server_->channel = *server_->Connect(path / "red");
  server_->bytes = bytestream::ByteStream::NewStub(server_->channel->grpc());
  server_->storage = reapi::ContentAddressableStorage::NewStub(server_->channel->grpc());
  ASSERT_TRUE(server_->Write(WriteName(IdOf("secret")), "secret").ok());
  EXPECT_EQ(Find(Asking({"secret"}))->missing_blob_digests_size(), 0);
  EXPECT_TRUE((*server_->folders->Of("red"))->store->Contains(Sha256Hex("secret")));

  server_->channel = *server_->Connect(path / "blue");
  server_->bytes = bytestream::ByteStream::NewStub(server_->channel->grpc());
  server_->storage = reapi::ContentAddressableStorage::NewStub(server_->channel->grpc());
  EXPECT_EQ(Find(Asking({"secret"}))->missing_blob_digests_size(), 1);
  EXPECT_EQ(server_->Read(ReadName(IdOf("secret"))).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(server_->Query(WriteName(IdOf("secret")))->committed_size(), 0);
  // Naming the other one does not help either, unless the caller is a service.
  reapi::FindMissingBlobsRequest theirs = Asking({"secret"});
  theirs.set_instance_name("red");
  EXPECT_EQ(Find(theirs).status().code(), StatusCode::kPermissionDenied);
  server_->channel = *server_->Connect(path / "gateway");
  server_->storage = reapi::ContentAddressableStorage::NewStub(server_->channel->grpc());
  EXPECT_EQ(Find(theirs)->missing_blob_digests_size(), 0);
  theirs.set_instance_name("blue");
  EXPECT_EQ(Find(theirs)->missing_blob_digests_size(), 1);
  server_->Stop();
}

TEST_F(StorageTest, ViewersDownloadOnly) {
  server_->Stop();
  const auto path = folder_->path();
  std::ofstream(path / "tokens") << "red " << Sha256Hex("red-token") << " role=viewer\n";
  std::ofstream(path / "red") << "red-token";
  const auto tokens = *rpc::Callers::Open({path / "tokens", {}, false});
  server_->pool_options.callers = tokens.get();
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  server_->channel = *server_->Connect(path / "red");
  server_->bytes = bytestream::ByteStream::NewStub(server_->channel->grpc());
  server_->storage = reapi::ContentAddressableStorage::NewStub(server_->channel->grpc());
  ASSERT_TRUE(
      (*server_->folders->Of("red"))->store->Put(std::as_bytes(std::span("there", 5))).ok());
  EXPECT_EQ(*server_->Read(ReadName(IdOf("there"))), "there");
  EXPECT_EQ(Find(Asking({"there", "x"}))->missing_blob_digests_size(), 1);
  const absl::Status refused = server_->Write(WriteName(IdOf("x")), "x").status();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(MessageOf(refused), HasSubstr("ByteStream/Write needs a `user`"));
  EXPECT_FALSE((*server_->folders->Of("red"))->store->Contains(Sha256Hex("x")));
  server_->Stop();
}

}  // namespace
}  // namespace quench::gateway::storage_test
