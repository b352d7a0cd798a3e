// The program of one service.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/steps/host.h"

namespace quench::steps {

// Parses --config, --listen, --metrics-listen, --help and --version, serves until SIGINT or SIGTERM,
// then drains. As a child (kChildArgument) does one step instead. Exit codes: 0 ok, 2 usage or
// configuration, 3 the address or the store is not available.
int ServiceMain(int argc, char** argv, const ServiceDefinition& definition);

// Command line arguments of every server's program.
struct ServerArguments {
  std::string config, listen, metrics_listen, state_dir, console, log_level;
};

// Overrides a server's configuration by the arguments. INVALID_ARGUMENT for an unknown log
// level.
absl::Status PutInto(const ServerArguments& arguments, config::v1::Server* server);

// A running server, for the program around it; its destruction stops it.
class Serving {
 public:
  virtual ~Serving() = default;
  virtual void Drain() = 0;
};

struct ServerProgram {
  std::string name;       // "importer": the program is quench-importer
  std::string full_name;  // of its service, for --help
  std::string config;     // name of its configuration message, for --help
  int port = 0;
  bool users_own = false;  // listens on UsersSocket() unless told otherwise, instead of the port
  bool has_state = false;  // takes --state-dir
  std::function<absl::StatusOr<std::unique_ptr<Serving>>(const ServerArguments&)> start;
};

// Starts the service with its configuration file, if there is one, overridden by the arguments.
absl::StatusOr<std::unique_ptr<Serving>> StartService(const ServiceDefinition& definition,
                                                      const ServerArguments& arguments);

// The same for any server.
int ServerMain(int argc, char** argv, const ServerProgram& program);

// Serves until SIGINT or SIGTERM, then drains; a second signal ends the program at once. Returns
// the exit code; errors are logged. Needs rpc::BlockTerminationSignals().
int ServeUntilSignal(const std::function<absl::StatusOr<std::unique_ptr<Serving>>()>& start);

}  // namespace quench::steps
