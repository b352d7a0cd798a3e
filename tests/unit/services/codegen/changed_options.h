// Every row of services/codegen/options/options.def, with another value than its default.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "services/codegen/options/options.h"
#include "services/codegen/options/rows.h"

namespace quench::codegen::options_test {

struct ChangedOption {
  const OptionRow* row;
  CompileOptions before;   // without it, though with the option that it needs
  CompileOptions options;  // with it
  std::vector<std::string>
      words;  // of a command line that gives it; its value is a file for some kinds
};

// One for each value of a choice.
inline std::vector<ChangedOption> ChangedOptions() {
  std::vector<ChangedOption> all;
  CompileOptions before;
  std::vector<std::string> needed;
#define QUENCH_ONLY_WITH(named, other, value)                   \
  if (row.member == #named) {                                   \
    before.other = value;                                       \
    needed = {OptionRowOf(#other).flag, std::to_string(value)}; \
  }
#define QUENCH_CHANGED(named, given, ...)                                                        \
  {                                                                                              \
    const OptionRow& row = OptionRowOf(#named);                                                  \
    Needs(row, before, needed);                                                                  \
    CompileOptions options = before;                                                             \
    options.named = given;                                                                       \
    std::vector<std::string> words = needed;                                                     \
    for (const std::string& word : std::vector<std::string>{__VA_ARGS__}) words.push_back(word); \
    all.push_back({&row, before, options, words});                                               \
  }
  const auto Needs = [](const OptionRow& row, CompileOptions& before,
                        std::vector<std::string>& needed) {
    before = {};
    needed = {};
#include "services/codegen/options/options.def"
  };
#define QUENCH_SWITCH(member, ...) QUENCH_CHANGED(member, false, row.flag)
#define QUENCH_CONSENT(member, ...) QUENCH_CHANGED(member, true, row.flag)
#define QUENCH_NUMBER(type, member, default, low, ...)                       \
  QUENCH_CHANGED(member, ((default) == (low) ? (low) + 1 : (low)), row.flag, \
                 fmt::format("{}", options.member))
#define QUENCH_CHOICE_VALUE(member, value, name, enumerator, uuid) \
  if (*name != '\0' && !(CompileOptions().member == value))        \
  QUENCH_CHANGED(member, value, row.flag, name)
#define QUENCH_TEXT(member, ...) QUENCH_CHANGED(member, "a_text", row.flag, "a_text")
#define QUENCH_JSON(member, ...) QUENCH_CHANGED(member, R"({"scale":2})", row.flag, "FILE")
#define QUENCH_NAMES(member, ...) \
  QUENCH_CHANGED(member, (std::vector<std::string>{"cat", "dog"}), row.flag, "FILE")
#include "services/codegen/options/options.def"
#undef QUENCH_CHANGED
  return all;
}

// Members that differ, of those that have rows.
inline std::vector<std::string> Differences(const CompileOptions& a, const CompileOptions& b) {
  std::vector<std::string> members;
#define QUENCH_COMPARED(member, ...) \
  if (!(a.member == b.member)) members.emplace_back(#member);
#define QUENCH_SWITCH(member, ...) QUENCH_COMPARED(member)
#define QUENCH_CONSENT(member, ...) QUENCH_COMPARED(member)
#define QUENCH_NUMBER(type, member, ...) QUENCH_COMPARED(member)
#define QUENCH_CHOICE(type, member, ...) QUENCH_COMPARED(member)
#define QUENCH_TEXT(member, ...) QUENCH_COMPARED(member)
#define QUENCH_JSON(member, ...) QUENCH_COMPARED(member)
#define QUENCH_NAMES(member, ...) QUENCH_COMPARED(member)
#include "services/codegen/options/options.def"
#undef QUENCH_COMPARED
  if (a.taps != b.taps) members.emplace_back("taps");
  return members;
}

}  // namespace quench::codegen::options_test
