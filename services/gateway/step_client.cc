#include "services/gateway/step_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/support/client_callback.h>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "quench/analyser/v1/analyser.grpc.pb.h"
#include "quench/codegen/v1/codegen.grpc.pb.h"
#include "quench/importer/v1/importer.grpc.pb.h"
#include "quench/quantizer/v1/quantizer.grpc.pb.h"

namespace quench::gateway {
namespace {

StepContext ContextOf(const StepCall& call) {
  StepContext context;
  context.set_request_id(call.request_id);
  context.set_traceparent(call.traceparent);
  return context;
}

// `Row` names one method: its stub, its messages.
template <typename Row>
class StreamCall final : public StepClient::Call,
                         public grpc::ClientReadReactor<typename Row::Event>,
                         public std::enable_shared_from_this<StreamCall<Row>> {
 public:
  StreamCall(StepClient* client, std::shared_ptr<rpc::Channel> channel, const StepCall& call,
             StepRunner::OnEvent on_event)
      : client_(client),
        run_(call.run),
        request_(std::static_pointer_cast<const typename Row::Request>(call.request)),
        on_event_(std::move(on_event)),
        channel_(std::move(channel)),
        stub_(Row::NewStub(channel_->grpc())),
        call_(*channel_, ContextOf(call)) {}

  void Begin() override {
    self_ = this->shared_from_this();  // until OnDone
    Row::Start(*stub_, call_.context(), request_.get(), this);
    this->StartRead(&event_);
    this->StartCall();
  }
  void TryCancel() override { call_.context()->TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;  // OnDone follows
    StepEvent event;
    if (event_.has_accepted()) {
      event.kind = StepEvent::kAccepted;
      event.server = event_.accepted().server();
      on_event_(std::move(event));
    } else if (event_.has_progress()) {
      event.kind = StepEvent::kProgress;
      event.progress = event_.progress();
      on_event_(std::move(event));
    } else if (event_.has_result()) {
      result_ = std::make_shared<typename Row::Result>(std::move(*event_.mutable_result()));
    }
    this->StartRead(&event_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<StreamCall> self = std::move(self_);
    client_->End(run_, request_->step().tenant(), std::move(on_event_), std::move(result_),
                 rpc::FromGrpc(status));
  }

 private:
  StepClient* const client_;
  const uint64_t run_;
  const std::shared_ptr<const typename Row::Request> request_;
  StepRunner::OnEvent on_event_;
  const std::shared_ptr<rpc::Channel> channel_;
  const std::unique_ptr<typename Row::Stub> stub_;
  rpc::ClientCall call_;
  typename Row::Event event_;
  std::shared_ptr<typename Row::Result> result_;
  std::shared_ptr<StreamCall> self_;
};

// The rows of steps.def as types.
#define QUENCH_STEP(field, area, Service, Method, stage)                                  \
  struct Method##Row {                                                                    \
    using Request = area::v1::Method##Request;                                            \
    using Event = area::v1::Method##Event;                                                \
    using Result = area::v1::Method##Result;                                              \
    using Stub = area::v1::Service::Stub;                                                 \
    static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) { \
      return area::v1::Service::NewStub(channel);                                         \
    }                                                                                     \
    static void Start(Stub& stub, grpc::ClientContext* context, const Request* request,   \
                      grpc::ClientReadReactor<Event>* reactor) {                          \
      stub.async()->Method(context, request, reactor);                                    \
    }                                                                                     \
  };
#include "services/gateway/steps.def"
#undef QUENCH_STEP

std::shared_ptr<StepClient::Call> MakeCall(StepClient* client,
                                           const std::shared_ptr<rpc::Channel>& channel,
                                           const StepCall& call, StepRunner::OnEvent on_event) {
#define QUENCH_STEP(field, area, Service, Method, stage)                                          \
  if (call.row->request == #field) {                                                              \
    return std::make_shared<StreamCall<Method##Row>>(client, channel, call, std::move(on_event)); \
  }
#include "services/gateway/steps.def"
#undef QUENCH_STEP
  return nullptr;
}

rpc::CallPool::Options PoolOptions(int threads, metrics::Registry* registry) {
  rpc::CallPool::Options options;
  options.threads = threads;
  options.registry = registry;
  return options;
}

}  // namespace

StepClient::StepClient(ServiceChannels channels, PutBlob put_blob, int threads,
                       metrics::Registry* registry)
    : channels_(std::move(channels)),
      put_blob_(std::move(put_blob)),
      pool_(PoolOptions(threads, registry)) {}

StepClient::~StepClient() {
  std::unique_lock lock(mutex_);
  std::map<uint64_t, std::shared_ptr<Call>> calls = calls_;
  lock.unlock();
  for (const auto& [run, call] : calls) call->TryCancel();
  calls.clear();
  lock.lock();
  ended_.wait(lock, [this] { return calls_.empty() && ending_ == 0; });
}

std::shared_ptr<rpc::Channel> StepClient::ChannelOf(metrics::Service service) const {
  switch (service) {
    case metrics::Service::kImporter:
      return channels_.importer;
    case metrics::Service::kAnalyser:
      return channels_.analyser;
    case metrics::Service::kQuantizer:
      return channels_.quantizer;
    case metrics::Service::kCodegen:
      return channels_.codegen;
    default:
      return nullptr;
  }
}

bool StepClient::Serves(metrics::Service service) const { return ChannelOf(service) != nullptr; }

void StepClient::Start(const StepCall& call, OnEvent on_event) {
  const std::shared_ptr<rpc::Channel> channel = ChannelOf(call.row->service_label);
  QUENCH_CHECK(channel != nullptr);  // Serves() was asked
  std::shared_ptr<Call> started = MakeCall(this, channel, call, std::move(on_event));
  {
    const std::lock_guard lock(mutex_);
    calls_[call.run] = started;
  }
  started->Begin();
}

void StepClient::Cancel(uint64_t run) {
  std::shared_ptr<Call> call;
  {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(run);
    if (found != calls_.end()) call = found->second;
  }
  if (call != nullptr) call->TryCancel();
  if (std::optional<Finished> unstored = TakeUnstored(run)) {
    unstored->result = nullptr;
    unstored->status = absl::CancelledError("cancelled before the result was stored");
    Finish(run, *std::move(unstored));
  }
}

void StepClient::StoreAgain(uint64_t run) {
  if (std::optional<Finished> unstored = TakeUnstored(run)) Finish(run, *std::move(unstored));
}

std::optional<StepClient::Finished> StepClient::TakeUnstored(uint64_t run) {
  const std::lock_guard lock(mutex_);
  const auto found = unstored_.find(run);
  if (found == unstored_.end()) return std::nullopt;
  Finished finished = std::move(found->second);
  unstored_.erase(found);
  ++ending_;
  return finished;
}

void StepClient::End(uint64_t run, const std::string& tenant, OnEvent on_event,
                     std::shared_ptr<google::protobuf::Message> result,
                     const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    calls_.erase(run);
    ++ending_;
  }
  Finish(run, {tenant, std::move(on_event), std::move(result), status});
}

// On a thread of ours: storing waits for the disk, and gRPC's threads must not.
void StepClient::Finish(uint64_t run, Finished finished) {
  pool_.Run([this, run, finished = std::move(finished)]() mutable {
    const OnEvent on_event = finished.on_event;
    StepEvent event;
    event.status = finished.status;
    if (finished.status.ok() && finished.result != nullptr) {
      absl::StatusOr<std::shared_ptr<StepResult>> stored = Store(finished.tenant, *finished.result);
      event.status = stored.status();
      if (stored.ok()) {
        event.result = *std::move(stored);
      } else {
        event.kind = StepEvent::kUnstored;
        const std::lock_guard lock(mutex_);
        unstored_.emplace(run, std::move(finished));
      }
    }
    on_event(std::move(event));
    const std::lock_guard lock(mutex_);
    --ending_;
    ended_.notify_all();
  });
}

absl::StatusOr<std::shared_ptr<StepResult>> StepClient::Store(
    const std::string& tenant, const google::protobuf::Message& result) {
  auto stored = std::make_shared<StepResult>();
  stored->outputs = OutputsOf(result);
  const auto* field = result.GetDescriptor()->FindFieldByName("execution");
  stored->execution =
      static_cast<const step::v1::Execution&>(result.GetReflection()->GetMessage(result, field));
  absl::StatusOr<Digest> digest = put_blob_(tenant, Serialised(result));
  if (!digest.ok()) return Annotate(digest.status(), "the step's result cannot be stored");
  v1::StepOutput& whole = stored->outputs.emplace_back();
  whole.set_name("result");
  whole.set_port(v1::PORT_RESULT);
  *whole.mutable_digest() = *std::move(digest);
  return stored;
}

}  // namespace quench::gateway
