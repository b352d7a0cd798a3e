// W3C's trace context (https://www.w3.org/TR/trace-context): which trace some work belongs to, and which span of it caused
// the work.
#pragma once

#include <optional>
#include <string>

namespace quench {

struct TraceContext {
  std::string trace_id;  // 32 lower-case hex digits, not all 0
  std::string span_id;   // 16 of them
  bool sampled = false;  // whether spans of the trace are recorded

  // As calls carry it.
  std::string traceparent() const;
};

// Nothing for a text that is not a traceparent.
std::optional<TraceContext> ParseTraceparent(const std::string& text);

// A new span: of the same trace, or of a new one, which is sampled with this probability.
TraceContext NewSpan(const std::optional<TraceContext>& parent, double sample_ratio = 1);

}  // namespace quench
