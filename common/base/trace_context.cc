#include "common/base/trace_context.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstdint>

namespace quench {
namespace {

// Never 0, which stands for none.
uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) {
    if (getrandom(&id, sizeof(id), 0) != sizeof(id)) id = 0;
  }
  return id;
}

bool IsHex(const std::string& text) {
  return text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool IsZero(const std::string& text) { return text.find_first_not_of('0') == std::string::npos; }

}  // namespace

std::string TraceContext::traceparent() const {
  return fmt::format("00-{}-{}-0{}", trace_id, span_id, sampled ? 1 : 0);
}

// Version, trace id, parent id, flags.
std::optional<TraceContext> ParseTraceparent(const std::string& text) {
  if (text.size() != 55 || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  const std::string version = text.substr(0, 2), flags = text.substr(53);
  TraceContext context{.trace_id = text.substr(3, 32), .span_id = text.substr(36, 16)};
  if (!IsHex(version) || version == "ff" || !IsHex(flags) || !IsHex(context.trace_id) ||
      !IsHex(context.span_id) || IsZero(context.trace_id) || IsZero(context.span_id)) {
    return std::nullopt;
  }
  constexpr int kSampled = 1;
  context.sampled = (std::stoi(flags, nullptr, 16) & kSampled) != 0;
  return context;
}

TraceContext NewSpan(const std::optional<TraceContext>& parent, double sample_ratio) {
  TraceContext span;
  if (parent) {
    span = *parent;
  } else {
    const uint64_t low = RandomId();
    span.trace_id = fmt::format("{:016x}{:016x}", RandomId(), low);
    // A function of the id, so that all who begin to record this trace decide alike.
    span.sampled = static_cast<double>(low >> 11) < sample_ratio * 0x1p53;
  }
  span.span_id = fmt::format("{:016x}", RandomId());
  return span;
}

}  // namespace quench
