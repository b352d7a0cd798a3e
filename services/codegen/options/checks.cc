#include "services/codegen/options/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/status.h"
#include "services/codegen/options/rows.h"

namespace quench::codegen {
namespace {

// A member's name as messages say it: "opt level".
std::string Words(std::string member) {
  std::replace(member.begin(), member.end(), '_', ' ');
  return member;
}

absl::Status CheckNumber(const char* member, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // no NaN is
  const std::string range =
      high == kNoLimit ? fmt::format("{} or more", low) : fmt::format("{} to {}", low, high);
  return InvalidArgument("{} is {}, it must be {}", Words(member), value, range);
}

// Only choices that are texts can have another value.
absl::Status CheckChoice(const char* member, const std::string& value) {
  const std::vector<std::string>& names = OptionRowOf(member).choices;
  if (value.empty() || std::find(names.begin(), names.end(), value) != names.end())
    return absl::OkStatus();
  return InvalidArgument("{} is `{}`, it must be `{}`", Words(member), value,
                         fmt::join(names, "` or `"));
}
template <typename Value>
absl::Status CheckChoice(const char*, Value) {
  return absl::OkStatus();
}

// Limits of what is recorded in the library or its header.
absl::Status CheckTexts(const CompileOptions& options) {
  constexpr size_t kMostNames = 100'000, kMostName = 1024, kMostPreprocessing = 64 << 10;
  StatusCollector problems;
  const auto too_long = [](const std::string& name) {
    return name.size() > kMostName || name.find('\0') != std::string::npos;
  };
  if (options.class_names.size() > kMostNames ||
      std::any_of(options.class_names.begin(), options.class_names.end(), too_long)) {
    problems.Add(
        InvalidArgument("there are {} names of classes, at most {} of {} bytes are recorded",
                        options.class_names.size(), kMostNames, kMostName));
  }
  if (options.preprocessing.size() > kMostPreprocessing ||
      options.preprocessing.find('\0') != std::string::npos) {
    problems.Add(InvalidArgument("preprocessing has {} bytes, at most {} are recorded, none zero",
                                 options.preprocessing.size(), kMostPreprocessing));
  }
  if (options.header_prefix.size() > kMostPrefix) {
    problems.Add(
        InvalidArgument("the prefix of the header's names has {} bytes, at most {} are taken",
                        options.header_prefix.size(), kMostPrefix));
  }
  return problems.Finish();
}

}  // namespace

absl::Status CheckOptions(const CompileOptions& options) {
  StatusCollector problems;
#define QUENCH_NUMBER(type, member, default, low, high, ...) \
  problems.Add(CheckNumber(#member, options.member, low, high));
#define QUENCH_CHOICE(type, member, ...) problems.Add(CheckChoice(#member, options.member));
#include "services/codegen/options/options.def"
  problems.Add(CheckTexts(options));
  return problems.Finish();
}

}  // namespace quench::codegen
