#include "services/gateway/host.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/rpc/tenants.h"
#include "common/steps/config.h"
#include "common/steps/storage.h"

namespace quench::gateway {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultHighBytes = int64_t{20} << 30;

// XDG base directory specification: relative values are ignored.
absl::StatusOr<fs::path> StateDir(const config::v1::GatewayConfig& config) {
  if (!config.state_dir().empty()) return fs::path(config.state_dir());
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return fs::path(state) / "quench";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return fs::path(home) / ".local" / "state" / "quench";
  return InvalidArgument("state_dir: missing, and there is no HOME to put it into");
}

absl::StatusOr<EvictionLimits> LimitsOf(const config::v1::BlobLimits& limits) {
  StatusCollector problems;
  const int64_t high = limits.high_bytes() == 0 ? kDefaultHighBytes : limits.high_bytes();
  const int64_t low = limits.low_bytes() == 0 ? high / 10 * 9 : limits.low_bytes();
  const int64_t max = limits.max_bytes() == 0 ? high + high / 10 : limits.max_bytes();
  if (high < 0 || low < 0 || max < 0 || limits.min_free_bytes() < 0) {
    problems.Add(InvalidArgument("blob_limits: sizes must not be negative"));
  } else if (low > high || high > max) {
    problems.Add(
        InvalidArgument("blob_limits: low {}, high {}, max {}: must not go down", low, high, max));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  EvictionLimits result;
  result.low = static_cast<uint64_t>(low);
  result.high = static_cast<uint64_t>(high);
  result.max = static_cast<uint64_t>(max);
  return result;
}

absl::StatusOr<KeepLimits> KeepLimitsOf(const config::v1::GatewayConfig& config,
                                        const EvictionLimits& limits) {
  const config::v1::Tenants& tenants = config.tenants();
  // Nothing can be promised of what another server keeps.
  if (config.blobs().has_remote()) return KeepLimits{0, 0};
  if (tenants.max_kept_bytes() < 0) {
    return InvalidArgument("tenants: limits must not be negative");
  }
  KeepLimits keep;
  keep.tenant_bytes = tenants.max_kept_bytes() > 0 ? static_cast<uint64_t>(tenants.max_kept_bytes())
                                                   : limits.high / 2;
  keep.total_bytes = std::max(keep.tenant_bytes, limits.high / 4 * 3);
  for (const config::v1::TenantLimits& own : tenants.tenant()) {
    if (own.max_kept_bytes() > 0)
      keep.own_bytes[own.name()] = static_cast<uint64_t>(own.max_kept_bytes());
  }
  return keep;
}

absl::StatusOr<std::shared_ptr<rpc::Channel>> ChannelTo(bool present,
                                                        const config::v1::Remote& remote,
                                                        const std::string& name) {
  if (!present) return std::shared_ptr<rpc::Channel>();
  absl::StatusOr<rpc::ChannelOptions> options = steps::ChannelOptionsOf(remote);
  if (!options.ok()) return Annotate(options.status(), "services." + name);
  absl::StatusOr<std::shared_ptr<rpc::Channel>> channel = rpc::Channel::Open(*options);
  return channel.ok() ? std::move(channel) : Annotate(channel.status(), "services." + name);
}

absl::StatusOr<ServiceChannels> ChannelsOf(const config::v1::Services& services) {
  ServiceChannels channels;
  QUENCH_ASSIGN_OR_RETURN(channels.importer,
                          ChannelTo(services.has_importer(), services.importer(), "importer"));
  QUENCH_ASSIGN_OR_RETURN(channels.analyser,
                          ChannelTo(services.has_analyser(), services.analyser(), "analyser"));
  QUENCH_ASSIGN_OR_RETURN(channels.quantizer,
                          ChannelTo(services.has_quantizer(), services.quantizer(), "quantizer"));
  QUENCH_ASSIGN_OR_RETURN(channels.codegen,
                          ChannelTo(services.has_codegen(), services.codegen(), "codegen"));
  return channels;
}

absl::StatusOr<std::map<std::string, TenantLimits>> OwnLimitsOf(
    const config::v1::Tenants& tenants) {
  constexpr int kMostWeight = 1000;
  std::map<std::string, TenantLimits> all;
  StatusCollector problems;
  for (const config::v1::TenantLimits& own : tenants.tenant()) {
    if (!rpc::IsTenant(own.name())) {
      problems.Add(InvalidArgument(
          "tenants.tenant: `{}` is not a tenant (lower-case letters, digits and `-`, at most 63)",
          own.name()));
      continue;
    }
    if (own.weight() < 0 || own.weight() > kMostWeight) {
      problems.Add(InvalidArgument("tenants.tenant: `{}`: weight {}: must be from 1 to {}",
                                   own.name(), own.weight(), kMostWeight));
    }
    if (own.max_queued_steps() < 0 || own.max_running_steps() < 0 || own.max_queued_bytes() < 0 ||
        own.max_kept_bytes() < 0 || own.max_step_seconds_per_day() < 0) {
      problems.Add(
          InvalidArgument("tenants.tenant: `{}`: limits must not be negative", own.name()));
    }
    TenantLimits limits;
    limits.weight = std::max(1, own.weight());
    limits.max_queued_steps = own.max_queued_steps();
    limits.max_running_steps = own.max_running_steps();
    limits.max_queued_bytes = own.max_queued_bytes();
    limits.max_step_seconds = own.max_step_seconds_per_day();
    if (!all.emplace(own.name(), limits).second)
      problems.Add(InvalidArgument("tenants.tenant: `{}` is there twice", own.name()));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return all;
}

absl::StatusOr<EngineOptions> EngineOptionsOf(const config::v1::GatewayConfig& config) {
  EngineOptions engine;
  const config::v1::Tenants& tenants = config.tenants();
  if (tenants.max_queued_steps() < 0 || tenants.max_running_steps() < 0 ||
      tenants.max_queued_bytes() < 0 || tenants.max_workflow_bytes() < 0 ||
      tenants.max_ended_workflows() < 0 || tenants.max_ended_bytes() < 0 ||
      tenants.max_step_seconds_per_day() < 0) {
    return InvalidArgument("tenants: limits must not be negative");
  }
  if (tenants.max_queued_steps() > 0) engine.max_queued_steps = tenants.max_queued_steps();
  if (tenants.max_queued_bytes() > 0) engine.max_queued_bytes = tenants.max_queued_bytes();
  if (tenants.max_ended_workflows() > 0) engine.ended.workflows = tenants.max_ended_workflows();
  if (tenants.max_ended_bytes() > 0) engine.ended.bytes = tenants.max_ended_bytes();
  if (config.max_live_bytes() < 0) return InvalidArgument("max_live_bytes: must not be negative");
  if (config.max_live_bytes() > 0) engine.max_live_bytes = config.max_live_bytes();
  engine.max_running_steps = tenants.max_running_steps();
  engine.max_step_seconds = tenants.max_step_seconds_per_day();
  QUENCH_ASSIGN_OR_RETURN(engine.tenants, OwnLimitsOf(tenants));
  if (config.has_patience()) {
    if (config.patience().seconds() < 0 || config.patience().nanos() < 0)
      return InvalidArgument("patience: must not be negative");
    engine.patience = std::chrono::seconds(config.patience().seconds());
  }
  if (config.has_keep_workflows()) {
    if (config.keep_workflows().seconds() < 0) {
      return InvalidArgument("keep_workflows: must not be negative");
    }
    engine.keep_workflows = std::chrono::seconds(config.keep_workflows().seconds());
  }
  return engine;
}

absl::Status CheckCalls(const config::v1::Calls& calls) {
  constexpr int kMost = 1'000'000, kMostThreads = 1024;
  const auto within = [](int value, int most) { return value >= 0 && value <= most; };
  if (within(calls.max_watches(), kMost) && within(calls.max_short(), kMost) &&
      within(calls.max_blobs(), kMost) && within(calls.threads(), kMostThreads) &&
      within(calls.blob_threads(), kMostThreads)) {
    return absl::OkStatus();
  }
  return InvalidArgument("calls: must be from 0, the default, to {}, threads to {}", kMost,
                         kMostThreads);
}

BlobId IdOf(const Digest& digest) {
  return {digest.hash(), static_cast<uint64_t>(digest.size_bytes())};
}

MissingBlobs MissingIn(BlobFolders& folders) {
  return [&folders](const std::string& tenant,
                    const std::vector<Digest>& digests) -> absl::StatusOr<std::vector<Digest>> {
    QUENCH_ASSIGN_OR_RETURN(const auto blobs, folders.Of(tenant));
    std::vector<BlobId> asked;
    for (const Digest& digest : digests) asked.push_back(IdOf(digest));
    QUENCH_ASSIGN_OR_RETURN(const std::vector<BlobId> found, blobs->shared->Missing(asked, {}));
    const std::set<BlobId> gone(found.begin(), found.end());
    std::vector<Digest> missing;
    for (const Digest& digest : digests) {
      if (gone.contains(IdOf(digest))) missing.push_back(digest);
    }
    return missing;
  };
}

ReadBlob ReadFrom(BlobFolders& folders) {
  return [&folders](const std::string& tenant,
                    const Digest& digest) -> absl::StatusOr<std::string> {
    QUENCH_ASSIGN_OR_RETURN(const auto blobs, folders.Of(tenant));
    QUENCH_RETURN_IF_ERROR(blobs->shared->Fetch({IdOf(digest)}, {}));
    QUENCH_ASSIGN_OR_RETURN(const auto file, blobs->store->Open(digest.hash()));
    return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  };
}

PutBlob PutInto(BlobFolders& folders) {
  return [&folders](const std::string& tenant, const std::string& bytes) -> absl::StatusOr<Digest> {
    QUENCH_ASSIGN_OR_RETURN(const auto blobs, folders.Of(tenant));
    Digest digest;
    QUENCH_ASSIGN_OR_RETURN(*digest.mutable_hash(),
                            blobs->store->Put(std::as_bytes(std::span(bytes))));
    digest.set_size_bytes(static_cast<int64_t>(bytes.size()));
    QUENCH_RETURN_IF_ERROR(blobs->shared->Publish({IdOf(digest)}, {}));
    return digest;
  };
}

TellStore StoreOf(BlobFolders& folders, const EvictionLimits& limits, bool remote) {
  return [&folders, limits, remote](v1::StoreState* state) {
    BlobSpace& space = *folders.space();
    state->set_bytes(static_cast<int64_t>(space.used()));
    state->set_high_bytes(static_cast<int64_t>(limits.high));
    state->set_max_bytes(static_cast<int64_t>(limits.max));
    state->set_remote(remote);
    const uint64_t free = space.FreeOnDisk();
    if (free != BlobSpace::kNoLimit) state->set_free_bytes(static_cast<int64_t>(free));
  };
}

// Null where blobs lie in a folder.
absl::StatusOr<MakeShared> SharedStores(const config::v1::BlobStore& blobs) {
  if (!blobs.has_remote()) return MakeShared();
  if (blobs.cache_max_bytes() != 0) {
    return InvalidArgument("blobs.cache_max_bytes: of a gateway, `blob_limits` says it");
  }
  QUENCH_ASSIGN_OR_RETURN(auto channel, steps::OpenRemote(blobs));
  return MakeShared(
      [blobs, channel](const std::string& tenant, std::shared_ptr<LocalBlobStore> local) {
        return steps::RemoteStoreOf(blobs, channel, tenant, std::move(local), nullptr, true);
      });
}

}  // namespace

absl::StatusOr<fs::path> GatewayHost::BlobRoot(const config::v1::GatewayConfig& config) {
  if (!config.blobs().folder().empty()) return fs::path(config.blobs().folder());
  if (!config.blobs().cache_folder().empty()) return fs::path(config.blobs().cache_folder());
  QUENCH_ASSIGN_OR_RETURN(const fs::path state, StateDir(config));
  return state / "store";
}

absl::StatusOr<std::unique_ptr<GatewayHost>> GatewayHost::Start(const Options& options) {
  const config::v1::GatewayConfig& config = options.config;
  QUENCH_ASSIGN_OR_RETURN(
      rpc::ServerOptions server,
      steps::ServerOptionsOf(config.server(), fmt::format("127.0.0.1:{}", kDefaultPort)));
  QUENCH_ASSIGN_OR_RETURN(const EvictionLimits limits, LimitsOf(config.blob_limits()));
  QUENCH_ASSIGN_OR_RETURN(const fs::path root, BlobRoot(config));
  std::unique_ptr<GatewayHost> host(new GatewayHost());
  host->grace_ = server.grace;
  server.registry = options.registry;
  QUENCH_RETURN_IF_ERROR(steps::SetLogLevel(config.server()));
  QUENCH_ASSIGN_OR_RETURN(host->callers_, steps::CallersOf(config.server()));
  QUENCH_ASSIGN_OR_RETURN(host->audit_, rpc::AuditLog::Open(config.server().audit_file()));
  GatewayOptions gateway;
  QUENCH_ASSIGN_OR_RETURN(gateway.state_dir, StateDir(config));
  gateway.channels = options.channels;
  if (gateway.channels.importer == nullptr) {
    QUENCH_ASSIGN_OR_RETURN(gateway.channels, ChannelsOf(config.services()));
  }
  QUENCH_ASSIGN_OR_RETURN(gateway.engine, EngineOptionsOf(config));
  gateway.engine.registry = options.registry;
  QUENCH_ASSIGN_OR_RETURN(host->tracer_,
                          steps::TracerOf(config.server(), "gateway", options.registry));
  gateway.engine.tracer = options.tracer == nullptr ? host->tracer_.get() : options.tracer;
  if (config.tenants().max_workflow_bytes() > 0)
    gateway.max_workflow_bytes = config.tenants().max_workflow_bytes();
  QUENCH_ASSIGN_OR_RETURN(gateway.keep, KeepLimitsOf(config, limits));
  QUENCH_ASSIGN_OR_RETURN(gateway.webhooks, AllowedUrls(config.webhooks()));
  QUENCH_ASSIGN_OR_RETURN(gateway.poster, PosterOptionsOf(config.webhooks()));
  QUENCH_RETURN_IF_ERROR(CheckCalls(config.calls()));
  if (config.calls().max_watches() > 0) gateway.max_watches = config.calls().max_watches();
  if (config.calls().max_short() > 0) gateway.max_short = config.calls().max_short();
  if (config.calls().threads() > 0) gateway.threads = config.calls().threads();
  gateway.callers = host->callers_.get();
  gateway.audit = host->audit_.get();
  gateway.stream_idle = server.stream_idle;
  const bool remote = config.blobs().has_remote();
  std::error_code ignored;
  fs::create_directories(root, ignored);  // so that its disk can be asked; Open says what is wrong
  const uint64_t reserve = config.blob_limits().min_free_bytes() > 0
                               ? static_cast<uint64_t>(config.blob_limits().min_free_bytes())
                               : DefaultReserve(root);
  QUENCH_ASSIGN_OR_RETURN(MakeShared shared, SharedStores(config.blobs()));
  QUENCH_ASSIGN_OR_RETURN(host->folders_, BlobFolders::Open(root, limits.max, reserve,
                                                            std::move(shared), *options.registry));
  gateway.blobs = {MissingIn(*host->folders_), ReadFrom(*host->folders_)};
  gateway.put_blob = PutInto(*host->folders_);
  gateway.tell_store = StoreOf(*host->folders_, limits, remote);
  QUENCH_ASSIGN_OR_RETURN(host->gateway_, Gateway::Start(gateway));

  rpc::CallPool::Options pool = BlobPoolOptions();
  if (config.calls().blob_threads() > 0) pool.threads = config.calls().blob_threads();
  if (config.calls().max_blobs() > 0) pool.queue = config.calls().max_blobs();
  pool.queue = std::max(0, pool.queue - pool.threads);
  pool.callers = host->callers_.get();
  pool.audit = host->audit_.get();
  pool.tracer = gateway.engine.tracer;
  pool.registry = options.registry;
  pool.stream_idle = server.stream_idle;
  host->blob_pool_ = std::make_unique<rpc::CallPool>(pool);
  host->blobs_ = std::make_unique<BlobServices>(*host->folders_, *host->blob_pool_);
  BlobKeeperOptions keeper;
  keeper.limits = limits;
  keeper.registry = options.registry;
  // Copies need not stay.
  if (!remote) {
    keeper.pinned = [gateway = host->gateway_.get()](const std::string&, const std::string& hash) {
      return gateway->IsPinned(hash);
    };
  }
  host->keeper_ = std::make_unique<BlobKeeper>(*host->folders_, keeper);

  std::vector<grpc::Service*> services = host->gateway_->services();
  for (grpc::Service* service : host->blobs_->services()) services.push_back(service);
  server.health_services = BlobServices::names();
  server.health_services.push_back(v1::Workflows::service_full_name());
  server.health_services.push_back(v1::Fleets::service_full_name());
  server.health_services.push_back(google::longrunning::Operations::service_full_name());
  server.health_services.push_back(v1::Tenants::service_full_name());
  server.health_services.push_back(v1::Overview::service_full_name());
  QUENCH_ASSIGN_OR_RETURN(host->server_, rpc::Server::Start(server, services));
  spdlog::info("gateway serves on {}{}, state in {}, blobs in {}", host->server_->address(),
               server.metrics_listen.empty()
                   ? ""
                   : fmt::format(", metrics on port {}", host->server_->metrics_port()),
               gateway.state_dir.string(), root.string());
  QUENCH_RETURN_IF_ERROR(host->StartConsole(options, server));
  return host;
}

// At any level of the log: its token is nowhere else.
static void TellAddress(const Console& console) {
  const auto& sinks = spdlog::default_logger()->sinks();
  spdlog::logger log("console", sinks.begin(), sinks.end());
  log.info("console for browsers: {}", console.url());
  log.flush();
}

absl::Status GatewayHost::StartConsole(const Options& options, const rpc::ServerOptions& server) {
  const config::v1::GatewayConfig& config = options.config;
  const std::string& listen = config.console().listen();
  if (listen == "none" || (!config.has_console() && !options.usual_console)) {
    return absl::OkStatus();
  }
  ConsoleOptions console;
  console.listen = listen.empty() ? fmt::format("127.0.0.1:{}", kConsolePort) : listen;
  console.any_port = !config.has_console();
  console.tls = server.tls;
  console.insecure = server.insecure;
  console.gateway = rpc::Channel::InProcess(*server_);
  console.access.takes_tokens = callers_ != nullptr;
  console.access.has_word = callers_ == nullptr || config.server().tokens_optional();
  // In this case everybody who reaches the console reaches the gateway, too.
  console.access.open_to_read = rpc::IsLocal(console.listen) && rpc::IsLocal(server.listen) &&
                                rpc::UnixPath(server.listen).empty();
  console.audit = audit_.get();
  QUENCH_ASSIGN_OR_RETURN(console_, Console::Start(console));
  TellAddress(*console_);
  return absl::OkStatus();
}

// One grace for all: services that finish their steps still need the blobs, so the server goes on
// until they have, and calls that are left then get what remains.
void GatewayHost::Drain() {
  server_->Announce();
  const auto end = std::chrono::system_clock::now() + grace_;
  gateway_->AwaitSteps(end);
  server_->Drain(end);
  gateway_->Stop();
  if (tracer_ != nullptr) tracer_->Flush();
}

// The server goes before what its calls use.
GatewayHost::~GatewayHost() {
  console_.reset();
  server_.reset();
}

}  // namespace quench::gateway
