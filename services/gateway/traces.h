// The spans of workflows and their steps. Their ids follow from what they are of, so that a gateway that starts again goes
// on with the same ones, and needs to store none.
#pragma once

#include <string>

#include "common/rpc/tracing.h"
#include "quench/gateway/v1/workflows.pb.h"

namespace quench::gateway {

// The traceparent that calls of a step carry: of the step's span. `created` is the workflow's own, of the call
// that created it; empty if that is.
std::string StepTraceparent(const std::string& created, const v1::Workflow& header,
                            const v1::Step& step);

// From its creation, or the last retry, to its end: below the call that created it.
rpc::Span WorkflowSpan(const std::string& created, const v1::Workflow& header);

// From when it was ready to its end: below the workflow's. Attempts that failed are its events.
rpc::Span StepSpan(const std::string& created, const v1::Workflow& header, const v1::Step& step);

}  // namespace quench::gateway
