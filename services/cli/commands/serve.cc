#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kServeExamples[] = R"(Examples:
  quench serve                                            gateway and services in one process, for this user only
  quench compile model.onnx --gateway local               uses it
  quench serve --listen 127.0.0.1:7450                    over TCP, for every user of this machine
  quench serve --listen 127.0.0.1:0 --state-dir /tmp/q    a free port, which is logged; another state folder
  quench serve --metrics-listen 127.0.0.1:9450            serves /metrics for Prometheus at http://127.0.0.1:9450/metrics
  quench serve --console none                             without the page for browsers, whose address it logs
  quench serve --service codegen --config codegen.txtpb   a single service, like quench-codegen
  quench serve --health                                   exit code 0 if the server is serving, else 1

Without --listen it listens on a private Unix socket: quench/gateway.sock in $XDG_RUNTIME_DIR, or
quench/run/gateway.sock in $XDG_STATE_HOME or ~/.local/state. `--gateway local` uses it.
Configuration files are protobuf text (.txtpb) or JSON (.json): quench.config.v1.AllInOneConfig, or the message of the
service. Steps run in processes of their own. SIGTERM or Ctrl-C drains: running steps finish; a second signal ends at once.)";

struct ServeArgs {
  bool all_in_one = false, health = false;
  std::string service, config, listen, metrics_listen, state_dir, console, log_level;
};

// The servers are programs of their own beside this one, which becomes one of them.
absl::Status Serve(const ServeArgs& args) {
  std::vector<std::string> words;
  for (const auto& [option, value] : {std::pair{"--config", args.config},
                                      {"--listen", args.listen},
                                      {"--metrics-listen", args.metrics_listen},
                                      {"--state-dir", args.state_dir},
                                      {"--console", args.console},
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
      .Flag("--all-in-one", args->all_in_one,
            "Serve gateway and services from this process (the default)")
      .Excludes({"--service"});
  options.Add("--service", args->service, "Serve only this service", "NAME")
      .OneOf({"gateway", "importer", "analyser", "quantizer", "codegen"});
  options.Add("--config", args->config, "Configuration file", "FILE");
  options.Add("--listen", args->listen, "Address to listen on; port 0 picks a free port",
              "HOST:PORT|unix:PATH (default: a private Unix socket)");
  options.Add("--metrics-listen", args->metrics_listen,
              "Address at which Prometheus can scrape /metrics", "HOST:PORT (default: nowhere)");
  options.Add("--state-dir", args->state_dir, "Folder for workflows and blobs",
              "DIR (default ~/.local/state/quench)");
  options.Add("--console", args->console,
              "Address of the page for browsers, which is logged; `none` for no page",
              "HOST:PORT (default 127.0.0.1:8450)");
  options
      .Add("--log-level", args->log_level,
           "Least severe level to log (debug also logs successful calls)", "")
      .OneOf({"debug", "info", "warning", "error"});
  options.Flag(
      "--health", args->health,
      "Exit with code 0 if the server with this configuration is running and serving, else 1");
  options.Examples(kServeExamples);
  return [args](const StepContext&) { return Serve(*args); };
}

}  // namespace quench::cli
