#include "services/codegen/targets/target.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/runtime/quench_rt.h"
#include "services/codegen/codegen.h"

namespace quench::codegen {
namespace {

TEST(TargetTest, HostIsWhatThisCpuRuns) {
  const absl::StatusOr<std::vector<Target>> host = ResolveTarget("host");
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_EQ(host->size(), 1u);
  EXPECT_EQ(host->front().required_features & ~quench_rt_cpu_features(), 0u);
}

TEST(TargetTest, VariantsGrowStronger) {
  const absl::StatusOr<std::vector<Target>> all = ResolveTarget("x86-64");
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 3u);
  for (size_t i = 1; i < all->size(); ++i) {
    EXPECT_EQ((*all)[i - 1].required_features & ~(*all)[i].required_features, 0u);
    EXPECT_GT((*all)[i].vector_bits, (*all)[i - 1].vector_bits);
  }
}

TEST(TargetTest, UnknownNameListsNearOnes) {
  const absl::Status status = ResolveTarget("aarch46").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(status).find("unknown target `aarch46`, the nearest are `aarch64`"), 0u)
      << status;
}

TEST(TargetTest, EveryListedTargetResolves) {
  for (const TargetInfo& info : ListTargets()) {
    EXPECT_TRUE(ResolveTarget(info.name).ok()) << info.name;
    EXPECT_FALSE(info.description.empty()) << info.name;
    EXPECT_FALSE(info.variants.empty()) << info.name;
  }
}

}  // namespace
}  // namespace quench::codegen
