#include "services/cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace quench::cli {

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

template <typename T>
Option Options::Add(const std::string& names, T& value, const std::string& help,
                    const std::string& shown) const {
  CLI::Option* option = app_->add_option(names, value, help);
  if (!shown.empty()) option->option_text(shown);
  return Option(option);
}

using Text = const std::string&;
template Option Options::Add(Text, std::string&, Text, Text) const;
template Option Options::Add(Text, int&, Text, Text) const;
template Option Options::Add(Text, int64_t&, Text, Text) const;
template Option Options::Add(Text, uint64_t&, Text, Text) const;
template Option Options::Add(Text, double&, Text, Text) const;
template Option Options::Add(Text, std::optional<uint64_t>&, Text, Text) const;
template Option Options::Add(Text, std::vector<std::string>&, Text, Text) const;

void Options::Flag(const std::string& names, bool& value, const std::string& help) const {
  app_->add_flag(names, value, help);
}

void Options::Flag(const std::string& names, const std::function<void()>& given,
                   const std::string& help, const std::string& group) const {
  app_->add_flag_callback(names, given, help)->group(group);
}

Options Options::Subcommand(const std::string& name, const std::string& summary) const {
  app_->require_subcommand(1);
  return Options(app_->add_subcommand(name, summary));
}

bool Options::parsed() const { return app_->parsed(); }

void Options::Describe(const std::string& name, const std::string& help) const {
  app_->get_option(name)->description(help);
}

void Options::Examples(const std::string& text) const { app_->footer(text); }

CommandLine::CommandLine(const std::string& name, const std::string& description,
                         const std::string& version, const std::string& examples)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->footer(examples);
  app_->require_subcommand(1);
  app_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() = default;

Options CommandLine::Command(const std::string& name, const std::string& summary,
                             const std::function<void()>& chosen) {
  CLI::App* sub = app_->add_subcommand(name, summary);
  sub->callback(chosen);
  return Options(sub);
}

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace quench::cli
