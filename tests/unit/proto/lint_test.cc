// One case for each rule, so that each can be seen to fail.
#include "tests/unit/proto/lint.h"

#include <gtest/gtest.h>

#include "tests/unit/proto/parse_proto.h"

namespace quench::lint_test {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

using Edits = std::vector<std::pair<std::string, std::string>>;
using Problems = std::vector<std::string>;

// A file that keeps all rules, in protobuf's text form; cases edit it. The paths are field numbers and
// indices: 12 is `syntax`, 6 `service`, 2 in it `method`.
constexpr char kShop[] = R"(
name: "shop/v1/shop.proto"  package: "shop.v1"  syntax: "proto3"
options { go_package: "shop/v1;shopv1" java_package: "shop.v1" java_multiple_files: true }
service {
  name: "Shop"
  method { name: "Buy" input_type: "BuyRequest" output_type: "BuyResponse" }
  method { name: "Watch" input_type: "WatchRequest" output_type: "WatchEvent" server_streaming: true }
}
message_type { name: "BuyRequest" field { name: "name" number: 1 type: TYPE_STRING } }
message_type { name: "BuyResponse" }
message_type { name: "WatchRequest" }
message_type {
  name: "WatchEvent"
  enum_type { name: "Kind" value { name: "KIND_UNSPECIFIED" number: 0 } }
}
enum_type { name: "SizeClass" value { name: "SIZE_CLASS_UNSPECIFIED" number: 0 } }
source_code_info {
  location { path: 12 span: [1, 0, 1] leading_comments: "A shop." }
  location { path: [6, 0] span: [2, 0, 1] leading_comments: "Buys." }
  location { path: [6, 0, 2, 0] span: [3, 0, 1] leading_comments: "Buys one." }
  location { path: [6, 0, 2, 1] span: [4, 0, 1] leading_comments: "Tells." }
}
)";

Problems ProblemsAfter(const Edits& edits) {
  DescriptorPool pool;
  const FileDescriptor* file = ParseFile(Edited(kShop, edits), pool);
  return file == nullptr ? Problems{"not a file"} : FindLintProblems(*file);
}

TEST(Lint, GoodFileHasNoProblem) { EXPECT_EQ(ProblemsAfter({}), Problems()); }

TEST(Lint, PackageIsTheFolder) {
  EXPECT_EQ(ProblemsAfter({{"shop/v1", "store/v1"}}),
            Problems{"store/v1/shop.proto: package is `shop.v1`, the folder `store.v1`"});
}

TEST(Lint, PackageEndsInAVersion) {
  EXPECT_EQ(ProblemsAfter({{"shop/v1", "shop/version"},
                           {"shop.v1", "shop.version"},
                           {"shop/v1;", "shop/version;"},
                           {"java_package: \"shop.v1\"", "java_package: \"shop.version\""}}),
            Problems{"shop/version/shop.proto: package `shop.version` ends in no version"});
}

TEST(Lint, GeneratedCodeHasAPlace) {
  EXPECT_EQ(
      ProblemsAfter({{"go_package: \"shop/v1;", "go_package: \"store/v1;"}}),
      Problems{"shop/v1/shop.proto: go_package is `store/v1;shopv1`, not the package's path"});
  const Problems java{
      "shop/v1/shop.proto: java_package is not the package, with "
      "java_multiple_files"};
  EXPECT_EQ(ProblemsAfter({{"java_package: \"shop.v1\"", "java_package: \"shop\""}}), java);
  EXPECT_EQ(ProblemsAfter({{"java_multiple_files: true", ""}}), java);
}

TEST(Lint, ZeroIsUnspecified) {
  EXPECT_EQ(ProblemsAfter({{"SIZE_CLASS_UNSPECIFIED", "SIZE_CLASS_UNKNOWN"}}),
            Problems{"shop/v1/shop.proto: the first value of enum `shop.v1.SizeClass` is not "
                     "SIZE_CLASS_UNSPECIFIED"});
  EXPECT_EQ(ProblemsAfter({{"KIND_UNSPECIFIED", "OTHER_UNSPECIFIED"}}),
            Problems{"shop/v1/shop.proto: the first value of enum `shop.v1.WatchEvent.Kind` is not "
                     "KIND_UNSPECIFIED"});
}

TEST(Lint, OneServiceInAFile) {
  EXPECT_EQ(ProblemsAfter({{"message_type", "service { name: \"Bank\" } message_type"},
                           {"location",
                            "location { path: [6, 1] span: [1, 0, 1] "
                            "leading_comments: \"Pays.\" } location"}}),
            Problems{"shop/v1/shop.proto: more than one service"});
}

TEST(Lint, RpcsHaveTheirOwnMessages) {
  EXPECT_EQ(ProblemsAfter({{"input_type: \"WatchRequest\"", "input_type: \"BuyRequest\""}}),
            Problems{"shop/v1/shop.proto: `shop.v1.Shop.Watch` takes `shop.v1.BuyRequest`"});
  EXPECT_EQ(ProblemsAfter({{"output_type: \"BuyResponse\"", "output_type: \"WatchEvent\""}}),
            Problems{"shop/v1/shop.proto: `shop.v1.Shop.Buy` gives `shop.v1.WatchEvent`"});
  EXPECT_EQ(ProblemsAfter({{" server_streaming: true", ""}}),
            Problems{"shop/v1/shop.proto: `shop.v1.Shop.Watch` gives `shop.v1.WatchEvent`"});
}

TEST(Lint, CommentsAreThere) {
  EXPECT_EQ(ProblemsAfter({{" leading_comments: \"A shop.\"", ""}}),
            Problems{"shop/v1/shop.proto: the file has no comment"});
  EXPECT_EQ(ProblemsAfter({{" leading_comments: \"Buys.\"", ""}}),
            Problems{"shop/v1/shop.proto: `shop.v1.Shop` has no comment"});
  EXPECT_EQ(ProblemsAfter({{" leading_comments: \"Tells.\"", ""}}),
            Problems{"shop/v1/shop.proto: `shop.v1.Shop.Watch` has no comment"});
}

TEST(Lint, BytesTravelByDigest) {
  EXPECT_EQ(ProblemsAfter({{"TYPE_STRING", "TYPE_BYTES"}}),
            Problems{"shop/v1/shop.proto: `shop.v1.BuyRequest.name` holds bytes, not a digest"});
  // Bytes that a client streams are on their way to where digests are made.
  EXPECT_EQ(ProblemsAfter({{"TYPE_STRING", "TYPE_BYTES"},
                           {"name: \"Buy\"", "name: \"Buy\" client_streaming: true"}}),
            Problems{});
}

}  // namespace
}  // namespace quench::lint_test
