#include "common/rpc/health.h"

#include <grpcpp/grpcpp.h>

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace quench::rpc {
namespace {

using grpc::health::v1::HealthCheckResponse;

// A server that listens on every address listens on loopback.
std::string OwnAddress(const std::string& listen) {
  constexpr std::pair<const char*, const char*> kAny[] = {{"0.0.0.0:", "127.0.0.1:"},
                                                          {"[::]:", "[::1]:"}};
  for (const auto& [any, own] : kAny) {
    if (listen.starts_with(any)) return own + listen.substr(std::strlen(any));
  }
  return listen;
}

absl::Status Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& server,
                 grpc::ClientContext* context) {
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  HealthCheckResponse response;
  const grpc::Status status = stub->Check(context, {}, &response);
  if (!status.ok()) {
    return absl::UnavailableError(
        fmt::format("{} does not answer: {}", server, status.error_message()));
  }
  if (response.status() == HealthCheckResponse::SERVING) return absl::OkStatus();
  return absl::UnavailableError(fmt::format(
      "{} reports {}", server, HealthCheckResponse::ServingStatus_Name(response.status())));
}

}  // namespace

absl::Status CheckHealth(const ServerOptions& options, std::chrono::milliseconds timeout) {
  QUENCH_RETURN_IF_ERROR(CheckAddress(options.listen, false));
  if (options.listen.ends_with(":0")) {
    return InvalidArgument("`{}`: the port that was taken for it is not known here",
                           options.listen);
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.tls) {
    QUENCH_ASSIGN_OR_RETURN(credentials, OwnTls(*options.tls));
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const std::string address = OwnAddress(options.listen);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  return Ask(grpc::CreateCustomChannel(address, credentials, arguments),
             fmt::format("`{}`", address), &context);
}

absl::Status CheckHealth(const Channel& channel, const StepContext& step) {
  ClientCall call(channel, step);
  return Ask(channel.grpc(), "the server", call.context());
}

}  // namespace quench::rpc
