// The comparison of a conformance run with its manifest: every change of kind is a difference.
#include "tests/conformance/manifest.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::conformance::manifest_test {
namespace {

using Lines = std::vector<std::string>;

Manifest One(const Outcome& outcome) { return {{"test_x", {outcome, outcome}}}; }

TEST(ManifestTest, EveryChangeOfKindIsADifference) {
  const Kind kinds[] = {Kind::kPass,  Kind::kUnsupported, Kind::kWrong,
                        Kind::kError, Kind::kCrash,       Kind::kTimeout};
  for (const Kind listed : kinds) {
    for (const Kind found : kinds) {
      const Lines lines = Differences(One({found, "now"}), One({listed, "then"}), {});
      EXPECT_EQ(lines.size(), listed == found ? 0u : 2u)
          << static_cast<int>(listed) << " " << static_cast<int>(found);
    }
  }
  EXPECT_EQ(Differences(One({Kind::kCrash, "crashed: Segmentation fault"}),
                        One({Kind::kUnsupported, "import: not there"}), {.compiled = false}),
            Lines{"test_x interpreted: listed as unsupported, found crash: crashed: Segmentation "
                  "fault"});
}

TEST(ManifestTest, ListedAndRunAreTheSameCases) {
  EXPECT_EQ(Differences(One({}), {}, {}), Lines{"test_x: not listed"});
  EXPECT_EQ(Differences({}, One({}), {}), Lines{"test_x: listed, but not in the data"});
  EXPECT_EQ(Differences({}, One({}), {.whole = false}), Lines{});
}

TEST(ManifestTest, TheKindIsThatOfTheStatus) {
  EXPECT_EQ(Outcome::Of(absl::OkStatus()).kind, Kind::kPass);
  EXPECT_EQ(Outcome::Of(Unsupported("no")).kind, Kind::kUnsupported);
  EXPECT_EQ(Outcome::Of(InvalidArgument("`unsupported: `")).kind, Kind::kError);
  EXPECT_EQ(Outcome::Of(Internal("a\tb\nc")).reason, "a b c");
  EXPECT_EQ(Outcome::Of(Internal("{}", std::string(1000, 'x'))).reason.size(), 163u);
}

TEST(ManifestTest, WhatFailsNeedsAReasonAndNothingElseHasOne) {
  const Exclusions excluded = {{"test_x", "upstream's data are wrong"}};
  EXPECT_EQ(Unexplained(One({Kind::kWrong, "differs"}), excluded, {}), Lines{});
  EXPECT_EQ(Unexplained(One({Kind::kWrong, "differs"}), {}, {}).size(), 2u);
  EXPECT_EQ(Unexplained(One({Kind::kError, "refused"}), {}, {}).size(), 2u);
  EXPECT_EQ(Unexplained(One({Kind::kCrash, "died"}), excluded, {}).size(), 2u);
  EXPECT_EQ(Unexplained(One({Kind::kTimeout, "slow"}), excluded, {}).size(), 2u);
  EXPECT_EQ(Unexplained(One({}), excluded, {}).size(), 1u);
  EXPECT_EQ(Unexplained(One({Kind::kUnsupported, "no"}), excluded, {}).size(), 1u);
  EXPECT_EQ(Unexplained({}, excluded, {}).size(), 1u);
  EXPECT_EQ(Unexplained({}, excluded, {.whole = false}), Lines{});
}

TEST(ManifestTest, RoundTripsAndRefusesWhatHasNoKind) {
  const TempDir folder = *TempDir::Create();
  const std::string path = folder.path() / "manifest.tsv";
  Manifest manifest = One({Kind::kWrong, "output 0 differs: at 1"});
  manifest["test_y"] = {{}, {Kind::kTimeout, "took longer than 2 s"}};
  ASSERT_TRUE(WriteManifest(path, manifest).ok());
  const Manifest read = ReadManifest(path).value();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(Differences(read, manifest, {}), Lines{});
  EXPECT_EQ(read.at("test_x").interpreted.reason, "output 0 differs: at 1");
  for (const char* text : {"a\tpass\n", "a\tpass\tpassed\n", "a\tpass\tcrashed: x\n"}) {
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
    EXPECT_FALSE(ReadManifest(path).ok()) << text;
  }
}

}  // namespace
}  // namespace quench::conformance::manifest_test
