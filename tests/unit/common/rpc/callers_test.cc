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
  EXPECT_EQ(*callers->TenantOf("", {}), kDefaultTenant);
  EXPECT_EQ(*callers->TenantOf("", {"anybody.example"}), kDefaultTenant);
  EXPECT_EQ(*callers->TenantOf("Bearer secret", {}), kGatewayTenant);
  EXPECT_EQ(ReasonOf(callers->TenantOf("Bearer nobody", {}).status()), "TOKEN_INVALID");
}

TEST_F(CallersTest, ATokenCountsBeforeACertificate) {
  const auto callers = *Callers::Open({tokens_, {{"red.example", "red"}}, false});
  EXPECT_EQ(*callers->TenantOf("", {"other", "red.example"}), "red");
  EXPECT_EQ(*callers->TenantOf("Bearer secret", {"red.example"}), kGatewayTenant);
  EXPECT_EQ(ReasonOf(callers->TenantOf("Bearer wrong", {"red.example"}).status()), "TOKEN_INVALID");
  EXPECT_EQ(ReasonOf(callers->TenantOf("", {"other"}).status()), "TOKEN_MISSING");
}

TEST_F(CallersTest, WithoutTokensCertificatesDecide) {
  const auto callers = *Callers::Open({{}, {{"red.example", "red"}}, false});
  EXPECT_EQ(*callers->TenantOf("Bearer ignored", {"red.example"}), "red");
  EXPECT_EQ(callers->TenantOf("", {}).status().code(), absl::StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace quench::rpc::callers_test
