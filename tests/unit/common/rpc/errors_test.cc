#include "common/rpc/errors.h"

#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace quench::rpc::errors_test {
namespace {

using std::chrono::milliseconds;

TEST(ReasonsTest, NamesFitErrorInfoAndAreUnique) {
  std::set<std::string> names;
#define QUENCH_REASON(name, text, code, meaning)  \
  EXPECT_TRUE(names.insert(text).second) << text; \
  EXPECT_LE(std::string(text).size(), 63u);       \
  EXPECT_EQ(std::string(text).find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), std::string::npos);
#include "common/rpc/reasons.def"
#undef QUENCH_REASON
}

TEST(ReasonsTest, EveryCodeHasOne) {
  for (int code = 1; code <= 16; ++code) {
    const auto absl_code = static_cast<absl::StatusCode>(code);
    const Reason reason = DefaultReason(absl_code);
    EXPECT_EQ(Error(reason, "x").code(), absl_code) << code;
  }
}

TEST(ErrorsTest, RoundTripKeepsEverything) {
  absl::Status status = Error(Reason::kBlobMissing, "node `conv1`: weights are not here");
  status = WithReason(status, Reason::kBlobMissing, {{"node", "conv1"}, {"blobs", "2"}});
  status = WithRetryAfter(status, milliseconds(1250));
  status = WithField(status, {"module.digest", "must be 64 hex characters"});
  status = WithField(status, {"target.name", "is empty"});
  status = WithPrecondition(status, {"MISSING", "blobs/ab/12", "upload it"});
  status = WithQuota(status, {"tenant:a", "at most 10"});
  const absl::Status back = FromGrpc(ToGrpc(status));
  EXPECT_EQ(back, status);
  EXPECT_EQ(QuotasOf(back), (std::vector<QuotaViolation>{{"tenant:a", "at most 10"}}));
  EXPECT_EQ(back.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MessageOf(back), "node `conv1`: weights are not here");
  EXPECT_EQ(ReasonOf(back), "BLOB_MISSING");
  EXPECT_EQ(MetadataOf(back),
            (std::map<std::string, std::string>{{"node", "conv1"}, {"blobs", "2"}}));
  EXPECT_EQ(RetryAfterOf(back), milliseconds(1250));
  EXPECT_EQ(FieldsOf(back),
            (std::vector<FieldViolation>{{"module.digest", "must be 64 hex characters"},
                                         {"target.name", "is empty"}}));
  EXPECT_EQ(PreconditionsOf(back),
            (std::vector<PreconditionViolation>{{"MISSING", "blobs/ab/12", "upload it"}}));
}

TEST(ErrorsTest, HostsThatCannotBeResolvedAreNamedAlone) {
  const grpc::Status status(
      grpc::StatusCode::UNAVAILABLE,
      "DNS resolution failed for farm.invalid:7450: C-ares status is not ARES_SUCCESS qtype=AAAA "
      "name=farm.invalid is_balancer=0: Domain name not found");
  EXPECT_EQ(MessageOf(FromGrpc(status)), "cannot resolve host `farm.invalid`");
  EXPECT_EQ(MessageOf(FromGrpc({grpc::StatusCode::UNAVAILABLE, "DNS resolution failed for farm"})),
            "cannot resolve host `farm`");
}

// The details that clients in other languages read.
TEST(ErrorsTest, DetailsAreAGoogleRpcStatus) {
  const grpc::Status status =
      ToGrpc(WithRetryAfter(Error(Reason::kSlotsFull, "full"), milliseconds(2000)));
  google::rpc::Status rich;
  ASSERT_TRUE(rich.ParseFromString(status.error_details()));
  EXPECT_EQ(rich.code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(rich.message(), "full");
  ASSERT_EQ(rich.details_size(), 2);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(rich.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "SLOTS_FULL");
  EXPECT_EQ(info.domain(), "quench");
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(rich.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
}

TEST(ErrorsTest, AnErrorWithoutAReasonGetsItsCodes) {
  EXPECT_EQ(ReasonOf(FromGrpc(ToGrpc(absl::InvalidArgumentError("x")))), "INVALID_REQUEST");
  EXPECT_EQ(ReasonOf(FromGrpc(ToGrpc(absl::InternalError("x")))), "INTERNAL");
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
  EXPECT_EQ(WithRetryAfter(absl::OkStatus(), milliseconds(1)), absl::OkStatus());
}

TEST(ErrorsTest, ContextKeepsDetails) {
  const absl::Status status =
      Annotate(WithRetryAfter(Error(Reason::kSlotsFull, "full"), milliseconds(5)), "step `import`");
  EXPECT_EQ(ReasonOf(status), "SLOTS_FULL");
  EXPECT_EQ(RetryAfterOf(status), milliseconds(5));
}

// Trailers have 8 KiB, in which grpc-message may be three times its length.
TEST(ErrorsTest, LargeErrorsAreCutToFit) {
  absl::Status status = absl::InvalidArgumentError(std::string(100'000, 'x') + "ü");
  for (int i = 0; i < 500; ++i) {
    status = WithField(status, {"nodes[" + std::to_string(i) + "]", std::string(100, 'y')});
    status = WithPrecondition(status, {"MISSING", std::string(80, 'z'), ""});
  }
  status = WithRetryAfter(status, milliseconds(7));
  const grpc::Status small = ToGrpc(status);
  EXPECT_LE(small.error_message().size() * 3 + small.error_details().size() * 4 / 3, 8000u);
  const absl::Status back = FromGrpc(small);
  EXPECT_EQ(ReasonOf(back), "INVALID_REQUEST");
  EXPECT_EQ(RetryAfterOf(back), milliseconds(7));
  EXPECT_GE(PreconditionsOf(back).size(), 3u);
  EXPECT_TRUE(MessageOf(back).ends_with("x ..."));
}

TEST(ErrorsTest, MessagesAreCutBetweenCharacters) {
  for (int shift = 0; shift < 3; ++shift) {
    std::string text(shift, 'x');
    for (int i = 0; i < 1000; ++i) text += "€";
    const std::string message = ToGrpc(absl::InternalError(text)).error_message();
    ASSERT_TRUE(message.ends_with(" ..."));
    EXPECT_EQ((message.size() - 4 - shift) % 3, 0u) << shift;
  }
}

TEST(ErrorsTest, DetailsThatAreNoneAreLeftOut) {
  const absl::Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::NOT_FOUND, "gone", "\xff\xff not a message"));
  EXPECT_EQ(status, absl::NotFoundError("gone"));
}

}  // namespace
}  // namespace quench::rpc::errors_test
