// The configuration (quench.config.v1) in terms of common/rpc and common/steps.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "common/rpc/call_pool.h"
#include "common/rpc/callers.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/tracing.h"
#include "common/steps/runner.h"

namespace quench::config::v1 {
class Remote;
class Server;
class Steps;
}  // namespace quench::config::v1

namespace quench::steps {

// Each checks every field and fills in the defaults that config.proto states.
absl::StatusOr<rpc::ServerOptions> ServerOptionsOf(const config::v1::Server& server,
                                                   const std::string& default_listen);
// The permitted callers; null: everybody.
absl::StatusOr<std::unique_ptr<rpc::Callers>> CallersOf(const config::v1::Server& server);
// The tracer of a binary, by its name; null if the configuration has none.
absl::StatusOr<std::unique_ptr<rpc::Tracer>> TracerOf(const config::v1::Server& server,
                                                      const std::string& service,
                                                      metrics::Registry* registry);
// Sets the log level of the whole process; no change if the configuration has none.
absl::Status SetLogLevel(const config::v1::Server& server);
absl::StatusOr<rpc::ChannelOptions> ChannelOptionsOf(const config::v1::Remote& remote);
absl::StatusOr<RunnerOptions> RunnerOptionsOf(const config::v1::Steps& steps);
// Bytes of memory for all steps at once.
absl::StatusOr<int64_t> MemoryOf(const config::v1::Steps& steps);
// The budget of that memory, which keeps in `file` what past runs took; null if steps run on threads, where nobody can
// tell.
absl::StatusOr<std::shared_ptr<MemoryBudget>> OpenMemory(const config::v1::Steps& steps,
                                                         const std::filesystem::path& file,
                                                         metrics::Registry* registry);
// The number of steps that run at once.
absl::StatusOr<int> SlotsOf(const config::v1::Steps& steps);

}  // namespace quench::steps
