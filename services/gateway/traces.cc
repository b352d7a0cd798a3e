#include "services/gateway/traces.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>

#include "common/blobs/digest.h"
#include "common/rpc/errors.h"

namespace quench::gateway {
namespace {

using google::protobuf::Timestamp;
using google::protobuf::util::TimeUtil;

// The context of a span within the trace; unsampled, and without ids, outside of any.
TraceContext SpanOf(const std::string& created, const std::string& what) {
  TraceContext span = ParseTraceparent(created).value_or(TraceContext{});
  if (!span.trace_id.empty()) span.span_id = Sha256Hex(span.trace_id + what).substr(0, 16);
  return span;
}

// A retry makes other spans of the same things.
TraceContext ContextOfWorkflow(const std::string& created, const v1::Workflow& header) {
  return SpanOf(created, fmt::format("{} {}", header.name(),
                                     TimeUtil::TimestampToMicroseconds(header.retry_time())));
}

TraceContext ContextOfStep(const std::string& created, const v1::Workflow& header,
                           const v1::Step& step) {
  return SpanOf(created,
                fmt::format("{} {} {}", header.name(), step.name(), step.retried_after_attempt()));
}

int64_t Nanoseconds(const Timestamp& time) { return TimeUtil::TimestampToNanoseconds(time); }

std::string StateName(v1::State state) {
  return absl::AsciiStrToLower(v1::State_Name(state).substr(sizeof("STATE_") - 1));
}

void AddError(const google::rpc::Status& error, rpc::Attributes* attributes) {
  const absl::Status status = rpc::FromProto(error);
  const std::string reason = rpc::ReasonOf(status);
  attributes->emplace_back(
      "error.type", reason.empty() ? rpc::ReasonName(rpc::DefaultReason(status.code())) : reason);
}

}  // namespace

std::string StepTraceparent(const std::string& created, const v1::Workflow& header,
                            const v1::Step& step) {
  const TraceContext span = ContextOfStep(created, header, step);
  return span.trace_id.empty() ? "" : span.traceparent();
}

rpc::Span WorkflowSpan(const std::string& created, const v1::Workflow& header) {
  rpc::Span span;
  span.context = ContextOfWorkflow(created, header);
  span.parent_id = ParseTraceparent(created).value_or(TraceContext{}).span_id;
  span.name = "workflow";
  span.start_ns = Nanoseconds(header.has_retry_time() ? header.retry_time() : header.create_time());
  span.end_ns = Nanoseconds(header.end_time());
  span.attributes = {{"quench.workflow", header.name()},
                     {"quench.tenant", header.tenant()},
                     {"quench.state", StateName(header.state())}};
  if (!header.title().empty()) span.attributes.emplace_back("quench.title", header.title());
  if (header.has_error()) AddError(header.error(), &span.attributes);
  span.failed = header.state() == v1::STATE_FAILED;
  span.error = header.error().message();
  return span;
}

rpc::Span StepSpan(const std::string& created, const v1::Workflow& header, const v1::Step& step) {
  rpc::Span span;
  span.context = ContextOfStep(created, header, step);
  span.parent_id = ContextOfWorkflow(created, header).span_id;
  span.name = "step " + step.name();
  span.end_ns = Nanoseconds(step.end_time());
  span.start_ns = step.has_ready_time() ? Nanoseconds(step.ready_time()) : span.end_ns;
  span.attributes = {{"quench.workflow", header.name()},
                     {"quench.tenant", header.tenant()},
                     {"quench.step.method", step.method()},
                     {"quench.state", StateName(step.state())},
                     {"quench.attempt", static_cast<int64_t>(step.attempt())},
                     {"quench.cache_hit", step.cache_hit()}};
  if (!step.execution().server().empty()) {
    span.attributes.emplace_back("quench.server", step.execution().server());
  }
  if (step.has_ready_time() && step.has_start_time()) {
    span.attributes.emplace_back(
        "quench.queue_seconds",
        static_cast<double>(Nanoseconds(step.start_time()) - span.start_ns) / 1e9);
  }
  for (const v1::FailedAttempt& attempt : step.failed_attempts()) {
    if (attempt.attempt() <= step.retried_after_attempt()) continue;
    rpc::Span::Event& event = span.events.emplace_back();
    event.name = "attempt failed";
    event.time_ns = Nanoseconds(attempt.end_time());
    event.attributes = {{"quench.attempt", static_cast<int64_t>(attempt.attempt())},
                        {"quench.server", attempt.server()},
                        {"exception.message", attempt.error().message()}};
    AddError(attempt.error(), &event.attributes);
  }
  if (step.has_error()) AddError(step.error(), &span.attributes);
  span.failed = step.state() == v1::STATE_FAILED;
  span.error = step.error().message();
  return span;
}

}  // namespace quench::gateway
