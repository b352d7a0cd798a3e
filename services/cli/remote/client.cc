#include "services/cli/remote/client.h"

#include <grpcpp/channel.h>
#include <openssl/rand.h>

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/status.h"
#include "common/blobs/file_blobs.h"
#include "common/rpc/channel.h"
#include "common/rpc/errors.h"
#include "common/rpc/remote_blobs.h"
#include "common/rpc/unary_call.h"
#include "quench/gateway/v1/tenants.grpc.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"
#include "services/cli/remote/command_trace.h"
#include "services/cli/remote/nearby_blobs.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;

constexpr auto kReachAtOnce = std::chrono::milliseconds(1000);
constexpr auto kReachFor = std::chrono::milliseconds(5000);
constexpr auto kCancelFor = std::chrono::seconds(3);  // the user waits for it
constexpr auto kReconnectFor = std::chrono::minutes(5);
constexpr auto kReconnectPause = std::chrono::milliseconds(500);
constexpr auto kPollPause = std::chrono::milliseconds(2000);

std::string NewRequestId() {
  std::array<unsigned char, 16> bytes{};
  RAND_bytes(bytes.data(), bytes.size());
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

BlobId IdOf(const Digest& digest) {
  return {digest.hash(), static_cast<uint64_t>(digest.size_bytes())};
}

// `compile` of `m/c/host/compile`: what users know a step by.
std::string ShortName(const std::string& step) { return step.substr(step.rfind('/') + 1); }

// A workflow as it changes, and what of that is worth showing.
class Follower {
 public:
  explicit Follower(const StepContext& context) : context_(context) {}

  void Take(const pb::WatchWorkflowEvent& event) {
    ++events_;
    revision_ = event.revision();
    if (event.has_snapshot()) {
      workflow_ = event.snapshot();
      for (const pb::Step& step : workflow_.steps()) Show(step);
      return;
    }
    const pb::WorkflowChange& change = event.change();
    if (change.has_workflow()) {
      google::protobuf::RepeatedPtrField<pb::Step> steps;
      steps.Swap(workflow_.mutable_steps());
      workflow_ = change.workflow();
      workflow_.mutable_steps()->Swap(&steps);
    }
    for (const pb::Step& changed : change.steps()) {
      for (pb::Step& step : *workflow_.mutable_steps()) {
        if (step.name() == changed.name()) step = changed;
      }
      Show(changed);
    }
  }
  int64_t revision() const { return revision_; }
  int64_t events() const { return events_; }  // with those that say only that the gateway is there
  const pb::Workflow& workflow() const { return workflow_; }

 private:
  void Show(const pb::Step& step) {
    const std::string name = ShortName(step.name());
    if (step.state() == pb::STATE_RUNNING) {
      const auto& progress = step.progress();
      context_.Report({progress.stage().empty() ? name : progress.stage(),
                       progress.stage().empty() ? "at the gateway" : progress.detail(),
                       progress.done(), progress.total()});
    } else if (step.state() == pb::STATE_SUCCEEDED && step.cache_hit() &&
               told_.insert(step.name()).second) {
      context_.Report({name, "cached", 1, 1});
    } else if (step.state() == pb::STATE_QUEUED && !step.waiting_reason().empty()) {
      context_.Report({name, step.waiting_reason(), 0, 0});
    } else if (step.state() == pb::STATE_QUEUED && step.attempt() > 0) {
      context_.Report(
          {name, fmt::format("attempt {} failed, waiting to retry", step.attempt()), 0, 0});
    }
  }

  const StepContext& context_;
  pb::Workflow workflow_;
  int64_t revision_ = 0, events_ = 0;
  std::set<std::string> told_;
};

class Client final : public GatewayClient {
 public:
  Client(const std::string& address, std::shared_ptr<rpc::Channel> control,
         std::shared_ptr<rpc::Channel> bulk, std::shared_ptr<LocalBlobStore> local, bool refresh)
      : GatewayClient(std::move(local), refresh),
        channel_(std::move(control)),
        stub_(pb::Workflows::NewStub(channel_->grpc())),
        blobs_(bulk, {}),
        nearby_(std::move(bulk), address),
        digests_(local_->root() / "file_digests") {}

  void Trace(const StepContext& context) { trace_ = CommandTrace::Begin(context.traceparent()); }

  void set_patience(std::chrono::milliseconds patience) override {
    GatewayClient::set_patience(patience);
    blobs_.set_retry_time(patience);
  }

  // Whatever it is that passes: refused, silent, or busy with others.
  absl::Status Reach(const std::string& address, const StepContext& context) {
    const auto try_for = [&](std::chrono::milliseconds time, std::chrono::milliseconds patience) {
      StepContext limited = context;
      limited.set_deadline(std::chrono::steady_clock::now() + time);
      absl::Status status = blobs_.Reach(limited, patience);
      if (!absl::IsDeadlineExceeded(status)) return status;
      return absl::UnavailableError("it is not responding");
    };
    absl::Status status = try_for(kReachAtOnce, std::chrono::milliseconds(0));
    if (rpc::IsTransient(status) && context.Check().ok()) {
      context.Report({"wait", fmt::format("for gateway {}", address), 0, 0});
      status = try_for(kReachFor, kReachFor);
    }
    return Annotate(status, fmt::format("gateway `{}`", address));
  }

  absl::StatusOr<std::vector<Digest>> UploadFiles(const std::vector<std::filesystem::path>& paths,
                                                  const StepContext& context) override {
    FileBlobs files(&digests_);
    absl::StatusOr<std::vector<Digest>> uploaded = UploadFrom(files, paths, context);
    // The server has read other bytes than were hashed long ago: somebody changed the file and its
    // times were set back, by a restored disk perhaps.
    if (!absl::IsInvalidArgument(uploaded.status()) || !files.ForgetRemembered()) return uploaded;
    FileBlobs read(&digests_);
    return UploadFrom(read, paths, context);
  }

  absl::StatusOr<std::vector<Digest>> UploadFrom(FileBlobs& files,
                                                 const std::vector<std::filesystem::path>& paths,
                                                 const StepContext& context) {
    std::vector<Digest> digests;
    std::vector<BlobId> ids;
    for (const std::filesystem::path& path : paths) {
      QUENCH_ASSIGN_OR_RETURN(const BlobId id, files.Add(path, context));
      Digest& digest = digests.emplace_back();
      digest.set_hash(id.hash);
      digest.set_size_bytes(static_cast<int64_t>(id.size));
      ids.push_back(id);
    }
    const absl::Status uploaded = blobs_.Upload(files, ids, context);
    if (!absl::IsCancelled(uploaded)) QUENCH_RETURN_IF_ERROR(files.CheckUnchanged());
    QUENCH_RETURN_IF_ERROR(uploaded);
    return digests;
  }

  absl::Status UploadBlobs(const std::vector<BlobId>& blobs, const StepContext& context) override {
    return blobs_.Upload(*local_, blobs, context);
  }

  absl::Status Download(const std::vector<Digest>& digests, const StepContext& context) override {
    std::vector<BlobId> ids;
    for (const Digest& digest : digests) {
      ids.push_back(IdOf(digest));
      if (!local_->Contains(digest.hash())) {
        QUENCH_RETURN_IF_ERROR(
            nearby_.Copy(ids.back(), [this] { return local_->Create(); }, context).status());
      }
    }
    return blobs_.Download(ids, *local_, context);
  }

  absl::Status DownloadFile(const Digest& digest, const std::filesystem::path& path,
                            const StepContext& context) override {
    const BlobId id = IdOf(digest);
    if (local_->Use(id)) {
      QUENCH_ASSIGN_OR_RETURN(const auto file, local_->Open(id.hash));
      return WriteFileAtomically(
          path, {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
    }
    const auto create = [&] { return FileBlobWriter::Create(path); };
    QUENCH_ASSIGN_OR_RETURN(const bool copied, nearby_.Copy(id, create, context));
    if (copied) return absl::OkStatus();
    QUENCH_ASSIGN_OR_RETURN(const auto writer, create());
    return blobs_.Download(id, *writer, context);
  }

  absl::StatusOr<std::string> Create(const pb::WorkflowSpec& spec, const std::string& request_id,
                                     const StepContext& context) override {
    pb::CreateWorkflowRequest request;
    request.set_request_id(request_id.empty() ? NewRequestId() : request_id);
    *request.mutable_spec() = spec;
    google::longrunning::Operation operation;
    QUENCH_RETURN_IF_ERROR(
        Call(&pb::Workflows::Stub::CreateWorkflow, request, &operation, context));
    return WorkflowNameOf(operation.name());
  }

  absl::StatusOr<int> Validate(const pb::WorkflowSpec& spec, const StepContext& context) override {
    pb::CreateWorkflowRequest request;
    *request.mutable_spec() = spec;
    request.set_validate_only(true);
    google::longrunning::Operation operation;
    QUENCH_RETURN_IF_ERROR(
        Call(&pb::Workflows::Stub::CreateWorkflow, request, &operation, context));
    pb::WorkflowMetadata metadata;
    if (!operation.metadata().UnpackTo(&metadata))
      return Internal("the gateway's answer is damaged");
    return metadata.counts().queued();
  }

  absl::StatusOr<pb::Workflow> Get(const std::string& name, const StepContext& context) override {
    pb::GetWorkflowRequest request;
    request.set_name(name);
    pb::GetWorkflowResponse response;
    QUENCH_RETURN_IF_ERROR(Call(&pb::Workflows::Stub::GetWorkflow, request, &response, context));
    return WithAllSteps(std::move(*response.mutable_workflow()), context);
  }

  // Steps of a workflow that is larger than a message.
  absl::StatusOr<pb::Workflow> WithAllSteps(pb::Workflow workflow, const StepContext& context) {
    if (!workflow.steps_truncated()) return workflow;
    workflow.clear_steps();
    workflow.clear_steps_truncated();
    pb::ListWorkflowStepsRequest request;
    request.set_name(workflow.name());
    do {
      pb::ListWorkflowStepsResponse page;
      QUENCH_RETURN_IF_ERROR(
          Call(&pb::Workflows::Stub::ListWorkflowSteps, request, &page, context));
      for (pb::Step& step : *page.mutable_steps()) workflow.add_steps()->Swap(&step);
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return workflow;
  }

  std::shared_ptr<rpc::Channel> channel() const override { return channel_; }

  bool Holds(const std::filesystem::path& path, const Digest& digest,
             const StepContext& context) override {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error || size != static_cast<uint64_t>(digest.size_bytes())) return false;
    FileBlobs files(&digests_);
    const absl::StatusOr<BlobId> id = files.Add(path, context);
    return id.ok() && id->hash == digest.hash();
  }

  absl::StatusOr<std::vector<pb::Workflow>> List(const WorkflowList& list,
                                                 const StepContext& context) override {
    pb::ListWorkflowsRequest request;
    request.set_tenant(list.tenant);
    request.set_filter(list.filter);
    request.set_order_by(list.order_by);
    const int limit = list.limit;
    for (const std::string& name : list.states) {
      std::string upper = "STATE_" + name;
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      pb::State state = pb::STATE_UNSPECIFIED;
      if (!pb::State_Parse(upper, &state) || state == pb::STATE_UNSPECIFIED) {
        return InvalidArgument(
            "unknown state `{}` (known: queued, running, succeeded, failed, cancelled)", name);
      }
      request.add_states(state);
    }
    std::vector<pb::Workflow> found;
    do {
      request.set_page_size(std::min(limit - static_cast<int>(found.size()), 1000));
      pb::ListWorkflowsResponse page;
      QUENCH_RETURN_IF_ERROR(Call(&pb::Workflows::Stub::ListWorkflows, request, &page, context));
      found.insert(found.end(), page.workflows().begin(), page.workflows().end());
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty() && static_cast<int>(found.size()) < limit);
    return found;
  }

  absl::StatusOr<std::vector<pb::Tenant>> Tenants(const std::string& tenant,
                                                  const StepContext& context) override {
    const auto stub = pb::Tenants::NewStub(channel_->grpc());
    pb::ListTenantsRequest request;
    request.set_tenant(tenant);
    pb::ListTenantsResponse response;
    QUENCH_RETURN_IF_ERROR(rpc::CallWithRetry(
        *channel_, context, patience_,
        [&](grpc::ClientContext* call) { return stub->ListTenants(call, request, &response); }));
    return std::vector<pb::Tenant>(response.tenants().begin(), response.tenants().end());
  }

  absl::StatusOr<pb::Workflow> Watch(const std::string& name, const StepContext& context) override {
    Follower follower(context);
    auto give_up = std::chrono::steady_clock::now() + kReconnectFor;
    for (;;) {
      const int64_t before = follower.events();
      absl::Status status = WatchOnce(name, follower, context);
      if (HasEnded(follower.workflow().state())) return WithAllSteps(follower.workflow(), context);
      QUENCH_RETURN_IF_ERROR(context.Check());
      const auto now = std::chrono::steady_clock::now();
      if (follower.events() != before) give_up = now + kReconnectFor;
      if (rpc::ReasonOf(status) == rpc::ReasonName(rpc::Reason::kSlotsFull)) {
        // All places of watchers are taken, but the gateway is there: it is asked instead.
        const absl::StatusOr<pb::Workflow> polled = GetBasic(name, context);
        if (polled.ok() && HasEnded(polled->state())) return Get(name, context);
        if (polled.ok()) {
          give_up = now + kReconnectFor;
          const pb::Counts& counts = polled->counts();
          context.Report({"workflow", "polling, because the gateway has no free watch slot",
                          counts.succeeded(),
                          counts.succeeded() + counts.queued() + counts.running()});
          Pause(std::max(kPollPause, rpc::RetryAfterOf(status).value_or(kPollPause)), context);
          continue;
        }
        status = polled.status();
      }
      if (!status.ok() && (!rpc::IsTransient(status) || now > give_up)) return status;
      if (!status.ok()) context.Report({"connect", MessageOf(status), 0, 0});
      Pause(std::max(kReconnectPause, rpc::RetryAfterOf(status).value_or(kReconnectPause)),
            context);
    }
  }

  absl::Status Cancel(const std::string& name) override {
    pb::CancelWorkflowRequest request;
    request.set_name(name);
    StepContext context;  // the caller's may be what is cancelled
    context.set_deadline(std::chrono::steady_clock::now() + kCancelFor);
    pb::CancelWorkflowResponse response;
    return Call(&pb::Workflows::Stub::CancelWorkflow, request, &response, context);
  }

  absl::Status Retry(const std::string& name, const StepContext& context) override {
    pb::RetryWorkflowRequest request;
    request.set_name(name);
    // Once: a second try may find that the first has done it.
    rpc::ClientCall call(*channel_, context);
    pb::RetryWorkflowResponse response;
    return rpc::FromGrpc(stub_->RetryWorkflow(call.context(), request, &response));
  }

  absl::Status Delete(const std::string& name, const StepContext& context) override {
    pb::DeleteWorkflowRequest request;
    request.set_name(name);
    // Once: a second try may find that the first has done it.
    rpc::ClientCall call(*channel_, context);
    pb::DeleteWorkflowResponse response;
    return rpc::FromGrpc(stub_->DeleteWorkflow(call.context(), request, &response));
  }

 private:
  // By the retry policy of examples/clients/README.md, for calls that may be repeated.
  template <typename Request, typename Response>
  absl::Status Call(grpc::Status (pb::Workflows::Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Response*),
                    const Request& request, Response* response, const StepContext& context) {
    return rpc::CallWithRetry(*channel_, context, patience_, [&](grpc::ClientContext* call) {
      return (*stub_.*method)(call, request, response);
    });
  }

  // Without its steps.
  absl::StatusOr<pb::Workflow> GetBasic(const std::string& name, const StepContext& context) {
    pb::GetWorkflowRequest request;
    request.set_name(name);
    request.set_view(pb::WORKFLOW_VIEW_BASIC);
    pb::GetWorkflowResponse response;
    QUENCH_RETURN_IF_ERROR(Call(&pb::Workflows::Stub::GetWorkflow, request, &response, context));
    return std::move(*response.mutable_workflow());
  }

  absl::Status WatchOnce(const std::string& name, Follower& follower, const StepContext& context) {
    pb::WatchWorkflowRequest request;
    request.set_name(name);
    request.set_after_revision(follower.revision());
    rpc::ClientCall call(*channel_, context);
    const auto reader = stub_->WatchWorkflow(call.context(), request);
    for (pb::WatchWorkflowEvent event; reader->Read(&event);) follower.Take(event);
    return rpc::FromGrpc(reader->Finish());
  }

  static void Pause(std::chrono::milliseconds pause, const StepContext& context) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    wake.wait_for(lock, context.cancel_token()->stop_token(), pause, [] { return false; });
  }

  std::unique_ptr<CommandTrace> trace_;
  std::shared_ptr<rpc::Channel> channel_;
  std::unique_ptr<pb::Workflows::Stub> stub_;
  rpc::RemoteBlobs blobs_;
  NearbyBlobs nearby_;
  const FileDigests digests_;
};

}  // namespace

absl::Status BeginThere() { return absl::OkStatus(); }

absl::StatusOr<std::unique_ptr<GatewayClient>> GatewayClient::Open(
    const GatewayOptions& options, std::shared_ptr<LocalBlobStore> local,
    const StepContext& context) {
  rpc::ChannelOptions channel;
  channel.address = options.address;
  channel.token_file = options.token_file;
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return InvalidArgument("--tls-cert and --tls-key must be given together");
  }
  if (options.tls || !options.tls_ca.empty() || !options.tls_certificate.empty()) {
    channel.tls.emplace();
    channel.tls->ca = options.tls_ca;
    channel.tls->certificate = options.tls_certificate;
    channel.tls->key = options.tls_key;
  }
  // Bulk beside control: a transfer does not hold up what is asked meanwhile.
  QUENCH_ASSIGN_OR_RETURN(auto control, rpc::Channel::Open(channel));
  QUENCH_ASSIGN_OR_RETURN(auto bulk, rpc::Channel::Open(channel));
  auto client = std::make_unique<Client>(options.address, std::move(control), std::move(bulk),
                                         std::move(local), options.refresh);
  client->Trace(context);
  QUENCH_RETURN_IF_ERROR(client->Reach(options.address, context));
  return client;
}

absl::StatusOr<std::string> GatewayClient::DownloadBytes(const Digest& digest,
                                                         const StepContext& context) {
  QUENCH_RETURN_IF_ERROR(Download({digest}, context));
  QUENCH_ASSIGN_OR_RETURN(const auto file, local_->Open(digest.hash()));
  return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
}

absl::StatusOr<pb::Workflow> GatewayClient::Run(const pb::WorkflowSpec& spec,
                                                const StepContext& context) {
  pb::WorkflowSpec asked = spec;
  if (refresh_) asked.set_cache(step::v1::CACHE_MODE_REFRESH);
  QUENCH_ASSIGN_OR_RETURN(const std::string name, Create(asked, "", context));
  absl::StatusOr<pb::Workflow> workflow = Watch(name, context);
  if (!context.Check().ok()) {
    QUENCH_RETURN_IF_ERROR(Annotate(Cancel(name), "the gateway may still be running " + name));
    return context.Check();
  }
  QUENCH_RETURN_IF_ERROR(Annotate(workflow.status(), name));
  if (workflow->state() == pb::STATE_SUCCEEDED) return workflow;
  absl::Status error = rpc::FromProto(workflow->error());
  if (error.ok()) error = absl::CancelledError("cancelled on the gateway");
  return error;
}

absl::StatusOr<Digest> OutputOf(const pb::Workflow& workflow, const std::string& step,
                                const std::string& output) {
  for (const pb::Step& each : workflow.steps()) {
    if (each.name() != step) continue;
    for (const pb::StepOutput& found : each.outputs()) {
      if (found.name() == output) return found.digest();
    }
  }
  return Internal("{}: step `{}` has no output `{}`", workflow.name(), step, output);
}

bool HasEnded(pb::State state) {
  return state == pb::STATE_SUCCEEDED || state == pb::STATE_FAILED || state == pb::STATE_CANCELLED;
}

std::string WorkflowNameOf(const std::string& text) {
  return "workflows/" + text.substr(text.find('/') == std::string::npos ? 0 : text.find('/') + 1);
}

}  // namespace quench::cli
