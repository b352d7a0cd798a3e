#include "services/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

namespace quench::cli {
namespace {

// Calls visit(command, words) for the program and each command below it; the words lead to it: "workflow list".
void VisitCommands(
    const CommandDescription& command, const std::string& words,
    const std::function<void(const CommandDescription&, const std::string&)>& visit) {
  visit(command, words);
  for (const CommandDescription& each : command.commands)
    VisitCommands(each, words.empty() ? each.name : words + " " + each.name, visit);
}

std::vector<std::string> CommandNamesOf(const std::vector<CommandDescription>& commands) {
  std::vector<std::string> names;
  for (const CommandDescription& each : commands) names.push_back(each.name);
  return names;
}

// In single quotes, for any of the shells.
std::string ShellQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The first sentence or so: completions have one line for it.
std::string FirstWords(const std::string& help) {
  constexpr size_t kMost = 70;
  if (help.size() <= kMost) return help;
  return help.substr(0, help.rfind(' ', kMost)) + " ...";
}

std::string Bash(const CommandDescription& program) {
  std::string words_of, values_of;
  VisitCommands(program, "", [&](const CommandDescription& command, const std::string& path) {
    std::vector<std::string> words = CommandNamesOf(command.commands);
    for (const OptionDescription& option : command.options) {
      if (option.positional) continue;
      words.insert(words.end(), option.names.begin(), option.names.end());
      if (option.choices.empty()) continue;
      for (const std::string& name : option.names)
        values_of += fmt::format("    '{} {}') values={} ;;\n", path, name,
                                 ShellQuoted(fmt::format("{}", fmt::join(option.choices, " "))));
    }
    words_of += fmt::format("    {}) words='{}' ;;\n", ShellQuoted(path), fmt::join(words, " "));
  });
  std::string commands;
  VisitCommands(program, "", [&](const CommandDescription& command, const std::string& path) {
    if (!command.commands.empty())
      commands += fmt::format("      {}) commands=' {} ' ;;\n", ShellQuoted(path),
                              fmt::join(CommandNamesOf(command.commands), " "));
  });
  return fmt::format(R"(# bash completion for {0}: source <({0} completion bash)
_{0}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local path= commands= words= values= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path" in
{1}      *) commands= ;;
    esac
    [[ $commands == *" ${{COMP_WORDS[i]}} "* ]] && path="${{path:+$path }}${{COMP_WORDS[i]}}"
  done
  case "$path $previous" in
{2}  esac
  case "$path" in
{3}  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  elif [[ $current == -* || -z $path ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -W "${{words%%-*}}" -- "$current") $(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _{0} {0}
)",
                     program.name, commands, values_of, words_of);
}

// Inside [...] and behind colons of _arguments.
std::string ZshText(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string ZshOption(const OptionDescription& option) {
  std::string value;
  if (!option.value.empty()) {
    const std::string what =
        option.choices.empty() ? "_files" : fmt::format("({})", fmt::join(option.choices, " "));
    value = fmt::format(":{}:{}", ZshText(option.value), what);
  }
  std::string text;
  for (const std::string& name : option.names)
    text += fmt::format("    {}", ShellQuoted(fmt::format(
                                      "*{}[{}]{}", name, ZshText(FirstWords(option.help)), value)));
  return text;
}

std::string Zsh(const CommandDescription& program) {
  std::string cases;
  VisitCommands(program, "", [&](const CommandDescription& command, const std::string& path) {
    std::string arguments;
    for (const OptionDescription& option : command.options) {
      if (!option.positional) arguments += ZshOption(option);
    }
    std::string commands;
    for (const CommandDescription& each : command.commands)
      commands +=
          " " + ShellQuoted(fmt::format("{}:{}", each.name, ZshText(FirstWords(each.summary))));
    const std::string rest = command.commands.empty()
                                 ? "    '*:file:_files'"
                                 : fmt::format("    '1:command:(({}))' '*::arguments:->rest'", [&] {
                                     std::string quoted = commands;
                                     // Inside another pair of quotes.
                                     std::string result;
                                     for (const char c : quoted)
                                       result += c == '\'' ? std::string("\"") : std::string(1, c);
                                     return result;
                                   }());
    cases += fmt::format("    {}) _arguments {}{} ;;\n", ShellQuoted(path), arguments, rest);
  });
  return fmt::format(
      R"(#compdef {0}
_{0}() {{
  local path_= i
  local -a commands
  for ((i = 2; i < CURRENT; ++i)); do
    case "$path_" in
{1}      *) commands=() ;;
    esac
    if (( ${{commands[(Ie)${{words[i]}}]}} )); then path_="${{path_:+$path_ }}${{words[i]}}"; fi
  done
  local state
  case "$path_" in
{2}  esac
}}
_{0} "$@"
)",
      program.name,
      [&] {
        std::string lists;
        VisitCommands(program, "", [&](const CommandDescription& command, const std::string& path) {
          if (!command.commands.empty())
            lists += fmt::format("      {}) commands=({}) ;;\n", ShellQuoted(path),
                                 fmt::join(CommandNamesOf(command.commands), " "));
        });
        return lists;
      }(),
      cases);
}

std::string Fish(const CommandDescription& program) {
  std::string text =
      fmt::format("# fish completion for {0}: {0} completion fish | source\n", program.name);
  VisitCommands(program, "", [&](const CommandDescription& command, const std::string& path) {
    const std::string base = fmt::format("complete -c {}", program.name);
    const std::string here = path.empty() ? "__fish_use_subcommand"
                                          : fmt::format("__fish_seen_subcommand_from {}",
                                                        path.substr(path.rfind(' ') + 1));
    for (const CommandDescription& each : command.commands)
      text += fmt::format("{} -f -n '{}' -a {} -d {}\n", base, here, each.name,
                          ShellQuoted(FirstWords(each.summary)));
    for (const OptionDescription& option : command.options) {
      if (option.positional) continue;
      std::string line = fmt::format("{} -n '{}'", base, here);
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.value.empty()) line += " -r";
      if (!option.choices.empty())
        line += fmt::format(" -f -a {}",
                            ShellQuoted(fmt::format("{}", fmt::join(option.choices, " "))));
      text += fmt::format("{} -d {}\n", line, ShellQuoted(FirstWords(option.help)));
    }
  });
  return text;
}

}  // namespace

std::vector<std::string> CompletionShells() { return {"bash", "zsh", "fish"}; }

std::string CompletionScript(const CommandDescription& program, const std::string& shell) {
  return shell == "bash" ? Bash(program) : shell == "zsh" ? Zsh(program) : Fish(program);
}

}  // namespace quench::cli
