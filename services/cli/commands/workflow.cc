#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/steps/read_config.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/gateway_client.h"
#include "services/cli/model_source.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

constexpr char kExamples[] = R"(Examples:
  quench workflow create batch.txtpb --gateway build-farm:7450    a quench.gateway.v1.WorkflowSpec; prints its name
  quench workflow create batch.json --watch                       the same, and waits (QUENCH_GATEWAY says where)
  quench workflow list --state failed --limit 20
  quench workflow get 3f2a...                                     steps, attempts, outputs with their digests
  quench workflow watch 3f2a...                                   until it ends; exit code 0 only if it succeeded
  quench workflow cancel 3f2a...
  quench blobs put model.onnx                                     uploads what a spec names by digest)";

struct WorkflowArgs {
  std::shared_ptr<GatewayOptions> gateway = std::make_shared<GatewayOptions>();
  std::string spec, name, request_id;
  std::vector<std::string> states;
  int64_t limit = 50;
  bool watch = false;
  std::string format = "table";
};

std::string StateText(pb::State state) {
  std::string text = pb::State_Name(state);
  text = text.substr(text.find('_') + 1);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string Age(const google::protobuf::Timestamp& time) {
  const int64_t seconds = google::protobuf::util::TimeUtil::TimestampToSeconds(
                              google::protobuf::util::TimeUtil::GetCurrentTime()) -
                          time.seconds();
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

absl::Status PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) {
    return Internal("a message cannot be written as JSON");
  }
  fmt::print("{}", json);
  return absl::OkStatus();
}

void PrintHeader() {
  fmt::print("{:<42} {:<10} {:>9} {:>7} {:>7}  {}\n", "workflow", "state", "steps", "cached", "age",
             "title");
}

void PrintLine(const pb::Workflow& workflow) {
  const pb::Counts& counts = workflow.counts();
  const int all = counts.queued() + counts.running() + counts.succeeded() + counts.failed() +
                  counts.cancelled();
  fmt::print("{:<42} {:<10} {:>9} {:>7} {:>7}  {}\n", workflow.name(), StateText(workflow.state()),
             fmt::format("{}/{}", counts.succeeded(), all), counts.cache_hits(),
             Age(workflow.create_time()), workflow.title());
}

void PrintSteps(const pb::Workflow& workflow) {
  for (const pb::Step& step : workflow.steps()) {
    fmt::print("  {:<40} {:<10} attempt {}/{}{}\n", step.name(), StateText(step.state()),
               step.attempt(), step.max_attempts(), step.cache_hit() ? ", cached" : "");
    if (step.has_error()) fmt::print("    {}\n", step.error().message());
    for (const pb::FailedAttempt& attempt : step.failed_attempts()) {
      fmt::print("    attempt {}: {}\n", attempt.attempt(), attempt.error().message());
    }
    for (const pb::StepOutput& output : step.outputs()) {
      fmt::print("    {:<14} {} ({} bytes)\n", output.name(), output.digest().hash(),
                 output.digest().size_bytes());
    }
  }
}

absl::Status Print(const pb::Workflow& workflow, const std::string& format) {
  if (format == "json") return PrintJson(workflow);
  PrintHeader();
  PrintLine(workflow);
  if (workflow.has_error()) fmt::print("  {}\n", workflow.error().message());
  PrintSteps(workflow);
  return absl::OkStatus();
}

absl::Status Watch(const WorkflowArgs& args, const std::string& name, GatewayClient& client,
                   const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, client.Watch(name, context));
  QUENCH_RETURN_IF_ERROR(Print(workflow, args.format));
  if (workflow.state() == pb::STATE_SUCCEEDED) return absl::OkStatus();
  if (workflow.state() == pb::STATE_CANCELLED) return absl::CancelledError("it was cancelled");
  return rpc::FromProto(workflow.error());
}

absl::Status Create(const WorkflowArgs& args, GatewayClient& client, const StepContext& context) {
  pb::WorkflowSpec spec;
  QUENCH_RETURN_IF_ERROR(steps::ReadConfig(args.spec, &spec));
  QUENCH_ASSIGN_OR_RETURN(const std::string name, client.Create(spec, args.request_id, context));
  if (args.watch) return Watch(args, name, client, context);
  fmt::print("{}\n", name);
  return absl::OkStatus();
}

absl::Status List(const WorkflowArgs& args, GatewayClient& client, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<pb::Workflow> found,
                          client.List(args.states, static_cast<int>(args.limit), context));
  if (args.format == "json") {
    pb::ListWorkflowsResponse all;
    all.mutable_workflows()->Assign(found.begin(), found.end());
    return PrintJson(all);
  }
  PrintHeader();
  for (const pb::Workflow& workflow : found) PrintLine(workflow);
  return absl::OkStatus();
}

absl::Status Get(const WorkflowArgs& args, GatewayClient& client, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow,
                          client.Get(WorkflowNameOf(args.name), context));
  return Print(workflow, args.format);
}

using Verb = absl::Status (*)(const WorkflowArgs&, GatewayClient&, const StepContext&);

absl::Status WatchNamed(const WorkflowArgs& args, GatewayClient& client,
                        const StepContext& context) {
  return Watch(args, WorkflowNameOf(args.name), client, context);
}
absl::Status CancelNamed(const WorkflowArgs& args, GatewayClient& client, const StepContext&) {
  return client.Cancel(WorkflowNameOf(args.name));
}
absl::Status DeleteNamed(const WorkflowArgs& args, GatewayClient& client,
                         const StepContext& context) {
  return client.Delete(WorkflowNameOf(args.name), context);
}

absl::Status Run(const WorkflowArgs& args, Verb verb, const StepContext& context) {
  if (!UsesGateway(*args.gateway)) {
    return InvalidArgument("workflows live at a gateway: give --gateway or set QUENCH_GATEWAY");
  }
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(*args.gateway, store));
  return verb(args, *client, context);
}

}  // namespace

Action DeclareWorkflow(const Options& options) {
  auto args = std::make_shared<WorkflowArgs>();
  options.Examples(kExamples);
  const Options create = options.Subcommand("create", "Start a workflow from a file");
  create.Add("SPEC", args->spec, "A quench.gateway.v1.WorkflowSpec", "FILE.txtpb|FILE.json")
      .Required();
  create.Add("--request-id", args->request_id,
             "Makes it safe to repeat: the same id and spec give the same workflow", "ID");
  create.Flag("--watch", args->watch, "Wait until it ends");
  const Options list = options.Subcommand("list", "Show workflows, newest first");
  list.Add("--state", args->states, "Only these: queued, running, succeeded, failed, cancelled",
           "STATE");
  list.Add("--limit", args->limit, "How many", "N (default 50)").Range(1, 100000);
  const Options get = options.Subcommand("get", "Show one with its steps and outputs");
  const Options watch = options.Subcommand("watch", "Wait until it ends");
  const Options cancel = options.Subcommand("cancel", "Stop it");
  const Options remove = options.Subcommand("delete", "Forget one that has ended");
  for (const Options& sub : {get, watch, cancel, remove}) {
    sub.Add("WORKFLOW", args->name, "Its name or id", "ID").Required();
  }
  for (const Options& sub : {create, list, get, watch}) {
    sub.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  }
  const std::vector<std::pair<Options, Verb>> verbs = {
      {create, Create},    {list, List},          {get, Get},
      {watch, WatchNamed}, {cancel, CancelNamed}, {remove, DeleteNamed}};
  for (const auto& [sub, verb] : verbs) AddGatewayOptions(sub, args->gateway);
  return [args, verbs](const StepContext& context) -> absl::Status {
    for (const auto& [sub, verb] : verbs) {
      if (sub.parsed()) return Run(*args, verb, context);
    }
    return Internal("no subcommand was parsed");
  };
}

}  // namespace quench::cli
