// The options of a command. CLI11 parses them, and only options.cc includes it: its headers cost a
// file 6 to 14 s of building.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quench::cli {

// Rules for the value of an option; what breaks one is a usage error.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  const Option& Required() const;
  const Option& OneOf(const std::vector<std::string>& values) const;
  const Option& Range(double low, double high) const;
  const Option& AtLeast(double low) const;
  const Option& Delimiter(char between) const;  // one argument gives several values

 private:
  CLI::Option* option_;
};

// Views a parser that outlives it. The variables that options are stored in must live until the
// command has run.
class Options {
 public:
  explicit Options(CLI::App* app) : app_(app) {}

  // `names`: "--long,-s", or "NAME" for a positional. `shown` is how --help writes the value and its
  // default. T is a string, an integer, double, std::optional<uint64_t>, or a vector of strings,
  // which takes the option again and again.
  template <typename T>
  Option Add(const std::string& names, T& value, const std::string& help,
             const std::string& shown = "") const;
  void Flag(const std::string& names, bool& value, const std::string& help) const;
  // Calls `given` if the flag is there; --help lists it under `group`.
  void Flag(const std::string& names, const std::function<void()>& given, const std::string& help,
            const std::string& group) const;

  // One of its subcommands must be given.
  Options Subcommand(const std::string& name, const std::string& summary) const;
  bool parsed() const;  // this (sub)command was given
  void Describe(const std::string& name, const std::string& help) const;  // another help text
  void Examples(const std::string& text) const;

 private:
  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version,
              const std::string& examples);
  ~CommandLine();

  // One of the commands must be given; `chosen` is called by Parse if it is this one.
  Options Command(const std::string& name, const std::string& summary,
                  const std::function<void()>& chosen);
  // The exit code where the program ends with that: --help, --version, a usage error (all printed).
  std::optional<int> Parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace quench::cli
