#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kWorkflowExamples[] = R"(Examples:
  quench workflow create batch.txtpb --gateway build-farm:7450    starts the workflow in a quench.gateway.v1.WorkflowSpec; prints its name
  quench workflow create batch.json --watch                       the same, and waits (the gateway is $QUENCH_GATEWAY)
  quench workflow list --state failed --limit 20
  quench workflow list --filter 'labels.team = vision AND create_time > 2027-01-31'
  quench workflow list --filter 'title = "night*"' --order-by 'end_time desc'
  quench workflow list --tenant -                                 those of all tenants, for an operator
  quench workflow get 3f2a...                                     its steps, attempts, and outputs with their digests
  quench workflow watch 3f2a...                                   waits until it ends; exit code 0 only if it succeeded
  quench workflow logs 3f2a... compile --follow                   where it runs, its stages, its warnings and failures
  quench workflow download 3f2a... --output out                   its libraries, reports and files
  quench workflow retry 3f2a... --watch                           reruns failed steps and those that depend on them
  quench workflow cancel 3f2a...
  quench blobs put model.onnx                                     uploads a file that a spec refers to by digest)";

struct WorkflowArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  WorkflowJob job;
};

absl::Status Run(WorkflowArgs& args, WorkflowVerb verb, const StepContext& context) {
  if (!UsesGateway(*args.gateway)) {
    return InvalidArgument("workflows run on a gateway: give --gateway or set QUENCH_GATEWAY");
  }
  args.job.gateway = *args.gateway;
  args.job.verb = verb;
  return WorkflowThere(args.job, context);
}

}  // namespace

Action DeclareWorkflow(const Options& options) {
  auto args = std::make_shared<WorkflowArgs>();
  WorkflowJob& job = args->job;
  options.Examples(kWorkflowExamples);
  const Options create = options.Subcommand("create", "Start a workflow from a specification file");
  create
      .Add("SPEC", job.spec, "Workflow specification (a quench.gateway.v1.WorkflowSpec)",
           "FILE.txtpb|FILE.json")
      .Required();
  create.Add(
      "--request-id", job.request_id,
      "Makes retries safe: repeating a request with the same ID and spec returns the same workflow",
      "ID");
  create.Add("--label", job.labels, "Label of the workflow, for --filter; may be repeated",
             "NAME=VALUE");
  create
      .Add(
          "--priority", [&job](const std::string& text) { job.priority = std::stoi(text); },
          "Higher ones run first, among workflows of one tenant (-100 to 100)", "N (default 0)")
      .Range(-100, 100);
  create.Flag("--watch", job.watch, "Wait until the workflow ends");
  create.Flag("--validate-only", job.validate_only, "Check everything, and create nothing")
      .Excludes({"--watch", "--request-id"});
  const Options list = options.Subcommand("list", "List workflows, newest first");
  list.Add("--state", job.states,
           "Only workflows in this state: queued, running, succeeded, failed, cancelled", "STATE");
  list.Add(
      "--filter", job.filter,
      "Only workflows that meet these conditions: labels.team = vision AND title = \"night*\" AND "
      "create_time > 2027-01-31",
      "CONDITIONS");
  list.Add("--order-by", job.order_by, "`create_time` or `end_time`, then `desc` for newest first",
           "FIELD (default create_time desc)");
  list.Add(
      "--tenant", job.tenant,
      "Workflows of this tenant instead of your own; `-` lists all tenants (needs an operator)",
      "NAME");
  list.Add("--limit", job.limit, "Largest number of workflows to list", "N (default 50)")
      .Range(1, 100000);
  const Options get = options.Subcommand("get", "Show a workflow with its steps and outputs");
  const Options watch = options.Subcommand("watch", "Wait until the workflow ends");
  const Options logs =
      options.Subcommand("logs", "Show what became of the steps: servers, stages, failures");
  const Options download = options.Subcommand(
      "download", "Download what a workflow has made: libraries, reports, files");
  download.Add("--output,-o", job.output, "Where files are put, in a folder for each step", "DIR")
      .Required();
  download.Flag("--all", job.all, "Modules and messages between steps too");
  const Options retry = options.Subcommand(
      "retry", "Run again the steps that failed or were cancelled, and those that depend on them");
  retry.Flag("--watch", job.watch, "Wait until the workflow ends");
  const Options cancel = options.Subcommand("cancel", "Cancel a workflow");
  const Options remove = options.Subcommand("delete", "Delete a workflow that has ended");
  for (const Options& sub : {get, watch, logs, download, retry, cancel, remove}) {
    sub.Add("WORKFLOW", job.name, "Name or ID of the workflow", "ID").Required();
  }
  logs.Add("STEP", job.step, "Only lines of this step", "NAME");
  logs.Flag("--follow,-f", job.follow, "Print new lines until the workflow ends");
  for (const Options& sub : {create, list, get, watch, logs, retry}) {
    AddFormat(sub, job.format);
  }
  const std::vector<std::pair<Options, WorkflowVerb>> verbs = {
      {create, WorkflowVerb::kCreate}, {list, WorkflowVerb::kList},
      {get, WorkflowVerb::kGet},       {watch, WorkflowVerb::kWatch},
      {logs, WorkflowVerb::kLogs},     {download, WorkflowVerb::kDownload},
      {retry, WorkflowVerb::kRetry},   {cancel, WorkflowVerb::kCancel},
      {remove, WorkflowVerb::kDelete}};
  AddGatewayOptions(options, args->gateway);
  return [args, verbs](const StepContext& context) -> absl::Status {
    for (const auto& [sub, verb] : verbs) {
      if (sub.parsed()) return Run(*args, verb, context);
    }
    return Internal("no subcommand was parsed");
  };
}

}  // namespace quench::cli
