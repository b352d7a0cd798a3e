#include "common/rpc/resource_name.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "tests/support/matchers.h"

namespace quench::rpc::resource_name_test {
namespace {

using absl::StatusCode;
using quench::testing::HasSubstr;

const std::string kHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const std::string kUuid = "6ba7b810-9dad-11d1-80b4-00c04fd430C8";

TEST(ResourceNameTest, NamesThatAreRead) {
  const ResourceName plain{"", "", {kHash, 12}};
  EXPECT_EQ(*ParseReadName("blobs/" + kHash + "/12"), plain);
  EXPECT_EQ(*ParseReadName("blobs/sha256/" + kHash + "/12"), plain);
  EXPECT_EQ(FormatResourceName(plain), "blobs/" + kHash + "/12");
  const ResourceName named{"a/b", "", {kHash, 0}};
  EXPECT_EQ(*ParseReadName("a/b/blobs/" + kHash + "/0"), named);
  EXPECT_EQ(FormatResourceName(named), "a/b/blobs/" + kHash + "/0");
  EXPECT_EQ(ParseReadName("blobs/" + kHash + "/9223372036854775807")->blob.size,
            uint64_t{9223372036854775807});
}

TEST(ResourceNameTest, NamesThatAreWritten) {
  const ResourceName plain{"", kUuid, {kHash, 12}};
  const std::string text = "uploads/" + kUuid + "/blobs/" + kHash + "/12";
  EXPECT_EQ(*ParseWriteName(text), plain);
  EXPECT_EQ(FormatResourceName(plain), text);
  EXPECT_EQ(*ParseWriteName("uploads/" + kUuid + "/blobs/sha256/" + kHash + "/12"), plain);
  EXPECT_EQ(*ParseWriteName(text + "/model.onnx"), plain);
  EXPECT_EQ(ParseWriteName("main/" + text)->instance, "main");
}

TEST(ResourceNameTest, MalformedNames) {
  const std::string blob = "blobs/" + kHash + "/12";
  const struct {
    std::string text;
    std::string part;
    StatusCode code = StatusCode::kInvalidArgument;
    bool is_upload = false;
  } kCases[] = {
      {"", "a segment is empty"},
      {"/" + blob, "a segment is empty"},
      {"a//" + blob, "a segment is empty"},
      {"blobs", "64 lower-case hex"},
      {"blobs/", "64 lower-case hex"},
      {"blobs/" + kHash, "a number of bytes"},
      {"blobs/" + kHash + "/", "a number of bytes"},
      {"blobs/" + kHash + "/-1", "a number of bytes"},
      {"blobs/" + kHash + "/+1", "a number of bytes"},
      {"blobs/" + kHash + "/01", "a number of bytes"},
      {"blobs/" + kHash + "/1x", "a number of bytes"},
      {"blobs/" + kHash + "/9223372036854775808", "a number of bytes"},
      {"blobs/" + kHash + "/99999999999999999999999", "a number of bytes"},
      {blob + "/more", "something follows"},
      {blob + "/", "something follows"},
      {"blobs/" + kHash.substr(1) + "/12", "64 lower-case hex"},
      {"blobs/" + std::string(64, 'A') + "/12", "64 lower-case hex"},
      {"blobs/../../etc/passwd", "64 lower-case hex"},
      {"blobs/sha256/" + std::string(63, '0') + "/12", "64 lower-case hex"},
      {"blobs/blake3/" + kHash + "/12", "only of sha256", StatusCode::kUnimplemented},
      {"compressed-blobs/zstd/" + kHash + "/12", "not compressed", StatusCode::kUnimplemented},
      {"operations/" + blob, "`blobs/` is missing"},
      {"uploads/" + kUuid + "/" + blob, "`blobs/` is missing"},
      {std::string("blobs\0/", 7) + kHash + "/1", "`blobs/` is missing"},
      {std::string(2000, 'a'), "at most 1024"},
      {blob, "`uploads/` is missing", StatusCode::kInvalidArgument, true},
      {"uploads/" + blob, "followed by a UUID", StatusCode::kInvalidArgument, true},
      {"uploads/../" + blob, "followed by a UUID", StatusCode::kInvalidArgument, true},
      {"uploads/" + kUuid, "`blobs/` is missing", StatusCode::kInvalidArgument, true},
      {"uploads/" + kUuid + "/compressed-" + blob, "not compressed", StatusCode::kUnimplemented,
       true},
  };
  for (const auto& each : kCases) {
    const absl::Status status =
        (each.is_upload ? ParseWriteName(each.text) : ParseReadName(each.text)).status();
    EXPECT_EQ(status.code(), each.code) << each.text << ": " << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(each.part));
  }
}

}  // namespace
}  // namespace quench::rpc::resource_name_test
