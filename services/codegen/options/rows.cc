#include "services/codegen/options/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "common/base/status.h"

namespace quench::codegen {
namespace {

constexpr bool kUsual = false, kRare = true;

// Names of the values of choices, by member.
const std::map<std::string, std::vector<std::string>>& Choices() {
  static const auto* const choices = [] {
    auto* found = new std::map<std::string, std::vector<std::string>>;
#define QUENCH_CHOICE_VALUE(member, value, name, enumerator, uuid) \
  if (*name != '\0') (*found)[#member].emplace_back(name);
#include "services/codegen/options/options.def"
    return found;
  }();
  return *choices;
}

std::string ChoiceValue(const std::string& member, const std::string& note) {
  return fmt::format("{}{}", fmt::join(Choices().at(member), "|"),
                     note.empty() ? "" : fmt::format(" ({})", note));
}

std::vector<OptionRow> MakeRows() {
  std::vector<OptionRow> rows;
#define QUENCH_SWITCH(member, field, flag, keyword, group, rarity, uuid, help)            \
  rows.push_back({OptionKind::kSwitch, #member, #field, flag, "", keyword, group, rarity, \
                  *uuid != '\0', help});
#define QUENCH_CONSENT(member, flag, keyword, group, rarity, uuid, help)                    \
  rows.push_back({OptionKind::kConsent, #member, #member, flag, "", keyword, group, rarity, \
                  *uuid != '\0', help});
#define QUENCH_NUMBER(type, member, default, low, high, field, flag, value, keyword, group, \
                      rarity, uuid, help)                                                   \
  rows.push_back({OptionKind::kNumber, #member, #field, flag,                               \
                  fmt::format("{} (default {})", value, default), keyword, group, rarity,   \
                  *uuid != '\0', help, low, high});
#define QUENCH_CHOICE(type, member, default, flag, note, keyword, group, rarity, uuid, help) \
  rows.push_back({OptionKind::kChoice, #member, #member, flag, ChoiceValue(#member, note),   \
                  keyword, group, rarity, *uuid != '\0', help, 0, 0, Choices().at(#member)});
#define QUENCH_TEXT(member, field, flag, value, keyword, group, rarity, uuid, help)        \
  rows.push_back({OptionKind::kText, #member, #field, flag, value, keyword, group, rarity, \
                  *uuid != '\0', help});
#define QUENCH_JSON(...) QUENCH_TEXT(__VA_ARGS__) rows.back().kind = OptionKind::kJson;
#define QUENCH_NAMES(...) QUENCH_TEXT(__VA_ARGS__) rows.back().kind = OptionKind::kNames;
#include "services/codegen/options/options.def"
  return rows;
}

}  // namespace

const std::vector<OptionRow>& OptionRows() {
  static const auto* const rows = new std::vector<OptionRow>(MakeRows());
  return *rows;
}

void Choose(const std::string& member, const std::string& chosen, CompileOptions& options) {
#define QUENCH_CHOICE_VALUE(of, value, name, enumerator, uuid) \
  if (member == #of && chosen == name) options.of = value;
#include "services/codegen/options/options.def"
}

const OptionRow& OptionRowOf(const std::string& member) {
  const auto found = std::find_if(OptionRows().begin(), OptionRows().end(),
                                  [&](const OptionRow& row) { return row.member == member; });
  QUENCH_CHECK(found != OptionRows().end());
  return *found;
}

}  // namespace quench::codegen
