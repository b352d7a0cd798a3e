#include "services/cli/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace quench::cli {
namespace {

// A line of text as it is: neither escapes nor requests.
std::string RoffText(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped.starts_with(".") || escaped.starts_with("'") ? "\\&" + escaped : escaped;
}

std::string Dashed(const CommandDescription& command) {
  std::string name = command.path;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string OptionSections(const CommandDescription& command) {
  std::string text;
  for (const std::string& group : GroupsOf(command)) {
    text += fmt::format(".SS {}\n", group);
    for (const OptionDescription& option : command.options) {
      if (option.group != group) continue;
      text += fmt::format(".TP\n.B {}", RoffText(fmt::format("{}", fmt::join(option.names, ", "))));
      text += option.value.empty() ? "\n" : fmt::format(" \\fI{}\\fR\n", RoffText(option.value));
      text += RoffText(option.help) + "\n";
    }
  }
  return text;
}

// "Examples:" and the sections behind it, as they were written.
std::string ExampleSection(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  bool filled = true;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Examples:") {
      result += ".SH EXAMPLES\n.nf\n";
      filled = false;
    } else {
      result += line.empty() ? "\n" : RoffText(line) + "\n";
    }
  }
  return filled ? result : result + ".fi\n";
}

}  // namespace

std::string ManualFile(const CommandDescription& command) { return Dashed(command) + ".1"; }

std::string ManualPage(const CommandDescription& command, const std::string& version) {
  std::string title = Dashed(command);
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  std::string text = fmt::format(
      ".TH {} 1 \"\" \"Quench {}\" \"Quench\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n.SH "
      "OPTIONS\n{}",
      title, version, RoffText(Dashed(command)), RoffText(command.summary), RoffText(command.usage),
      OptionSections(command));
  if (!command.commands.empty()) text += ".SH COMMANDS\n";
  for (const CommandDescription& each : command.commands) {
    const bool page = command.path.find(' ') == std::string::npos;  // of its own
    text += fmt::format(".TP\n.B {}\n{}{}\n", RoffText(each.name), RoffText(each.summary),
                        page ? fmt::format("; see \\fB{}\\fR(1)", RoffText(Dashed(each))) : "");
  }
  if (command.path.find(' ') != std::string::npos) {
    for (const CommandDescription& each : command.commands) {
      text += fmt::format(".SH {}\n{}\n.PP\n.B {}\n{}", RoffText(each.path), RoffText(each.summary),
                          RoffText(each.usage), OptionSections(each));
    }
  }
  return text + ExampleSection(command.examples);
}

}  // namespace quench::cli
