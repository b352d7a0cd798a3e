#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/rpc/metadata.h"
#include "common/rpc/window.h"

namespace quench::rpc {
namespace {

// Only what a server has surely not begun is sent again: UNAVAILABLE, before the first byte of an
// answer. A full server is its caller's to wait for: RetryInfo says how long.
std::string ServiceConfig(const ChannelOptions& options) {
  const std::string retry = fmt::format(
      R"("methodConfig":[{{"name":[{{}}],"retryPolicy":{{"maxAttempts":{},"initialBackoff":"0.2s",)"
      R"("maxBackoff":"5s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}}}],)"
      R"("retryThrottling":{{"maxTokens":100,"tokenRatio":0.5}})",
      std::clamp(options.attempts, 2, 5));
  const char* const balancing =
      R"("loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":""})";
  const bool many = options.address.starts_with("dns:");
  if (options.attempts < 2) return many ? fmt::format("{{{}}}", balancing) : "{}";
  return many ? fmt::format("{{{},{}}}", balancing, retry) : fmt::format("{{{}}}", retry);
}

grpc::ChannelArguments Arguments(const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetMaxSendMessageSize(options.max_message_bytes);
  arguments.SetServiceConfigJSON(ServiceConfig(options));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A server that restarts is back within seconds; gRPC would look for it after up to two minutes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000);
  SetWindow([&](const char* name, int value) { arguments.SetInt(name, value); });
  // Services stand in one network; a proxy set for the web would take their calls out of it.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Each channel connects for itself: with the certificates of now, and bulk beside control.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Channel>> Channel::Open(const ChannelOptions& options) {
  QUENCH_RETURN_IF_ERROR(CheckAddress(options.address, true));
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.tls) {
    QUENCH_ASSIGN_OR_RETURN(credentials, ChannelTls(*options.tls));
  }
  std::unique_ptr<TokenSource> token;
  if (!options.token_file.empty()) {
    if (!options.tls && !IsLocal(options.address)) {
      return InvalidArgument("a token for `{}` needs TLS: others could read it on its way",
                             options.address);
    }
    QUENCH_ASSIGN_OR_RETURN(token, TokenSource::Open(options.token_file));
  }
  return std::shared_ptr<Channel>(
      new Channel(grpc::CreateCustomChannel(options.address, credentials, Arguments(options)),
                  std::move(token)));
}

std::shared_ptr<Channel> Channel::InProcess(Server& server) {
  ChannelOptions options;
  options.max_message_bytes = server.options_.max_message_bytes;
  return std::shared_ptr<Channel>(
      new Channel(server.server_->InProcessChannel(Arguments(options)), nullptr));
}

ClientCall::ClientCall(const Channel& channel, const StepContext& step)
    : on_cancel_(step.cancel_token()->stop_token(), [this] { context_.TryCancel(); }) {
  if (step.deadline()) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          (*step.deadline() - std::chrono::steady_clock::now()));
  }
  const std::string token = channel.Token();
  if (!token.empty()) context_.AddMetadata(kAuthorizationKey, "Bearer " + token);
  if (!step.request_id().empty()) context_.AddMetadata(kRequestIdKey, step.request_id());
  if (!step.traceparent().empty()) context_.AddMetadata(kTraceparentKey, step.traceparent());
}

}  // namespace quench::rpc
