// The commands of the program and their options as data: help, completions and manual pages are made from this one
// description, which options.cc reads from the parser.
#pragma once

#include <string>
#include <vector>

namespace quench::cli {

struct OptionDescription {
  std::vector<std::string> names;  // "-o", "--output"; a positional has one: "MODEL"
  std::string value;               // "DIR"; empty for a flag
  std::string help;                // one sentence, with its default behind it
  std::string group;               // heading: "Input", "Output"
  bool positional = false;
  bool required = false;
  bool rare = false;                 // only --help-all lists it
  std::vector<std::string> choices;  // all values there are; empty where any text may be one
};

struct CommandDescription {
  std::string name;   // "compile"
  std::string path;   // "quench compile"
  std::string usage;  // "quench compile [OPTIONS] MODEL"
  std::string summary;
  // Its own and those of the commands above it, each once.
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> commands;
  std::string examples;  // with their heading; may end with further sections
};

// The groups of a command's options in the order that help lists them, "Arguments" first.
std::vector<std::string> GroupsOf(const CommandDescription& command);

// "-o, --output DIR", or "    --size NAME=N" where no letter stands for it.
std::string Spelling(const OptionDescription& option);

}  // namespace quench::cli
