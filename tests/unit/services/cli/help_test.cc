#include "services/cli/help.h"

#include <gtest/gtest.h>

#include <sstream>

#include "services/cli/completion.h"
#include "services/cli/manual.h"
#include "tests/support/matchers.h"

namespace quench::cli::help_test {
namespace {

using ::quench::testing::HasSubstr;

OptionDescription Flag(const std::string& name, const std::string& group, bool rare = false) {
  OptionDescription option;
  option.names = {name};
  option.help = "Sets " + name;
  option.group = group;
  option.rare = rare;
  return option;
}

CommandDescription Program() {
  CommandDescription build;
  build.name = "build";
  build.path = "tool build";
  build.usage = "tool build [OPTIONS] MODEL";
  build.summary = "Builds what it's given: a [model]";
  OptionDescription model;
  model.names = {"MODEL"};
  model.value = "FILE";
  model.help = "The model";
  model.group = "Arguments";
  model.positional = model.required = true;
  OptionDescription type = Flag("--type", "Precision");
  type.value = "int8|f32";
  type.choices = {"int8", "f32"};
  build.options = {
      Flag("--far", "Gateway"), type, Flag("--own", "Own"), model, Flag("--seldom", "Passes", true),
      Flag("--here", "Common")};
  build.options[0].names = {"-f", "--far"};
  build.examples =
      "Examples:\n  tool build x   one line\n  tool build "
      "a-model-whose-name-is-long-so-that-nothing-fits-beside-it   a note\n\nA "
      "paragraph that goes\non.";
  CommandDescription program;
  program.name = program.path = "tool";
  program.usage = "tool COMMAND";
  program.summary = "A tool";
  program.commands = {build};
  return program;
}

TEST(HelpTest, WrapsBetweenWords) {
  EXPECT_EQ(Wrapped("one two three", 9, 2), "  one two\n  three\n");
  EXPECT_EQ(Wrapped("a-very-long-word b", 6, 2), "  a-very-long-word\n  b\n");
}

TEST(HelpTest, GroupsHaveTheirOrder) {
  EXPECT_EQ(
      GroupsOf(Program().commands[0]),
      (std::vector<std::string>{"Arguments", "Common", "Precision", "Own", "Passes", "Gateway"}));
}

TEST(HelpTest, RareOptionsAreListedWithAllOthersOnly) {
  const CommandDescription build = Program().commands[0];
  EXPECT_EQ(HelpText(build, false, 100).find("--seldom"), std::string::npos);
  EXPECT_THAT(HelpText(build, false, 100), HasSubstr("More options: tool build --help-all"));
  EXPECT_THAT(HelpText(build, true, 100), HasSubstr("--seldom"));
  EXPECT_EQ(HelpText(build, true, 100).find("More options"), std::string::npos);
  EXPECT_THAT(HelpText(build, true, 100), HasSubstr("  -f, --far"));
}

TEST(HelpTest, NoLineIsLongerThanTheTerminal) {
  std::istringstream lines(HelpText(Program().commands[0], true, 60));
  for (std::string line; std::getline(lines, line);) {
    // A word that fits nowhere stays whole.
    if (line.find("a-model-whose") == std::string::npos) EXPECT_LE(line.size(), 60U) << line;
  }
}

TEST(HelpTest, ExamplesAreAlignedAndParagraphsFlow) {
  const std::string text = HelpText(Program().commands[0], true, 60);
  EXPECT_THAT(text, HasSubstr("Examples:\n  tool build x  one line\n"));
  EXPECT_THAT(text, HasSubstr("beside-it\n                a note\n\nA paragraph that goes on.\n"));
}

TEST(ManualTest, HasAllAndEscapes) {
  const CommandDescription program = Program();
  const std::string page = ManualPage(program.commands[0], "1.2");
  EXPECT_EQ(ManualFile(program.commands[0]), "tool-build.1");
  EXPECT_THAT(page, HasSubstr(".TH TOOL-BUILD 1 \"\" \"Quench 1.2\" \"Quench\"\n"));
  EXPECT_THAT(page, HasSubstr(".B \\-f, \\-\\-far\n"));
  EXPECT_THAT(page, HasSubstr(".SH EXAMPLES\n"));
  EXPECT_THAT(ManualPage(program, "1.2"), HasSubstr("see \\fBtool\\-build\\fR(1)"));
}

TEST(CompletionTest, ScriptsHaveCommandsOptionsAndValues) {
  for (const std::string& shell : CompletionShells()) {
    const std::string script = CompletionScript(Program(), shell);
    for (const char* word : {"build", "far", "seldom", "int8 f32"})
      EXPECT_THAT(script, HasSubstr(word)) << shell;
  }
}

}  // namespace
}  // namespace quench::cli::help_test
