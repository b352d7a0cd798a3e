#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/steps/read_config.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/fleet_table.h"
#include "services/cli/remote/workflow_logs.h"
#include "services/cli/remote/workflow_outputs.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

std::string Age(const google::protobuf::Timestamp& time) {
  const int64_t seconds = google::protobuf::util::TimeUtil::TimestampToSeconds(
                              google::protobuf::util::TimeUtil::GetCurrentTime()) -
                          time.seconds();
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

void PrintHeader(bool tenants = false) {
  fmt::print("{:<42} {:<10} {:>9} {:>7} {:>7}  {}{}\n", "workflow", "state", "steps", "cached",
             "age", tenants ? fmt::format("{:<16} ", "tenant") : "", "title");
}

void PrintLine(const pb::Workflow& workflow, bool tenants = false) {
  const pb::Counts& counts = workflow.counts();
  const int all = counts.queued() + counts.running() + counts.succeeded() + counts.failed() +
                  counts.cancelled();
  fmt::print("{:<42} {:<10} {:>9} {:>7} {:>7}  {}{}\n", workflow.name(),
             StateText(workflow.state()), fmt::format("{}/{}", counts.succeeded(), all),
             counts.cache_hits(), Age(workflow.create_time()),
             tenants ? fmt::format("{:<16} ", workflow.tenant()) : "", workflow.title());
}

void PrintSteps(const pb::Workflow& workflow) {
  for (const pb::Step& step : workflow.steps()) {
    fmt::print("  {:<40} {:<10} attempt {}/{}{}\n", step.name(), StateText(step.state()),
               step.attempt(), step.max_attempts(), step.cache_hit() ? ", cached" : "");
    if (step.has_error()) fmt::print("    {}\n", step.error().message());
    if (!step.waiting_reason().empty()) fmt::print("    {}\n", step.waiting_reason());
    for (const pb::FailedAttempt& attempt : step.failed_attempts()) {
      fmt::print("    attempt {}: {}\n", attempt.attempt(), attempt.error().message());
    }
    for (const pb::StepOutput& output : step.outputs()) {
      fmt::print("    {:<14} {}/{}\n", output.name(), output.digest().hash(),
                 output.digest().size_bytes());
    }
  }
}

absl::Status Print(const pb::Workflow& workflow, const std::string& format) {
  if (format == "json") return PrintMessage(workflow);
  PrintHeader();
  PrintLine(workflow);
  if (workflow.has_error()) fmt::print("  {}\n", workflow.error().message());
  PrintSteps(workflow);
  return absl::OkStatus();
}

absl::Status Watch(const WorkflowJob& job, const std::string& name, GatewayClient& client,
                   const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, client.Watch(name, context));
  QUENCH_RETURN_IF_ERROR(Print(workflow, job.format));
  if (workflow.state() == pb::STATE_SUCCEEDED) return absl::OkStatus();
  if (workflow.state() == pb::STATE_CANCELLED) return absl::CancelledError("it was cancelled");
  return rpc::FromProto(workflow.error());
}

absl::Status Create(const WorkflowJob& job, GatewayClient& client, const StepContext& context) {
  pb::WorkflowSpec spec;
  QUENCH_RETURN_IF_ERROR(steps::ReadConfig(job.spec, &spec));
  for (const std::string& text : job.labels) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment("--label", text));
    (*spec.mutable_labels())[pair.first] = pair.second;
  }
  if (job.priority) spec.set_priority(*job.priority);
  if (job.validate_only) {
    QUENCH_ASSIGN_OR_RETURN(const int steps, client.Validate(spec, context));
    if (job.format == "json") {
      fmt::print("{{\"steps\": {}}}\n", steps);
    } else {
      fmt::print("a valid workflow of {} steps\n", steps);
    }
    return absl::OkStatus();
  }
  QUENCH_ASSIGN_OR_RETURN(const std::string name, client.Create(spec, job.request_id, context));
  if (job.watch) return Watch(job, name, client, context);
  if (job.format == "json") {
    QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, client.Get(name, context));
    return PrintMessage(workflow);
  }
  fmt::print("{}\n", name);
  return absl::OkStatus();
}

absl::Status List(const WorkflowJob& job, GatewayClient& client, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(
      const std::vector<pb::Workflow> found,
      client.List({job.states, job.filter, job.order_by, job.limit, job.tenant}, context));
  if (job.format == "json") {
    pb::ListWorkflowsResponse all;
    all.mutable_workflows()->Assign(found.begin(), found.end());
    return PrintMessage(all);
  }
  PrintHeader(!job.tenant.empty());
  for (const pb::Workflow& workflow : found) PrintLine(workflow, !job.tenant.empty());
  return absl::OkStatus();
}

absl::Status Get(const WorkflowJob& job, GatewayClient& client, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow,
                          client.Get(WorkflowNameOf(job.name), context));
  return Print(workflow, job.format);
}

}  // namespace

absl::Status WorkflowThere(const WorkflowJob& job, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  const std::string name = WorkflowNameOf(job.name);
  switch (job.verb) {
    case WorkflowVerb::kCreate:
      return Create(job, *client, context);
    case WorkflowVerb::kList:
      return List(job, *client, context);
    case WorkflowVerb::kGet:
      return Get(job, *client, context);
    case WorkflowVerb::kWatch:
      return Watch(job, name, *client, context);
    case WorkflowVerb::kLogs:
      return PrintLogs({name, job.step, job.follow, job.format == "json"}, *client, context);
    case WorkflowVerb::kDownload: {
      QUENCH_ASSIGN_OR_RETURN(const pb::Workflow workflow, client->Get(name, context));
      return DownloadOutputs(workflow, job.output, job.all, *client, context);
    }
    case WorkflowVerb::kRetry:
      QUENCH_RETURN_IF_ERROR(client->Retry(name, context));
      return job.watch ? Watch(job, name, *client, context) : Get(job, *client, context);
    case WorkflowVerb::kCancel:
      return client->Cancel(name);
    case WorkflowVerb::kDelete:
      return client->Delete(name, context);
  }
  return Internal("an unknown verb");
}

}  // namespace quench::cli
