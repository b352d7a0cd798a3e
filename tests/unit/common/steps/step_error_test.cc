#include "common/steps/step_error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/base/errno_status.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::steps::step_error_test {
namespace {

absl::Status Received(const absl::Status& sent) { return ErrorOfStep(rpc::ToProto(sent)); }

TEST(StepErrorTest, KeepsWhatIsSaidOfTheWork) {
  const rpc::FieldViolation field{"node.3", "has no inputs"};
  const absl::Status status = Received(rpc::WithField(
      rpc::WithReason(absl::UnimplementedError("bad"), rpc::Reason::kUnsupported, {{"op", "Foo"}}),
      field));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "bad");
  EXPECT_EQ(rpc::ReasonOf(status), "UNSUPPORTED");
  EXPECT_EQ(rpc::MetadataOf(status).at("op"), "Foo");
  ASSERT_EQ(rpc::FieldsOf(status).size(), 1u);
  EXPECT_EQ(rpc::FieldsOf(status)[0], field);
  EXPECT_EQ(ErrnoOf(Received(ErrnoStatus(ENOSPC, "write", "/x"))), ENOSPC);
}

// A process that says when to ask again would close its service to all.
TEST(StepErrorTest, DropsWhatIsSaidOfTheServer) {
  for (const rpc::Reason reason :
       {rpc::Reason::kSlotsFull, rpc::Reason::kMemoryFull, rpc::Reason::kServerDrained,
        rpc::Reason::kNodeFault, rpc::Reason::kQuotaExceeded, rpc::Reason::kBlobMissing}) {
    const absl::Status status =
        Received(rpc::WithRetryAfter(rpc::Error(reason, "later"), std::chrono::hours(8760)));
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(rpc::ReasonOf(status), "") << rpc::ReasonName(reason);
    EXPECT_FALSE(rpc::RetryAfterOf(status)) << rpc::ReasonName(reason);
  }
  const absl::Status status = Received(rpc::WithQuota(
      rpc::WithPrecondition(absl::FailedPreconditionError("x"), {"MISSING", "blobs/a/1", ""}),
      {"tenant:t", "full"}));
  EXPECT_TRUE(rpc::PreconditionsOf(status).empty());
  EXPECT_TRUE(rpc::QuotasOf(status).empty());
  google::rpc::Status unknown = rpc::ToProto(absl::InternalError("x"));
  unknown.add_details()->set_type_url("type.googleapis.com/some.Other");
  EXPECT_EQ(rpc::ToProto(ErrorOfStep(unknown)).details_size(), 0);
}

TEST(StepErrorTest, ACodeThatNoErrorHasIsInternal) {
  for (const int code : {0, -1, 17, 1 << 30}) {
    google::rpc::Status sent;
    sent.set_code(code);
    EXPECT_TRUE(absl::IsInternal(ErrorOfStep(sent))) << code;
  }
}

}  // namespace
}  // namespace quench::steps::step_error_test
