#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

constexpr char kWorkflowExamples[] = R"(Examples:
  quench workflow create batch.txtpb --gateway build-farm:7450    a quench.gateway.v1.WorkflowSpec; prints its name
  quench workflow create batch.json --watch                       the same, and waits (QUENCH_GATEWAY says where)
  quench workflow list --state failed --limit 20
  quench workflow get 3f2a...                                     steps, attempts, outputs with their digests
  quench workflow watch 3f2a...                                   until it ends; exit code 0 only if it succeeded
  quench workflow retry 3f2a... --watch                           runs again what failed, and what depends on it
  quench workflow cancel 3f2a...
  quench blobs put model.onnx                                     uploads what a spec names by digest)";

struct WorkflowArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  WorkflowJob job;
};

absl::Status Run(WorkflowArgs& args, WorkflowVerb verb, const StepContext& context) {
  if (!UsesGateway(*args.gateway)) {
    return InvalidArgument("workflows live at a gateway: give --gateway or set QUENCH_GATEWAY");
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
  const Options create = options.Subcommand("create", "Start a workflow from a file");
  create.Add("SPEC", job.spec, "A quench.gateway.v1.WorkflowSpec", "FILE.txtpb|FILE.json")
      .Required();
  create.Add("--request-id", job.request_id,
             "Makes it safe to repeat: the same id and spec give the same workflow", "ID");
  create.Flag("--watch", job.watch, "Wait until it ends");
  const Options list = options.Subcommand("list", "Show workflows, newest first");
  list.Add("--state", job.states, "Only these: queued, running, succeeded, failed, cancelled",
           "STATE");
  list.Add("--limit", job.limit, "How many", "N (default 50)").Range(1, 100000);
  const Options get = options.Subcommand("get", "Show one with its steps and outputs");
  const Options watch = options.Subcommand("watch", "Wait until it ends");
  const Options retry =
      options.Subcommand("retry", "Run again what failed or was cancelled, and what depends on it");
  retry.Flag("--watch", job.watch, "Wait until it ends");
  const Options cancel = options.Subcommand("cancel", "Stop it");
  const Options remove = options.Subcommand("delete", "Forget one that has ended");
  for (const Options& sub : {get, watch, retry, cancel, remove}) {
    sub.Add("WORKFLOW", job.name, "Its name or id", "ID").Required();
  }
  for (const Options& sub : {create, list, get, watch, retry}) {
    sub.Add("--format", job.format, "Output format", "table|json").OneOf({"table", "json"});
  }
  const std::vector<std::pair<Options, WorkflowVerb>> verbs = {
      {create, WorkflowVerb::kCreate}, {list, WorkflowVerb::kList},
      {get, WorkflowVerb::kGet},       {watch, WorkflowVerb::kWatch},
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
