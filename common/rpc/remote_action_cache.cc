#include "common/rpc/remote_action_cache.h"

#include <grpcpp/channel.h>

#include "build/bazel/remote/execution/v2/remote_execution.grpc.pb.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/unary_call.h"

namespace quench::rpc {

namespace reapi = ::build::bazel::remote::execution::v2;

struct RemoteActionCache::Stub {
  std::unique_ptr<reapi::ActionCache::Stub> actions;
};

namespace {

constexpr int64_t kActionBytes = 64;

absl::Status CheckKey(const std::string& key) {
  if (IsDigest(key)) return absl::OkStatus();
  return InvalidArgument("`{}` is not a key of actions, those have 64 lower-case hex characters",
                         key.substr(0, 80));
}

template <typename Request>
Request RequestFor(const std::string& instance, const std::string& key) {
  Request request;
  request.set_instance_name(instance);
  request.mutable_action_digest()->set_hash(key);
  request.mutable_action_digest()->set_size_bytes(kActionBytes);
  request.set_digest_function(reapi::DigestFunction::SHA256);
  return request;
}

}  // namespace

RemoteActionCache::RemoteActionCache(std::shared_ptr<Channel> channel, std::string instance,
                                     std::chrono::milliseconds retry_time)
    : channel_(std::move(channel)),
      instance_(std::move(instance)),
      retry_time_(retry_time),
      blobs_(channel_, {instance_, retry_time_}),
      stub_(new Stub{reapi::ActionCache::NewStub(channel_->grpc())}) {}

RemoteActionCache::~RemoteActionCache() = default;

absl::StatusOr<std::optional<std::string>> RemoteActionCache::Get(const std::string& key,
                                                                  const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckKey(key));
  auto request = RequestFor<reapi::GetActionResultRequest>(instance_, key);
  request.set_inline_stdout(true);
  reapi::ActionResult result;
  absl::Status status =
      CallWithRetry(*channel_, step, retry_time_, [&](grpc::ClientContext* context) {
        return stub_->actions->GetActionResult(context, request, &result);
      });
  if (absl::IsNotFound(status)) return std::nullopt;
  if (!status.ok()) return status;
  // Servers may leave it out of the message, whatever they were asked for.
  if (result.stdout_raw().empty() && result.has_stdout_digest()) {
    const BlobId blob{result.stdout_digest().hash(),
                      static_cast<uint64_t>(result.stdout_digest().size_bytes())};
    if (!IsDigest(blob.hash) || blob.size > kMaxActionBytes) return std::nullopt;
    absl::StatusOr<std::string> text = blobs_.Read(blob, step);
    if (ReasonOf(text.status()) == ReasonName(Reason::kBlobMissing)) return std::nullopt;
    QUENCH_RETURN_IF_ERROR(text.status());
    result.set_stdout_raw(*std::move(text));
  }
  return result.SerializeAsString();
}

absl::Status RemoteActionCache::Put(const std::string& key, const std::string& value,
                                    const StepContext& step) {
  QUENCH_RETURN_IF_ERROR(CheckKey(key));
  if (value.size() > kMaxActionBytes) {
    return absl::ResourceExhaustedError(fmt::format(
        "an action's result of {} bytes, at most {} are stored", value.size(), kMaxActionBytes));
  }
  auto request = RequestFor<reapi::UpdateActionResultRequest>(instance_, key);
  if (!request.mutable_action_result()->ParseFromString(value)) {
    return InvalidArgument("the value for action `{}` is not an ActionResult", key);
  }
  reapi::ActionResult result;
  return CallWithRetry(*channel_, step, retry_time_, [&](grpc::ClientContext* context) {
    return stub_->actions->UpdateActionResult(context, request, &result);
  });
}

}  // namespace quench::rpc
