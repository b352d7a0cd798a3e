// The gateway's servers of blobs on a folder of their own, and a channel to them.
#pragma once

#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <random>

#include "build/bazel/remote/execution/v2/remote_execution.grpc.pb.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/callers.h"
#include "common/rpc/channel.h"
#include "common/rpc/errors.h"
#include "common/rpc/server.h"
#include "common/rpc/tenants.h"
#include "google/bytestream/bytestream.grpc.pb.h"
#include "services/gateway/blobs/blob_services.h"

namespace quench::gateway {

namespace bytestream = ::google::bytestream;

inline std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline BlobId IdOf(const std::string& text) { return {Sha256Hex(text), text.size()}; }

inline std::string RandomText(uint32_t seed, size_t size) {
  std::mt19937_64 random(seed);
  std::string text(size, 0);
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const uint64_t word = random();
    std::memcpy(text.data() + i, &word, 8);
  }
  for (; i < size; ++i) text[i] = static_cast<char>(random());
  return text;
}

inline std::string ReadName(const BlobId& id) {
  return fmt::format("blobs/{}/{}", id.hash, id.size);
}
inline std::string WriteName(const BlobId& id, int number = 0) {
  return fmt::format("uploads/6ba7b810-9dad-41d1-80b4-00c04fd4{:04d}/blobs/{}/{}", number, id.hash,
                     id.size);
}

class BlobServer {
 public:
  explicit BlobServer(std::filesystem::path root) : root_(std::move(root)) {
    pool_options.threads = 2;
    pool_options.queue = 100;
    pool_options.registry = &registry;
    server_options.registry = &registry;
    server_options.grace = std::chrono::milliseconds(0);
  }
  ~BlobServer() { Stop(); }

  metrics::Registry registry;
  rpc::CallPool::Options pool_options;
  rpc::ServerOptions server_options;
  BlobServerOptions options;
  uint64_t max_bytes = uint64_t{1} << 40;

  absl::Status Start() {
    QUENCH_ASSIGN_OR_RETURN(folders, BlobFolders::Open(root_, max_bytes));
    pool = std::make_unique<rpc::CallPool>(pool_options);
    services = std::make_unique<BlobServices>(*folders, *pool, options);
    QUENCH_ASSIGN_OR_RETURN(server, rpc::Server::Start(server_options, services->services()));
    QUENCH_ASSIGN_OR_RETURN(channel, Connect());
    bytes = bytestream::ByteStream::NewStub(channel->grpc());
    storage = reapi::ContentAddressableStorage::NewStub(channel->grpc());
    actions = reapi::ActionCache::NewStub(channel->grpc());
    return absl::OkStatus();
  }
  // As a process that ends: running calls are cancelled.
  void Stop() {
    server.reset();
    services.reset();
    pool.reset();
    folders.reset();
  }
  absl::StatusOr<std::shared_ptr<rpc::Channel>> Connect(const std::filesystem::path& token = {}) {
    rpc::ChannelOptions channel_options;
    channel_options.address = server->address();
    channel_options.token_file = token;
    return rpc::Channel::Open(channel_options);
  }

  // One upload in messages of `chunk` bytes.
  absl::StatusOr<bytestream::WriteResponse> Write(const std::string& name, std::string_view text,
                                                  size_t chunk = 1 << 20) {
    rpc::ClientCall call(*channel, {});
    bytestream::WriteResponse response;
    const auto writer = bytes->Write(call.context(), &response);
    size_t at = 0;
    bool more = true;
    while (more) {
      bytestream::WriteRequest request;
      if (at == 0) request.set_resource_name(name);
      const std::string_view piece = text.substr(at, chunk);
      request.set_write_offset(static_cast<int64_t>(at));
      request.set_data(piece.data(), piece.size());
      at += piece.size();
      request.set_finish_write(at == text.size());
      more = writer->Write(request) && at < text.size();
    }
    writer->WritesDone();
    QUENCH_RETURN_IF_ERROR(rpc::FromGrpc(writer->Finish()));
    return response;
  }
  absl::StatusOr<std::string> Read(const std::string& name, int64_t offset = 0, int64_t limit = 0) {
    rpc::ClientCall call(*channel, {});
    bytestream::ReadRequest request;
    request.set_resource_name(name);
    request.set_read_offset(offset);
    request.set_read_limit(limit);
    const auto reader = bytes->Read(call.context(), request);
    std::string text;
    for (bytestream::ReadResponse response; reader->Read(&response);) text += response.data();
    QUENCH_RETURN_IF_ERROR(rpc::FromGrpc(reader->Finish()));
    return text;
  }
  absl::StatusOr<bytestream::QueryWriteStatusResponse> Query(const std::string& name) {
    rpc::ClientCall call(*channel, {});
    bytestream::QueryWriteStatusRequest request;
    request.set_resource_name(name);
    bytestream::QueryWriteStatusResponse response;
    QUENCH_RETURN_IF_ERROR(
        rpc::FromGrpc(bytes->QueryWriteStatus(call.context(), request, &response)));
    return response;
  }

  LocalBlobStore& store() { return *(*folders->Of(rpc::kDefaultTenant))->store; }
  double Count(metrics::CasOp op) { return registry.Get(metrics::kCasBytes, op).Value(); }
  // Files that are not blobs yet.
  size_t Unfinished() const {
    size_t count = 0;
    for (const char* folder : {"uploads", "tmp"}) {
      count += static_cast<size_t>(
          std::distance(std::filesystem::directory_iterator(root_ / folder), {}));
    }
    return count;
  }

  std::unique_ptr<BlobFolders> folders;
  std::unique_ptr<rpc::CallPool> pool;
  std::unique_ptr<BlobServices> services;
  std::unique_ptr<rpc::Server> server;
  std::shared_ptr<rpc::Channel> channel;
  std::unique_ptr<bytestream::ByteStream::Stub> bytes;
  std::unique_ptr<reapi::ContentAddressableStorage::Stub> storage;
  std::unique_ptr<reapi::ActionCache::Stub> actions;

 private:
  const std::filesystem::path root_;
};

class BlobServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_.emplace(*std::move(folder));
    server_.emplace(folder_->path() / "state");
  }
  // Destroyed in this order: the server goes before its folder.
  std::optional<TempDir> folder_;
  std::optional<BlobServer> server_;
};

}  // namespace quench::gateway
