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
#include "services/gateway/console/console.h"
#include "services/gateway/gateway.h"

namespace quench::gateway {

inline constexpr int kDefaultPort = 7450;

class GatewayHost {
 public:
  struct Options {
    config::v1::GatewayConfig config;
    // Services of this process, instead of what config.services says.
    ServiceChannels channels;
    // One for the whole process (not owned), instead of what config.server says.
    rpc::Tracer* tracer = nullptr;
    // A console where `config` has none: on its usual port, or a free one.
    bool usual_console = false;
    metrics::Registry* registry = &metrics::Global();
  };
  // INVALID_ARGUMENT for an error in the configuration, UNAVAILABLE if the address or the state dir
  // is in use.
  static absl::StatusOr<std::unique_ptr<GatewayHost>> Start(const Options& options);
  ~GatewayHost();

  rpc::Server& server() { return *server_; }
  Console* console() { return console_.get(); }  // null: there is none
  // Refuses new workflows, and gives running steps the grace period; the others run again after the
  // next start.
  void Drain();

  // The folder in which services of the same machine find the gateway's blobs; if `config.blobs` is
  // remote, the folder of the local copies.
  static absl::StatusOr<std::filesystem::path> BlobRoot(const config::v1::GatewayConfig& config);

 private:
  GatewayHost() = default;
  absl::Status StartConsole(const Options& options, const rpc::ServerOptions& server);

  std::chrono::milliseconds grace_{};
  std::unique_ptr<rpc::Tracer> tracer_;  // outlives all that records
  std::unique_ptr<rpc::Callers> callers_;
  std::unique_ptr<rpc::AuditLog> audit_;
  std::unique_ptr<BlobFolders> folders_;
  std::unique_ptr<rpc::CallPool> blob_pool_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<BlobServices> blobs_;
  std::unique_ptr<BlobKeeper> keeper_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<Console> console_;
};

}  // namespace quench::gateway
