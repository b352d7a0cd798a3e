// Memory and disk: what is bounded, and what happens at the bound.
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "common/rpc/remote_blobs.h"
#include "common/rpc/retry.h"
#include "tests/support/wait.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::limits_test {
namespace {

using absl::StatusCode;
using quench::testing::WaitFor;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;  // keeps what was freed in memory
#else
constexpr bool kSanitized = false;
#endif

constexpr uint64_t kMiB = uint64_t{1} << 20;

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// A blob of so many bytes without so many in memory.
BlobId PutLarge(LocalBlobStore& store, uint64_t bytes) {
  const auto writer = store.Create();
  const std::string piece = RandomText(7, kMiB);
  for (uint64_t at = 0; at < bytes; at += kMiB) EXPECT_TRUE((*writer)->Append(Bytes(piece)).ok());
  const auto digest = (*writer)->Commit();
  EXPECT_TRUE(digest.ok()) << digest.status();
  return {digest.ok() ? *digest : "", bytes};
}

class LimitsTest : public BlobServerTest {};

TEST_F(LimitsTest, MemoryDoesNotGrowWithWhatIsTransferred) {
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const auto local = *LocalBlobStore::Open(folder_->path() / "local", nullptr);
  const auto back = *LocalBlobStore::Open(folder_->path() / "back", nullptr);
  rpc::RemoteBlobs remote(server_->channel, {});
  const BlobId small = PutLarge(*local, 16 * kMiB), large = PutLarge(*local, 256 * kMiB);
  ASSERT_EQ(remote.Upload(*local, {small}, {}), absl::OkStatus());
  ASSERT_EQ(remote.Download({small}, *back, {}), absl::OkStatus());
  const uint64_t before = ResidentBytes();
  uint64_t most = before;
  const StepContext step(std::make_shared<CancelToken>(),
                         [&](const Progress&) { most = std::max(most, ResidentBytes()); });
  ASSERT_EQ(remote.Upload(*local, {large}, step), absl::OkStatus());
  ASSERT_EQ(remote.Download({large}, *back, step), absl::OkStatus());
  EXPECT_TRUE(back->Contains(large.hash));
  EXPECT_TRUE(kSanitized || most - before < 32 * kMiB) << most - before;
}

TEST_F(LimitsTest, AnUploadThatSendsNothingEndsAndGivesItsPlaceBack) {
  server_->pool_options.stream_idle = std::chrono::milliseconds(200);
  server_->pool_options.threads = 1;
  server_->pool_options.queue = 0;
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const std::string text = RandomText(1, 1000);
  rpc::ClientCall call(*server_->channel, {});
  bytestream::WriteResponse response;
  const auto writer = server_->bytes->Write(call.context(), &response);
  bytestream::WriteRequest half;
  half.set_resource_name(WriteName(IdOf(text)));
  half.set_data(text.substr(0, 500));
  ASSERT_TRUE(writer->Write(half));
  const absl::Status idle = rpc::FromGrpc(writer->Finish());
  EXPECT_EQ(idle.code(), StatusCode::kAborted) << idle;
  EXPECT_EQ(rpc::ReasonOf(idle), "STREAM_IDLE");
  EXPECT_TRUE(rpc::IsTransient(idle)) << "clients go on where they were";
  // The only place is free, and what came is there.
  const auto state = server_->Query(WriteName(IdOf(text)));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->committed_size(), 500);
}

TEST_F(LimitsTest, AReaderThatTakesNothingIsCutOff) {
  server_->pool_options.stream_idle = std::chrono::milliseconds(200);
  server_->pool_options.threads = 1;
  server_->pool_options.queue = 0;
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const BlobId id = PutLarge(server_->store(), 64 * kMiB);
  rpc::ClientCall call(*server_->channel, {});
  bytestream::ReadRequest request;
  request.set_resource_name(ReadName(id));
  const auto reader = server_->bytes->Read(call.context(), request);
  bytestream::ReadResponse first;
  ASSERT_TRUE(reader->Read(&first));
  const std::string text = "small";
  ASSERT_TRUE(server_->store().Put(Bytes(text)).ok());
  // On a connection of its own: this one's window is full.
  const auto other = server_->Connect();
  ASSERT_TRUE(other.ok());
  const auto bytes = bytestream::ByteStream::NewStub((*other)->grpc());
  EXPECT_TRUE(WaitFor([&] {
    rpc::ClientCall next(**other, {});
    bytestream::ReadRequest small;
    small.set_resource_name(ReadName(IdOf(text)));
    const auto stream = bytes->Read(next.context(), small);
    for (bytestream::ReadResponse response; stream->Read(&response);) continue;
    return stream->Finish().ok();
  }));
  bool more = true;
  for (int i = 0; more && i < 100; ++i) more = reader->Read(&first);
  EXPECT_FALSE(more);
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(LimitsTest, SlowReadersHoldTwoChunksEach) {
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const BlobId id = PutLarge(server_->store(), 64 * kMiB);
  const uint64_t before = ResidentBytes();
  constexpr int kReaders = 16;
  struct Slow {
    std::unique_ptr<rpc::ClientCall> call;
    std::unique_ptr<grpc::ClientReader<bytestream::ReadResponse>> reader;
  };
  std::vector<Slow> slow;
  bytestream::ReadRequest request;
  request.set_resource_name(ReadName(id));
  for (int i = 0; i < kReaders; ++i) {
    Slow each{std::make_unique<rpc::ClientCall>(*server_->channel, StepContext()), nullptr};
    each.reader = server_->bytes->Read(each.call->context(), request);
    bytestream::ReadResponse first;
    ASSERT_TRUE(each.reader->Read(&first));
    slow.push_back(std::move(each));
  }
  // The server stops reading from the disk at some point: what it holds and what is under way.
  const auto read = [&] { return server_->Count(metrics::CasOp::kRead); };
  double last = -1;
  auto since = std::chrono::steady_clock::now();
  ASSERT_TRUE(WaitFor([&] {
    const auto now = std::chrono::steady_clock::now();
    if (read() != last) since = now;
    last = read();
    return now - since > std::chrono::milliseconds(300);
  }));
  EXPECT_LT(last, kReaders * 12.0 * static_cast<double>(kMiB));
  const uint64_t grown = ResidentBytes() - before;
  EXPECT_TRUE(kSanitized || grown < kReaders * 16 * kMiB) << grown;
  for (const Slow& each : slow) {
    each.call->context()->TryCancel();
    EXPECT_FALSE(each.reader->Finish().ok());
  }
}

// A command that runs its argument, this program, where only it sees the disk; "" just mounts.
std::string OnSmallDisk(const std::string& folder) {
  const char* const options = geteuid() == 0 ? "--mount" : "--map-root-user --mount";
  return fmt::format(
      "unshare {} sh -c 'mount -t tmpfs -o size=4m none {} && {{ test -z \"$0\" || exec $0 "
      "--gtest_filter=LimitsTest.AFullDiskIsSurvived; }}'",
      options, folder);
}

// On a file system of 4 MiB, mounted for a second run of this program.
TEST_F(LimitsTest, AFullDiskIsSurvived) {
  const char* const disk = std::getenv("QUENCH_SMALL_DISK");
  if (disk == nullptr) {
    const std::string folder = (folder_->path() / "disk").string();
    std::filesystem::create_directory(folder);
    std::string self(4096, 0);
    self.resize(static_cast<size_t>(::readlink("/proc/self/exe", self.data(), self.size())));
    if (std::system((OnSmallDisk(folder) + " '' 2>/dev/null").c_str()) != 0) {
      GTEST_SKIP() << "no right to mount a small file system";
    }
    ::setenv("QUENCH_SMALL_DISK", folder.c_str(), 1);
    const int code = std::system((OnSmallDisk(folder) + " " + self).c_str());
    ::unsetenv("QUENCH_SMALL_DISK");
    EXPECT_EQ(code, 0);
    return;
  }
  server_.emplace(disk);
  ASSERT_EQ(server_->Start(), absl::OkStatus());
  const std::string text = RandomText(1, 2 * kMiB), more = RandomText(2, 3 * kMiB);
  ASSERT_TRUE(server_->Write(WriteName(IdOf(text)), text).ok());
  // Refused before the first byte is written: there is no space to reserve.
  const absl::Status full = server_->Write(WriteName(IdOf(more)), more).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full;
  EXPECT_NE(full.message().find("No space left"), absl::string_view::npos) << full;
  // And in the middle, where nothing was reserved.
  const absl::Status torn = server_->store().Put(Bytes(more)).status();
  EXPECT_EQ(torn.code(), StatusCode::kResourceExhausted) << torn;
  EXPECT_EQ(server_->Unfinished(), 0u);
  EXPECT_FALSE(server_->store().Contains(Sha256Hex(more)));
  EXPECT_EQ(*server_->Read(ReadName(IdOf(text))), text);
  ASSERT_TRUE(server_->store().Prune(0).ok());
  EXPECT_TRUE(server_->Write(WriteName(IdOf(more)), more).ok());
  EXPECT_EQ(*server_->Read(ReadName(IdOf(more))), more);
}

}  // namespace
}  // namespace quench::gateway::limits_test
