// The trace that a command belongs to, from the environment.
#pragma once

#include <optional>
#include <string>

#include "common/base/trace_context.h"

namespace quench::cli {

// $TRACEPARENT, as programs that call others set it.
std::optional<TraceContext> CallersSpan();

// $OTEL_EXPORTER_OTLP_ENDPOINT, or empty.
std::string OtlpEndpoint();

// The traceparent of a command's calls: its own span's if that is exported, else the caller's; empty outside of traces.
std::string CommandTraceparent();

}  // namespace quench::cli
