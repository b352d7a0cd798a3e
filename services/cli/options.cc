#include "services/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace quench::cli {
namespace {

// The help of a command lists the options of those above it too.
class Formatter : public CLI::Formatter {
 public:
  // They come right behind the command's own.
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override {
    std::string text;
    for (const CLI::App* above = app->get_parent(); above != nullptr; above = above->get_parent()) {
      const std::vector<const CLI::Option*> options =
          above->get_options([&](const CLI::Option* option) {
            return option->nonpositional() && option != above->get_help_ptr() &&
                   option->get_name() != "--version";
          });
      const bool top = above->get_parent() == nullptr;
      if (options.empty()) continue;
      text += make_group(top ? "Options of every command" : "Options of " + above->get_name(),
                         false, options);
    }
    return text + CLI::Formatter::make_subcommands(app, mode);
  }
};

bool AnyGiven(const CLI::App& app, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return app.get_option(name)->count() > 0; });
}

// `--name=` with nothing behind it: the parser would take the next argument for the value.
std::vector<std::string> EmptyAssignments(int argc, char** argv) {
  std::vector<std::string> problems;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      problems.push_back(fmt::format("{}: the value is empty", word.substr(0, word.size() - 1)));
  }
  return problems;
}

}  // namespace

const Option& Option::Required() const {
  option_->required();
  return *this;
}

const Option& Option::OneOf(const std::vector<std::string>& values) const {
  option_->check(CLI::IsMember(values));
  return *this;
}

const Option& Option::Range(double low, double high) const {
  option_->check(CLI::Range(low, high));
  return *this;
}

const Option& Option::AtLeast(double low) const {
  option_->check([low](const std::string& text) -> std::string {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return fmt::format("`{}` is not a number", text);
    return value >= low ? "" : fmt::format("{} is less than {}", text, low);
  });
  return *this;
}

const Option& Option::Delimiter(char between) const {
  option_->delimiter(between);
  return *this;
}

const Option& Option::Environment(const std::string& variable) const {
  option_->envname(variable);
  return *this;
}

const Option& Option::Needs(const std::vector<std::string>& others) const {
  rules_->push_back([option = option_, app = app_, others]() -> std::string {
    if (option->count() == 0 || AnyGiven(*app, others)) return "";
    return fmt::format("{} needs {}", option->get_name(), fmt::join(others, " or "));
  });
  return *this;
}

const Option& Option::Excludes(const std::vector<std::string>& others) const {
  rules_->push_back([option = option_, app = app_, others]() -> std::string {
    if (option->count() == 0 || !AnyGiven(*app, others)) return "";
    return fmt::format("{} cannot be combined with {}", option->get_name(),
                       fmt::join(others, " or "));
  });
  return *this;
}

template <typename T>
Option Options::Add(const std::string& names, T& value, const std::string& help,
                    const std::string& shown) const {
  CLI::Option* option = app_->add_option(names, value, help);
  if (!shown.empty()) option->option_text(shown);
  option->check([](const std::string& text) {
    return std::string(text.empty() ? "the value is empty" : "");
  });
  // One value each time: the next word may be a positional.
  if (option->nonpositional()) option->allow_extra_args(false);
  const Option added(option, app_, rules_);
  for (const auto& others : under_) added.Needs(others);
  return added;
}

using Text = const std::string&;
template Option Options::Add(Text, std::string&, Text, Text) const;
template Option Options::Add(Text, int&, Text, Text) const;
template Option Options::Add(Text, int64_t&, Text, Text) const;
template Option Options::Add(Text, uint64_t&, Text, Text) const;
template Option Options::Add(Text, double&, Text, Text) const;
template Option Options::Add(Text, std::optional<uint64_t>&, Text, Text) const;
template Option Options::Add(Text, std::optional<double>&, Text, Text) const;
template Option Options::Add(Text, std::vector<std::string>&, Text, Text) const;

Option Options::Flag(const std::string& names, bool& value, const std::string& help) const {
  const Option added(app_->add_flag(names, value, help), app_, rules_);
  for (const auto& others : under_) added.Needs(others);
  return added;
}

Option Options::Flag(const std::string& names, const std::function<void()>& given,
                     const std::string& help, const std::string& group) const {
  const Option added(app_->add_flag_callback(names, given, help)->group(group), app_, rules_);
  for (const auto& others : under_) added.Needs(others);
  return added;
}

Options Options::Under(const std::vector<std::string>& others) const {
  Options under = *this;
  under.under_.push_back(others);
  return under;
}

void Options::AddRule(Rule rule) const {
  rules_->push_back(
      [app = app_, rule = std::move(rule)] { return app->parsed() ? rule() : std::string(); });
}

std::vector<std::string> Options::Given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->nonpositional() && option->count() > 0) names.push_back(option->get_name());
  }
  return names;
}

Options Options::Subcommand(const std::string& name, const std::string& summary) const {
  app_->require_subcommand(1);
  CLI::App* sub = app_->add_subcommand(name, summary);
  sub->fallthrough();
  return Options(sub, rules_);
}

bool Options::parsed() const { return app_->parsed(); }

void Options::Describe(const std::string& name, const std::string& help) const {
  app_->get_option(name)->description(help);
}

void Options::Examples(const std::string& text) const { app_->footer(text); }

CommandLine::CommandLine(const std::string& name, const std::string& description,
                         const std::string& version, const std::string& examples)
    : app_(std::make_unique<CLI::App>(description, name)),
      rules_(std::make_shared<std::vector<Rule>>()) {
  app_->formatter(std::make_shared<Formatter>());
  app_->footer(examples);
  app_->require_subcommand(1);
  app_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() { rules_->clear(); }  // some hold the Options that hold them

Options CommandLine::Everywhere() const { return Options(app_.get(), rules_); }

Options CommandLine::Command(const std::string& name, const std::string& summary,
                             const std::function<void()>& chosen) {
  CLI::App* sub = app_->add_subcommand(name, summary);
  sub->callback(chosen);
  sub->fallthrough();
  return Options(sub, rules_);
}

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  std::vector<std::string> problems = EmptyAssignments(argc, argv);
  if (problems.empty()) {
    try {
      app_->parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_->exit(error) == 0 ? 0 : 2;
    }
    for (const Rule& rule : *rules_) {
      if (std::string problem = rule(); !problem.empty()) problems.push_back(std::move(problem));
    }
  }
  if (problems.empty()) return std::nullopt;
  app_->exit(CLI::ValidationError(fmt::format("{}", fmt::join(problems, "\n"))));
  return 2;
}

}  // namespace quench::cli
