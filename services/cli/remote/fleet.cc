#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "common/base/errno_status.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/steps/read_config.h"
#include "services/cli/local_store.h"
#include "services/cli/model_files.h"
#include "services/cli/remote.h"
#include "services/cli/remote/fleet_outputs.h"
#include "services/cli/remote/model.h"
#include "services/codegen/options_proto.h"
#include "services/codegen/targets/resolve.h"
#include "services/importer/importer.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

// A shard has about so many cells: large enough that a fleet of 80,000 has some hundred workflows, small enough that a
// gateway holds a few of them beside each other.
constexpr int kCellsOfAShard = 256;
constexpr auto kAskAgain = std::chrono::seconds(5);
constexpr auto kLookAgain = std::chrono::milliseconds(1000);
// How long a fleet whose caller has gone before all of it was asked for is waited for, once nothing runs.
constexpr auto kStrandedFor = std::chrono::minutes(2);

// The common part of a fleet's workflows, and the models that they share.
struct FleetPlan {
  pb::WorkflowSpec common;  // without models
  std::vector<FleetModel> models;
  int models_of_a_shard = 1;
  int shards() const {
    return static_cast<int>((models.size() + models_of_a_shard - 1) / models_of_a_shard);
  }
  int64_t cells() const {
    const pb::CompileBatch& batch = common.compile();
    return static_cast<int64_t>(models.size()) * batch.choices_size() *
           std::max(1, batch.targets_size());
  }
};

std::string NewFleetId() {
  const std::string now = google::protobuf::util::TimeUtil::ToString(
      google::protobuf::util::TimeUtil::GetCurrentTime());
  std::string id =
      "fleet-" + now.substr(0, 19) + fmt::format("-{:04x}", std::random_device()() & 0xffff);
  std::erase(id, ':');
  return id;
}

// "cuda -arch=sm_86" -> "cuda-arch-sm_86".
std::string LabelOf(const std::string& target) {
  std::string label;
  for (const char c : target) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
    if (kept) {
      label += c;
    } else if (!label.empty() && label.back() != '-') {
      label += '-';
    }
  }
  while (!label.empty() && label.back() == '-') label.pop_back();
  return label.substr(0, 100);
}

absl::Status AddChoice(const std::string& file, pb::CompileBatch* batch) {
  codegen::v1::CompileOptions defaults = codegen::ToProto(codegen::CompileOptions());
  if (file == "default") {
    pb::CompileChoice* choice = batch->add_choices();
    choice->set_name("default");
    *choice->mutable_compile_options() = defaults;
    return absl::OkStatus();
  }
  pb::CompileBatch read;
  QUENCH_RETURN_IF_ERROR(steps::ReadConfig(file, &read));
  if (!read.models().empty())
    return InvalidArgument("{}: `models`: the command line names the models", file);
  if (read.choices().empty()) return InvalidArgument("{}: it has no `choices`", file);
  for (pb::CompileChoice& choice : *read.mutable_choices()) {
    if (choice.name().empty()) {
      const std::string stem = std::filesystem::path(file).stem().string();
      choice.set_name(read.choices_size() == 1 ? stem
                                               : fmt::format("{}-{}", stem, batch->choices_size()));
    }
    if (!choice.uuid().empty())
      return InvalidArgument("{}: `choices.uuid`: it stamps one library, not a fleet of them",
                             file);
    codegen::v1::CompileOptions options = defaults;
    options.MergeFrom(choice.compile_options());
    *choice.mutable_compile_options() = std::move(options);
    batch->add_choices()->Swap(&choice);
  }
  for (codegen::v1::Target& target : *read.mutable_targets()) batch->add_targets()->Swap(&target);
  return absl::OkStatus();
}

// Refuses what cannot even be sent to the gateway: folders that are no saved models, links to nothing, files that
// nobody here may read.
absl::Status CheckFile(const FleetModel& model) {
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path file, importer::ModelFileOf(model.path));
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // waits for no pipe
  if (fd < 0) return ErrnoStatus(errno, "open", file);
  struct stat info{};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  ::close(fd);
  if (regular) return absl::OkStatus();
  return InvalidArgument("`{}` is not a regular file", file.string());
}

absl::StatusOr<FleetPlan> PlanOf(const FleetJob& job) {
  FleetPlan plan;
  StatusCollector problems;
  if (absl::StatusOr<std::vector<FleetModel>> models = FindModels(job.models); models.ok()) {
    plan.models = *std::move(models);
  } else {
    problems.Add(models.status());
  }
  for (const FleetModel& model : plan.models) problems.Add(CheckFile(model));
  if (!job.table.empty()) problems.Add(FleetTable::FormatOf(job.table).status());
  pb::CompileBatch& batch = *plan.common.mutable_compile();
  const std::vector<std::string> default_options = {"default"};
  for (const std::string& file : job.options.empty() ? default_options : job.options)
    problems.Add(AddChoice(file, &batch));
  for (const std::string& name : job.targets) {
    if (!codegen::NeedsCaller(name)) problems.Add(codegen::ResolveTarget(name).status());
    codegen::v1::Target target = TargetOf(name);
    if (!target.label().empty()) target.set_label(LabelOf(name));
    *batch.add_targets() = std::move(target);
  }
  if (batch.targets().empty()) *batch.add_targets() = TargetOf("host");
  for (pb::CompileChoice& choice : *batch.mutable_choices()) {
    if (job.batch != 0 && choice.passes().batch() == 0)
      choice.mutable_passes()->set_batch(job.batch);
  }
  for (const std::string& text : job.labels) {
    absl::StatusOr<std::pair<std::string, std::string>> pair = SplitAssignment("--label", text);
    problems.Add(pair.status());
    if (pair.ok()) (*plan.common.mutable_labels())[pair->first] = pair->second;
  }
  for (const std::string& url : job.webhooks) {
    pb::Webhook* webhook = plan.common.add_webhooks();
    webhook->set_url(url);
    webhook->set_steps(job.webhook_steps);
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  plan.common.set_priority(job.priority);
  const int of_a_model = batch.choices_size() * std::max(1, batch.targets_size());
  plan.models_of_a_shard = std::max(1, kCellsOfAShard / of_a_model);
  return plan;
}

// Uploads a model that cannot be read here, without what it may need beside it.
absl::StatusOr<pb::BatchModel> UploadUnread(const std::string& path, GatewayClient& client,
                                            const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::filesystem::path file, importer::ModelFileOf(path));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> digests, client.UploadFiles({file}, context));
  pb::BatchModel model;
  *model.mutable_model()->mutable_file() = digests[0];
  model.mutable_model()->set_name(file.filename().string());
  return model;
}

// Uploads a model. One that this machine cannot read, for whatever reason, is the gateway's to refuse: it fails as its
// cells, and holds up no other.
absl::StatusOr<pb::BatchModel> Upload(const FleetModel& model, GatewayClient& client,
                                      const StepContext& context) {
  ModelOptions options;
  options.model = model.path;
  const StepContext quiet(context.cancel_token(), nullptr);  // one bar for all models
  bool was_read = false;
  absl::StatusOr<pb::BatchModel> uploaded = UploadModel(options, client, quiet, &was_read);
  QUENCH_RETURN_IF_ERROR(context.Check());
  if (!uploaded.ok() && !was_read) uploaded = UploadUnread(model.path, client, quiet);
  QUENCH_RETURN_IF_ERROR(Annotate(uploaded.status(), "`" + model.path + "`"));
  uploaded->set_name(model.name);
  return uploaded;
}

void Pause(std::chrono::milliseconds pause, const StepContext& context) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, context.cancel_token()->stop_token(), pause, [] { return false; });
}

// Asks for the parts of a fleet, one by one, and fetches meanwhile what has ended. While the fleet fills the tenant's
// limit, a part waits until some of it has ended.
class Asker {
 public:
  // `fleet`: what there is of it already. All others outlive this.
  Asker(const FleetJob& job, pb::Fleet fleet, FleetClient& fleets, FleetOutputs& outputs,
        const StepContext& context)
      : job_(job),
        fleets_(fleets),
        outputs_(outputs),
        context_(context),
        fleet_(std::move(fleet)),
        cancelled_(fleet_.workflows().cancelled()) {}

  // Calls `ask` until the tenant's limit has room for the part. CANCELLED once somebody has cancelled workflows of the
  // fleet.
  absl::Status Ask(const std::function<absl::Status()>& ask);
  // Takes note that a part, cancelled as `ended` has it, is not any more.
  void Reopened(const pb::Workflow& ended) {
    if (ended.state() == pb::STATE_CANCELLED) --cancelled_;
  }

 private:
  absl::Status Look();
  bool IsIdle() const { return fleet_.workflows().queued() + fleet_.workflows().running() == 0; }

  const FleetJob& job_;
  FleetClient& fleets_;
  FleetOutputs& outputs_;
  const StepContext& context_;
  pb::Fleet fleet_;  // as it was at the last look
  int cancelled_;    // of its workflows; more of them is somebody's wish
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

absl::Status Asker::Look() {
  absl::StatusOr<pb::Fleet> fleet = fleets_.Get(job_.id, context_, job_.tenant);
  if (absl::IsNotFound(fleet.status())) fleet = pb::Fleet();  // nothing of it yet
  QUENCH_RETURN_IF_ERROR(fleet.status());
  looked_ = std::chrono::steady_clock::now();
  fleet_ = *std::move(fleet);
  const int before = std::exchange(cancelled_, fleet_.workflows().cancelled());
  if (cancelled_ <= before) return absl::OkStatus();
  return absl::CancelledError(
      fmt::format("fleet `{}` was cancelled meanwhile: {} of its workflows are cancelled, and no "
                  "more are asked for",
                  job_.id, cancelled_));
}

absl::Status Asker::Ask(const std::function<absl::Status()>& ask) {
  if (std::chrono::steady_clock::now() - looked_ > kLookAgain) QUENCH_RETURN_IF_ERROR(Look());
  bool idle = false;
  while (true) {
    const absl::Status asked = ask();
    if (asked.ok()) return outputs_.FetchEnded(context_);
    if (rpc::ReasonOf(asked) != rpc::ReasonName(rpc::Reason::kQuotaExceeded)) return asked;
    QUENCH_RETURN_IF_ERROR(Look());
    const bool was_idle = std::exchange(idle, IsIdle());
    if (idle && was_idle) return asked;  // others fill the limit
    if (idle) continue;                  // its last part may have ended since the answer
    context_.Report({"wait for the tenant's limit", MessageOf(asked), fleet_.created_shards(),
                     fleet_.shards()});
    QUENCH_RETURN_IF_ERROR(outputs_.FetchEnded(context_));
    Pause(kAskAgain, context_);
    QUENCH_RETURN_IF_ERROR(context_.Check());
    QUENCH_RETURN_IF_ERROR(Look());
  }
}

absl::Status CreateShard(const FleetJob& job, const pb::WorkflowSpec& spec, GatewayClient& client,
                         const StepContext& context) {
  const std::string request_id = fmt::format("{}/{}", job.id, spec.fleet().shard());
  const absl::Status created = client.Create(spec, request_id, context).status();
  if (!absl::IsAlreadyExists(created) && rpc::ReasonOf(created) != "INVALID_REQUEST")
    return created;
  return Annotate(created, fmt::format("fleet `{}` cannot be asked for with these models and "
                                       "options; was it asked for with others before? Another "
                                       "--request-id starts another fleet, and what is equal comes "
                                       "from the cache",
                                       job.id));
}

absl::Status CreateShards(const FleetJob& job, const FleetPlan& plan, GatewayClient& client,
                          Asker& asker, const StepContext& context) {
  for (int shard = 0; shard < plan.shards(); ++shard) {
    pb::WorkflowSpec spec = plan.common;
    spec.set_title(fmt::format("fleet {} {}/{}", job.id, shard + 1, plan.shards()));
    spec.mutable_fleet()->set_fleet(job.id);
    spec.mutable_fleet()->set_shard(shard);
    spec.mutable_fleet()->set_shards(plan.shards());
    const size_t begin = static_cast<size_t>(shard) * plan.models_of_a_shard;
    const size_t end = std::min(plan.models.size(), begin + plan.models_of_a_shard);
    for (size_t i = begin; i < end; ++i) {
      context.Report({"upload", plan.models[i].path, static_cast<int64_t>(i),
                      static_cast<int64_t>(plan.models.size())});
      QUENCH_ASSIGN_OR_RETURN(*spec.mutable_compile()->add_models(),
                              Upload(plan.models[i], client, context));
    }
    QUENCH_RETURN_IF_ERROR(asker.Ask([&] { return CreateShard(job, spec, client, context); }));
  }
  return absl::OkStatus();
}

// Retries the parts that have failed or were cancelled, and gives their number. Each is retried once: where the
// tenant's limit holds only some of them, those that fail again would keep the others out for ever.
absl::StatusOr<int> RetryShards(const FleetJob& job, GatewayClient& client, FleetClient& fleets,
                                Asker& asker, const StepContext& context) {
  WorkflowList list;
  list.filter = "fleet = " + job.id;
  list.states = {"failed", "cancelled"};
  list.limit = std::numeric_limits<int>::max();
  list.tenant = job.tenant;
  QUENCH_ASSIGN_OR_RETURN(std::vector<pb::Workflow> ended, client.List(list, context));
  std::sort(ended.begin(), ended.end(), [](const pb::Workflow& a, const pb::Workflow& b) {
    return a.fleet().shard() < b.fleet().shard();
  });
  int retried = 0;
  absl::Status error;
  for (const pb::Workflow& workflow : ended) {
    const absl::Status asked = asker.Ask([&]() -> absl::Status {
      QUENCH_RETURN_IF_ERROR(fleets.RetryShard(workflow, context));
      ++retried;
      asker.Reopened(workflow);
      return absl::OkStatus();
    });
    if (asked.ok()) continue;
    const bool its_own = absl::IsFailedPrecondition(asked);  // its models are gone, say
    if (error.ok() || !its_own) error = asked;
    if (!its_own) break;
  }
  if (error.ok()) return retried;
  return Annotate(error, fmt::format("{} of {} workflows of fleet `{}` are queued again", retried,
                                     ended.size(), job.id));
}

void ShowProgress(const pb::Fleet& fleet, const StepContext& context) {
  const pb::Counts& steps = fleet.steps();
  const int64_t done = steps.succeeded() + steps.failed() + steps.cancelled();
  int64_t all = done + steps.queued() + steps.running();
  // Shards to come have as many steps as those that are there.
  if (fleet.created_shards() > 0) all = all * fleet.shards() / fleet.created_shards();
  std::string detail = fmt::format("{} running", steps.running());
  if (steps.cache_hits() > 0) detail += fmt::format(", {} cached", steps.cache_hits());
  if (steps.failed() > 0) detail += fmt::format(", {} failed", steps.failed());
  context.Report({"fleet", detail, done, all});
}

// Until it ends; fetches what is done meanwhile.
absl::StatusOr<pb::Fleet> Await(const std::string& id, FleetClient& fleets, FleetOutputs& outputs,
                                const StepContext& context) {
  auto moved = std::chrono::steady_clock::now();
  while (true) {
    QUENCH_ASSIGN_OR_RETURN(pb::Fleet fleet, fleets.Get(id, context));
    ShowProgress(fleet, context);
    QUENCH_RETURN_IF_ERROR(outputs.FetchEnded(context));
    if (HasEnded(fleet.state())) return fleet;
    const auto now = std::chrono::steady_clock::now();
    if (fleet.workflows().queued() + fleet.workflows().running() > 0) moved = now;
    if (now - moved > kStrandedFor) {
      return absl::FailedPreconditionError(
          fmt::format("{} of {} parts of fleet `{}` were asked for, and those have ended: `quench "
                      "fleet compile` with --request-id {} and the same models asks for the others",
                      fleet.created_shards(), fleet.shards(), id, id));
    }
    Pause(kLookAgain, context);
    QUENCH_RETURN_IF_ERROR(context.Check());
  }
}

std::string TextOf(const pb::Counts& counts) {
  std::vector<std::string> parts;
  const auto add = [&parts](int count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(counts.succeeded(), "succeeded");
  add(counts.failed(), "failed");
  add(counts.cancelled(), "cancelled");
  add(counts.running(), "running");
  add(counts.queued(), "queued");
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

void PrintFleet(const pb::Fleet& fleet) {
  fmt::print("fleet {}: {}\n", fleet.id(), StateText(fleet.state()));
  if (fleet.created_shards() < fleet.shards())
    fmt::print("  {} of {} parts were asked for\n", fleet.created_shards(), fleet.shards());
  fmt::print("  steps: {} ({} cached)\n", TextOf(fleet.steps()), fleet.steps().cache_hits());
  for (const auto& [name, value] : fleet.labels()) fmt::print("  label {} = {}\n", name, value);
}

// Prints the results, and gives their status.
absl::Status Conclude(const FleetJob& job, const pb::Fleet& fleet, FleetOutputs& outputs,
                      const StepContext& context) {
  const bool json = job.format == "json";
  QUENCH_RETURN_IF_ERROR(outputs.Finish(fleet, json, context));
  if (!json) {
    PrintFleet(fleet);
    fmt::print("  cells: {}, {} without a library\n", outputs.cells(), outputs.failed_cells());
    int shown = 0;
    for (const FailedCells& cells : outputs.failed()) {
      const std::string others =
          cells.count == 1 ? "" : fmt::format(" and {} more of its model", cells.count - 1);
      fmt::print("    {}{}: {}\n", cells.first, others, cells.error);
      shown += cells.count;
    }
    if (outputs.failed_cells() > shown)
      fmt::print("    ... and {} more\n", outputs.failed_cells() - shown);
  }
  if (outputs.failed_cells() == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} of {} cells of fleet `{}` have not succeeded", outputs.failed_cells(),
                  outputs.cells(), fleet.id()));
}

absl::Status Watch(const FleetJob& job, FleetClient& fleets, FleetOutputs& outputs,
                   const StepContext& context) {
  const absl::StatusOr<pb::Fleet> fleet = Await(job.id, fleets, outputs, context);
  if (absl::IsCancelled(context.Check())) {
    return absl::CancelledError(fmt::format(
        "the fleet goes on at the gateway; `quench fleet watch {}` comes back to it", job.id));
  }
  QUENCH_RETURN_IF_ERROR(fleet.status());
  return Conclude(job, *fleet, outputs, context);
}

void PrintPlan(const FleetJob& job, const FleetPlan& plan) {
  const pb::CompileBatch& batch = plan.common.compile();
  for (const FleetModel& model : plan.models) fmt::print("{:<40} {}\n", model.name, model.path);
  for (const pb::CompileChoice& choice : batch.choices()) fmt::print("options {}\n", choice.name());
  for (const codegen::v1::Target& target : batch.targets())
    fmt::print("target {}\n", target.label().empty() ? target.name() : target.label());
  fmt::print("{} cells in {} workflows of fleet {}\n", plan.cells(), plan.shards(), job.id);
}

absl::Status Compile(FleetJob job, const StepContext& context) {
  if (job.id.empty()) job.id = NewFleetId();
  QUENCH_ASSIGN_OR_RETURN(const FleetPlan plan, PlanOf(job));
  if (job.dry_run) {
    PrintPlan(job, plan);
    return absl::OkStatus();
  }
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  client->set_patience(kFleetPatience);
  FleetClient fleets(client->channel());
  FleetOutputs outputs(*client, fleets, job.id, job.output, job.table);
  const absl::StatusOr<pb::Fleet> earlier = fleets.Get(job.id, context);
  if (!earlier.ok() && !absl::IsNotFound(earlier.status())) return earlier.status();
  Asker asker(job, earlier.ok() ? *earlier : pb::Fleet(), fleets, outputs, context);
  absl::Status asked = CreateShards(job, plan, *client, asker, context);
  if (asked.ok() && earlier.ok())
    asked = RetryShards(job, *client, fleets, asker, context).status();
  if (absl::IsCancelled(context.Check())) {
    return absl::CancelledError(fmt::format(
        "what was asked for of fleet `{}` goes on; the same command with --request-id {} asks for "
        "the rest",
        job.id, job.id));
  }
  QUENCH_RETURN_IF_ERROR(asked);
  if (!job.detach) return Watch(job, fleets, outputs, context);
  fmt::print("{}\n", job.id);
  return absl::OkStatus();
}

absl::Status WatchEarlier(const FleetJob& job, GatewayClient& client, FleetClient& fleets,
                          const StepContext& context) {
  if (!job.table.empty()) QUENCH_RETURN_IF_ERROR(FleetTable::FormatOf(job.table).status());
  FleetOutputs outputs(client, fleets, job.id, job.output, job.table);
  return Watch(job, fleets, outputs, context);
}

absl::Status Retry(const FleetJob& job, GatewayClient& client, FleetClient& fleets,
                   const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const pb::Fleet fleet, fleets.Get(job.id, context, job.tenant));
  FleetOutputs nowhere(client, fleets, job.id, "", "");
  Asker asker(job, fleet, fleets, nowhere, context);
  QUENCH_ASSIGN_OR_RETURN(const int retried, RetryShards(job, client, fleets, asker, context));
  fmt::print("{} workflows of fleet {} are queued again\n", retried, job.id);
  return absl::OkStatus();
}

absl::Status List(const FleetJob& job, FleetClient& fleets, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<pb::Fleet> found,
                          fleets.List(job.limit, context, job.tenant));
  if (job.format == "json") {
    pb::ListFleetsResponse all;
    all.mutable_fleets()->Assign(found.begin(), found.end());
    return PrintMessage(all);
  }
  const bool tenants = !job.tenant.empty();
  fmt::print("{:<36} {:<10} {:>15} {:>9} {:>7}  {}{}\n", "fleet", "state", "steps", "cached",
             "failed", tenants ? fmt::format("{:<16} ", "tenant") : "", "created");
  for (const pb::Fleet& fleet : found) {
    const pb::Counts& steps = fleet.steps();
    const int all =
        steps.queued() + steps.running() + steps.succeeded() + steps.failed() + steps.cancelled();
    fmt::print("{:<36} {:<10} {:>15} {:>9} {:>7}  {}{}\n", fleet.id(), StateText(fleet.state()),
               fmt::format("{}/{}", steps.succeeded(), all), steps.cache_hits(), steps.failed(),
               tenants ? fmt::format("{:<16} ", fleet.tenant()) : "",
               google::protobuf::util::TimeUtil::ToString(fleet.create_time()).substr(0, 19));
  }
  return absl::OkStatus();
}

absl::Status Get(const FleetJob& job, FleetClient& fleets, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const pb::Fleet fleet, fleets.Get(job.id, context, job.tenant));
  if (job.format == "json") return PrintMessage(fleet);
  PrintFleet(fleet);
  return absl::OkStatus();
}

}  // namespace

absl::Status FleetThere(const FleetJob& job, const StepContext& context) {
  if (job.verb == FleetVerb::kCompile) return Compile(job, context);
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  client->set_patience(kFleetPatience);
  FleetClient fleets(client->channel());
  switch (job.verb) {
    case FleetVerb::kCompile:
      break;
    case FleetVerb::kWatch:
      return WatchEarlier(job, *client, fleets, context);
    case FleetVerb::kList:
      return List(job, fleets, context);
    case FleetVerb::kGet:
      return Get(job, fleets, context);
    case FleetVerb::kCancel: {
      QUENCH_ASSIGN_OR_RETURN(const int cancelled, fleets.Cancel(job.id, context, job.tenant));
      fmt::print("{} workflows of fleet {} were cancelled\n", cancelled, job.id);
      return absl::OkStatus();
    }
    case FleetVerb::kRetry:
      return Retry(job, *client, fleets, context);
  }
  return Internal("an unknown verb");
}

}  // namespace quench::cli
