// How commands are told of a gateway.
#pragma once

#include <memory>
#include <string>

#include "services/cli/options.h"

namespace quench::cli {

// Where the gateway is, and how it is reached.
struct GatewayOptions {
  std::string address;  // HOST:PORT, unix:PATH, dns:///NAME:PORT; "" without one
  std::string tls_ca, tls_certificate, tls_key;
  bool tls = false;  // also without a certificate of one's own: the system's authorities
  std::string token_file;
  bool refresh = false;  // workflows do their steps even if results are cached
};

// --gateway and its companions. The address may come from QUENCH_GATEWAY, the token from a file that
// QUENCH_TOKEN_FILE names.
void AddGatewayOptions(const Options& options, const std::shared_ptr<GatewayOptions>& gateway);
// The same and --refresh, for commands whose work a workflow does.
void AddWorkOptions(const Options& options, const std::shared_ptr<GatewayOptions>& gateway);
// Whether `--gateway` was given, or else came from the environment: where nothing can be done at a
// gateway, that is an error, and this is not.
bool AsksForGateway(const GatewayOptions& gateway);
// Whether the command goes to a gateway: fills in what comes from the environment.
bool UsesGateway(GatewayOptions& gateway);

}  // namespace quench::cli
