#include "services/codegen/package.h"

#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace quench::codegen::package_test {
namespace {

using quench::testing::HasSubstr;

constexpr char kOld[] = "123e4567-e89b-12d3-a456-426614174000";
constexpr char kNew[] = "00000000-0000-0000-0000-00000000000A";
const std::string kHeader =
    "// before\n#define MODEL_UUID \"" + std::string(kOld) + "\"\n// after\n";

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// With its terminating zero, as it stands in libraries.
std::string Library(const std::string& uuid) {
  return std::string(3 << 20, 'x') + uuid + std::string(1, '\0') + std::string(1000, 'y');
}

TEST(PackageTest, SaysWhereTheUuidBelongs) {
  const auto stamped = StampUuid(Bytes(Library(kOld)), Bytes(kHeader), kNew);
  ASSERT_TRUE(stamped.ok()) << stamped.status();
  EXPECT_EQ(stamped->offset, size_t{3} << 20);
  EXPECT_EQ(stamped->uuid, "00000000-0000-0000-0000-00000000000a");
  EXPECT_EQ(stamped->header,
            "// before\n#define MODEL_UUID \"00000000-0000-0000-0000-00000000000a\"\n// after\n");
}

TEST(PackageTest, RefusesWhatIsNotAPair) {
  const auto error = [](const std::string& library, const std::string& header) {
    return std::string(StampUuid(Bytes(library), Bytes(header), kNew).status().message());
  };
  EXPECT_THAT(error(Library(kNew), kHeader), HasSubstr("does not have the UUID `123e4567"));
  EXPECT_THAT(error(Library(kOld) + Library(kOld), kHeader), HasSubstr("does not have the UUID"));
  EXPECT_THAT(error("", kHeader), HasSubstr("does not have the UUID"));
  EXPECT_THAT(error(Library(kOld), "#define MODEL_UUID \"1"), HasSubstr("it names no UUID"));
  EXPECT_THAT(std::string(StampUuid(Bytes(Library(kOld)), Bytes(kHeader), "12").status().message()),
              HasSubstr("32 hex digits"));
}

}  // namespace
}  // namespace quench::codegen::package_test
