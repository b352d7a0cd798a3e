#include "services/gateway/gateway.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/gateway/memory_store.h"
#include "services/gateway/sqlite_store.h"

namespace quench::gateway {
namespace {

constexpr int kStoringThreads = 4;

rpc::CallPool::Options ControlOptions(const GatewayOptions& options) {
  rpc::CallPool::Options control;
  control.threads = options.threads;
  control.queue = std::max(0, options.max_short - options.threads);
  control.shared = true;
  control.stream_idle = options.stream_idle;
  control.callers = options.callers;
  control.audit = options.audit;
  control.tracer = options.engine.tracer;
  control.registry = options.engine.registry;
  return control;
}

rpc::CallPool::Options WatchOptions(const GatewayOptions& options) {
  rpc::CallPool::Options watches = ControlOptions(options);
  watches.threads = 1;  // for the first look only
  watches.queue = options.max_watches - 1;
  return watches;
}

WorkflowNeeds NeedsOf(const StoredWorkflow& stored, const GatewayOptions& options) {
  const v1::StepList& steps = stored.spec.steps();
  absl::StatusOr<std::vector<Digest>> samples =
      SamplesIn(stored.workflow.tenant(), steps, options.blobs.read, options.max_workflow_bytes);
  if (!samples.ok()) {  // a step that still needs them says so
    spdlog::warn("workflow={} samples: {}", IdOf(stored.workflow.name()),
                 MessageOf(samples.status()));
    samples = std::vector<Digest>();
  }
  WorkflowNeeds needs;
  needs.bytes = BytesOf(stored.spec, samples->size());
  for (const Digest& digest : InputsOf(steps)) needs.hashes.push_back(digest.hash());
  for (const Digest& digest : *samples) needs.hashes.push_back(digest.hash());
  return needs;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayOptions& options) {
  std::unique_ptr<JobStore> store;
  if (options.state_dir.empty()) {
    store = std::make_unique<MemoryJobStore>();
  } else {
    QUENCH_ASSIGN_OR_RETURN(store, SqliteJobStore::Open(options.state_dir));
  }
  std::unique_ptr<Gateway> gateway(new Gateway(options, std::move(store)));
  // Events that are left from times when URLs were allowed are dropped by it.
  const auto left = gateway->store_->DueEvents(std::numeric_limits<int64_t>::max(), 1);
  if (!options.webhooks.empty() || (left.ok() && !left->empty())) {
    PosterOptions poster = options.poster;
    poster.allowed = options.webhooks;
    poster.registry = options.engine.registry;
    QUENCH_ASSIGN_OR_RETURN(gateway->poster_, EventPoster::Start(gateway->store_.get(), poster));
    gateway->api_->AllowWebhooks(options.webhooks);
  }
  QUENCH_RETURN_IF_ERROR(gateway->engine_->Recover(
      [&options](const StoredWorkflow& stored) { return NeedsOf(stored, options); }));
  gateway->LoadKept();
  return gateway;
}

// A start does not wait for what hundreds of thousands of workflows promised: until it is known, no
// blob may go.
void Gateway::LoadKept() {
  constexpr auto kWait = std::chrono::seconds(1);
  pins_.SetLoading(true);
  loading_ = std::thread([this] {
    const absl::Status status = engine_->RecoverKept(stop_loading_);
    if (!status.ok()) {
      spdlog::error("what workflows promised to keep is not all known, so no blob is evicted: {}",
                    MessageOf(status));
    } else if (!stop_loading_) {
      pins_.SetLoading(false);
    }
    const std::lock_guard lock(mutex_);
    kept_loaded_ = true;
    drained_.notify_all();
  });
  std::unique_lock lock(mutex_);
  drained_.wait_for(lock, kWait, [this] { return kept_loaded_; });
}

EngineOptions Gateway::WithPool(EngineOptions options) {
  options.read = [this](std::function<void()> job) { control_->Run(std::move(job)); };
  options.on_events = [this] {
    if (poster_ != nullptr) poster_->Wake();
  };
  return options;
}

Gateway::Gateway(const GatewayOptions& options, std::unique_ptr<JobStore> store)
    : pins_(options.keep),
      store_(std::move(store)),
      runner_(std::make_unique<StepClient>(options.channels, options.put_blob, kStoringThreads,
                                           options.engine.registry)),
      engine_(std::make_unique<Engine>(WithPool(options.engine), loop_, *store_, *runner_, board_,
                                       pins_)),
      control_(std::make_unique<rpc::CallPool>(ControlOptions(options))),
      watches_(std::make_unique<rpc::CallPool>(WatchOptions(options))),
      api_(std::make_unique<WorkflowApi>(
          *engine_, *store_, board_, pins_, options.blobs, options.max_workflow_bytes,
          [this](std::function<void()> job) { control_->Run(std::move(job)); })),
      workflows_(std::make_unique<WorkflowsService>(*api_, *control_, *watches_)),
      fleets_(std::make_unique<FleetsService>(*api_, *control_)),
      operations_(std::make_unique<OperationsService>(*api_, *control_, *watches_)),
      tenants_(std::make_unique<TenantsService>(*engine_, pins_, *control_)),
      workers_(options.channels, options.ask_workers, options.engine.registry),
      overview_(std::make_unique<OverviewService>(*engine_, pins_, workers_, options.tell_store,
                                                  *options.engine.registry, *control_)) {}

Gateway::~Gateway() {
  workflows_->EndWatches();
  operations_->EndWaits();
  stop_loading_ = true;
  if (loading_.joinable()) loading_.join();
  loop_.Stop();
  control_.reset();
  watches_.reset();
  poster_.reset();
  runner_.reset();  // waits for its calls, whose ends nobody hears
  store_.reset();
  engine_.reset();
}

std::vector<grpc::Service*> Gateway::services() {
  return {workflows_.get(), fleets_.get(), operations_.get(), tenants_.get(), overview_.get()};
}

void Gateway::BeginDrain() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(draining_, true)) return;
  }
  workflows_->EndWatches();
  operations_->EndWaits();
  engine_->Drain([this] {
    const std::lock_guard lock(mutex_);
    is_drained_ = true;
    drained_.notify_all();
  });
}

void Gateway::AwaitSteps(std::chrono::system_clock::time_point end) {
  BeginDrain();
  std::unique_lock lock(mutex_);
  drained_.wait_until(lock, end, [this] { return is_drained_; });
}

void Gateway::Stop() {
  BeginDrain();
  engine_->Halt([this] {
    const std::lock_guard halting(mutex_);
    halted_ = true;
    drained_.notify_all();
  });
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [this] { return halted_; });
}

}  // namespace quench::gateway
