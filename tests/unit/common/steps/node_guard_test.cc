#include "common/steps/node_guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "google/rpc/status.pb.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"

namespace quench::steps::node_guard_test {
namespace {

using quench::testing::WaitFor;

TEST(NodeGuardTest, FaultsOfTheMachineAreTold) {
  for (const int error : {ENOSPC, EMFILE, EACCES, EROFS, EIO, ENOMEM, EDQUOT}) {
    const absl::Status status =
        WithNodeFault(Annotate(ErrnoStatus(error, "write", "scratch/x"), "step"));
    EXPECT_TRUE(IsNodeFault(status)) << status;
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    // Also of the process that did the step.
    EXPECT_TRUE(
        IsNodeFault(WithNodeFault(rpc::FromProto(rpc::ToProto(ErrnoStatus(error, "a", "b"))))));
  }
  for (const absl::Status& other :
       {absl::OkStatus(), ErrnoStatus(ENOENT, "open", "x"), absl::ResourceExhaustedError("model"),
        rpc::Error(rpc::Reason::kResourceLimit, "memory"), absl::UnavailableError("x"),
        absl::PermissionDeniedError("x")}) {
    EXPECT_EQ(WithNodeFault(other), other);
  }
}

TEST(NodeGuardTest, SoAreStoresThatCannotBeUsed) {
  for (const absl::Status& status :
       {absl::UnavailableError("gone"), rpc::Error(rpc::Reason::kTokenInvalid, "rotated"),
        absl::PermissionDeniedError("no"), ErrnoStatus(ENOSPC, "write", "blob")}) {
    EXPECT_TRUE(IsNodeFault(WithStoreFault(status))) << status;
  }
  const absl::Status missing = rpc::Error(rpc::Reason::kBlobMissing, "evicted");
  EXPECT_EQ(WithStoreFault(missing), missing);
}

TEST(NodeGuardTest, OutOfServiceUntilTheProbeSucceeds) {
  metrics::Registry registry;
  std::atomic<int> probes{0};
  std::atomic<bool> works{false};
  NodeGuard guard(
      [&] {
        ++probes;
        return works ? absl::OkStatus() : absl::UnavailableError("still full");
      },
      metrics::Service::kCodegen, &registry, std::chrono::milliseconds(5));
  EXPECT_EQ(guard.Check(), absl::OkStatus());
  guard.Fault(absl::UnavailableError("full"));
  const absl::Status out = guard.Check();
  EXPECT_EQ(rpc::ReasonOf(out), "NODE_FAULT");
  EXPECT_THAT(MessageOf(out),
              quench::testing::HasSubstr(
                  "the server is out of service: "));  // the probe may have told its own
  EXPECT_TRUE(rpc::RetryAfterOf(out));
  EXPECT_TRUE(WaitFor([&] { return probes > 3; }));
  EXPECT_FALSE(guard.Check().ok());
  EXPECT_EQ(registry.Get(metrics::kStepsTurnedAway, metrics::Service::kCodegen).Value(), 2)
      << "which are not faults of their own";
  works = true;
  EXPECT_TRUE(WaitFor([&] { return guard.Check().ok(); }));
  EXPECT_EQ(registry.Get(metrics::kNodeFaults, metrics::Service::kCodegen).Value(), 1);
}

TEST(RunningStepsTest, ADrainEndsThemWithAReason) {
  RunningSteps running;
  StepContext context;
  const absl::Status ended = running.Run(context, [&] {
    running.End();
    return context.Check();
  });
  EXPECT_EQ(rpc::ReasonOf(ended), "SERVER_DRAINED");
  bool began = false;
  const absl::Status late = running.Run(StepContext(), [&] {
    began = true;
    return absl::OkStatus();
  });
  EXPECT_EQ(rpc::ReasonOf(late), "SERVER_DRAINED");
  EXPECT_FALSE(began);
  RunningSteps others;
  StepContext cancelled;
  cancelled.cancel_token()->Cancel();  // by the caller
  EXPECT_TRUE(absl::IsCancelled(others.Run(cancelled, [&] { return cancelled.Check(); })));
}

}  // namespace
}  // namespace quench::steps::node_guard_test
