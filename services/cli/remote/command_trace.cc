#include "services/cli/remote/command_trace.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>

#include "common/base/status.h"
#include "services/cli/traceparent.h"

namespace quench::cli {
namespace {

// As OpenTelemetry's SDKs read it; the path, which only HTTP has, is left out.
rpc::ChannelOptions CollectorAt(std::string endpoint) {
  rpc::ChannelOptions options;
  for (const std::string scheme : {"http://", "https://"}) {
    if (!endpoint.starts_with(scheme)) continue;
    endpoint.erase(0, scheme.size());
    if (scheme == "https://") options.tls.emplace();
  }
  options.address = endpoint.substr(0, endpoint.find('/'));
  if (options.address.find(':') == std::string::npos) options.address += ":4317";
  return options;
}

}  // namespace

std::unique_ptr<CommandTrace> CommandTrace::Begin(const std::string& traceparent) {
  const std::string endpoint = OtlpEndpoint();
  const std::optional<TraceContext> context = ParseTraceparent(traceparent);
  static std::atomic<bool> begun = false;  // a command may open its gateway twice
  if (endpoint.empty() || !context || begun.exchange(true)) return nullptr;
  rpc::TracerOptions options;
  options.collector = CollectorAt(endpoint);
  options.service = "quench";
  options.timeout = std::chrono::milliseconds(1000);
  absl::StatusOr<std::unique_ptr<rpc::Tracer>> tracer = rpc::Tracer::Start(options);
  if (!tracer.ok()) {
    spdlog::warn("OTEL_EXPORTER_OTLP_ENDPOINT: {}", MessageOf(tracer.status()));
    return nullptr;
  }
  return std::unique_ptr<CommandTrace>(new CommandTrace(*std::move(tracer), *context));
}

CommandTrace::CommandTrace(std::unique_ptr<rpc::Tracer> tracer, TraceContext context)
    : tracer_(std::move(tracer)), context_(std::move(context)), start_ns_(rpc::UnixNanoseconds()) {}

CommandTrace::~CommandTrace() {
  rpc::Span span;
  span.context = context_;
  span.parent_id = CallersSpan().value_or(TraceContext{}).span_id;
  span.name = "quench";
  span.kind = rpc::Span::Kind::kClient;
  span.start_ns = start_ns_;
  span.end_ns = rpc::UnixNanoseconds();
  tracer_->Record(std::move(span));
}

}  // namespace quench::cli
