#include "common/http/url.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "tests/support/matchers.h"

namespace quench::http::url_test {
namespace {

using quench::testing::HasSubstr;

Url Parse(const std::string& text) {
  const absl::StatusOr<Url> url = ParseUrl(text);
  EXPECT_TRUE(url.ok()) << text << ": " << url.status();
  return url.value_or(Url{});
}

TEST(UrlTest, HasItsParts) {
  const Url url = Parse("HTTPS://Hooks.Example.com:8443/a/b%20c?x=/1&y=%2F");
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(url.host, "hooks.example.com");
  EXPECT_EQ(url.port, 8443);
  EXPECT_EQ(url.path, "/a/b%20c");
  EXPECT_EQ(url.target(), "/a/b%20c?x=/1&y=%2F");
  EXPECT_EQ(url.authority(), "hooks.example.com:8443");
}

TEST(UrlTest, KnowsDefaultsOfPortAndPath) {
  EXPECT_EQ(Parse("http://a").origin(), "http://a:80");
  EXPECT_EQ(Parse("https://a").origin(), "https://a:443");
  EXPECT_EQ(Parse("https://a?q").target(), "/?q");
  EXPECT_EQ(Parse("http://[::1]:90/").origin(), "http://[::1]:90");
  EXPECT_EQ(Parse("http://[::1]").authority(), "[::1]");
  EXPECT_EQ(Parse("http://[::1]").host, "::1");
}

TEST(UrlTest, RefusesWhatHasTwoReadings) {
  for (const auto& [text, what] :
       std::vector<std::pair<std::string, std::string>>{{"", "http://"},
                                                        {"ftp://a/", "http://"},
                                                        {"http:/a", "http://"},
                                                        {"https://a@b/", "user information"},
                                                        {"https://a:b@c/", "user information"},
                                                        {"https:///x", "host"},
                                                        {"https://a b/", "host"},
                                                        {"https://a\\b/", "host"},
                                                        {"https://a..b/", "host"},
                                                        {"https://.a/", "host"},
                                                        {"https://127.1/", "host"},
                                                        {"https://0x7f.0.0.1/", "host"},
                                                        {"https://2130706433/", "host"},
                                                        {"https://[::1/", "IPv6"},
                                                        {"https://[]/", "IPv6"},
                                                        {"https://[::1]x/", "behind"},
                                                        {"https://a:/", "port"},
                                                        {"https://a:0/", "port"},
                                                        {"https://a:65536/", "port"},
                                                        {"https://a:1x/", "port"},
                                                        {"https://a:-1/", "port"},
                                                        {"https://a/#x", "fragment"},
                                                        {"https://a/b c", "escaped"},
                                                        {"https://a/b\r\nX: y", "escaped"},
                                                        {"https://a/%", "escaped"},
                                                        {"https://a/%2", "escaped"},
                                                        {"https://a/%zz", "escaped"},
                                                        {"https://a/\xc3\xa4", "escaped"},
                                                        {"https://a/b/../c", ".."},
                                                        {"https://a/b/%2E%2e/c", ".."},
                                                        {"https://a/b/%2e", ".."},
                                                        {"https://a/..", ".."},
                                                        {"https://a/b%2fc", "escaped `/`"},
                                                        {"https://a/b%5Cc", "escaped `/`"}}) {
    const absl::Status status = ParseUrl(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(MessageOf(status), HasSubstr(what)) << text;
  }
}

TEST(UrlTest, BeginsWithComparesTheOriginWholeAndThePathBySegments) {
  const Url host = Parse("https://hooks.example.com"),
            below = Parse("https://hooks.example.com/quench/"),
            path = Parse("https://hooks.example.com:443/quench");
  EXPECT_TRUE(BeginsWith(Parse("https://hooks.example.com/anything?x"), host));
  EXPECT_TRUE(BeginsWith(Parse("https://HOOKS.example.com:443"), host));
  for (const char* other :
       {"https://hooks.example.com.evil/", "https://hooks.example.com.evil/quench/",
        "https://hooks.example.comevil/", "http://hooks.example.com/",
        "https://hooks.example.com:444/", "https://hooks.example.com./", "https://example.com/",
        "https://x.hooks.example.com/"}) {
    EXPECT_FALSE(BeginsWith(Parse(other), host)) << other;
  }
  EXPECT_TRUE(BeginsWith(Parse("https://hooks.example.com/quench/a"), below));
  EXPECT_FALSE(BeginsWith(Parse("https://hooks.example.com/quench"), below));
  EXPECT_TRUE(BeginsWith(Parse("https://hooks.example.com/quench"), path));
  EXPECT_TRUE(BeginsWith(Parse("https://hooks.example.com/quench/a"), path));
  EXPECT_TRUE(BeginsWith(Parse("https://hooks.example.com/quench?a"), path));
  EXPECT_FALSE(BeginsWith(Parse("https://hooks.example.com/quenched"), path));
}

}  // namespace
}  // namespace quench::http::url_test
