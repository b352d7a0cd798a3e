#include "common/rpc/remote_blobs.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <thread>

#include "common/blobs/file_blobs.h"
#include "tests/support/cutting_proxy.h"
#include "tests/support/matchers.h"
#include "tests/support/sample.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::remote_blobs_test {
namespace {

using absl::StatusCode;
using quench::testing::CuttingProxy;
using quench::testing::HasSubstr;
using quench::testing::WaitFor;
using rpc::RemoteBlobs;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class RemoteBlobsTest : public BlobServerTest {
 protected:
  void SetUp() override {
    BlobServerTest::SetUp();
    ASSERT_EQ(server_->Start(), absl::OkStatus());
    local_ = *LocalBlobStore::Open(folder_->path() / "local", nullptr);
    back_ = *LocalBlobStore::Open(folder_->path() / "back", nullptr);
  }
  BlobId Put(LocalBlobStore& store, const std::string& text) {
    EXPECT_TRUE(store.Put(Bytes(text)).ok());
    return IdOf(text);
  }
  static std::shared_ptr<rpc::Channel> ChannelTo(const std::string& address) {
    rpc::ChannelOptions options;
    options.address = address;
    options.attempts = 1;  // the transfers' own tries are what is tested
    return *rpc::Channel::Open(options);
  }
  size_t Temporaries(const char* store) const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_->path() / store / "tmp"), {}));
  }

  std::shared_ptr<LocalBlobStore> local_, back_;
};

TEST_F(RemoteBlobsTest, ManyBlobsThereAndBack) {
  std::vector<BlobId> ids = {Put(*local_, ""), Put(*local_, RandomText(0, 5'000'000)),
                             Put(*local_, RandomText(1, 1 << 20))};
  uint64_t total = 0;
  for (uint32_t i = 0; i < 60; ++i) ids.push_back(Put(*local_, RandomText(100 + i, 1 + i * 3000)));
  ids.push_back(ids.back());
  for (size_t i = 0; i + 1 < ids.size(); ++i) total += ids[i].size;
  RemoteBlobs remote(server_->channel, {});
  std::vector<Progress> reports;
  const StepContext step(std::make_shared<CancelToken>(),
                         [&](const Progress& progress) { reports.push_back(progress); });
  ASSERT_EQ(remote.Upload(*local_, ids, step), absl::OkStatus());
  for (size_t i = 1; i < reports.size(); ++i) EXPECT_GT(reports[i].done, reports[i - 1].done);
  EXPECT_EQ(reports.back().done, static_cast<int64_t>(total));
  EXPECT_EQ(reports.back().total, static_cast<int64_t>(total));
  EXPECT_EQ(remote.FindMissing(ids, {})->size(), 0u);
  reports.clear();
  ASSERT_EQ(remote.Upload(*local_, ids, step), absl::OkStatus());
  EXPECT_TRUE(reports.empty()) << "all of them are there already";
  ASSERT_EQ(remote.Download(ids, *back_, step), absl::OkStatus());
  EXPECT_EQ(reports.back().done, static_cast<int64_t>(total));
  for (const BlobId& id : ids) EXPECT_EQ(back_->SizeOf(id.hash), id.size);
  EXPECT_EQ(Temporaries("back"), 0u);
}

TEST_F(RemoteBlobsTest, TransfersAreResumedWhereConnectionsBreak) {
  const uint32_t seeds = testing::Full() ? 6 : 2;  // each reconnects for 12 s
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    CuttingProxy proxy(server_->server->port(),
                       [&random]() -> uint64_t { return 200'000 + random() % 3'000'000; });
    RemoteBlobs remote(ChannelTo(proxy.address()), {});
    const BlobId id = Put(*local_, RandomText(1000 + seed, 8'000'000));
    const double before = server_->Count(metrics::CasOp::kWritten);
    ASSERT_EQ(remote.Upload(*local_, {id}, {}), absl::OkStatus()) << "seed " << seed;
    EXPECT_EQ(server_->store().SizeOf(id.hash), id.size);
    // Chunks that arrived in part are sent again, what was committed is not.
    EXPECT_LT(server_->Count(metrics::CasOp::kWritten) - before, 16'000'000);
    ASSERT_EQ(remote.Download({id}, *back_, {}), absl::OkStatus()) << "seed " << seed;
    EXPECT_TRUE(back_->Contains(id.hash));
    const auto file = folder_->path() / "file";
    ASSERT_EQ(remote.Download(id, **FileBlobWriter::Create(file), {}), absl::OkStatus());
    EXPECT_EQ(Sha256Hex(*ReadFile(file)), id.hash);
    EXPECT_GT(proxy.cuts(), 2);
  }
  EXPECT_TRUE(WaitFor([&] { return server_->Unfinished() == 0; }));
}

TEST_F(RemoteBlobsTest, AServerThatIsRestartedIsFoundAgain) {
  CuttingProxy proxy(server_->server->port(), [] { return uint64_t{1} << 40; });
  RemoteBlobs remote(ChannelTo(proxy.address()), {});
  const BlobId id = Put(*local_, RandomText(1, 30'000'000));
  std::atomic<int64_t> done{0};
  const StepContext step(std::make_shared<CancelToken>(),
                         [&](const Progress& progress) { done = progress.done; });
  absl::Status status;
  std::thread client([&] { status = remote.Upload(*local_, {id}, step); });
  EXPECT_TRUE(WaitFor([&] { return done > 3'000'000; }));
  server_->Stop();
  EXPECT_EQ(server_->Start(), absl::OkStatus());
  proxy.set_target(server_->server->port());
  client.join();
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(server_->store().SizeOf(id.hash), id.size);
}

TEST_F(RemoteBlobsTest, TwoClientsUploadTheSameBlobs) {
  std::vector<BlobId> ids;
  for (uint32_t i = 0; i < 4; ++i) ids.push_back(Put(*local_, RandomText(i, 4'000'000)));
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      RemoteBlobs remote(*server_->Connect(), {});
      EXPECT_EQ(remote.Upload(*local_, ids, {}), absl::OkStatus());
    });
  }
  for (std::thread& client : clients) client.join();
  for (const BlobId& id : ids) EXPECT_EQ(server_->store().SizeOf(id.hash), id.size);
  EXPECT_TRUE(WaitFor([&] { return server_->Unfinished() == 0; }));
}

TEST_F(RemoteBlobsTest, AllMissingBlobsAreNamed) {
  RemoteBlobs remote(server_->channel, {});
  const BlobId there = Put(server_->store(), RandomText(1, 400'000));
  const BlobId small = IdOf("small"), large = IdOf(RandomText(2, 400'000));
  const absl::Status status = remote.Download({large, there, small}, *back_, {});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(rpc::ReasonOf(status), "BLOB_MISSING");
  std::vector<std::string> subjects;
  for (const auto& each : rpc::PreconditionsOf(status)) {
    EXPECT_EQ(each.type, "MISSING");
    subjects.push_back(each.subject);
  }
  std::vector<std::string> expected = {ReadName(small), ReadName(large)};
  std::sort(subjects.begin(), subjects.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(subjects, expected);
  EXPECT_TRUE(back_->Contains(there.hash));
  EXPECT_EQ(Temporaries("back"), 0u);
  EXPECT_EQ(remote.Upload(*local_, {small}, {}).code(), StatusCode::kNotFound);
}

TEST_F(RemoteBlobsTest, AnotherRunGoesOnWhereOneWasEnded) {
  const BlobId id = Put(*local_, RandomText(1, 40'000'000));
  {
    RemoteBlobs first(server_->channel, {});
    const auto token = std::make_shared<CancelToken>();
    const StepContext step(token, [&](const Progress& progress) {
      if (progress.done > 20'000'000) token->Cancel();
    });
    EXPECT_EQ(first.Upload(*local_, {id}, step).code(), StatusCode::kCancelled);
  }
  EXPECT_TRUE(WaitFor([&] { return server_->Unfinished() == 1; }));
  const double before = server_->Count(metrics::CasOp::kWritten);
  EXPECT_GT(before, 10'000'000);
  RemoteBlobs second(server_->channel, {});
  std::vector<int64_t> done;
  const StepContext step(std::make_shared<CancelToken>(),
                         [&](const Progress& progress) { done.push_back(progress.done); });
  ASSERT_EQ(second.Upload(*local_, {id}, step), absl::OkStatus());
  EXPECT_LT(server_->Count(metrics::CasOp::kWritten) - before, 30'000'000);
  EXPECT_GE(done.front(), 10'000'000);
  EXPECT_EQ(done.back(), 40'000'000);
  EXPECT_EQ(server_->Unfinished(), 0u);
}

TEST_F(RemoteBlobsTest, TwoWhoUploadTheSameDoNotStartOver) {
  const BlobId id = Put(*local_, RandomText(1, 60'000'000));
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      RemoteBlobs remote(*server_->Connect(), {});
      EXPECT_EQ(remote.Upload(*local_, {id}, {}), absl::OkStatus());
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(server_->store().Contains(id.hash));
  EXPECT_LT(server_->Count(metrics::CasOp::kWritten), 90'000'000);
}

TEST_F(RemoteBlobsTest, AServerThatIsNotThereIsTriedForTheRetryTime) {
  CuttingProxy proxy(1, [] { return uint64_t{0}; });
  rpc::RemoteBlobsOptions options;
  options.retry_time = milliseconds(700);
  RemoteBlobs remote(ChannelTo(proxy.address()), options);
  const auto begin = steady_clock::now();
  EXPECT_EQ(remote.Download({IdOf("x")}, *back_, {}).code(), StatusCode::kUnavailable);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(300));
  EXPECT_GT(proxy.cuts(), 1);
}

// A ByteStream that does what a test says, and a CAS where everything is missing.
class OtherServer : public bytestream::ByteStream::Service {
 public:
  std::function<grpc::Status(grpc::ServerReader<bytestream::WriteRequest>*,
                             bytestream::WriteResponse*, grpc::ServerContext*)>
      write;
  std::string data;  // of any blob that is read

  grpc::Status Write(grpc::ServerContext* context,
                     grpc::ServerReader<bytestream::WriteRequest>* reader,
                     bytestream::WriteResponse* response) override {
    return write(reader, response, context);
  }
  grpc::Status Read(grpc::ServerContext*, const bytestream::ReadRequest* request,
                    grpc::ServerWriter<bytestream::ReadResponse>* writer) override {
    bytestream::ReadResponse response;
    response.set_data(data.substr(static_cast<size_t>(request->read_offset())));
    writer->Write(response);
    return grpc::Status::OK;
  }

  // No QueryWriteStatus: UNIMPLEMENTED.

  class AllMissing : public reapi::ContentAddressableStorage::Service {
   public:
    grpc::Status FindMissingBlobs(grpc::ServerContext*,
                                  const reapi::FindMissingBlobsRequest* request,
                                  reapi::FindMissingBlobsResponse* response) override {
      *response->mutable_missing_blob_digests() = request->blob_digests();
      return grpc::Status::OK;
    }
  } storage;
};

class OtherServerTest : public RemoteBlobsTest {
 protected:
  void SetUp() override {
    RemoteBlobsTest::SetUp();
    rpc::ServerOptions options;
    options.registry = &registry_;
    options.grace = milliseconds(0);
    other_server_ = *rpc::Server::Start(options, {&other_, &other_.storage});
    remote_.emplace(ChannelTo(other_server_->address()), rpc::RemoteBlobsOptions());
  }
  metrics::Registry registry_;
  OtherServer other_;
  std::unique_ptr<rpc::Server> other_server_;
  std::optional<RemoteBlobs> remote_;
};

TEST_F(OtherServerTest, WithoutQueryWriteStatusUploadsBeginAnew) {
  const BlobId id = Put(*local_, RandomText(1, 3'000'000));
  int calls = 0;
  std::set<std::string> names;
  other_.write = [&](auto* reader, auto* response, auto*) {
    bytestream::WriteRequest request;
    ++calls;
    for (bool first = true; reader->Read(&request); first = false) {
      if (first) names.insert(request.resource_name());
      EXPECT_TRUE(!first || request.write_offset() == 0);
      if (calls < 3 && !first) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "again");
    }
    response->set_committed_size(static_cast<int64_t>(id.size));
    return grpc::Status::OK;
  };
  EXPECT_EQ(remote_->Upload(*local_, {id}, {}), absl::OkStatus());
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(names.size(), 3u);
}

TEST_F(OtherServerTest, WrongBytesAreDataLossAndInvisible) {
  const BlobId id = IdOf("right");
  other_.data = "wrong";
  const absl::Status status = remote_->Download({id}, *back_, {});
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(status), HasSubstr(id.hash));
  other_.data = "right, and more";
  EXPECT_EQ(remote_->Download({id}, *back_, {}).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(back_->Contains(id.hash) || back_->Contains(Sha256Hex("wrong")));
  EXPECT_EQ(Temporaries("back"), 0u);
  const auto file = folder_->path() / "file";
  EXPECT_EQ(remote_->Download(id, **FileBlobWriter::Create(file), {}).code(),
            StatusCode::kDataLoss);
  EXPECT_FALSE(std::filesystem::exists(file));
  other_.data = "right";
  EXPECT_EQ(remote_->Download({id}, *back_, {}), absl::OkStatus());
}

TEST_F(OtherServerTest, RefusalsAreNotRepeated) {
  const BlobId id = Put(*local_, "text");
  int calls = 0;
  other_.write = [&](auto*, auto*, auto*) {
    ++calls;
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no space");
  };
  const absl::Status status = remote_->Upload(*local_, {id}, {});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(status), HasSubstr("no space"));
  EXPECT_EQ(calls, 1);
}

TEST_F(OtherServerTest, ACancelledTransferStopsWithinASecond) {
  const BlobId id = Put(*local_, RandomText(1, 20'000'000));
  std::atomic<bool> stuck{false};
  other_.write = [&](auto*, auto*, grpc::ServerContext* context) {
    stuck = true;  // and reads nothing
    WaitFor([&] { return context->IsCancelled(); });
    return grpc::Status::CANCELLED;
  };
  const StepContext step;
  absl::Status status;
  std::thread client([&] { status = remote_->Upload(*local_, {id}, step); });
  EXPECT_TRUE(WaitFor([&] { return stuck.load(); }));
  const auto begin = steady_clock::now();
  step.cancel_token()->Cancel();
  client.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(1000));
}

TEST_F(OtherServerTest, ACancelledWaitEndsAtOnce) {
  const BlobId id = Put(*local_, "text");
  std::atomic<int> calls{0};
  other_.write = [&](auto*, auto*, auto*) {
    ++calls;
    return rpc::ToGrpc(
        rpc::WithRetryAfter(absl::ResourceExhaustedError("full"), std::chrono::seconds(50)));
  };
  const StepContext step;
  absl::Status status;
  std::thread client([&] { status = remote_->Upload(*local_, {id}, step); });
  EXPECT_TRUE(WaitFor([&] { return calls == 1; }));
  const auto begin = steady_clock::now();
  step.cancel_token()->Cancel();
  client.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(1000));
}

}  // namespace
}  // namespace quench::gateway::remote_blobs_test
