#include "services/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <type_traits>

#include "common/base/near_names.h"
#include "services/cli/colour.h"
#include "services/cli/help.h"

namespace quench::cli {
namespace {

OptionDescription Describe(const CLI::Option& option, const Declared& declared) {
  OptionDescription result;
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  result.positional = !option.nonpositional();
  if (result.positional) result.names = {option.get_name()};
  result.required = option.get_required();
  result.group = result.positional                 ? "Arguments"
                 : option.get_group() == "Options" ? "Common"  // the parser's own: --help
                                                   : option.get_group();
  // "DIR (default out)": the value, and what is said of it.
  const std::string& shown = option.get_option_text();
  const size_t note = std::min(shown.find(" ("), shown.size());
  result.value = shown.substr(0, note);
  result.help = option.get_description() + shown.substr(note);
  const auto found = declared.details.find(&option);
  if (found == declared.details.end()) return result;
  result.choices = found->second.choices;
  result.rare = found->second.rare;
  return result;
}

std::string Usage(const CommandDescription& command) {
  std::string usage = command.path + " [OPTIONS]";
  for (const OptionDescription& option : command.options) {
    if (!option.positional) continue;
    usage += option.required ? " " + option.names[0] : " [" + option.names[0] + "]";
  }
  return command.commands.empty() ? usage : usage + " COMMAND";
}

CommandDescription Describe(const CLI::App& app, const Declared& declared) {
  CommandDescription result;
  result.name = result.path = app.get_name();
  for (const CLI::App* above = app.get_parent(); above != nullptr; above = above->get_parent())
    result.path = above->get_name() + " " + result.path;
  result.summary = app.get_description();
  result.examples = app.get_footer();
  for (const CLI::App* level = &app; level != nullptr; level = level->get_parent()) {
    for (const CLI::Option* option : level->get_options()) {
      const bool again = level != &app &&
                         (option == level->get_help_ptr() || option == level->get_help_all_ptr() ||
                          option->get_name() == "--version");
      if (!again) result.options.push_back(Describe(*option, declared));
    }
  }
  for (const CLI::App* command : app.get_subcommands(nullptr))
    result.commands.push_back(Describe(*command, declared));
  result.usage = Usage(result);
  return result;
}

class Formatter : public CLI::FormatterBase {
 public:
  explicit Formatter(std::shared_ptr<const Declared> declared) : declared_(std::move(declared)) {}
  std::string make_help(const CLI::App* app, std::string /*name*/,
                        CLI::AppFormatMode mode) const override {
    return HelpText(Describe(*app, *declared_), mode == CLI::AppFormatMode::All, HelpWidth());
  }

 private:
  std::shared_ptr<const Declared> declared_;
};

bool AnyGiven(const CLI::App& app, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return app.get_option(name)->count() > 0; });
}

// `--name=` with nothing behind it: the parser would take the next argument for the value.
std::vector<std::string> EmptyAssignments(const std::vector<std::string>& words) {
  std::vector<std::string> problems;
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      problems.push_back(fmt::format("{}: the value is empty", word.substr(0, word.size() - 1)));
  }
  return problems;
}

const CommandDescription* Find(const CommandDescription& command, const std::string& name) {
  const auto found = std::find_if(command.commands.begin(), command.commands.end(),
                                  [&](const auto& each) { return each.name == name; });
  return found == command.commands.end() ? nullptr : &*found;
}

std::vector<std::string> CommandNames(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const CommandDescription& each : command.commands) names.push_back(each.name);
  return names;
}

// The command that the words lead to: the program itself if none of them names one.
const CommandDescription& Follow(const CommandDescription& program,
                                 const std::vector<std::string>& words) {
  const CommandDescription* command = &program;
  for (const std::string& word : words) {
    if (const CommandDescription* next = Find(*command, word)) command = next;
  }
  return *command;
}

// `extras`: the words that the parser could not place.
std::string MissingCommand(const CommandDescription& command,
                           const std::vector<std::string>& extras) {
  const std::vector<std::string> known = CommandNames(command);
  const std::string all = fmt::format("; there are {}", fmt::join(known, ", "));
  const auto lost = std::find_if(extras.begin(), extras.end(),
                                 [](const std::string& word) { return !word.starts_with("-"); });
  if (lost == extras.end()) return "a command is missing" + all;
  const std::string near = DidYouMean(*lost, known);
  return fmt::format("unknown command `{}`{}", *lost, near.empty() ? all : near);
}

std::vector<std::string> UnknownOptions(const CommandDescription& command,
                                        const std::vector<std::string>& extras) {
  std::vector<std::string> known, problems;
  for (const OptionDescription& option : command.options) {
    if (!option.positional) known.insert(known.end(), option.names.begin(), option.names.end());
  }
  for (const std::string& word : extras) {
    if (!word.starts_with("-") || word.size() < 2) continue;
    const std::string name = word.substr(0, word.find('='));
    problems.push_back(fmt::format("unknown option `{}`{}", name, DidYouMean(name, known)));
  }
  return problems;
}

// Why the parser failed. Options that do not exist explain the words behind them, and what is missing.
std::vector<std::string> ParseProblems(const CLI::ParseError& error,
                                       const CommandDescription& command,
                                       const std::vector<std::string>& extras) {
  if (!command.commands.empty()) return {MissingCommand(command, extras)};
  std::vector<std::string> problems = UnknownOptions(command, extras);
  if (!problems.empty()) return problems;
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& word : extras)
      problems.push_back(fmt::format("unexpected argument `{}`", word));
    return problems;
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return {text.substr(0, text.find(':')) + ": the value is missing"};
  return {text};
}

// An integer or a decimal number, as T says; what it is not, else "".
template <typename T>
std::string NumberProblem(const std::string& text) {
  T value{};
  if (CLI::detail::lexical_cast(text, value)) return "";
  return fmt::format("`{}` is not {}", text,
                     std::is_floating_point_v<T> ? "a number"
                     : std::is_unsigned_v<T>     ? "a whole number, 0 or more"
                                                 : "a whole number");
}

template <typename T>
struct Held {
  using Type = T;
};
template <typename T>
struct Held<std::optional<T>> {
  using Type = T;
};

}  // namespace

const Option& Option::Required() const {
  option_->required();
  return *this;
}

const Option& Option::OneOf(const std::vector<std::string>& values) const {
  declared_->details[option_].choices = values;
  option_->check([values](const std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return "";
    const std::string near = DidYouMean(text, values);
    return fmt::format("`{}` is none of {}{}", text, fmt::join(values, ", "), near);
  });
  return *this;
}

const Option& Option::Range(double low, double high) const {
  option_->check([low, high](const std::string& text) -> std::string {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return fmt::format("`{}` is not a number", text);
    return value >= low && value <= high ? ""
                                         : fmt::format("{} is not in {} to {}", text, low, high);
  });
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
  declared_->rules.push_back([option = option_, app = app_, others]() -> std::string {
    if (option->count() == 0 || AnyGiven(*app, others)) return "";
    return fmt::format("{} needs {}", option->get_name(), fmt::join(others, " or "));
  });
  return *this;
}

const Option& Option::Excludes(const std::vector<std::string>& others) const {
  declared_->rules.push_back([option = option_, app = app_, others]() -> std::string {
    if (option->count() == 0 || !AnyGiven(*app, others)) return "";
    return fmt::format("{} cannot be combined with {}", option->get_name(),
                       fmt::join(others, " or "));
  });
  return *this;
}

Option Options::Declare(CLI::Option* option) const {
  option->group(group_);
  if (rare_) declared_->details[option].rare = true;
  const Option added(option, app_, declared_);
  for (const auto& others : under_) added.Needs(others);
  return added;
}

Option Options::DeclareValue(CLI::Option* option, const std::string& shown) const {
  option->option_text(shown);
  option->check([](const std::string& text) {
    return std::string(text.empty() ? "the value is empty" : "");
  });
  // One value each time: the next word may be a positional.
  if (option->nonpositional()) option->allow_extra_args(false);
  return Declare(option);
}

template <typename T>
Option Options::Add(const std::string& names, T& value, const std::string& help,
                    const std::string& shown) const {
  CLI::Option* option = app_->add_option(names, value, help);
  const Option added = DeclareValue(option, shown);
  using Held = typename Held<T>::Type;
  if constexpr (std::is_arithmetic_v<Held>) option->check(NumberProblem<Held>);
  return added;
}

Option Options::Add(const std::string& names, const std::function<void(const std::string&)>& given,
                    const std::string& help, const std::string& shown) const {
  return DeclareValue(app_->add_option_function<std::string>(names, given, help), shown);
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
  return Declare(app_->add_flag(names, value, help));
}

Option Options::Flag(const std::string& names, const std::function<void()>& given,
                     const std::string& help) const {
  return Declare(app_->add_flag_callback(names, given, help));
}

Options Options::Under(const std::vector<std::string>& others) const {
  Options under = *this;
  under.under_.push_back(others);
  return under;
}

Options Options::In(const std::string& group) const {
  Options in = *this;
  in.group_ = group;
  return in;
}

Options Options::Rare() const {
  Options rare = *this;
  rare.rare_ = true;
  return rare;
}

void Options::AddRule(Rule rule) const {
  declared_->rules.push_back(
      [app = app_, rule = std::move(rule)] { return app->parsed() ? rule() : std::string(); });
}

void Options::AddReader(const std::function<std::vector<std::string>()>& read) const {
  declared_->readers.push_back(
      [app = app_, read] { return app->parsed() ? read() : std::vector<std::string>(); });
}

bool Options::Has(const std::string& name) const {
  return app_->get_option_no_throw(name) != nullptr;
}

std::string Options::Give(const std::string& name, const std::vector<std::string>& values) const {
  CLI::Option* option = app_->get_option(name);
  try {
    if (values.empty()) option->add_result("true");
    for (const std::string& value : values) option->add_result(value);
    option->run_callback();
  } catch (const CLI::ParseError& error) {
    // The parser begins with the option's name.
    const std::string text = error.what();
    return text.starts_with(name + ": ") ? text.substr(name.size() + 2) : text;
  }
  return "";
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
  return Options(sub, declared_);
}

CommandDescription Options::Program() const {
  const CLI::App* program = app_;
  while (program->get_parent() != nullptr) program = program->get_parent();
  return cli::Describe(*program, *declared_);
}

bool Options::parsed() const { return app_->parsed(); }

void Options::Describe(const std::string& name, const std::string& help) const {
  app_->get_option(name)->description(help);
}

void Options::Examples(const std::string& text) const { app_->footer(text); }

void AddFormat(const Options& options, std::string& format) {
  options
      .Add("--format", format, "Print the result as text, or as JSON for scripts",
           "text|json (default text)")
      .OneOf({"text", "json"});
}

CommandLine::CommandLine(const std::string& name, const std::string& description,
                         const std::string& version, const std::string& examples)
    : app_(std::make_unique<CLI::App>(description, name)), declared_(std::make_shared<Declared>()) {
  app_->formatter(std::make_shared<Formatter>(declared_));
  app_->footer(examples);
  app_->require_subcommand(1);
  app_->set_help_flag("--help,-h", "Print the usual options and examples");
  app_->set_help_all_flag("--help-all", "Print every option");
  app_->set_version_flag("--version", version, "Print the version");
}

// Some rules hold the Options that hold them.
CommandLine::~CommandLine() {
  declared_->rules.clear();
  declared_->readers.clear();
}

Options CommandLine::Everywhere() const { return Options(app_.get(), declared_); }

Options CommandLine::Command(const std::string& name, const std::string& summary,
                             const std::function<void()>& chosen) {
  CLI::App* sub = app_->add_subcommand(name, summary);
  sub->callback(chosen);
  sub->fallthrough();
  return Options(sub, declared_);
}

CommandDescription CommandLine::Describe() const { return cli::Describe(*app_, *declared_); }

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  // `quench help compile` is `quench compile --help`.
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::vector<std::string> problems = EmptyAssignments(words);
  if (problems.empty()) {
    try {
      app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::ParseError& error) {
      const CommandDescription program = Describe();
      const CommandDescription& command = Follow(program, words);
      const std::vector<std::string> extras = app_->remaining(true);
      const bool succeeded = dynamic_cast<const CLI::Success*>(&error) != nullptr;
      // The help of the program is no answer to `quench help compil`.
      if (succeeded && (extras.empty() || &command != &program)) return app_->exit(error);
      problems = ParseProblems(error, command, extras);
    }
  }
  if (problems.empty()) {
    for (const auto& read : declared_->readers) {
      for (std::string& problem : read()) problems.push_back(std::move(problem));
    }
  }
  if (problems.empty()) {
    for (const Rule& rule : declared_->rules) {
      if (std::string problem = rule(); !problem.empty()) problems.push_back(std::move(problem));
    }
  }
  if (problems.empty()) return std::nullopt;
  for (const std::string& problem : problems) PrintError(problem);
  const CommandDescription program = Describe();
  fmt::print(stderr, "`{} --help` lists what there is\n", Follow(program, words).path);
  return 2;
}

}  // namespace quench::cli
