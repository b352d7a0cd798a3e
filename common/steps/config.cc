#include "common/steps/config.h"

#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/rpc/http_get.h"
#include "common/rpc/tenants.h"
#include "common/runtime/quench_rt.h"
#include "quench/config/v1/config.pb.h"

namespace quench::steps {
namespace {

using google::protobuf::Duration;
using google::protobuf::util::TimeUtil;

constexpr std::chrono::milliseconds kDefaultGrace{30'000};
constexpr std::chrono::hours kDefaultWallTime{24};
constexpr std::chrono::minutes kDefaultStallTime{5};

// Collects what is wrong with one message.
class Checker {
 public:
  explicit Checker(std::string message) : message_(std::move(message)) {}

  template <typename Int>
  Int Range(const char* field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
      problems_.Add(
          InvalidArgument("{}.{}: {}, must be {} to {}", message_, field, value, low, high));
      return Int{};
    }
    return static_cast<Int>(value);
  }

  // `fallback` when the field is absent; not negative, at most a year.
  std::chrono::milliseconds Time(const char* field, bool present, const Duration& value,
                                 std::chrono::milliseconds fallback) {
    if (!present) return fallback;
    constexpr int64_t kYearSeconds = 366LL * 24 * 3600;
    if (value.seconds() < 0 || value.nanos() < 0 || value.seconds() > kYearSeconds) {
      problems_.Add(
          InvalidArgument("{}.{}: {} s, must be 0 to a year", message_, field, value.seconds()));
      return fallback;
    }
    return std::chrono::milliseconds(TimeUtil::DurationToMilliseconds(value));
  }

  void Add(const absl::Status& status) { problems_.Add(Annotate(status, message_)); }
  absl::Status Finish() const { return problems_.Finish(); }

 private:
  std::string message_;
  StatusCollector problems_;
};

rpc::TlsFiles TlsOf(const config::v1::Tls& tls) {
  rpc::TlsFiles files;
  files.certificate = tls.certificate_file();
  files.key = tls.key_file();
  files.ca = tls.ca_file();
  files.require_client_certificate = tls.require_client_certificate();
  return files;
}

std::optional<CallerRole> RoleOf(config::v1::Role role) {
  switch (role) {
    case config::v1::ROLE_VIEWER:
      return CallerRole::kViewer;
    case config::v1::ROLE_UNSPECIFIED:
    case config::v1::ROLE_USER:
      return CallerRole::kUser;
    case config::v1::ROLE_OPERATOR:
      return CallerRole::kOperator;
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<rpc::ServerOptions> ServerOptionsOf(const config::v1::Server& server,
                                                   const std::string& default_listen) {
  Checker check("server");
  rpc::ServerOptions options;
  options.listen = server.listen().empty() ? default_listen : server.listen();
  options.metrics_listen = server.metrics_listen();
  if (server.has_tls()) options.tls = TlsOf(server.tls());
  options.insecure = server.insecure();
  options.reflection = server.has_reflection() ? server.reflection() : rpc::IsLocal(options.listen);
  const config::v1::Limits& limits = server.limits();
  if (limits.max_message_bytes() != 0) {
    options.max_message_bytes = check.Range<int>(
        "limits.max_message_bytes", limits.max_message_bytes(), int64_t{1} << 20, int64_t{1} << 30);
  }
  if (limits.max_calls() != 0) {
    options.max_calls = check.Range<int>("limits.max_calls", limits.max_calls(), 1, 1'000'000);
  }
  options.max_connection_idle = check.Time("limits.idle_timeout", limits.has_idle_timeout(),
                                           limits.idle_timeout(), options.max_connection_idle);
  options.max_connection_age =
      check.Time("limits.max_connection_age", limits.has_max_connection_age(),
                 limits.max_connection_age(), options.max_connection_age);
  if (limits.max_header_bytes() != 0) {
    options.max_header_bytes = check.Range<int>(
        "limits.max_header_bytes", limits.max_header_bytes(), int64_t{4} << 10, int64_t{1} << 20);
  }
  if (limits.max_transport_bytes() != 0) {
    options.max_transport_bytes =
        check.Range<int64_t>("limits.max_transport_bytes", limits.max_transport_bytes(),
                             int64_t{64} << 20, int64_t{1} << 40);
  }
  options.handshake = check.Time("limits.handshake_timeout", limits.has_handshake_timeout(),
                                 limits.handshake_timeout(), options.handshake);
  options.stream_idle = check.Time("limits.stream_idle_timeout", limits.has_stream_idle_timeout(),
                                   limits.stream_idle_timeout(), options.stream_idle);
  options.grace = check.Time("grace", server.has_grace(), server.grace(), kDefaultGrace);
  options.drain_delay = check.Time("drain_delay", server.has_drain_delay(), server.drain_delay(),
                                   options.drain_delay);
  QUENCH_RETURN_IF_ERROR(check.Finish());
  return options;
}

// Adds what is wrong to `problems`.
static rpc::JwtVerifier::Options JwtOf(const config::v1::Jwt& jwt, StatusCollector* problems) {
  Checker check("server.jwt");
  rpc::JwtVerifier::Options options{jwt.issuer(), jwt.audience(),  {}, jwt.tenant_claim(),
                                    {},           jwt.role_claim()};
  if (jwt.issuer().empty()) check.Add(InvalidArgument("issuer: missing"));
  if (jwt.audience().empty())
    check.Add(InvalidArgument("audience: missing: tokens for other servers would be taken"));
  options.keys.file = jwt.jwks_file();
  options.keys.url = jwt.jwks_url();
  options.keys.ca_file = jwt.ca_file();
  if (jwt.jwks_file().empty() && jwt.jwks_url().empty()) {
    check.Add(InvalidArgument("must have `jwks_file` or `jwks_url`, the issuer's keys"));
  } else if (!jwt.jwks_url().empty()) {
    if (const absl::Status url = rpc::CheckUrl(jwt.jwks_url()); !url.ok())
      check.Add(Annotate(url, "jwks_url"));
  }
  constexpr std::chrono::milliseconds kLeast{1000}, kMost{24 * 3600'000};
  options.keys.max_age =
      check.Time("max_key_age", jwt.has_max_key_age(), jwt.max_key_age(), options.keys.max_age);
  if (options.keys.max_age < kLeast || options.keys.max_age > kMost)
    check.Add(InvalidArgument("max_key_age: must be from a second to a day"));
  for (const config::v1::JwtRule& rule : jwt.rules()) {
    const std::optional<CallerRole> role = RoleOf(rule.role());
    if (rule.claim().empty() || rule.value().empty() || !rpc::IsTenant(rule.tenant()) || !role) {
      check.Add(InvalidArgument(
          "rules: `{}` `{}` for `{}`: must be a claim, its value, a tenant (lower-case letters, "
          "digits and `-`, at most 63), and a role if it says one",
          rule.claim(), rule.value(), rule.tenant()));
      continue;
    }
    const bool says = rule.role() != config::v1::ROLE_UNSPECIFIED;
    options.rules.push_back(
        {rule.claim(), rule.value(), rule.tenant(), says ? role : std::nullopt});
  }
  problems->Add(check.Finish());
  return options;
}

absl::StatusOr<std::unique_ptr<rpc::Callers>> CallersOf(const config::v1::Server& server) {
  StatusCollector problems;
  rpc::Callers::Options options;
  options.token_file = server.token_file();
  options.optional = server.tokens_optional();
  for (const config::v1::CertificateTenant& each : server.certificate_tenants()) {
    const std::optional<CallerRole> role = RoleOf(each.role());
    if (each.name().empty() || !rpc::IsTenant(each.tenant())) {
      problems.Add(InvalidArgument(
          "server.certificate_tenants: `{}` for `{}`: must be a name in certificates, and a tenant "
          "(lower-case letters, digits and `-`, at most 63)",
          each.tenant(), each.name()));
    } else if (!role) {
      problems.Add(InvalidArgument("server.certificate_tenants: `{}`: {} is not a role",
                                   each.name(), static_cast<int>(each.role())));
    } else if (!options.certificate_callers.emplace(each.name(), rpc::Caller{each.tenant(), *role})
                    .second) {
      problems.Add(InvalidArgument("server.certificate_tenants: `{}` is there twice", each.name()));
    }
  }
  if (server.certificate_tenants_size() > 0 && server.tls().ca_file().empty()) {
    problems.Add(InvalidArgument(
        "server.certificate_tenants: needs `tls.ca_file`, by which certificates are verified"));
  }
  if (server.has_jwt()) options.jwt = JwtOf(server.jwt(), &problems);
  const bool anybody =
      options.token_file.empty() && server.certificate_tenants_size() == 0 && !server.has_jwt();
  if (anybody && server.tokens_optional()) {
    problems.Add(InvalidArgument(
        "server.tokens_optional: needs a `token_file`, without which no token is required"));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  if (anybody) return std::unique_ptr<rpc::Callers>();
  return rpc::Callers::Open(options);
}

absl::Status SetLogLevel(const config::v1::Server& server) {
  switch (server.log_level()) {
    case config::v1::LOG_LEVEL_UNSPECIFIED:
      return absl::OkStatus();
    case config::v1::LOG_LEVEL_DEBUG:
      spdlog::set_level(spdlog::level::debug);
      return absl::OkStatus();
    case config::v1::LOG_LEVEL_INFO:
      spdlog::set_level(spdlog::level::info);
      return absl::OkStatus();
    case config::v1::LOG_LEVEL_WARNING:
      spdlog::set_level(spdlog::level::warn);
      return absl::OkStatus();
    case config::v1::LOG_LEVEL_ERROR:
      spdlog::set_level(spdlog::level::err);
      return absl::OkStatus();
    default:
      return InvalidArgument("server.log_level: {} is not a level",
                             static_cast<int>(server.log_level()));
  }
}

absl::StatusOr<rpc::ChannelOptions> ChannelOptionsOf(const config::v1::Remote& remote) {
  rpc::ChannelOptions options;
  if (remote.address().empty()) return InvalidArgument("address: missing, must be HOST:PORT");
  options.address = remote.address();
  if (remote.has_tls()) options.tls = TlsOf(remote.tls());
  options.token_file = remote.token_file();
  return options;
}

absl::StatusOr<std::unique_ptr<rpc::Tracer>> TracerOf(const config::v1::Server& server,
                                                      const std::string& service,
                                                      metrics::Registry* registry) {
  if (!server.has_tracing()) return std::unique_ptr<rpc::Tracer>();
  const config::v1::Tracing& tracing = server.tracing();
  rpc::TracerOptions options;
  absl::StatusOr<rpc::ChannelOptions> collector = ChannelOptionsOf(tracing.collector());
  if (!collector.ok()) return Annotate(collector.status(), "server.tracing.collector");
  options.collector = *std::move(collector);
  if (tracing.has_sample_ratio()) options.sample_ratio = tracing.sample_ratio();
  options.service = "quench-" + service;
  options.registry = registry;
  absl::StatusOr<std::unique_ptr<rpc::Tracer>> tracer = rpc::Tracer::Start(options);
  if (!tracer.ok()) return Annotate(tracer.status(), "server.tracing");
  return tracer;
}

absl::StatusOr<RunnerOptions> RunnerOptionsOf(const config::v1::Steps& steps) {
  Checker check("steps");
  RunnerOptions options;
  options.in_process = steps.isolation() == config::v1::ISOLATION_NONE;
  if (!config::v1::Isolation_IsValid(steps.isolation())) {
    check.Add(InvalidArgument("isolation: {} is not an isolation mode",
                              static_cast<int>(steps.isolation())));
  }
  const bool limits_memory = steps.max_memory_bytes() != 0, limits_cpu = steps.has_max_cpu_time();
  if (options.in_process && (limits_memory || limits_cpu || steps.memory_bytes() != 0)) {
    check.Add(InvalidArgument("limits of memory and CPU time need isolation PROCESS"));
  }
  StepLimits& limits = options.limits;
  QUENCH_ASSIGN_OR_RETURN(const int slots, SlotsOf(steps));
  limits = LimitsOfThisMachine(steps.scratch_dir(), slots);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kMib = int64_t{1} << 20;
  if (limits_memory) {
    limits.memory_bytes =
        check.Range<int64_t>("max_memory_bytes", steps.max_memory_bytes(), 64 * kMib, kMost);
    limits.most_memory_bytes = limits.memory_bytes;
  } else if (steps.memory_bytes() != 0) {
    QUENCH_ASSIGN_OR_RETURN(const int64_t memory, MemoryOf(steps));
    limits.memory_bytes = MemoryOfEachSlot(memory, slots);
    limits.most_memory_bytes = std::max(limits.memory_bytes, memory);
  }
  if (limits_cpu) {
    limits.cpu_seconds = std::chrono::ceil<std::chrono::seconds>(
                             check.Time("max_cpu_time", true, steps.max_cpu_time(), {}))
                             .count();
  }
  if (steps.max_disk_bytes() != 0) {
    limits.disk_bytes = check.Range<int64_t>("max_disk_bytes", steps.max_disk_bytes(), kMib, kMost);
  }
  if (steps.max_open_files() != 0) {
    limits.open_files = check.Range<int>("max_open_files", steps.max_open_files(), 64, 1'000'000);
  }
  if (steps.max_processes() != 0) {
    limits.processes = check.Range<int>("max_processes", steps.max_processes(), 16, 1'000'000);
  }
  options.max_wall_time = check.Time("max_wall_time", steps.has_max_wall_time(),
                                     steps.max_wall_time(), kDefaultWallTime);
  options.max_stall_time = check.Time("max_stall_time", steps.has_max_stall_time(),
                                      steps.max_stall_time(), kDefaultStallTime);
  options.max_threads = check.Range<int>("max_threads", steps.max_threads(), 0, 1024);
  options.scratch = steps.scratch_dir();
  QUENCH_RETURN_IF_ERROR(check.Finish());
  return options;
}

absl::StatusOr<int64_t> MemoryOf(const config::v1::Steps& steps) {
  if (steps.memory_bytes() == 0) return MemoryForSteps(MemoryOfThisMachine());
  Checker check("steps");
  const auto bytes = check.Range<int64_t>("memory_bytes", steps.memory_bytes(), int64_t{64} << 20,
                                          int64_t{1} << 50);
  QUENCH_RETURN_IF_ERROR(check.Finish());
  return bytes;
}

absl::StatusOr<std::shared_ptr<MemoryBudget>> OpenMemory(const config::v1::Steps& steps,
                                                         const std::filesystem::path& file,
                                                         metrics::Registry* registry) {
  if (steps.isolation() == config::v1::ISOLATION_NONE) return std::shared_ptr<MemoryBudget>();
  QUENCH_ASSIGN_OR_RETURN(const int64_t bytes, MemoryOf(steps));
  return std::make_shared<MemoryBudget>(bytes, std::make_shared<MemoryBook>(file), registry);
}

absl::StatusOr<int> SlotsOf(const config::v1::Steps& steps) {
  Checker check("steps");
  int slots = check.Range<int>("slots", steps.slots(), 0, 10'000);
  QUENCH_RETURN_IF_ERROR(check.Finish());
  if (slots == 0) slots = static_cast<int>(std::max(1U, quench_rt_cpus() / 2));
  return slots;
}

}  // namespace quench::steps
