#include "services/cli/help.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "services/cli/colour.h"

namespace quench::cli {
namespace {

constexpr int kLeastWidth = 60, kDefaultWidth = 100, kMostWidth = 120;
constexpr int kColumn = 30;  // where help begins beside an option

// A term at the left, with its meaning beside it, or below it where the term is too long.
std::string Entry(const std::string& left, const std::string& help, int width) {
  const std::string shown = "  " + Name(left, stdout);
  const int length = 2 + static_cast<int>(left.size());
  const std::string text = Wrapped(help, width, kColumn);
  if (length + 2 > kColumn) return fmt::format("{}\n{}", shown, text);
  return shown + text.substr(length);  // the spaces that its first line begins with
}

bool Shown(const OptionDescription& option, bool all) { return all || !option.rare; }

std::string Group(const CommandDescription& command, const std::string& group, bool all,
                  int width) {
  std::string text;
  for (const OptionDescription& option : command.options) {
    if (option.group == group && Shown(option, all))
      text += Entry(Spelling(option), option.help, width);
  }
  return text.empty() ? text : fmt::format("\n{}\n{}", Heading(group + ":", stdout), text);
}

// Lines behind "Examples:" that belong together: a command and what it does, or a term and what it means.
struct ExampleEntry {
  std::string left, right;
};

// Entries begin two spaces from the left, two spaces or more part their sides, and lines that begin further right go on
// with the right one. Text that begins at the left is a paragraph: an entry without a left side.
std::vector<ExampleEntry> EntriesOf(const std::string& block) {
  std::vector<ExampleEntry> entries;
  std::istringstream lines(block);
  for (std::string line; std::getline(lines, line);) {
    const size_t indent = line.find_first_not_of(' ');
    if (indent != 2) {
      const bool goes_on = !entries.empty() && (indent > 2 || entries.back().left.empty());
      if (!goes_on) entries.emplace_back();
      entries.back().right += (entries.back().right.empty() ? "" : " ") + line.substr(indent);
      continue;
    }
    const size_t gap = std::min(line.find("  ", indent), line.size());
    const size_t right = std::min(line.find_first_not_of(' ', gap), line.size());
    entries.push_back({line.substr(indent, gap - indent), line.substr(right)});
  }
  return entries;
}

std::string BlockText(const std::string& block, int width) {
  constexpr int kMostLeft = 58;
  const std::vector<ExampleEntry> entries = EntriesOf(block);
  int left = 0;
  for (const ExampleEntry& entry : entries) {
    const int length = static_cast<int>(entry.left.size());
    if (!entry.right.empty() && length <= kMostLeft) left = std::max(left, length);
  }
  // Narrow columns at the right are hard to read.
  const int column = std::min(left + 4, width / 2);
  std::string text;
  for (const ExampleEntry& entry : entries) {
    if (entry.left.empty()) {
      text += Wrapped(entry.right, width, 0);
    } else if (entry.right.empty()) {
      text += fmt::format("  {}\n", entry.left);
    } else {
      const std::string right = Wrapped(entry.right, width, column);
      const int length = 2 + static_cast<int>(entry.left.size());
      text += length + 2 <= column ? "  " + entry.left + right.substr(length)
                                   : fmt::format("  {}\n{}", entry.left, right);
    }
  }
  return text;
}

// Sections of examples, which blank lines part.
std::string ExampleText(const std::string& examples, int width) {
  constexpr std::string_view kHeading = "Examples:\n";
  std::string text, rest = examples;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find("\n\n"), rest.size());
    std::string block = rest.substr(0, end);
    rest.erase(0, std::min(end + 2, rest.size()));
    text += "\n";
    if (block.starts_with(kHeading)) {
      text += Heading("Examples:", stdout) + "\n";
      block.erase(0, kHeading.size());
    }
    text += BlockText(block, width);
  }
  return text;
}

}  // namespace

int HelpWidth() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0) {
    return std::clamp<int>(size.ws_col, kLeastWidth, kMostWidth);
  }
  return kDefaultWidth;
}

std::string Wrapped(const std::string& text, int width, int indent) {
  const std::string margin(indent, ' ');
  std::string result, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && indent + static_cast<int>(line.size() + 1 + word.size()) > width) {
      result += margin + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + margin + line + "\n";
}

std::string HelpText(const CommandDescription& command, bool all, int width) {
  std::string text = fmt::format("{}\n{} {}\n", Wrapped(command.summary, width, 0),
                                 Heading("Usage:", stdout), command.usage);
  for (const std::string& group : GroupsOf(command)) text += Group(command, group, all, width);
  if (!command.commands.empty()) {
    text += fmt::format("\n{}\n", Heading("Commands:", stdout));
    for (const CommandDescription& each : command.commands)
      text += Entry(each.name, each.summary, width);
  }
  const bool more = !all && std::any_of(command.options.begin(), command.options.end(),
                                        [](const OptionDescription& each) { return each.rare; });
  if (more) text += fmt::format("\nMore options: {} --help-all\n", command.path);
  return text + ExampleText(command.examples, width);
}

}  // namespace quench::cli
