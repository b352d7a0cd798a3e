#include "services/cli/remote/nearby_blobs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/rpc/unary_call.h"

namespace quench::cli {
namespace {

constexpr uint64_t kWorthwhileBytes = uint64_t{1} << 20;

// Null where no such file can be read.
std::unique_ptr<BlobReader> OpenBlob(const std::filesystem::path& path, const BlobId& blob) {
  if (!path.is_absolute() || path.filename() != blob.hash) return nullptr;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return nullptr;
  auto reader = std::make_unique<BlobReader>(fd, blob.size, path);
  struct stat info{};
  const bool right = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
                     static_cast<uint64_t>(info.st_size) == blob.size;
  return right ? std::move(reader) : nullptr;
}

}  // namespace

NearbyBlobs::NearbyBlobs(std::shared_ptr<rpc::Channel> channel, const std::string& address)
    : channel_(std::move(channel)),
      stub_(rpc::IsLocal(address) ? local::v1::LocalBlobs::NewStub(channel_->grpc()) : nullptr) {}

// "" when it does not say; why not, whoever reads the blob from it then will learn.
std::string NearbyBlobs::Locate(const BlobId& blob, const StepContext& step) {
  local::v1::LocateBlobRequest request;
  request.mutable_digest()->set_hash(blob.hash);
  request.mutable_digest()->set_size_bytes(static_cast<int64_t>(blob.size));
  local::v1::LocateBlobResponse response;
  const absl::Status status = rpc::CallWithRetry(
      *channel_, step, std::chrono::milliseconds(0),
      [&](grpc::ClientContext* call) { return stub_->LocateBlob(call, request, &response); });
  return status.ok() ? response.path() : "";
}

absl::StatusOr<bool> NearbyBlobs::Copy(const BlobId& blob, const Create& create,
                                       const StepContext& step) {
  if (stub_ == nullptr || blob.size < kWorthwhileBytes) return false;
  const std::unique_ptr<BlobReader> reader = OpenBlob(Locate(blob, step), blob);
  QUENCH_RETURN_IF_ERROR(step.Check());
  if (reader == nullptr) return false;
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, create());
  absl::Status copied = writer->AppendAll(*reader, step);
  if (copied.ok()) copied = writer->CommitAs(blob);
  // Damaged, or not this blob; the gateway finds out when it reads it.
  if (absl::IsInvalidArgument(copied) || absl::IsAborted(copied)) return false;
  QUENCH_RETURN_IF_ERROR(copied);
  return true;
}

}  // namespace quench::cli
