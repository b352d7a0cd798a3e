// A unary call as part of a step, retried while its failure may pass.
#pragma once

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/errors.h"
#include "common/rpc/retry.h"

namespace quench::rpc {

// `call`(grpc::ClientContext*) -> grpc::Status.
template <typename Call>
absl::Status CallWithRetry(const Channel& channel, const StepContext& step,
                           std::chrono::milliseconds retry_time, Call call) {
  Backoff backoff(step, retry_time);
  while (true) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    ClientCall client_call(channel, step);
    absl::Status status = FromGrpc(call(client_call.context()));
    if (status.ok() || !IsTransient(status)) return status;
    if (!backoff.Wait(status)) {
      QUENCH_RETURN_IF_ERROR(step.Check());
      return status;
    }
  }
}

}  // namespace quench::rpc
