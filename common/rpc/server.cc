#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <thread>

#include "common/base/build_id.h"
#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/rpc/window.h"

namespace quench::rpc {

namespace {

// The library's defaults, so that they stay what is tested.
constexpr int kMaxFrameBytes = 16 << 10;
constexpr int kHeaderTableBytes = 4 << 10;
constexpr int kPingStrikes = 2;

int Milliseconds(std::chrono::milliseconds duration) { return static_cast<int>(duration.count()); }

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsOf(
    const ServerOptions& options) {
  if (options.tls) return ServerTls(*options.tls);
  if (!options.insecure && !IsLocal(options.listen)) {
    return InvalidArgument(
        "`{}` is reached from other machines, and there is no TLS: give a certificate, listen on "
        "127.0.0.1, or set `insecure` if plain text is meant",
        options.listen);
  }
  return grpc::InsecureServerCredentials();
}

// Calls may be silent for long on purpose, and machines vanish without a word: both sides ask.
void SetLimits(const ServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.SetMaxSendMessageSize(options.max_message_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_calls);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             Milliseconds(options.max_connection_age));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             Milliseconds(options.max_connection_idle));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clients ask every 30 s: more than that is tolerated, else they would be cut off for it.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  // Limits for strangers on a connection, before anybody looks at it.
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_header_bytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(options.handshake));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_HPACK_TABLE_SIZE_DECODER, kHeaderTableBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kPingStrikes);
  builder.SetResourceQuota(
      grpc::ResourceQuota("connections").Resize(static_cast<size_t>(options.max_transport_bytes)));
  SetWindow([&](const char* name, int value) { builder.AddChannelArgument(name, value); });
  // Two servers on one port would share its calls silently: refuse instead.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

// The library of reflection adds itself to every server of the process.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return dynamic_cast<grpc::reflection::ProtoServerReflectionPlugin*>(plugin.get()) != nullptr;
    });
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  const std::string path = UnixPath(options.listen);
  if (!options.listen.empty()) QUENCH_RETURN_IF_ERROR(CheckAddress(options.listen, false));
  if (!path.empty()) QUENCH_RETURN_IF_ERROR(CheckUnixSocketIsFree(path));
  std::unique_ptr<metrics::Endpoint> metrics;
  if (!options.metrics_listen.empty()) {
    QUENCH_ASSIGN_OR_RETURN(metrics,
                            metrics::Endpoint::Start(options.metrics_listen, *options.registry));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  if (!options.listen.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const auto credentials, CredentialsOf(options));
    builder.AddListeningPort(options.listen, credentials, &port);
  }
  SetLimits(options, builder);
  if (!options.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || (port == 0 && !options.listen.empty())) {
    return absl::UnavailableError(fmt::format(
        "cannot listen on `{}`: the address is in use or not of this machine", options.listen));
  }
  for (const std::string& name : options.health_services) {
    server->GetHealthCheckService()->SetServingStatus(name, true);
  }
  options.registry
      ->Get(metrics::kBuildInfo, metrics::Version(QUENCH_VERSION), metrics::BuildId(BuildId()))
      .Set(1);
  return std::unique_ptr<Server>(
      new Server(options, std::move(server), path.empty() ? port : 0, std::move(metrics)));
}

Server::Server(ServerOptions options, std::unique_ptr<grpc::Server> server, int port,
               std::unique_ptr<metrics::Endpoint> metrics)
    : options_(std::move(options)),
      server_(std::move(server)),
      port_(port),
      metrics_(std::move(metrics)) {
  if (!options_.tls) return;
  expiry_ = options_.registry->AddRefresh(
      [path = options_.tls->certificate, registry = options_.registry] {
        const auto expiry = CertificateExpiry(path);
        if (!expiry.ok()) return;
        registry->Get(metrics::kCertificateExpiry)
            .Set(std::chrono::duration<double>(expiry->time_since_epoch()).count());
      });
}

std::string Server::address() const {
  if (port_ == 0) return options_.listen;
  return fmt::format("{}:{}", options_.listen.substr(0, options_.listen.rfind(':')), port_);
}

Server::~Server() { Drain(); }

void Server::Announce() {
  if (server_ == nullptr || std::exchange(announced_, true)) return;
  server_->GetHealthCheckService()->SetServingStatus(false);
  std::this_thread::sleep_for(options_.drain_delay);
}

void Server::Drain(std::optional<std::chrono::system_clock::time_point> end) {
  if (server_ == nullptr) return;
  Announce();
  server_->Shutdown(end.value_or(std::chrono::system_clock::now() + options_.grace));
  server_->Wait();
  server_.reset();
}

namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int AwaitTermination() {
  const sigset_t signals = TerminationSignals();
  int received = 0;
  sigwait(&signals, &received);
  spdlog::info("signal {}: draining", received);
  return received;
}

}  // namespace quench::rpc
