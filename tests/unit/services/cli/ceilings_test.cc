#include "services/cli/ceilings.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/cli/profile.h"

namespace quench::cli::ceilings_test {
namespace {

MeasuredCeiling Of(const std::vector<CeilingRound>& rounds) { return CeilingOf(rounds); }

TEST(CeilingsTest, TheFastestRoundCounts) {
  const MeasuredCeiling ceiling = Of({{80, 0.6}, {100, 0.99}, {97, 0.95}});
  EXPECT_DOUBLE_EQ(ceiling.rate, 100);
  EXPECT_DOUBLE_EQ(ceiling.share, 0.99);
  EXPECT_TRUE(ceiling.quiet());
  EXPECT_TRUE(ceiling.settled);
}

TEST(CeilingsTest, RoundsGoOnUntilTwoAgreeWithoutOtherPrograms) {
  EXPECT_FALSE(Of({{100, 1}, {99, 1}}).settled);                // too few
  EXPECT_FALSE(Of({{100, 1}, {80, 0.7}, {60, 0.5}}).settled);   // the second is far away
  EXPECT_FALSE(Of({{50, 0.5}, {51, 0.5}, {50, 0.5}}).settled);  // others take half of a core
  EXPECT_FALSE(Of({{50, 0.5}, {51, 0.5}, {50, 0.5}}).quiet());
  EXPECT_TRUE(Of({{50, 0.5}, {51, 0.5}, {100, 1}, {98, 1}}).settled);
}

Profile ProfileOf(std::vector<ProfiledKernel> kernels) {
  Profile profile;
  profile.kernels = std::move(kernels);
  profile.runs = 3;
  profile.described = true;
  profile.threads = 4096;  // no fewer than there are cores
  profile.ceilings = analyser::Ceilings{"host", "measured", 100, 10};
  return profile;
}

ProfiledKernel Kernel(const std::string& node, double performed, const std::string& dtype = "f32") {
  ProfiledKernel kernel;
  kernel.node = node;
  kernel.kernel = "conv";
  kernel.seconds = 1;
  kernel.multiplications = 4 * performed;  // by definition
  kernel.performed = performed;
  kernel.bytes = 1e6;
  kernel.dtype = dtype;
  return kernel;
}

TEST(ProfileTest, NoKernelIsAboveThePeak) {
  // 50 GFLOP/s of 100, though by the definition of the convolution it were 200.
  const Profile under = ProfileOf({Kernel("a", 25e9), Kernel("bytes", 200e9, "u8")});
  EXPECT_DOUBLE_EQ(PeakOf(under).gflops, 100);
  EXPECT_EQ(PeakOf(under).kernel, nullptr);
  const std::string table = ProfileTable(under);
  EXPECT_NE(table.find(" 50%"), std::string::npos) << table;
  EXPECT_EQ(table.find("400%"), std::string::npos) << table;
  // A speed that a kernel reached is possible.
  const Profile above = ProfileOf({Kernel("a", 25e9), Kernel("fast", 100e9)});
  EXPECT_DOUBLE_EQ(PeakOf(above).gflops, 200);
  ASSERT_NE(PeakOf(above).kernel, nullptr);
  EXPECT_EQ(PeakOf(above).kernel->node, "fast");
  const std::string raised = ProfileTable(above);
  EXPECT_NE(raised.find(" 25%"), std::string::npos) << raised;
  EXPECT_NE(raised.find("100%  "), std::string::npos) << raised;
  EXPECT_NE(raised.find("reached by kernel `fast`, above the measured peak"), std::string::npos)
      << raised;
  EXPECT_EQ(ProfileToJson(above).at("peak_source"), "fast");
}

TEST(CeilingsTest, WhatWasMeasuredUnderLoadIsMeasuredAgain) {
  const TempDir cache = *TempDir::Create();
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string old = before == nullptr ? "" : before;
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1), 0);
  int measured = 0;
  const auto use = [&](HostUse how, MachineCeilings now) {
    return *HostCeilings(how, {}, [&](const StepContext&) {
      ++measured;
      return absl::StatusOr<MachineCeilings>(now);
    });
  };
  const analyser::Ceilings busy = use(HostUse::kKept, {50, 5, 0.4});
  EXPECT_DOUBLE_EQ(busy.gflops, 50);
  EXPECT_EQ(
      busy.source.find("while other programs or a limit took 60 % of a core: they may be too low"),
      busy.source.find(" cores ") + 7)
      << busy.source;
  // The machine has done 5 GB/s, whatever it does now.
  const analyser::Ceilings quiet = use(HostUse::kKept, {90, 4, 0.95});
  EXPECT_DOUBLE_EQ(quiet.gflops, 90);
  EXPECT_DOUBLE_EQ(quiet.gbytes, 5);
  EXPECT_EQ(quiet.source.find("other programs"), std::string::npos) << quiet.source;
  EXPECT_DOUBLE_EQ(use(HostUse::kKept, {70, 7, 1}).gflops, 90);
  EXPECT_EQ(measured, 2);
  EXPECT_DOUBLE_EQ(use(HostUse::kRaised, {70, 7, 1}).gflops, 90);
  EXPECT_DOUBLE_EQ(use(HostUse::kKept, {}).gbytes, 7);
  EXPECT_DOUBLE_EQ(use(HostUse::kAfresh, {60, 6, 1}).gflops, 60);
  EXPECT_EQ(measured, 4);
  // Files of earlier versions do not tell how they were measured.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache.path())) {
    if (!entry.is_regular_file()) continue;
    nlohmann::json json = nlohmann::json::parse(*ReadFile(entry.path()));
    json.erase("share");
    ASSERT_TRUE(WriteFileAtomically(entry.path(), json.dump()).ok());
  }
  EXPECT_DOUBLE_EQ(use(HostUse::kKept, {30, 3, 1}).gflops, 30);
  before == nullptr ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", old.c_str(), 1);
}

}  // namespace
}  // namespace quench::cli::ceilings_test
