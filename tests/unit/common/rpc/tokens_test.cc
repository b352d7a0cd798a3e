#include "common/rpc/tokens.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "tests/support/matchers.h"

namespace quench::rpc::tokens_test {
namespace {

using quench::testing::HasSubstr;

class TokensTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { ASSERT_TRUE(WriteFileAtomically(path_, text).ok()); }
  TempDir folder_ = *TempDir::Create();
  std::filesystem::path path_ = folder_.path() / "tokens";
};

TEST_F(TokensTest, KnowsWhoseTokenItIs) {
  Write("# two for alice\nalice " + Sha256Hex("old") + "\nalice " + Sha256Hex("new") + "\n\nbob " +
        Sha256Hex("secret") + "\n");
  const auto list = TokenList::Open(path_);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ((*list)->CallerOf("Bearer old")->tenant, "alice");
  EXPECT_EQ((*list)->CallerOf("Bearer new")->tenant, "alice");
  EXPECT_EQ((*list)->CallerOf("Bearer secret")->tenant, "bob");
  for (const std::string text :
       {"Bearer", "Bearer ", "Bearer secre", "Bearer secret ", "Bearer  secret"}) {
    EXPECT_EQ((*list)->CallerOf(text).status().code(), absl::StatusCode::kUnauthenticated) << text;
  }
  EXPECT_EQ(ReasonOf((*list)->CallerOf("").status()), "TOKEN_MISSING");
  EXPECT_EQ(ReasonOf((*list)->CallerOf("Basic secret").status()), "TOKEN_MISSING");
  EXPECT_EQ(ReasonOf((*list)->CallerOf("Bearer nobody").status()), "TOKEN_INVALID");
  // The file holds hashes: one of them is not a token.
  EXPECT_FALSE((*list)->CallerOf("Bearer " + Sha256Hex("secret")).ok());
}

TEST_F(TokensTest, TokensExpire) {
  Write("alice " + Sha256Hex("old") + " 2020-01-31T12:00:00Z\nalice " + Sha256Hex("older") +
        " 2019-12-31\nalice " + Sha256Hex("new") + " 2999-12-31T23:59:59+01:00\n");
  const auto list = TokenList::Open(path_);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ((*list)->CallerOf("Bearer new")->tenant, "alice");
  const absl::Status old = (*list)->CallerOf("Bearer old").status();
  EXPECT_EQ(old.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(ReasonOf(old), "TOKEN_EXPIRED");
  EXPECT_THAT(MessageOf(old), HasSubstr("2020-01-31 12:00:00 UTC"));
  EXPECT_EQ(ReasonOf((*list)->CallerOf("Bearer older").status()), "TOKEN_EXPIRED");
  // Renewed while the server runs.
  Write("alice " + Sha256Hex("old") + " 2999-01-01");
  EXPECT_TRUE((*list)->CallerOf("Bearer old").ok());
}

TEST_F(TokensTest, TokensHaveRoles) {
  Write("red " + Sha256Hex("plain") + "\nred " + Sha256Hex("user") + " role=user\nred " +
        Sha256Hex("look") + " role=viewer 2999-01-01\nblue " + Sha256Hex("ops") +
        "  2999-12-31T23:59:59Z  role=operator\nred " + Sha256Hex("over") +
        " role=operator 2020-01-31\n");
  const auto list = TokenList::Open(path_);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(*(*list)->CallerOf("Bearer plain"), Caller{"red"});
  EXPECT_EQ(*(*list)->CallerOf("Bearer user"), Caller{"red"});
  EXPECT_EQ(*(*list)->CallerOf("Bearer look"), (Caller{"red", CallerRole::kViewer}));
  EXPECT_EQ(*(*list)->CallerOf("Bearer ops"), (Caller{"blue", CallerRole::kOperator}));
  EXPECT_EQ(ReasonOf((*list)->CallerOf("Bearer over").status()), "TOKEN_EXPIRED");
}

TEST_F(TokensTest, ARoleThatIsNoneIsAnError) {
  const std::string start = "red " + Sha256Hex("x");
  for (const char* role : {"role=", "role=root", "role=Viewer", "role=viewer,user"}) {
    Write(start + " " + role);
    EXPECT_THAT(MessageOf(TokenList::Open(path_).status()),
                HasSubstr(fmt::format("line 1: `{}`: must be role=viewer", role)));
  }
  for (const char* more :
       {" role=user role=viewer", " 2999-01-01 role=user 2999-01-01", " role=viewer role=viewer"}) {
    Write(start + more);
    EXPECT_THAT(MessageOf(TokenList::Open(path_).status()), HasSubstr("line 1: must be a tenant"))
        << more;
  }
  Write(start + " viewer");
  EXPECT_THAT(MessageOf(TokenList::Open(path_).status()), HasSubstr("`viewer` is not a time"));
}

TEST_F(TokensTest, AnExpiryThatIsNoTimeIsAnError) {
  for (const char* expiry : {"tomorrow", "2027-13-01", "2027-01-31T12:00", "1893456000"}) {
    Write("alice " + Sha256Hex("one") + " " + expiry);
    const absl::Status status = TokenList::Open(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expiry;
    EXPECT_THAT(MessageOf(status), HasSubstr(fmt::format("line 1: `{}` is not a time", expiry)));
  }
}

TEST_F(TokensTest, ReadsItsFileAgainWhenItChanges) {
  Write("alice " + Sha256Hex("one"));
  const auto list = TokenList::Open(path_);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_TRUE((*list)->CallerOf("Bearer one").ok());
  Write("alice " + Sha256Hex("two"));
  EXPECT_FALSE((*list)->CallerOf("Bearer one").ok());
  EXPECT_TRUE((*list)->CallerOf("Bearer two").ok());
}

TEST_F(TokensTest, AChangeThatIsMalformedChangesNothing) {
  Write("alice " + Sha256Hex("one"));
  const auto list = TokenList::Open(path_);
  ASSERT_TRUE(list.ok()) << list.status();
  for (const std::string text : {"", "alice", "# nobody\n"}) {
    Write(text);
    EXPECT_TRUE((*list)->CallerOf("Bearer one").ok()) << text;
  }
  std::filesystem::remove(path_);
  EXPECT_TRUE((*list)->CallerOf("Bearer one").ok());
  Write("alice " + Sha256Hex("two"));
  EXPECT_TRUE((*list)->CallerOf("Bearer two").ok());
}

TEST_F(TokensTest, SaysWhichLineIsWrong) {
  const std::string good = "alice " + Sha256Hex("x") + "\n";
  for (const std::string& bad :
       std::vector<std::string>{"alice", "alice secret", "Alice " + Sha256Hex("x"),
                                "alice " + Sha256Hex("x") + " more"}) {
    Write(good + bad + "\n");
    const absl::Status status = TokenList::Open(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(MessageOf(status), HasSubstr("line 2")) << bad;
    EXPECT_EQ(MessageOf(status).find("secret"), std::string::npos) << "a token in an error";
  }
  Write("\n");
  EXPECT_THAT(MessageOf(TokenList::Open(path_).status()), HasSubstr("has no tokens"));
  EXPECT_FALSE(TokenList::Open(folder_.path() / "none").ok());
}

TEST_F(TokensTest, SourceFollowsItsFile) {
  Write("  one\n");
  const auto source = TokenSource::Open(path_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->Get(), "one");
  Write("two\n");
  EXPECT_EQ((*source)->Get(), "two");
  Write("");
  EXPECT_EQ((*source)->Get(), "two");
  for (const std::string text : {"", " \n", "a b", "a\nb"}) {
    Write(text);
    EXPECT_EQ(TokenSource::Open(path_).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace quench::rpc::tokens_test
