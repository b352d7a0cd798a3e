#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/base/files.h"

extern "C" {
#include "common/runtime/rt_internal.h"
}

namespace quench {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Mounts as systems have them: only version 2; version 1 beside an empty version 2; a container with version 1 and the
// host's paths.
constexpr char kUnified[] =
    "22 28 0:20 / /proc rw,nosuid - proc proc rw\n"
    "29 23 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kBoth[] =
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
constexpr char kContainer[] =
    "736 735 0:29 /docker/7c1a /sys/fs/cgroup/cpu ro,relatime master:9 - cgroup cgroup rw,cpu\n";

class QuotaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok());
    folder_.emplace(*std::move(folder));
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_->path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  void Describe(const std::string& mounts, const std::string& groups) {
    Write("proc/self/mountinfo", mounts);
    Write("proc/self/cgroup", groups);
  }

  uint32_t Quota() const { return quench_rt_quota_cpus(folder_->path().c_str()); }

 private:
  std::optional<TempDir> folder_;
};

TEST_F(QuotaTest, NoneWhereNothingIsSaid) {
  EXPECT_EQ(Quota(), kNone);
  Describe(kUnified, "0::/user.slice\n");
  EXPECT_EQ(Quota(), kNone);
  Describe("", "");
  EXPECT_EQ(Quota(), kNone);
}

TEST_F(QuotaTest, IsRoundedUp) {
  Describe(kUnified, "0::/\n");
  for (const auto& [text, cpus] : {std::pair{"max 100000\n", kNone},
                                   {"100000 100000\n", 1u},
                                   {"150000 100000\n", 2u},
                                   {"1000 100000\n", 1u},
                                   {"400000 100000", 4u},
                                   {"9223372036854775807 1\n", kNone}}) {
    Write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Quota(), cpus) << text;
  }
}

TEST_F(QuotaTest, DamagedFilesSayNothing) {
  Describe(kUnified, "0::/\n");
  for (const char* text : {"", "\n", "100000", "100000 \n", "100000 0\n", "-1 100000\n", "x y\n"}) {
    Write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Quota(), kNone) << text;
  }
  Write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  for (const char* mounts :
       {"cgroup2", " - cgroup2 ", "1 2 3 - cgroup2 cgroup2 rw\n", " - cgroup \n"}) {
    Describe(mounts, "0::/\n");
    EXPECT_EQ(Quota(), kNone) << mounts;
  }
  for (const char* groups : {"0", "0:", "0:/", "::", "1:cpuset:/\n"}) {
    Describe(kUnified, groups);
    EXPECT_EQ(Quota(), kNone) << groups;
  }
}

TEST_F(QuotaTest, TheLeastOfTheGroupAndThoseAbove) {
  Describe(kUnified, "0::/a.slice/b.service\n");
  Write("sys/fs/cgroup/a.slice/b.service/cpu.max", "600000 100000\n");
  EXPECT_EQ(Quota(), 6u);
  Write("sys/fs/cgroup/a.slice/cpu.max", "300000 100000\n");
  EXPECT_EQ(Quota(), 3u);
  Write("sys/fs/cgroup/cpu.max", "500000 100000\n");
  Write("sys/fs/cgroup/a.slice/other.service/cpu.max", "100000 100000\n");
  Write("sys/fs/cpu.max", "100000 100000\n");  // beyond the mount
  EXPECT_EQ(Quota(), 3u);
}

TEST_F(QuotaTest, VersionOneHasTwoFiles) {
  Describe(kBoth, "4:cpuset:/\n3:cpu,cpuacct:/job\n0::/\n");
  const std::string folder = "sys/fs/cgroup/cpu,cpuacct/job/";
  Write(folder + "cpu.cfs_quota_us", "-1\n");
  Write(folder + "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), kNone);
  Write(folder + "cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(Quota(), 3u);
}

// The mount shows a group under a name that the process does not see, or only the group itself.
TEST_F(QuotaTest, ContainersSeeTheirOwnGroup) {
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  for (const char* group :
       {"/docker/7c1a", "/docker/7c1a/inner", "/docker/7c1ab", "/", "/../..", "/other"}) {
    Describe(kContainer, std::string("3:cpu:") + group + "\n");
    EXPECT_EQ(Quota(), 2u) << group;
  }
}

TEST_F(QuotaTest, LongLinesAreNotTakenApart) {
  const std::string layers(10000, 'x');
  Describe("50 1 0:50 / / rw - overlay overlay rw,lowerdir=" + layers + " - cgroup2 \n" + kUnified,
           "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(Quota(), 2u);
  Describe(kUnified, "0::/" + layers + "\n");
  EXPECT_EQ(Quota(), kNone);
}

TEST(CpusTest, NoMoreThanTheThreadMayUse) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_GE(quench_rt_cpus(), 1u);
  EXPECT_LE(quench_rt_cpus(), static_cast<uint32_t>(CPU_COUNT(&all)));
  uint32_t seen = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    if (sched_setaffinity(0, sizeof one, &one) == 0) seen = quench_rt_cpus();
  }).join();
  EXPECT_EQ(seen, 1u);
}

}  // namespace
}  // namespace quench
