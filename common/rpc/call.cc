#include "common/rpc/call.h"

#include <grpcpp/server_context.h>
#include <openssl/rand.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "common/base/status.h"
#include "common/rpc/address.h"
#include "common/rpc/audit.h"
#include "common/rpc/callers.h"
#include "common/rpc/errors.h"
#include "common/rpc/tracing.h"

namespace quench::rpc {
namespace {

std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

// Names in the client's certificate, which the transport has verified.
std::vector<std::string> NamesOf(const grpc::CallbackServerContext& context) {
  std::vector<std::string> names;
  const auto peer = context.auth_context();
  if (peer == nullptr || !peer->IsPeerAuthenticated()) return names;
  for (const char* property : {"x509_subject_alternative_name", "x509_common_name"}) {
    for (const grpc::string_ref& name : peer->FindPropertyValues(property)) {
      names.emplace_back(name.data(), name.size());
    }
  }
  return names;
}

// Printable ASCII, short enough for logs: what callers may choose freely.
bool IsRequestId(const std::string& text) {
  if (text.empty() || text.size() > 128) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string NewRequestId() {
  std::array<unsigned char, 16> bytes{};
  RAND_bytes(bytes.data(), bytes.size());
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

// For logs, in which a line is a call: callers have a say in messages.
std::string OneLine(const std::string& text) {
  constexpr size_t kLongest = 500;
  std::string line;
  for (const char c : text.substr(0, kLongest)) {
    if (c == '\n') {
      line += "\\n";
    } else {
      line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
    }
  }
  return text.size() > kLongest ? line + " ..." : line;
}

// The table of docs/operating.md: warnings and errors are the faults that its objective counts. A
// caller who is told when to ask again, by a full server or one that drains, does so: nothing is
// wrong.
spdlog::level::level_enum LevelOf(const absl::Status& outcome, metrics::GrpcType type) {
  const bool asks_again = RetryAfterOf(outcome).has_value();
  switch (outcome.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
      return spdlog::level::debug;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return spdlog::level::info;
    case absl::StatusCode::kResourceExhausted:
      return asks_again ? spdlog::level::debug : spdlog::level::info;
    case absl::StatusCode::kUnavailable:
      return asks_again ? spdlog::level::debug : spdlog::level::warn;
    case absl::StatusCode::kDeadlineExceeded:  // that of a step is the caller's choice
      return type == metrics::GrpcType::kUnary ? spdlog::level::warn : spdlog::level::info;
    default:  // UNKNOWN, INTERNAL, DATA_LOSS
      return spdlog::level::err;
  }
}

}  // namespace

Method::Method(CallPool& pool, const std::string& service, const std::string& name,
               metrics::GrpcType type, Effect effect)
    : pool_(pool),
      full_name_(service + "/" + name),
      effect_(effect),
      type_(type),
      service_(service),
      name_(name) {}

// The series that `found` points to, found by `get` when it is first asked for.
template <typename Series, typename Get>
static Series& Once(std::atomic<Series*>& found, const Get& get) {
  Series* series = found.load(std::memory_order_acquire);
  if (series == nullptr) {
    series = &get();
    found.store(series, std::memory_order_release);
  }
  return *series;
}

void Method::CountStarted() const {
  Once(started_, [this]() -> metrics::Counter& {
    return pool_.options().registry->Get(metrics::kRpcStarted, type_, service_, name_);
  }).Increment();
}

void Method::CountHandled(absl::StatusCode code, double seconds,
                          const std::string& traceparent) const {
  metrics::Registry& registry = *pool_.options().registry;
  const auto index = static_cast<size_t>(code);
  Once(handled_.at(index), [&]() -> metrics::Counter& {
    return registry.Get(metrics::kRpcHandled, type_, service_, name_,
                        static_cast<metrics::GrpcCode>(index));
  }).Increment();
  Once(seconds_, [&]() -> metrics::Histogram& {
    return registry.Get(metrics::kRpcSeconds, type_, service_, name_);
  }).Observe(seconds, traceparent);
}

ServerCall::ServerCall(const Method& method, grpc::CallbackServerContext* context,
                       const std::string& request_id)
    : method_(method),
      context_(context),
      authorization_(MetadataOf(*context, kAuthorizationKey)),
      peer_(context->peer()),
      certificate_names_(NamesOf(*context)) {
  method_.CountStarted();
  step_ = StepContext(cancel_, {});
  std::string id = IsRequestId(request_id) ? request_id : MetadataOf(*context, kRequestIdKey);
  step_.set_request_id(IsRequestId(id) ? std::move(id) : NewRequestId());
  // In the trailers: an error with headers before it is never sent again by a client.
  context->AddTrailingMetadata(kRequestIdKey, step_.request_id());
  std::string trace = MetadataOf(*context, kTraceparentKey);
  const std::optional<TraceContext> caller = ParseTraceparent(trace);
  if (caller) step_.set_traceparent(std::move(trace));
  if (const Tracer* tracer = method.pool().options().tracer; tracer != nullptr) {
    if (caller) parent_id_ = caller->span_id;
    span_ = tracer->Begin(step_.traceparent());
    step_.set_traceparent(span_.traceparent());
    arrival_ns_ = UnixNanoseconds();
  }
  const auto left = context->deadline() - std::chrono::system_clock::now();
  if (left < std::chrono::hours(24 * 365)) {  // else there is none
    step_.set_deadline(std::chrono::steady_clock::now() + left);
  }
}

absl::Status ServerCall::Admit() {
  CallPool& pool = method_.pool();
  client_ = HostOfPeer(peer_);
  const Callers* callers = pool.options().callers;
  if (callers == nullptr) {
    step_.set_role(CallerRole::kOperator);
    return pool.Admit(client_);
  }
  QUENCH_ASSIGN_OR_RETURN(Caller caller, callers->CallerOf(authorization_, certificate_names_));
  if (!authorization_.empty() || !certificate_names_.empty()) client_ = caller.tenant;
  step_.set_tenant(std::move(caller.tenant));
  step_.set_role(caller.role);
  subject_ = std::move(caller.subject);
  if (caller.role == CallerRole::kViewer && method_.effect() == Effect::kChanges) {
    return absl::PermissionDeniedError(
        fmt::format("the caller is a `viewer` of tenant `{}`, which may only read: {} needs a "
                    "`user` or an `operator`",
                    step_.tenant(), method_.full_name()));
  }
  return pool.Admit(client_);
}

void ServerCall::Break() { context_->TryCancel(); }

void ServerCall::SendProgressTo(ProgressSink sink) {
  StepContext step(cancel_, std::move(sink));
  if (step_.deadline()) step.set_deadline(*step_.deadline());
  step.set_request_id(step_.request_id());
  step.set_traceparent(step_.traceparent());
  step.set_tenant(step_.tenant());
  step.set_role(step_.role());
  step_ = std::move(step);
}

absl::Status ServerCall::Run(const std::function<absl::Status(const StepContext&)>& work) {
  QUENCH_RETURN_IF_ERROR(step_.Check());  // it may have waited for its thread
  try {
    return work(step_);
  } catch (const std::exception& error) {
    return Internal("an exception came out of the handler: {}", error.what());
  } catch (...) {
    return Internal("an exception came out of the handler");
  }
}

grpc::Status ServerCall::End(const absl::Status& status) {
  QUENCH_CHECK(!ended_.exchange(true));
  const auto now = std::chrono::steady_clock::now();
  absl::Status outcome = status;
  // A call whose deadline passes is cancelled, by a client whose time runs out a little before ours;
  // metrics and logs tell that from a caller who changed his mind.
  constexpr auto kTransit = std::chrono::milliseconds(100);
  if (outcome.code() == absl::StatusCode::kCancelled && step_.deadline() &&
      now + kTransit >= *step_.deadline()) {
    outcome = absl::DeadlineExceededError("deadline exceeded");
  }
  const double seconds = std::chrono::duration<double>(now - arrival_).count();
  method_.CountHandled(outcome.code(), seconds, step_.traceparent());
  spdlog::log(LevelOf(outcome, method_.type()),
              "call={} code={} seconds={:.3f} request={} tenant={} trace={} peer={}{}{}",
              method_.full_name(), absl::StatusCodeToString(outcome.code()), seconds, request_id(),
              step_.tenant(), step_.traceparent(), peer_, outcome.ok() ? "" : ": ",
              OneLine(MessageOf(outcome)));
  if (is_audited()) Audit(outcome, seconds);
  if (method_.pool().options().tracer != nullptr) Trace(outcome);
  if (const std::optional<TraceContext> trace = ParseTraceparent(step_.traceparent())) {
    outcome = WithTrace(std::move(outcome), trace->trace_id);
  }
  return ToGrpc(outcome);
}

// Attributes have the names of OpenTelemetry's conventions where these have one.
void ServerCall::Trace(const absl::Status& outcome) const {
  Span span;
  span.context = span_;
  span.parent_id = parent_id_;
  span.name = method_.full_name();
  span.kind = Span::Kind::kServer;
  span.start_ns = arrival_ns_;
  span.end_ns = UnixNanoseconds();
  const size_t slash = method_.full_name().find('/');
  span.attributes = {{"rpc.system", std::string("grpc")},
                     {"rpc.service", method_.full_name().substr(0, slash)},
                     {"rpc.method", method_.full_name().substr(slash + 1)},
                     {"rpc.grpc.status_code", static_cast<int64_t>(outcome.code())},
                     {"client.address", peer_},
                     {"quench.request_id", request_id()}};
  if (!step_.tenant().empty()) span.attributes.emplace_back("quench.tenant", step_.tenant());
  if (!outcome.ok()) {
    const std::string reason = ReasonOf(outcome);
    span.attributes.emplace_back(
        "error.type", reason.empty() ? ReasonName(DefaultReason(outcome.code())) : reason);
    // Errors that are the caller's are none of the server's span.
    span.failed = LevelOf(outcome, method_.type()) >= spdlog::level::warn;
    span.error = MessageOf(outcome);
  }
  method_.pool().options().tracer->Record(std::move(span));
}

bool ServerCall::is_audited() const {
  return method_.effect() == Effect::kChanges && method_.pool().options().audit != nullptr;
}

void ServerCall::Audit(const absl::Status& outcome, double seconds) const {
  AuditEntry entry;
  entry.call = method_.full_name();
  entry.caller = step_.tenant();
  if (!entry.caller.empty()) entry.role = RoleName(step_.role());
  entry.subject = subject_;
  entry.certificate = fmt::format("{}", fmt::join(certificate_names_, ", "));
  if (resource_tenant_ != step_.tenant()) entry.tenant = resource_tenant_;
  entry.resource = resource_;
  entry.peer = peer_;
  entry.request_id = request_id();
  entry.code = absl::StatusCodeToString(outcome.code());
  entry.reason = ReasonOf(outcome);
  entry.seconds = seconds;
  method_.pool().options().audit->Write(entry);
}

}  // namespace quench::rpc
