#include "services/cli/traceparent.h"

#include <cstdlib>

namespace quench::cli {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::optional<TraceContext> CallersSpan() { return ParseTraceparent(Environment("TRACEPARENT")); }

std::string OtlpEndpoint() { return Environment("OTEL_EXPORTER_OTLP_ENDPOINT"); }

std::string CommandTraceparent() {
  const std::optional<TraceContext> caller = CallersSpan();
  if (!OtlpEndpoint().empty()) return NewSpan(caller).traceparent();
  return caller ? caller->traceparent() : "";
}

}  // namespace quench::cli
