// How much of what is alike a test takes with every commit.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace quench::testing {

// Whether tests do all that the project promises (scripts/test --full), however long that takes.
inline bool Full() { return std::getenv("QUENCH_FULL") != nullptr; }

// One in `of` of what is alike, such as layers, or CPUs that run the same layer; all if Full(). Each
// test begins elsewhere, and each further call in it takes others: all are met by some test or some
// call. The same ones in every run.
template <typename T>
std::vector<T> Sample(std::vector<T> all, size_t of = 3) {
  if (Full()) return all;
  static std::pair<std::string, size_t> last;  // a test, and its calls so far
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  if (last.first != name) last = {name, 0};
  const size_t first = (std::hash<std::string>()(name) + last.second++) % of;
  std::vector<T> taken;
  for (size_t i = first; i < all.size(); i += of) taken.push_back(std::move(all[i]));
  if (taken.empty() && !all.empty()) taken.push_back(std::move(all[first % all.size()]));
  return taken;
}

}  // namespace quench::testing
