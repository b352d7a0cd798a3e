// The options of a command. CLI11 parses them, and only options.cc includes it: its headers cost a
// file 6 to 14 s of building.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/description.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quench::cli {

// A rule that is checked once everything is parsed: what is wrong, or "".
using Rule = std::function<std::string()>;

// Facts that the parser itself cannot hold, by command line: rules, and what descriptions say of an option.
struct Declared {
  struct Detail {
    std::vector<std::string> choices;
    bool rare = false;
  };
  std::vector<std::function<std::vector<std::string>()>> readers;
  std::vector<Rule> rules;
  std::map<const CLI::Option*, Detail> details;
};

// Rules for an option and its value; what breaks one is a usage error. No value may be empty: that
// is what an unset variable of a shell leaves behind.
class Option {
 public:
  Option(CLI::Option* option, CLI::App* app, std::shared_ptr<Declared> declared)
      : option_(option), app_(app), declared_(std::move(declared)) {}
  const Option& Required() const;
  const Option& OneOf(const std::vector<std::string>& values) const;
  const Option& Range(double low, double high) const;
  const Option& AtLeast(double low) const;
  const Option& Delimiter(char between) const;  // one argument gives several values
  const Option& Environment(const std::string& variable) const;  // where it is not given
  // Given only where one of `others`, options of the same command, is given too; or where none is.
  const Option& Needs(const std::vector<std::string>& others) const;
  const Option& Excludes(const std::vector<std::string>& others) const;

 private:
  CLI::Option* option_;
  CLI::App* app_;
  std::shared_ptr<Declared> declared_;
};

// Views a parser that outlives it. The variables that options are stored in must live until the
// command has run.
//
// An option that is accepted and has no effect misleads: what makes no sense beside another option
// is refused by a rule here, what makes none for a file by the command. tests/e2e/options_test.cc
// shows for each option of each command that it has an effect.
class Options {
 public:
  Options(CLI::App* app, std::shared_ptr<Declared> declared)
      : app_(app), declared_(std::move(declared)) {}

  // `names`: "--long,-s", or "NAME" for a positional. `shown` is how --help writes the value and its
  // default. T is a string, an integer, double, std::optional of uint64_t or double, or a
  // vector of strings, which takes the option again and again.
  template <typename T>
  Option Add(const std::string& names, T& value, const std::string& help,
             const std::string& shown = "") const;
  // Calls `given` with the text, once it is known to be one that the option's rules allow.
  Option Add(const std::string& names, const std::function<void(const std::string&)>& given,
             const std::string& help, const std::string& shown = "") const;
  Option Flag(const std::string& names, bool& value, const std::string& help) const;
  // Calls `given` if the flag is there.
  Option Flag(const std::string& names, const std::function<void()>& given,
              const std::string& help) const;

  // The same command; each option added through it needs one of `others`.
  Options Under(const std::vector<std::string>& others) const;
  // The same command; help lists each option added through it under `group` (default "Common").
  Options In(const std::string& group) const;
  // The same command; each option added through it is one that only --help-all lists.
  Options Rare() const;
  // Checked if this (sub)command was given.
  void AddRule(Rule rule) const;
  // Called before rules are checked, if this (sub)command was given: gives further options, which come from
  // elsewhere than the command line, and returns what is wrong.
  void AddReader(const std::function<std::vector<std::string>()>& read) const;
  bool Has(const std::string& name) const;
  // As if the command line had `name` with these values, or without one for a flag; what is wrong with them, or "".
  std::string Give(const std::string& name, const std::vector<std::string>& values) const;
  // The options of this (sub)command that were given, without positionals: "--output".
  std::vector<std::string> Given() const;

  // One of its subcommands must be given. Options of the command may stand before or after it.
  Options Subcommand(const std::string& name, const std::string& summary) const;
  bool parsed() const;  // this (sub)command was given
  // The whole program, as far as its commands are declared.
  CommandDescription Program() const;
  void Describe(const std::string& name, const std::string& help) const;  // another help text
  void Examples(const std::string& text) const;

 private:
  Option DeclareValue(CLI::Option* option, const std::string& shown) const;
  Option Declare(CLI::Option* option) const;

  CLI::App* app_;
  std::shared_ptr<Declared> declared_;
  std::vector<std::vector<std::string>> under_;
  std::string group_ = "Common";
  bool rare_ = false;
};

// --format text|json: how the result is printed.
void AddFormat(const Options& options, std::string& format);

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version,
              const std::string& examples);
  ~CommandLine();

  // Options of every command, which may stand before or after it.
  Options Everywhere() const;
  // One of the commands must be given; `chosen` is called by Parse if it is this one.
  Options Command(const std::string& name, const std::string& summary,
                  const std::function<void()>& chosen);
  // The exit code where the program ends with that: --help, --version, a usage error (all printed).
  std::optional<int> Parse(int argc, char** argv);
  // The program with all of its commands. Complete once every command is declared.
  CommandDescription Describe() const;

 private:
  std::unique_ptr<CLI::App> app_;
  std::shared_ptr<Declared> declared_;
};

}  // namespace quench::cli
