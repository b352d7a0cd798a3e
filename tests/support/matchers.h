// The few matchers the tests read best with; Debian's gtest comes without gmock.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

namespace quench::testing {

struct Has {
  std::string part;
  bool operator()(const std::string& text) const { return text.find(part) != std::string::npos; }
};
// A string that contains `part`.
inline Has HasSubstr(std::string part) { return {std::move(part)}; }

struct Lacks {
  std::string part;
  bool operator()(const std::string& text) const { return text.find(part) == std::string::npos; }
};
inline Lacks Not(Has has) { return {std::move(has.part)}; }

template <typename T, typename Expected>
bool Matches(const T& value, const Expected& expected) {
  if constexpr (std::is_invocable_r_v<bool, Expected, const T&>) {
    return expected(value);
  } else {
    return value == static_cast<T>(expected);
  }
}

// A range of exactly these elements, in order; each is a value or a matcher.
template <typename... Expected>
auto ElementsAre(Expected... expected) {
  return [list = std::tuple(expected...)](const auto& range) {
    if (std::size(range) != sizeof...(Expected)) return false;
    auto element = std::begin(range);
    return std::apply([&](const auto&... each) { return (Matches(*element++, each) && ...); },
                      list);
  };
}
inline auto IsEmpty() { return ElementsAre(); }

// A range of floats within `tolerance` of these.
inline auto Near(std::vector<float> expected, float tolerance) {
  return [=](const auto& range) {
    if (std::size(range) != expected.size()) return false;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!(std::abs(range[i] - expected[i]) <= tolerance)) return false;
    }
    return true;
  };
}

template <typename T, typename Matcher>
::testing::AssertionResult CheckThat(const char* text, const T& value, const Matcher& matcher) {
  if (matcher(value)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << text << " is " << ::testing::PrintToString(value);
}

}  // namespace quench::testing

#define EXPECT_THAT(value, matcher) \
  EXPECT_TRUE(::quench::testing::CheckThat(#value, value, matcher))
