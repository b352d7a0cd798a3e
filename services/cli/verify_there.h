// `quench verify` at a gateway.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "services/analyser/analyser.h"
#include "services/cli/gateway_client.h"
#include "services/cli/model_source.h"

namespace quench::cli {

struct VerifyJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  std::string library;
  analyser::VerifyOptions options;
  int opt_level = 3;  // of the build whose layers are compared
};

// As analyser::Verify, on the CPU of the gateway's analyser: what has to be built for it is built
// there.
absl::StatusOr<analyser::VerifyReport> VerifyThere(const VerifyJob& job,
                                                   const StepContext& context);

}  // namespace quench::cli
