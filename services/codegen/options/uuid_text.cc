#include "services/codegen/options/uuid_text.h"

#include <fmt/format.h>

namespace quench::codegen {
namespace {

std::string OwnText(Taps taps) {
  return taps == Taps::kNone          ? " false"
         : taps == Taps::kModelValues ? " true"
                                      : " true running-code";
}

std::string OwnText(const std::optional<MeasuredChoice>& measured) {
  if (!measured) return "";
  std::string text = fmt::format(" rank {}", measured->rank);
  for (const auto& [candidate, time] : measured->microseconds)
    text += fmt::format(" {} {}", candidate, time);
  return text;
}

std::string OwnText(const passes::PassOptions& passes) {
  std::string text;
  for (const std::string& pass : passes.disabled) text += " no-" + pass;
  return text;
}

}  // namespace

std::string UuidText(const CompileOptions& options) {
  std::string text;
  // The text of a choice's value, in the format of its row.
#define QUENCH_CHOICE_VALUE(member, value, name, enumerator, uuid) \
  if (options.member == value) member##_text = uuid;
#define QUENCH_CHOICE(type, member, ...) std::string member##_text;
#include "services/codegen/options/options.def"
#define QUENCH_SWITCH(member, field, flag, keyword, group, rarity, uuid, help) \
  if (!options.member) text += uuid;
#define QUENCH_CONSENT(member, flag, keyword, group, rarity, uuid, help) \
  if (options.member) text += uuid;
#define QUENCH_NUMBER(type, member, default, low, high, field, flag, value, keyword, group, \
                      rarity, uuid, help)                                                   \
  text += fmt::format(uuid, options.member);
#define QUENCH_CHOICE(type, member, default, flag, note, keyword, group, rarity, uuid, help) \
  text += fmt::format(uuid, member##_text);
#define QUENCH_TEXT(member, field, flag, value, keyword, group, rarity, uuid, help) \
  text += fmt::format(uuid, options.member);
#define QUENCH_JSON(...) QUENCH_TEXT(__VA_ARGS__)
#define QUENCH_NAMES(member, field, flag, value, keyword, group, rarity, uuid, help) \
  for (const std::string& name : options.member) text += fmt::format(uuid, name);
#define QUENCH_OWN(type, member, default) text += OwnText(options.member);
#include "services/codegen/options/options.def"
  return text;
}

}  // namespace quench::codegen
