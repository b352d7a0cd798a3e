#include "common/steps/main.h"

#include <getopt.h>
#include <google/protobuf/message.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cctype>
#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <thread>

#include "common/base/build_id.h"
#include "common/base/status.h"
#include "common/base/users_socket.h"
#include "common/ir/wire/walk.h"
#include "common/rpc/health.h"
#include "common/steps/child.h"
#include "common/steps/config.h"
#include "common/steps/read_config.h"
#include "quench/config/v1/config.pb.h"

namespace quench::steps {
namespace {

constexpr int kMetricsPortsAbove = 2000;
constexpr std::chrono::seconds kHealthTimeout{4};

void PrintHelp(const ServerProgram& program) {
  fmt::print(
      "Usage: quench-{0} [--config FILE] [--listen ADDR] [--metrics-listen ADDR]{1} "
      "[--log-level LEVEL]\n\n"
      "Serves {2} until SIGINT or SIGTERM, then lets running calls finish.\n\n"
      "  --config FILE          configuration: a .txtpb or .json file of quench.config.v1.{3}\n"
      "  --listen ADDR          HOST:PORT or unix:PATH (default {7}); port 0 takes a "
      "free one\n"
      "  --metrics-listen ADDR  HOST:PORT of /metrics (default: none)\n{5}"
      "  --log-level LEVEL      debug, info (the default), warning or error\n"
      "  --health               asks the server that runs here with this configuration whether it "
      "serves: exit code 0 or 1\n"
      "  --version              version and build\n"
      "  --help                 this text\n\n"
      "Examples:\n"
      "  quench-{0}                                      for this machine\n"
      "  quench-{0} --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:{6}\n"
      "  quench-{0} --config /etc/quench/{0}.txtpb\n\n"
      "Exit codes: 0 ok, 1 --health: does not serve, 2 usage or configuration, 3 an address or a "
      "store cannot be had.\n",
      program.name, program.has_state ? " [--state-dir DIR] [--console ADDR]" : "",
      program.full_name, program.config, program.port,
      program.has_state
          ? fmt::format("  --state-dir DIR        workflows and blobs (default "
                        "~/.local/state/quench)\n"
                        "  --console ADDR         HOST:PORT of the page for browsers, or none "
                        "(default {})\n",
                        program.users_own ? "127.0.0.1:8450" : "none")
          : "",
      program.port + kMetricsPortsAbove,
      program.users_own ? "a unix socket of this user's"
                        : fmt::format("127.0.0.1:{}", program.port));
}

// The exit code where the program ends with that.
std::optional<int> Parse(int argc, char** argv, const ServerProgram& program,
                         ServerArguments* arguments, bool* health) {
  constexpr option kOptions[] = {{"config", required_argument, nullptr, 'c'},
                                 {"listen", required_argument, nullptr, 'l'},
                                 {"metrics-listen", required_argument, nullptr, 'm'},
                                 {"state-dir", required_argument, nullptr, 's'},
                                 {"console", required_argument, nullptr, 'C'},
                                 {"log-level", required_argument, nullptr, 'L'},
                                 {"health", no_argument, nullptr, 'H'},
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
      case 's':
        if (!program.has_state) {
          fmt::print(stderr, "quench-{}: --state-dir: it keeps no state\n", program.name);
          return 2;
        }
        arguments->state_dir = optarg;
        break;
      case 'C':
        if (!program.has_state) {
          fmt::print(stderr, "quench-{}: --console: only a gateway has one\n", program.name);
          return 2;
        }
        arguments->console = optarg;
        break;
      case 'L':
        arguments->log_level = optarg;
        break;
      case 'H':
        *health = true;
        break;
      case 'v':
        fmt::print("quench-{} {} (build {})\n", program.name, QUENCH_VERSION, BuildId());
        return 0;
      case 'h':
        PrintHelp(program);
        return 0;
      default:
        fmt::print(stderr, "see quench-{} --help\n", program.name);
        return 2;
    }
  }
  if (optind == argc) return std::nullopt;
  fmt::print(stderr, "quench-{}: `{}`: takes options only; see --help\n", program.name,
             argv[optind]);
  return 2;
}

// Every configuration message has a Server, itself or in its gateway's.
absl::StatusOr<rpc::ServerOptions> ReadServerOptions(const ServerProgram& program,
                                                     const ServerArguments& arguments) {
  using google::protobuf::Message;
  const auto* type = google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
      "quench.config.v1." + program.config);
  QUENCH_CHECK(type != nullptr);
  const std::unique_ptr<Message> config(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
  if (!arguments.config.empty()) {
    QUENCH_RETURN_IF_ERROR(ReadConfig(arguments.config, config.get()));
  }
  config::v1::Server server;
  wire::ForEachMessage<config::v1::Server>(
      *config, [&](const config::v1::Server& found, const std::string&) { server = found; });
  QUENCH_RETURN_IF_ERROR(PutInto(arguments, &server));
  std::string listen = fmt::format("127.0.0.1:{}", program.port);
  if (program.users_own && server.listen().empty()) {
    QUENCH_ASSIGN_OR_RETURN(listen, UsersSocket());
  }
  return ServerOptionsOf(server, listen);
}

int AskForHealth(const ServerProgram& program, const ServerArguments& arguments) {
  const auto options = ReadServerOptions(program, arguments);
  const absl::Status status =
      options.ok() ? rpc::CheckHealth(*options, kHealthTimeout) : options.status();
  if (status.ok()) return 0;
  fmt::print(stderr, "quench-{}: {}\n", program.name, MessageOf(status));
  return absl::IsUnavailable(status) ? 1 : 2;
}

class ServingHost final : public Serving {
 public:
  explicit ServingHost(std::unique_ptr<ServiceHost> host) : host_(std::move(host)) {}
  void Drain() override { host_->Drain(); }

 private:
  std::unique_ptr<ServiceHost> host_;
};

}  // namespace

absl::Status PutInto(const ServerArguments& arguments, config::v1::Server* server) {
  if (!arguments.listen.empty()) server->set_listen(arguments.listen);
  if (!arguments.metrics_listen.empty()) server->set_metrics_listen(arguments.metrics_listen);
  if (arguments.log_level.empty()) return absl::OkStatus();
  static const auto* const levels =
      new std::map<std::string, config::v1::LogLevel>{{"debug", config::v1::LOG_LEVEL_DEBUG},
                                                      {"info", config::v1::LOG_LEVEL_INFO},
                                                      {"warning", config::v1::LOG_LEVEL_WARNING},
                                                      {"error", config::v1::LOG_LEVEL_ERROR}};
  const auto found = levels->find(arguments.log_level);
  if (found == levels->end()) {
    return InvalidArgument("--log-level: `{}` is not one of debug, info, warning, error",
                           arguments.log_level);
  }
  server->set_log_level(found->second);
  return absl::OkStatus();
}

int ServeUntilSignal(const std::function<absl::StatusOr<std::unique_ptr<Serving>>()>& start) {
  (void)std::signal(SIGPIPE, SIG_IGN);
  const auto serving = start();
  if (!serving.ok()) {
    spdlog::error("{}", MessageOf(serving.status()));
    return absl::IsUnavailable(serving.status()) ? 3 : 2;
  }
  rpc::AwaitTermination();
  std::thread([] {
    rpc::AwaitTermination();
    ::_exit(130);
  }).detach();
  (*serving)->Drain();
  return 0;
}

int ServerMain(int argc, char** argv, const ServerProgram& program) {
  ServerArguments arguments;
  bool health = false;
  if (const auto code = Parse(argc, argv, program, &arguments, &health)) return *code;
  if (health) return AskForHealth(program, arguments);
  rpc::BlockTerminationSignals();
  spdlog::set_default_logger(spdlog::stderr_color_mt(program.name));
  return ServeUntilSignal([&] { return program.start(arguments); });
}

absl::StatusOr<std::unique_ptr<Serving>> StartService(const ServiceDefinition& definition,
                                                      const ServerArguments& arguments) {
  ServiceHost::Options options;
  ServiceConfig& config = options.config;
  if (!arguments.config.empty()) {
    QUENCH_ASSIGN_OR_RETURN(config, ReadServiceConfig(arguments.config));
  }
  QUENCH_RETURN_IF_ERROR(PutInto(arguments, &config.server));
  QUENCH_ASSIGN_OR_RETURN(auto host, ServiceHost::Start(definition, std::move(options)));
  return std::unique_ptr<Serving>(std::make_unique<ServingHost>(std::move(host)));
}

int ServiceMain(int argc, char** argv, const ServiceDefinition& definition) {
  if (argc == 2 && std::string(argv[1]) == kChildArgument) return RunAsChild(definition.steps);
  ServerProgram program;
  program.name = definition.name;
  program.full_name = definition.full_name;
  program.config = definition.name + "Config";
  program.config[0] = static_cast<char>(std::toupper(program.config[0]));
  program.port = definition.port;
  program.start = [&](const ServerArguments& arguments) {
    return StartService(definition, arguments);
  };
  return ServerMain(argc, argv, program);
}

}  // namespace quench::steps
