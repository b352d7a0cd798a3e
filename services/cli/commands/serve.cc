#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kServeExamples[] = R"(Examples:
  quench serve                                            gateway and services in one process, for this user only
  quench compile model.onnx --gateway local               uses it
  quench serve --listen 127.0.0.1:7450                    for everybody on this machine, by TCP
  quench serve --listen 127.0.0.1:0 --state-dir /tmp/q    elsewhere; the port is logged
  quench serve --metrics-listen 127.0.0.1:9450            http://127.0.0.1:9450/metrics for Prometheus
  quench serve --service codegen --config codegen.txtpb   one service by itself, as quench-codegen
  quench serve --health                                   exit code 0 if the server here serves, else 1

Without --listen it takes a unix socket in a folder that nobody else may enter: quench/gateway.sock in $XDG_RUNTIME_DIR, or
quench/run/gateway.sock in $XDG_STATE_HOME or ~/.local/state. `--gateway local` is that socket.
Configuration files are protobuf text (.txtpb) or JSON (.json): quench.config.v1.AllInOneConfig, or the message of the
service. Steps run in processes of their own. SIGTERM or Ctrl-C drains: running steps finish, a second one ends at once.)";

struct ServeArgs {
  bool all_in_one = false, health = false;
  std::string service, config, listen, metrics_listen, state_dir, log_level;
};

// The servers are programs of their own beside this one, which becomes one of them.
absl::Status Serve(const ServeArgs& args) {
  std::vector<std::string> words;
  for (const auto& [option, value] : {std::pair{"--config", args.config},
                                      {"--listen", args.listen},
                                      {"--metrics-listen", args.metrics_listen},
                                      {"--state-dir", args.state_dir},
                                      {"--log-level", args.log_level}}) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  }
  if (args.health) words.emplace_back("--health");
  return Become("quench-" + (args.service.empty() ? "serve" : args.service), words);
}

}  // namespace

Action DeclareServe(const Options& options) {
  auto args = std::make_shared<ServeArgs>();
  options
      .Flag("--all-in-one", args->all_in_one, "Gateway and services in this process (the default)")
      .Excludes({"--service"});
  options.Add("--service", args->service, "Only this one", "NAME")
      .OneOf({"gateway", "importer", "analyser", "quantizer", "codegen"});
  options.Add("--config", args->config, "Configuration file", "FILE");
  options.Add("--listen", args->listen, "Where it is reached; port 0 takes a free one",
              "HOST:PORT|unix:PATH (default: a socket of this user's)");
  options.Add("--metrics-listen", args->metrics_listen, "Where Prometheus finds /metrics",
              "HOST:PORT (default: nowhere)");
  options.Add("--state-dir", args->state_dir, "Workflows and blobs",
              "DIR (default ~/.local/state/quench)");
  options.Add("--log-level", args->log_level, "What is logged; debug: calls that went well too", "")
      .OneOf({"debug", "info", "warning", "error"});
  options.Flag("--health", args->health,
               "Asks the server that runs here with this configuration whether it serves");
  options.Examples(kServeExamples);
  return [args](const StepContext&) { return Serve(*args); };
}

}  // namespace quench::cli
