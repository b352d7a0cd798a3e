// The gateway as a whole: workflows, blobs, their limits, its server.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>

#include "common/rpc/audit.h"
#include "common/rpc/callers.h"
#include "common/rpc/server.h"
#include "common/steps/runner.h"
#include "quench/config/v1/config.pb.h"
#include "services/gateway/blobs/blob_services.h"
#include "services/gateway/blobs/keeper.h"
#include "services/gateway/gateway.h"

namespace quench::gateway {

inline constexpr int kDefaultPort = 7450;

class GatewayHost {
 public:
  struct Options {
    config::v1::GatewayConfig config;
    // Services of this process, instead of what config.services says.
    ServiceChannels channels;
    metrics::Registry* registry = &metrics::Global();
  };
  // INVALID_ARGUMENT for what is wrong in the configuration, UNAVAILABLE when the address or the
  // state dir cannot be had.
  static absl::StatusOr<std::unique_ptr<GatewayHost>> Start(const Options& options);
  ~GatewayHost();

  rpc::Server& server() { return *server_; }
  // New workflows go elsewhere, running steps get the grace, the rest is done again at the next
  // start.
  void Drain();

  // Where services of the same machine find the gateway's blobs, unless `config.blobs` is remote:
  // then where its copies lie.
  static absl::StatusOr<std::filesystem::path> BlobRoot(const config::v1::GatewayConfig& config);

 private:
  GatewayHost() = default;
  std::chrono::milliseconds grace_{};
  std::unique_ptr<rpc::Callers> callers_;
  std::unique_ptr<rpc::AuditLog> audit_;
  std::unique_ptr<BlobFolders> folders_;
  std::unique_ptr<rpc::CallPool> blob_pool_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<BlobServices> blobs_;
  std::unique_ptr<BlobKeeper> keeper_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace quench::gateway
