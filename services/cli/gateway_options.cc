#include "services/cli/gateway_options.h"

#include <cstdlib>

#include "common/base/users_socket.h"

namespace quench::cli {
namespace {

// The server that `quench serve` of this user is.
constexpr char kUsersOwn[] = "local";

std::string EnvironmentOr(const std::string& value, const char* name) {
  if (!value.empty()) return value;
  const char* found = std::getenv(name);
  return found == nullptr ? "" : found;
}

}  // namespace

void AddGatewayOptions(const Options& all, const std::shared_ptr<GatewayOptions>& gateway) {
  const Options options = all.In("Gateway");
  options
      .Add("--gateway", gateway->address,
           "Do the work on a gateway (default: $QUENCH_GATEWAY; if unset, do it locally)",
           "HOST:PORT|unix:PATH|local")
      .Environment("QUENCH_GATEWAY");
  const Options there = options.Under({"--gateway"}).Rare();
  there.Flag("--tls", gateway->tls, "Connect over TLS, trusting the system's CA certificates");
  there.Add("--tls-ca", gateway->tls_ca, "CA certificate file used to verify the gateway", "FILE");
  there
      .Add("--tls-cert", gateway->tls_certificate, "Client certificate file (with --tls-key)",
           "FILE")
      .Needs({"--tls-key"});
  there.Add("--tls-key", gateway->tls_key, "Private key of --tls-cert", "FILE")
      .Needs({"--tls-cert"});
  there.Add("--token-file", gateway->token_file,
            "File with the access token (default: $QUENCH_TOKEN_FILE)", "FILE");
}

void AddWorkOptions(const Options& options, const std::shared_ptr<GatewayOptions>& gateway) {
  AddGatewayOptions(options, gateway);
  options.In("Gateway")
      .Under({"--gateway"})
      .Flag("--refresh", gateway->refresh,
            "Ignore the gateway's cached result and do the work again");
}

bool AsksForGateway(const GatewayOptions& gateway) {
  return !gateway.address.empty() && gateway.address != EnvironmentOr("", "QUENCH_GATEWAY");
}

bool UsesGateway(GatewayOptions& gateway) {
  gateway.token_file = EnvironmentOr(gateway.token_file, "QUENCH_TOKEN_FILE");
  if (gateway.address == kUsersOwn) {
    // Without an environment to find it in, the word itself is what cannot be reached.
    if (const auto socket = UsersSocket(); socket.ok()) gateway.address = *socket;
  }
  return !gateway.address.empty();
}

}  // namespace quench::cli
