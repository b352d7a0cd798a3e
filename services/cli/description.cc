#include "services/cli/description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace quench::cli {

std::vector<std::string> GroupsOf(const CommandDescription& command) {
  // Groups that several commands have keep their places; others come where they are declared, before these.
  static const std::vector<std::string> kFirst = {"Arguments", "Common", "Input", "Output",
                                                  "Precision"};
  static const std::vector<std::string> kLast = {"Passes", "Gateway"};
  std::vector<std::string> others;
  const auto has = [&](const std::string& group) {
    return std::any_of(command.options.begin(), command.options.end(),
                       [&](const OptionDescription& option) { return option.group == group; });
  };
  const auto lists = [](const std::vector<std::string>& groups, const std::string& group) {
    return std::find(groups.begin(), groups.end(), group) != groups.end();
  };
  for (const OptionDescription& option : command.options) {
    const std::string& group = option.group;
    if (!lists(kFirst, group) && !lists(kLast, group) && !lists(others, group))
      others.push_back(group);
  }
  std::vector<std::string> groups;
  for (const std::vector<std::string>* part : {&kFirst, &std::as_const(others), &kLast}) {
    std::copy_if(part->begin(), part->end(), std::back_inserter(groups), has);
  }
  return groups;
}

std::string Spelling(const OptionDescription& option) {
  std::string text = fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.positional && option.names[0].starts_with("--")) text = "    " + text;
  return option.value.empty() ? text : text + " " + option.value;
}

}  // namespace quench::cli
