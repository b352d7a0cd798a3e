#include "services/gateway/blobs/byte_stream.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <thread>

#include "tests/support/matchers.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::byte_stream_test {
namespace {

using absl::StatusCode;
using quench::testing::HasSubstr;
using quench::testing::WaitFor;

class ByteStreamTest : public BlobServerTest {
 protected:
  void SetUp() override {
    BlobServerTest::SetUp();
    ASSERT_EQ(server_->Start(), absl::OkStatus());
  }
};

// A call to Write that the test keeps open.
class OpenWrite {
 public:
  OpenWrite(BlobServer& server, const std::string& name)
      : name_(name),
        call_(*server.channel, {}),
        writer_(server.bytes->Write(call_.context(), &response_)) {}
  ~OpenWrite() {
    if (finished_) return;
    call_.context()->TryCancel();
    (void)writer_->Finish();
  }
  bool Send(int64_t offset, const std::string& data) {
    bytestream::WriteRequest request;
    request.set_resource_name(name_);
    request.set_write_offset(offset);
    request.set_data(data);
    return writer_->Write(request);
  }
  absl::Status Finish() {
    finished_ = true;
    writer_->WritesDone();
    return rpc::FromGrpc(writer_->Finish());
  }
  // Without an end of the stream on our side.
  absl::Status Await() {
    finished_ = true;
    return rpc::FromGrpc(writer_->Finish());
  }
  int64_t committed() const { return response_.committed_size(); }

 private:
  const std::string name_;
  rpc::ClientCall call_;
  bytestream::WriteResponse response_;
  std::unique_ptr<grpc::ClientWriter<bytestream::WriteRequest>> writer_;
  bool finished_ = false;
};

TEST_F(ByteStreamTest, WhatIsWrittenCanBeReadInParts) {
  const std::string text = RandomText(1, 3'000'000);
  const BlobId id = IdOf(text);
  const auto written = server_->Write(WriteName(id), text, 700'000);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->committed_size(), 3'000'000);
  EXPECT_EQ(*server_->Read(ReadName(id)), text);
  EXPECT_EQ(*server_->Read("blobs/sha256/" + ReadName(id).substr(6), 2'500'000),
            text.substr(2'500'000));
  EXPECT_EQ(*server_->Read(ReadName(id), 10, 5), text.substr(10, 5));
  EXPECT_EQ(*server_->Read(ReadName(id), 3'000'000), "");
  EXPECT_EQ(*server_->Read(ReadName(id), 2'999'999, 100), text.substr(2'999'999));
  EXPECT_EQ(server_->Count(metrics::CasOp::kWritten), 3'000'000);
  EXPECT_EQ(server_->Count(metrics::CasOp::kRead), 3'500'006);
  EXPECT_EQ(server_->Unfinished(), 0u);
}

TEST_F(ByteStreamTest, TheEmptyBlobIsAlwaysThere) {
  EXPECT_EQ(*server_->Read(ReadName(IdOf(""))), "");
  EXPECT_EQ(server_->Write(WriteName(IdOf("")), "")->committed_size(), 0);
}

TEST_F(ByteStreamTest, BadReadsAreRefused) {
  const BlobId id = IdOf("hello");
  ASSERT_TRUE(server_->store().Put(Bytes("hello")).ok());
  const struct {
    std::string name;
    int64_t offset, limit;
    StatusCode code;
    std::string part;
  } kCases[] = {
      {ReadName(IdOf("other")), 0, 0, StatusCode::kNotFound, "is not in the store"},
      {ReadName({id.hash, 6}), 0, 0, StatusCode::kNotFound, "has 5 bytes, not 6"},
      {ReadName(id), 6, 0, StatusCode::kOutOfRange, "`read_offset` is 6"},
      {ReadName(id), -1, 0, StatusCode::kOutOfRange, "`read_offset` is -1"},
      {ReadName(id), 0, -1, StatusCode::kInvalidArgument, "`read_limit` is -1"},
      {"", 0, 0, StatusCode::kInvalidArgument, "a segment is empty"},
      {"X/" + ReadName(id), 0, 0, StatusCode::kInvalidArgument, "`X` is not a tenant"},
      {"compressed-" + ReadName(id), 0, 0, StatusCode::kUnimplemented, "not compressed here"},
  };
  for (const auto& each : kCases) {
    const absl::Status status = server_->Read(each.name, each.offset, each.limit).status();
    EXPECT_EQ(status.code(), each.code) << each.name << ": " << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(each.part));
  }
}

TEST_F(ByteStreamTest, BadWritesAreRefusedAndLeaveNothing) {
  const BlobId id = IdOf("hello");
  const struct {
    std::string name, text;
    std::string part;
  } kCases[] = {
      {WriteName(id), "jello", Sha256Hex("jello")},
      {WriteName(id), "hello, world", "more than the 5 bytes"},
      {WriteName(id), "hell", "after 4 of 5 bytes"},
      {ReadName(id), "hello", "`uploads/` is missing"},
      {"uploads/1/blobs/" + id.hash + "/5", "hello", "followed by a UUID"},
      {"No-Tenant/" + WriteName(id), "hello", "`No-Tenant` is not a tenant"},
      {WriteName({id.hash, uint64_t{1} << 41}), "hello", "at most"},
  };
  for (const auto& each : kCases) {
    const absl::Status status = server_->Write(each.name, each.text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << each.name << ": " << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(each.part));
    EXPECT_EQ(server_->Unfinished(), 0u) << each.name;
    EXPECT_FALSE(server_->store().Contains(id.hash));
  }
}

TEST_F(ByteStreamTest, AMessageBeyondTheLimitIsRefused) {
  const std::string text(9 << 20, 'x');
  EXPECT_EQ(server_->Write(WriteName(IdOf(text)), text, text.size()).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(ByteStreamTest, AnUploadIsResumedAlsoByANewServer) {
  const std::string text = RandomText(2, 500'000);
  const BlobId id = IdOf(text);
  for (uint32_t seed = 0; seed < 5; ++seed) {
    std::mt19937 random(seed);
    const std::string name = WriteName(id, static_cast<int>(seed));
    int64_t at = 0;
    while (at < 400'000) {
      OpenWrite write(*server_, name);
      const auto count = static_cast<int64_t>(1 + random() % 200'000);
      ASSERT_TRUE(write.Send(at, text.substr(static_cast<size_t>(at), static_cast<size_t>(count))));
      at = std::min<int64_t>(at + count, 500'000);
      ASSERT_TRUE(WaitFor([&] { return server_->Query(name)->committed_size() == at; }));
      if (random() % 2 == 0) {
        server_->Stop();
        ASSERT_EQ(server_->Start(), absl::OkStatus());
        EXPECT_EQ(server_->Query(name)->committed_size(), at);
      }
    }
    EXPECT_FALSE(server_->store().Contains(id.hash));
    EXPECT_FALSE(server_->Query(name)->complete());
    // Committed bytes are sent again here, and skipped.
    ASSERT_TRUE(server_->Write(name, text).ok());
    EXPECT_TRUE(server_->Query(name)->complete());
    EXPECT_EQ(server_->Query(name)->committed_size(), 500'000);
    EXPECT_EQ(*server_->Read(ReadName(id)), text);
    ASSERT_TRUE(server_->store().Prune(0).ok());
  }
  EXPECT_EQ(server_->Unfinished(), 0u);
}

TEST_F(ByteStreamTest, AGapIsOutOfRange) {
  OpenWrite write(*server_, WriteName(IdOf("hello")));
  write.Send(1, "ello");
  EXPECT_EQ(write.Finish().code(), StatusCode::kOutOfRange);
}

TEST_F(ByteStreamTest, AStreamThatEndsEarlyLearnsHowFarItCame) {
  OpenWrite write(*server_, WriteName(IdOf("hello")));
  ASSERT_TRUE(write.Send(0, "hel"));
  EXPECT_EQ(write.Finish(), absl::OkStatus());
  EXPECT_EQ(write.committed(), 3);
}

TEST_F(ByteStreamTest, AStreamWithoutAMessageIsInvalid) {
  OpenWrite write(*server_, WriteName(IdOf("hello")));
  EXPECT_EQ(write.Finish().code(), StatusCode::kInvalidArgument);
}

TEST_F(ByteStreamTest, ANewerCallTakesOverFromOneThatHangs) {
  const std::string name = WriteName(IdOf("hello"));
  OpenWrite older(*server_, name);
  ASSERT_TRUE(older.Send(0, "hel"));
  ASSERT_TRUE(WaitFor([&] { return server_->Query(name)->committed_size() == 3; }));
  OpenWrite newer(*server_, name);
  ASSERT_TRUE(newer.Send(3, "l"));
  EXPECT_EQ(older.Await().code(),
            StatusCode::kAborted);  // it sent nothing, and learns all the same
  ASSERT_TRUE(WaitFor([&] { return server_->Query(name)->committed_size() == 4; }));
  EXPECT_EQ(newer.Finish(), absl::OkStatus());
}

TEST_F(ByteStreamTest, TheSlowerOfTwoIsToldThatTheBlobIsThere) {
  const std::string text = RandomText(3, 3'000'000);
  const BlobId id = IdOf(text);
  OpenWrite slow(*server_, WriteName(id, 1));
  ASSERT_TRUE(slow.Send(0, text.substr(0, 1000)));
  ASSERT_TRUE(server_->Write(WriteName(id, 2), text).ok());
  slow.Send(1000, text.substr(1000, 1000));
  EXPECT_EQ(slow.Await(), absl::OkStatus());
  EXPECT_EQ(slow.committed(), 3'000'000);
  EXPECT_EQ(server_->Write(WriteName(id, 3), text, 100)->committed_size(), 3'000'000);
  EXPECT_TRUE(WaitFor([&] { return server_->Unfinished() == 0; }));
}

TEST_F(ByteStreamTest, TwoClientsUploadTheSameBlobAtOnce) {
  const std::string text = RandomText(4, 20'000'000);
  const BlobId id = IdOf(text);
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&, i] {
      const auto response = server_->Write(WriteName(id, i), text);
      EXPECT_TRUE(response.ok()) << response.status();
      EXPECT_EQ(response.ok() ? response->committed_size() : 0, 20'000'000);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(Sha256Hex(*server_->Read(ReadName(id))), id.hash);
  EXPECT_TRUE(WaitFor([&] { return server_->Unfinished() == 0; }));
}

// With a single thread: streams that wait for their peer do not have it.
TEST_F(ByteStreamTest, SlowPeersHoldNoThread) {
  server_->Stop();
  server_->pool_options.threads = 1;
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const std::string text = RandomText(5, 30'000'000);
  ASSERT_TRUE(server_->store().Put(Bytes(text)).ok());
  std::vector<std::unique_ptr<OpenWrite>> writers;
  for (int i = 0; i < 20; ++i) {
    const std::string small = "slow " + std::to_string(i);
    writers.push_back(std::make_unique<OpenWrite>(*server_, WriteName(IdOf(small), i)));
    ASSERT_TRUE(writers.back()->Send(0, "slow"));
  }
  rpc::ClientCall call(*server_->channel, {});
  bytestream::ReadRequest request;
  request.set_resource_name(ReadName(IdOf(text)));
  const auto reader = server_->bytes->Read(call.context(), request);
  bytestream::ReadResponse first;
  ASSERT_TRUE(reader->Read(&first));
  EXPECT_TRUE(server_->Write(WriteName(IdOf("quick"), 99), "quick").ok());
  call.context()->TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(ByteStreamTest, CallsBeyondThePoolAreShed) {
  server_->Stop();
  server_->pool_options.threads = 1;
  server_->pool_options.queue = 1;
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  OpenWrite a(*server_, WriteName(IdOf("hello"), 1)), b(*server_, WriteName(IdOf("hello"), 2));
  ASSERT_TRUE(a.Send(0, "h") && b.Send(0, "h"));
  ASSERT_TRUE(WaitFor([&] { return server_->Unfinished() == 2; }));
  const absl::Status status = server_->Read(ReadName(IdOf(""))).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(rpc::ReasonOf(status), "SLOTS_FULL");
  EXPECT_EQ(a.Finish(), absl::OkStatus());
  EXPECT_TRUE(WaitFor([&] { return server_->Read(ReadName(IdOf(""))).ok(); }));
}

TEST_F(ByteStreamTest, WhatCancelledAndExpiredCallsLeaveExpires) {
  const BlobId id = IdOf("hello");
  {
    OpenWrite cancelled(*server_, WriteName(id, 1));
    ASSERT_TRUE(cancelled.Send(0, "hel"));
    ASSERT_TRUE(WaitFor([&] { return server_->Query(WriteName(id, 1))->committed_size() == 3; }));
  }
  StepContext hurried;
  hurried.set_deadline(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
  rpc::ClientCall call(*server_->channel, hurried);
  bytestream::WriteResponse response;
  const auto writer = server_->bytes->Write(call.context(), &response);
  bytestream::WriteRequest request;
  request.set_resource_name(WriteName(id, 2));
  request.set_data("he");
  ASSERT_TRUE(writer->Write(request));
  EXPECT_EQ(rpc::FromGrpc(writer->Finish()).code(), StatusCode::kDeadlineExceeded);
  // Both have ended on the server too; it may take one whose client is gone for one that ends early.
  const auto ended = [&] {
    double count = 0;
    for (const auto code : {metrics::GrpcCode::kOk, metrics::GrpcCode::kCanceled,
                            metrics::GrpcCode::kDeadlineExceeded}) {
      count += server_->registry
                   .Get(metrics::kRpcHandled, metrics::GrpcType::kClientStream,
                        metrics::GrpcService("google.bytestream.ByteStream"),
                        metrics::GrpcMethod("Write"), code)
                   .Value();
    }
    return count;
  };
  ASSERT_TRUE(WaitFor([&] { return ended() == 2; }));
  const auto blobs = *server_->folders->Of("");
  EXPECT_EQ(server_->Unfinished(), 2u);
  EXPECT_EQ(blobs->uploads->DropExpired(), 0);
  timespec old[2];
  ::clock_gettime(CLOCK_REALTIME, &old[0]);
  old[0].tv_sec -= 3700;
  old[1] = old[0];
  for (const auto& file : std::filesystem::directory_iterator(blobs->store->root() / "uploads")) {
    ASSERT_EQ(::utimensat(AT_FDCWD, file.path().c_str(), old, 0), 0);
  }
  EXPECT_EQ(blobs->uploads->DropExpired(), 2);
  EXPECT_EQ(server_->Unfinished(), 0u);
}

}  // namespace
}  // namespace quench::gateway::byte_stream_test
