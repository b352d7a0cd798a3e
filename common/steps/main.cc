#include "common/steps/main.h"

#include <getopt.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdio>
#include <optional>

#include "common/base/build_id.h"
#include "common/base/status.h"
#include "common/steps/child.h"
#include "common/steps/config.h"

namespace quench::steps {
namespace {

struct Arguments {
  std::string config, listen, metrics_listen;
};

void PrintHelp(const ServiceDefinition& definition) {
  fmt::print(
      "Usage: quench-{0} [--config FILE] [--listen ADDR] [--metrics-listen ADDR]\n\n"
      "Serves {1} until SIGINT or SIGTERM, then lets running calls finish.\n\n"
      "  --config FILE          configuration: a .txtpb or .json file of "
      "quench.config.v1.{2}Config\n"
      "  --listen ADDR          HOST:PORT or unix:PATH (default 127.0.0.1:{3}); port 0 takes a "
      "free one\n"
      "  --metrics-listen ADDR  HOST:PORT of /metrics (default: none)\n"
      "  --version              version and build\n"
      "  --help                 this text\n\n"
      "Examples:\n"
      "  quench-{0}                                       for this machine, blobs in "
      "~/.cache/quench\n"
      "  quench-{0} --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:{4}\n"
      "  quench-{0} --config /etc/quench/{0}.txtpb\n\n"
      "Exit codes: 0 ok, 2 usage or configuration, 3 an address or a store cannot be had.\n",
      definition.name, definition.full_name,
      std::string(1, static_cast<char>(std::toupper(definition.name[0]))) +
          definition.name.substr(1),
      definition.port, definition.port + 2000);
}

// The exit code where the program ends with that.
std::optional<int> Parse(int argc, char** argv, const ServiceDefinition& definition,
                         Arguments* arguments) {
  constexpr option kOptions[] = {{"config", required_argument, nullptr, 'c'},
                                 {"listen", required_argument, nullptr, 'l'},
                                 {"metrics-listen", required_argument, nullptr, 'm'},
                                 {"version", no_argument, nullptr, 'v'},
                                 {"help", no_argument, nullptr, 'h'},
                                 {nullptr, 0, nullptr, 0}};
  for (int given = 0; (given = getopt_long(argc, argv, "h", kOptions, nullptr)) != -1;) {
    switch (given) {
      case 'c':
        arguments->config = optarg;
        break;
      case 'l':
        arguments->listen = optarg;
        break;
      case 'm':
        arguments->metrics_listen = optarg;
        break;
      case 'v':
        fmt::print("quench-{} {} (build {})\n", definition.name, QUENCH_VERSION, BuildId());
        return 0;
      case 'h':
        PrintHelp(definition);
        return 0;
      default:
        fmt::print(stderr, "see quench-{} --help\n", definition.name);
        return 2;
    }
  }
  if (optind == argc) return std::nullopt;
  fmt::print(stderr, "quench-{}: `{}`: takes options only; see --help\n", definition.name,
             argv[optind]);
  return 2;
}

absl::StatusOr<std::unique_ptr<ServiceHost>> Start(const ServiceDefinition& definition,
                                                   const Arguments& arguments) {
  ServiceHost::Options options;
  ServiceConfig& config = options.config;
  if (!arguments.config.empty()) {
    QUENCH_ASSIGN_OR_RETURN(config, ReadServiceConfig(arguments.config));
  }
  if (!arguments.listen.empty()) config.server.set_listen(arguments.listen);
  if (!arguments.metrics_listen.empty()) {
    config.server.set_metrics_listen(arguments.metrics_listen);
  }
  return ServiceHost::Start(definition, std::move(options));
}

}  // namespace

int ServiceMain(int argc, char** argv, const ServiceDefinition& definition) {
  if (argc == 2 && std::string(argv[1]) == kChildArgument) return RunAsChild(definition.steps);
  Arguments arguments;
  if (const auto code = Parse(argc, argv, definition, &arguments)) return *code;
  rpc::BlockTerminationSignals();
  (void)std::signal(SIGPIPE, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_color_mt(definition.name));
  const auto host = Start(definition, arguments);
  if (!host.ok()) {
    spdlog::error("{}", MessageOf(host.status()));
    return absl::IsUnavailable(host.status()) ? 3 : 2;
  }
  rpc::AwaitTermination();
  (*host)->Drain();
  return 0;
}

}  // namespace quench::steps
