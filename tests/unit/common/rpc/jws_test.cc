// Keys and signatures of JSON Web Tokens, one by one.
#include "common/rpc/jws.h"

#include <gtest/gtest.h>

namespace quench::rpc::jws_test {
namespace {

// The point and the signature of RFC 7515, A.3.
constexpr char kX[] = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
constexpr char kY[] = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
constexpr char kText[] =
    "eyJhbGciOiJFUzI1NiJ9."
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlf"
    "Q";
constexpr char kSignature[] =
    "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

TEST(JwsTest, Base64UrlHasOneReading) {
  EXPECT_EQ(DecodeBase64Url("aGk"), "hi");
  EXPECT_EQ(DecodeBase64Url("-_-_"), "\xfb\xff\xbf");
  for (const char* bad : {"", "a", "aGk=", "aG k", "aGk\n", "a+b/", "aGkaa", "aGk."})
    EXPECT_FALSE(DecodeBase64Url(bad).has_value()) << bad;
}

TEST(JwsTest, VerifiesWhatOthersHaveSigned) {
  const PublicKey key = P256Key(*DecodeBase64Url(kX), *DecodeBase64Url(kY));
  ASSERT_NE(key, nullptr);
  std::string signature = *DecodeBase64Url(kSignature);
  EXPECT_TRUE(Verifies(key, kText, signature));
  EXPECT_FALSE(Verifies(key, std::string(kText) + "x", signature));
  EXPECT_FALSE(Verifies(key, kText, ""));
  EXPECT_FALSE(Verifies(key, kText, signature.substr(1)));
  EXPECT_FALSE(Verifies(key, kText, std::string(64, '\0')));
  EXPECT_FALSE(Verifies(key, kText, std::string(64, '\xff')));
  for (size_t i = 0; i < signature.size(); ++i) {
    std::string other = signature;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(Verifies(key, kText, other)) << i;
  }
}

TEST(JwsTest, RefusesKeysThatAreNone) {
  const std::string x = *DecodeBase64Url(kX), y = *DecodeBase64Url(kY);
  EXPECT_EQ(P256Key(x, x), nullptr) << "not on the curve";
  EXPECT_EQ(P256Key(x, y.substr(1)), nullptr);
  EXPECT_EQ(P256Key(std::string(32, '\xff'), y), nullptr);
  EXPECT_EQ(P256Key("", ""), nullptr);
  const std::string three("\x03", 1);
  EXPECT_EQ(RsaKey(std::string(128, '\xf1'), three), nullptr) << "1,024 bits";
  EXPECT_EQ(RsaKey(std::string(256, '\0') + "\x01", three), nullptr) << "leading zeros are none";
  EXPECT_EQ(RsaKey(std::string(256, '\xf0'), three), nullptr) << "even";
  EXPECT_EQ(RsaKey(std::string(5000, '\xf1'), three), nullptr);
  EXPECT_EQ(RsaKey(std::string(256, '\xf1'), std::string(9, '\x01')), nullptr);
}

}  // namespace
}  // namespace quench::rpc::jws_test
