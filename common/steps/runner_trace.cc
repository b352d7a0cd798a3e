// The spans of a step, for the trace of its call: the step, and below it what its time went into.
#include <google/protobuf/util/time_util.h>

#include "common/rpc/errors.h"
#include "common/rpc/tracing.h"
#include "common/steps/runner_internal.h"

namespace quench::steps {
namespace {

using google::protobuf::Timestamp;
using google::protobuf::util::TimeUtil;

// Below `parent`, if both of its ends were reached.
void RecordPhase(rpc::Tracer& tracer, const TraceContext& parent, const std::string& name,
                 const Timestamp& start, const Timestamp& end, rpc::Attributes attributes = {}) {
  if (start.seconds() == 0 || end.seconds() == 0) return;
  rpc::Span span;
  span.context = NewSpan(parent);
  span.parent_id = parent.span_id;
  span.name = name;
  span.start_ns = TimeUtil::TimestampToNanoseconds(start);
  span.end_ns = TimeUtil::TimestampToNanoseconds(end);
  span.attributes = std::move(attributes);
  tracer.Record(std::move(span));
}

}  // namespace

void StepRunner::RecordStep(const Job& job, const TraceContext& context,
                            const std::string& parent_id, int64_t start_ns, bool cache_hit,
                            const absl::Status& status) const {
  const step::v1::Phases& phases = job.execution.phases();
  rpc::Span span;
  span.context = context;
  span.parent_id = parent_id;
  span.name = "step " + job.step.method.substr(job.step.method.find('/') + 1);
  span.start_ns = start_ns;
  span.end_ns = rpc::UnixNanoseconds();
  span.attributes = {{"quench.tenant", job.tenant},
                     {"quench.step.key", job.key},
                     {"quench.cache_hit", cache_hit},
                     {"quench.server", options_.server}};
  if (!status.ok()) {
    span.failed = true;
    span.error = std::string(status.message());
    span.attributes.emplace_back("error.type",
                                 rpc::ReasonOf(rpc::WithTrace(status, context.trace_id)));
  }
  options_.tracer->Record(std::move(span));
  RecordPhase(*options_.tracer, context, "fetch", phases.accepted(), phases.inputs_fetched(),
              {{"quench.inputs", static_cast<int64_t>(job.inputs.size())}});
  // Work that fails ends with the step, and so does what it left unfinished.
  const Timestamp now = TimeUtil::GetCurrentTime();
  const bool in_child = !options_.in_process;
  RecordPhase(
      *options_.tracer, context, "work", phases.started(),
      phases.has_work_done() || status.ok() ? phases.work_done() : now,
      {{"quench.isolation", std::string(in_child ? "process" : "thread")},
       {"quench.cpu_seconds",
        static_cast<double>(TimeUtil::DurationToMicroseconds(job.execution.cpu_time())) / 1e6},
       {"quench.peak_memory_bytes", job.execution.peak_memory_bytes()}});
  RecordPhase(*options_.tracer, context, "store", phases.work_done(), phases.outputs_stored());
}

}  // namespace quench::steps
