#include "common/rpc/callers.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"

namespace quench::rpc::callers_test {
namespace {

class CallersTest : public ::testing::Test {
 protected:
  CallersTest() {
    EXPECT_TRUE(WriteFileAtomically(tokens_, "gateway " + Sha256Hex("secret")).ok());
  }
  TempDir folder_ = *TempDir::Create();
  std::filesystem::path tokens_ = folder_.path() / "tokens";
};

TEST_F(CallersTest, MayTakeCallsThatBringNothing) {
  const auto callers = *Callers::Open({tokens_, {}, true});
  EXPECT_EQ(callers->CallerOf("", {})->tenant, kDefaultTenant);
  EXPECT_EQ(callers->CallerOf("", {"anybody.example"})->tenant, kDefaultTenant);
  EXPECT_EQ(callers->CallerOf("Bearer secret", {})->tenant, kGatewayTenant);
  EXPECT_EQ(ReasonOf(callers->CallerOf("Bearer nobody", {}).status()), "TOKEN_INVALID");
}

TEST_F(CallersTest, ATokenCountsBeforeACertificate) {
  const auto callers = *Callers::Open({tokens_, {{"red.example", {"red"}}}, false});
  EXPECT_EQ(callers->CallerOf("", {"other", "red.example"})->tenant, "red");
  EXPECT_EQ(callers->CallerOf("Bearer secret", {"red.example"})->tenant, kGatewayTenant);
  EXPECT_EQ(ReasonOf(callers->CallerOf("Bearer wrong", {"red.example"}).status()), "TOKEN_INVALID");
  EXPECT_EQ(ReasonOf(callers->CallerOf("", {"other"}).status()), "TOKEN_MISSING");
}

TEST_F(CallersTest, WithoutTokensCertificatesDecide) {
  const auto callers = *Callers::Open({{}, {{"red.example", {"red"}}}, false});
  EXPECT_EQ(callers->CallerOf("Bearer ignored", {"red.example"})->tenant, "red");
  EXPECT_EQ(callers->CallerOf("", {}).status().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(CallersTest, CredentialsThatNobodyCanJudgeAreNoDefault) {
  const auto callers = *Callers::Open({{}, {{"red.example", {"red"}}}, true});
  EXPECT_TRUE(callers->CallerOf("", {}).ok());
  for (const char* unknown : {"Basic x", "Bearer x"}) {
    EXPECT_EQ(callers->CallerOf(unknown, {}).status().code(), absl::StatusCode::kUnauthenticated)
        << unknown;
  }
}

TEST_F(CallersTest, OfSeveralNamesTheLowestRoleCounts) {
  const auto callers = *Callers::Open({{},
                                       {{"ops.example", {"red", CallerRole::kOperator}},
                                        {"red.example", {"red"}},
                                        {"look.example", {"red", CallerRole::kViewer}},
                                        {"blue.example", {"blue"}}},
                                       false});
  EXPECT_EQ(*callers->CallerOf("", {"ops.example"}), (Caller{"red", CallerRole::kOperator}));
  EXPECT_EQ(*callers->CallerOf("", {"ops.example", "red.example"}), Caller{"red"});
  EXPECT_EQ(*callers->CallerOf("", {"look.example", "ops.example"}),
            (Caller{"red", CallerRole::kViewer}));
  EXPECT_EQ(MessageOf(callers->CallerOf("", {"blue.example", "ops.example"}).status()),
            "the client's certificate has names of several tenants: blue, red");
}

}  // namespace
}  // namespace quench::rpc::callers_test
