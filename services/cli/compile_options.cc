#include "services/cli/compile_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "services/codegen/options/rows.h"

namespace quench::cli {
namespace {

using codegen::OptionRow;

void Declare(const Options& options, const OptionRow& row, bool& value) {
  const bool given = row.kind == codegen::OptionKind::kConsent;
  options.Flag(row.flag, [&value, given] { value = given; }, row.help);
}

void Declare(const Options& options, const OptionRow& row, std::string& value) {
  options.Add(row.flag, value, row.help, row.value);
}

template <typename Number>
void Declare(const Options& options, const OptionRow& row, Number& value) {
  const Option option = options.Add(row.flag, value, row.help, row.value);
  row.high == codegen::kNoLimit ? option.AtLeast(row.low) : option.Range(row.low, row.high);
}

void DeclareChoice(const Options& options, const OptionRow& row, codegen::CompileOptions& compile) {
  const std::function<void(const std::string&)> choose = [&row, &compile](const std::string& name) {
    codegen::Choose(row.member, name, compile);
  };
  options.Add(row.flag, choose, row.help, row.value).OneOf(row.choices);
}

}  // namespace

void AddCompileOptions(const Options& all, const std::string& group,
                       codegen::CompileOptions& compile) {
  for (const OptionRow& row : codegen::OptionRows()) {
    if (row.group != group) continue;
    const Options options = row.rare ? all.In(group).Rare() : all.In(group);
#define QUENCH_SWITCH(named, ...) \
  if (row.member == #named) Declare(options, row, compile.named);
#define QUENCH_CONSENT(named, ...) \
  if (row.member == #named) Declare(options, row, compile.named);
#define QUENCH_NUMBER(type, named, ...) \
  if (row.member == #named) Declare(options, row, compile.named);
#define QUENCH_TEXT(named, ...) \
  if (row.member == #named) Declare(options, row, compile.named);
#define QUENCH_CHOICE(type, named, ...) \
  if (row.member == #named) DeclareChoice(options, row, compile);
#include "services/codegen/options/options.def"
  }
#define QUENCH_ONLY_WITH(member, other, value)                                                  \
  if (codegen::OptionRowOf(#member).group == group) {                                           \
    all.AddRule([all, &compile]() -> std::string {                                              \
      const std::vector<std::string> given = all.Given();                                       \
      const std::string &flag = codegen::OptionRowOf(#member).flag,                             \
                        &needed = codegen::OptionRowOf(#other).flag;                            \
      if (compile.other == (value) || std::ranges::find(given, flag) == given.end()) return ""; \
      return fmt::format("{} needs {} {}, not {}", flag, needed, value, compile.other);         \
    });                                                                                         \
  }
#include "services/codegen/options/options.def"
}

std::vector<std::string> CompileOptionNames() {
  std::vector<std::string> names;
  for (const OptionRow& row : codegen::OptionRows()) names.push_back(row.flag);
  return names;
}

}  // namespace quench::cli
