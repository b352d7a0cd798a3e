// Each row of options.def is an option of `quench compile`.
#include "services/cli/compile_options.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "services/cli/commands/declarations.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/codegen/changed_options.h"

namespace quench::cli::compile_options_test {
namespace {

using codegen::CompileOptions;
using codegen::OptionKind;
using codegen::OptionRow;
using ::quench::testing::HasSubstr;

bool IsReadFromFile(const OptionRow& row) {
  return row.kind == OptionKind::kJson || row.kind == OptionKind::kNames;
}

struct Parsed {
  CompileOptions options;
  std::optional<int> code;
  std::string errors;
};

Parsed Parse(std::vector<std::string> words) {
  Parsed parsed;
  CommandLine line("quench", "", "1", "");
  const Options compile = line.Command("compile", "", [] {});
  for (const char* group : {"Common", "Code", "Output"})
    AddCompileOptions(compile, group, parsed.options);
  words.insert(words.begin(), {"quench", "compile"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStderr();
  parsed.code = line.Parse(static_cast<int>(argv.size()), argv.data());
  parsed.errors = ::testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(CompileOptionsTest, EveryOptionSetsItsMember) {
  for (const codegen::options_test::ChangedOption& changed :
       codegen::options_test::ChangedOptions()) {
    if (IsReadFromFile(*changed.row)) continue;
    SCOPED_TRACE(changed.row->flag);
    const Parsed parsed = Parse(changed.words);
    EXPECT_EQ(parsed.code, std::nullopt) << parsed.errors;
    EXPECT_EQ(codegen::options_test::Differences(parsed.options, changed.options),
              std::vector<std::string>{});
  }
}

TEST(CompileOptionsTest, CompileListsEveryOptionAsItsRowSays) {
  CommandLine line("quench", "", "1", "");
  const Options compile = line.Command("compile", "", [] {});
  const Action action = DeclareCompile(compile);
  const CommandDescription described = line.Describe().commands[0];
  for (const OptionRow& row : codegen::OptionRows()) {
    SCOPED_TRACE(row.flag);
    const auto found =
        std::ranges::find_if(described.options, [&](const OptionDescription& option) {
          return std::ranges::find(option.names, row.flag) != option.names.end();
        });
    ASSERT_NE(found, described.options.end());
    EXPECT_TRUE(found->help.starts_with(row.help)) << found->help;
    EXPECT_TRUE(row.value.starts_with(found->value)) << found->value;
    EXPECT_EQ(found->group, row.group);
    EXPECT_EQ(found->rare, row.rare);
    EXPECT_EQ(found->choices, row.choices);
  }
}

TEST(CompileOptionsTest, ValuesOutOfRangeAreUsageErrors) {
  for (const OptionRow& row : codegen::OptionRows()) {
    if (row.kind != OptionKind::kNumber && row.kind != OptionKind::kChoice) continue;
    const Parsed parsed = Parse(
        {row.flag, row.kind == OptionKind::kNumber ? std::to_string(row.low - 1) : "nothing"});
    EXPECT_EQ(parsed.code, 2) << row.flag;
    EXPECT_THAT(parsed.errors, HasSubstr(row.flag + ": "));
  }
}

TEST(CompileOptionsTest, TuneSecondsNeedsLevel4) {
  const Parsed parsed = Parse({"--tune-seconds", "5"});
  EXPECT_EQ(parsed.code, 2);
  EXPECT_THAT(parsed.errors, HasSubstr("--tune-seconds needs --opt-level 4, not 3"));
}

}  // namespace
}  // namespace quench::cli::compile_options_test
