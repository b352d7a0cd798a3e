#include "common/blobs/digest.h"

#include <gtest/gtest.h>

namespace quench::digest_test {
namespace {

// FIPS 180-4 examples.
TEST(Sha256Test, KnownAnswers) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, PiecesGiveTheSameDigest) {
  Sha256 sha;
  sha.Update("a");
  sha.Update("");
  sha.Update("bc");
  Sha256 moved = std::move(sha);
  EXPECT_EQ(moved.HexDigest(), Sha256Hex("abc"));
}

TEST(IsDigestTest, OnlySixtyFourLowerCaseHexDigits) {
  const std::string digest = Sha256Hex("x");
  EXPECT_TRUE(IsDigest(digest));
  EXPECT_FALSE(IsDigest(digest.substr(1)));
  EXPECT_FALSE(IsDigest(digest + "0"));
  EXPECT_FALSE(IsDigest(std::string(64, 'A')));
  EXPECT_FALSE(IsDigest("../" + digest.substr(3)));
  EXPECT_FALSE(IsDigest(""));
}

}  // namespace
}  // namespace quench::digest_test
