#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kFleetExamples[] = R"(Examples:
  export QUENCH_GATEWAY=build-farm:7450
  quench fleet compile 'models/**/*.onnx' --target x86-64-v3 --target raspberry-pi/5 --output out
  quench fleet compile 'models/*.onnx' --options default --options int8.txtpb --table table.csv
  quench fleet compile 'models/*.onnx' --request-id nightly-1 --label team=vision --detach
  quench fleet watch nightly-1 --output out --table table.html       waits; results appear here
  quench fleet list
  quench fleet retry nightly-1                       runs again what failed or was cancelled
  quench fleet cancel nightly-1

Libraries lie in DIR/MODEL/OPTIONS/TARGET/. The same --request-id again starts nothing that is
done, and runs again what has failed. Ctrl-C ends this program: the fleet goes on at the gateway.)";

struct FleetArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  FleetJob job;
};

absl::Status Run(FleetArgs& args, FleetVerb verb, const StepContext& context) {
  if (!UsesGateway(*args.gateway)) {
    return InvalidArgument("fleets run on a gateway: give --gateway or set QUENCH_GATEWAY");
  }
  args.job.gateway = *args.gateway;
  args.job.verb = verb;
  return FleetThere(args.job, context);
}

void AddResults(const Options& options, FleetJob& job) {
  options.In("Output").Add("--output,-o", job.output,
                           "Where libraries are put, in DIR/MODEL/OPTIONS/TARGET/", "DIR");
  options.In("Output").Add("--table", job.table, "A table of all cells: states, sizes, errors",
                           "FILE.csv|FILE.json|FILE.html");
}

}  // namespace

Action DeclareFleet(const Options& options) {
  auto args = std::make_shared<FleetArgs>();
  FleetJob& job = args->job;
  options.Examples(kFleetExamples);
  const Options compile =
      options.Subcommand("compile", "Compile models, each with all options for all targets");
  compile
      .Add("MODELS", job.models, "Model files, or patterns of them: models/**/*.onnx", "MODELS...")
      .Required();
  compile.Add("--target", job.targets, "Targets, as `quench compile` takes them; may be repeated",
              "TARGET (default host)");
  compile.Add("--options", job.options,
              "Options, each a quench.gateway.v1.CompileBatch without models; `default` is none of "
              "them; may be repeated",
              "FILE.txtpb|FILE.json|default (default default)");
  compile.Add("--batch", job.batch, "Batch size of every model", "N").AtLeast(1);
  compile.Add("--request-id", job.id,
              "Name of the fleet: the same again starts nothing that is done", "ID (default new)");
  compile.Add("--label", job.labels, "Label of the workflows; may be repeated", "NAME=VALUE");
  compile
      .Add("--priority", job.priority, "Higher ones run first, among workflows of one tenant",
           "N (default -10)")
      .Range(-100, 100);
  compile.Add("--webhook", job.webhooks,
              "Receiver of a CloudEvent when the fleet ends; may be repeated", "URL");
  compile.Flag("--webhook-steps", job.webhook_steps, "Tell of each step too").Needs({"--webhook"});
  const Option detach = compile.Flag("--detach", job.detach, "Do not wait until it ends");
  detach.Excludes({"--output", "--table"});
  compile.Flag("--dry-run", job.dry_run, "Only list what would be compiled");
  const Options watch = options.Subcommand("watch", "Wait until a fleet ends");
  for (const Options& sub : {compile, watch}) AddResults(sub, job);
  const Options list = options.Subcommand("list", "List fleets, newest first");
  list.Add("--limit", job.limit, "Largest number of fleets to list", "N (default 50)")
      .Range(1, 100000);
  list.Add("--tenant", job.tenant,
           "Fleets of this tenant instead of your own; `-` lists all tenants (needs an operator)",
           "NAME");
  const Options get = options.Subcommand("get", "Show how far a fleet is");
  const Options retry = options.Subcommand("retry", "Run again what has failed or was cancelled");
  const Options cancel = options.Subcommand("cancel", "Cancel what has not ended");
  for (const Options& sub : {watch, get, retry, cancel})
    sub.Add("FLEET", job.id, "Name of the fleet", "ID").Required();
  for (const Options& sub : {get, retry, cancel})
    sub.Add("--tenant", job.tenant, "The fleet's tenant, if not your own (needs an operator)",
            "NAME");
  for (const Options& sub : {compile, watch, list, get}) AddFormat(sub, job.format);
  const std::vector<std::pair<Options, FleetVerb>> verbs = {
      {compile, FleetVerb::kCompile}, {watch, FleetVerb::kWatch}, {list, FleetVerb::kList},
      {get, FleetVerb::kGet},         {retry, FleetVerb::kRetry}, {cancel, FleetVerb::kCancel}};
  AddGatewayOptions(options, args->gateway);
  return [args, verbs](const StepContext& context) -> absl::Status {
    for (const auto& [sub, verb] : verbs) {
      if (sub.parsed()) return Run(*args, verb, context);
    }
    return Internal("no subcommand was parsed");
  };
}

}  // namespace quench::cli
