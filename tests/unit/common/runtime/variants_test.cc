// The choice of a variant: features of all families, libraries old and new.
#include <gtest/gtest.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/runtime/quench_rt.h"
#include "tests/unit/common/runtime/fake_model.h"

namespace quench::variants_test {
namespace {

constexpr uint64_t kUnknown = uint64_t{1} << 63;
// Size of the struct before there were families.
constexpr uint32_t kFirstSize = offsetof(quench_variant, num_features);

// The variant that is taken when `needy` needs these features.
std::string Taken(uint64_t first, const std::vector<quench_cpu_features>& others,
                  uint32_t size = sizeof(quench_variant)) {
  fake_needy.size = size;
  fake_needy.cpu_features = first;
  fake_needy.num_features = static_cast<uint32_t>(others.size());
  fake_needy.features = others.data();
  quench_rt_model* model = nullptr;
  quench_rt_error error{};
  EXPECT_EQ(quench_rt_open_linked(fake_needy_model_query, &model, &error), QUENCH_RT_OK)
      << error.text;
  const std::string name = quench_rt_variant(model)->name;
  quench_rt_close(model);
  return name;
}

TEST(VariantsTest, EveryFamilyIsAsked) {
  const uint64_t x86 = quench_rt_cpu_family(QUENCH_CPU_FAMILY_X86);
  EXPECT_EQ(Taken(QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, x86}}), "needy");
  EXPECT_EQ(Taken(QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, kUnknown}}), "plain");
  EXPECT_EQ(Taken(QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, x86 | kUnknown}}), "plain");
  EXPECT_EQ(
      Taken(QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, x86}, {QUENCH_CPU_FAMILIES, 0, 1}}),
      "plain");
  const uint64_t first = quench_rt_cpu_features();
  EXPECT_EQ(quench_rt_cpu_family(QUENCH_CPU_FAMILY_FIRST), first);
  EXPECT_EQ(Taken(first | QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, x86}}), "needy");
  EXPECT_EQ(Taken(uint64_t{1} << 62 | QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, x86}}),
            "plain");
}

TEST(VariantsTest, VariantsWithoutAListNeedWhatTheyAlwaysDid) {
  EXPECT_EQ(Taken(0, {}, kFirstSize), "needy");
  EXPECT_EQ(Taken(quench_rt_cpu_features(), {}, kFirstSize), "needy");
  EXPECT_EQ(Taken(uint64_t{1} << 62, {}, kFirstSize), "plain");
}

// Older readers treat the mark as one more feature that no CPU has; so do newer ones if the list is missing.
TEST(VariantsTest, AMarkWithoutAListIsAFeatureThatNobodyHas) {
  EXPECT_EQ(quench_rt_cpu_features() & QUENCH_CPU_OTHERS, 0u);
  EXPECT_EQ(Taken(QUENCH_CPU_OTHERS, {}), "plain");
  EXPECT_EQ(Taken(QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, 0}}, kFirstSize), "plain");
}

TEST(VariantsTest, WhatIsMissingIsNamed) {
  const std::vector<quench_cpu_features> needs = {{QUENCH_CPU_FAMILY_X86, 0, kUnknown},
                                                  {QUENCH_CPU_FAMILIES, 0, QUENCH_X86_AMX_TILE}};
  fake_needy.size = sizeof fake_needy;
  fake_needy.cpu_features = uint64_t{1} << 62 | QUENCH_CPU_OTHERS;
  fake_needy.num_features = static_cast<uint32_t>(needs.size());
  fake_needy.features = needs.data();
  quench_rt_model* model = nullptr;
  quench_rt_error error{};
  EXPECT_EQ(quench_rt_open_linked(fake_only_needy_model_query, &model, &error), QUENCH_RT_CPU);
  EXPECT_STREQ(error.text,
               "`linked model` cannot run here: variant `needy` needs others, others, others, "
               "which this CPU lacks");
}

TEST(VariantsTest, NamesOfAllFamiliesAreCutToFit) {
  char names[16];
  const uint64_t tiles = QUENCH_X86_AMX_TILE | QUENCH_X86_AMX_INT8 | QUENCH_X86_AMX_BF16;
  quench_rt_cpu_family_names(QUENCH_CPU_FAMILY_X86, QUENCH_X86_AMX_FP16, names, sizeof names);
  EXPECT_STREQ(names, "amx-fp16");
  quench_rt_cpu_family_names(QUENCH_CPU_FAMILY_X86, tiles, names, sizeof names);
  EXPECT_STREQ(names, "amx-tile, amx-i");
  quench_rt_cpu_family_names(QUENCH_CPU_FAMILY_FIRST, QUENCH_X86_AMX_TILE, names, sizeof names);
  EXPECT_STREQ(names, "sse4.2");
  char all[4096];
  quench_rt_cpu_names(all, sizeof all);
  const uint64_t x86 = quench_rt_cpu_family(QUENCH_CPU_FAMILY_X86);
  EXPECT_EQ(std::string(all).find("amx-tile") != std::string::npos,
            (x86 & QUENCH_X86_AMX_TILE) != 0);
}

bool HasTiles() {
  std::ifstream file("/proc/cpuinfo");
  std::stringstream text;
  text << file.rdbuf();
  return text.str().find(" amx_tile") != std::string::npos;
}

// Takes the variant for tiles only if the kernel lets this process have them: it does not where a signal
// stack is too small for them.
[[noreturn]] void OpenWithASmallSignalStack() {
  static char memory[4096];
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = sizeof memory;
  if (::sigaltstack(&stack, nullptr) != 0) std::_Exit(2);
  const bool plain =
      Taken(QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, QUENCH_X86_AMX_TILE}}) == "plain";
  std::_Exit(plain ? 0 : 1);
}

TEST(VariantsDeathTest, TheNextVariantRunsWhereTheKernelRefusesTiles) {
  if (!HasTiles()) GTEST_SKIP() << "this CPU has no tile registers";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process: permission is inherited
  EXPECT_EXIT(OpenWithASmallSignalStack(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(Taken(QUENCH_CPU_OTHERS, {{QUENCH_CPU_FAMILY_X86, 0, QUENCH_X86_AMX_TILE}}), "needy");
}

#if defined(__x86_64__)
// Compiled by old/make_relu before there were families. x: f32[4] -> y = relu(x).
TEST(VariantsTest, LibrariesOfEarlierCompilersRun) {
  quench_rt_model* model = nullptr;
  quench_rt_session* session = nullptr;
  quench_rt_error error{};
  ASSERT_EQ(quench_rt_open_file(OLD_LIBRARY, &model, &error), QUENCH_RT_OK) << error.text;
  EXPECT_EQ(quench_rt_variant(model)->size, kFirstSize);
  EXPECT_STREQ(quench_rt_variant(model)->name, "x86-64-v2");
  ASSERT_EQ(quench_rt_session_create(model, nullptr, &session, &error), QUENCH_RT_OK) << error.text;
  float x[] = {-1, 2, -3, 4};
  const int64_t dims[] = {4};
  const quench_rt_tensor tensor = {x, dims, 1, 1};
  quench_rt_tensor y;
  EXPECT_EQ(quench_rt_set_input(session, 0, &tensor, &error), QUENCH_RT_OK) << error.text;
  EXPECT_EQ(quench_rt_run(session, &error), QUENCH_RT_OK) << error.text;
  ASSERT_EQ(quench_rt_get_output(session, 0, &y, &error), QUENCH_RT_OK) << error.text;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(static_cast<const float*>(y.data)[i], x[i] > 0 ? x[i] : 0);
  quench_rt_session_free(session);
  quench_rt_close(model);
}
#endif

}  // namespace
}  // namespace quench::variants_test
