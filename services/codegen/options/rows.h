// The rows of options.def as data, for what cannot be a macro: help, command lines, files of options, tests.
#pragma once

#include <string>
#include <vector>

#include "services/codegen/options/options.h"

namespace quench::codegen {

enum class OptionKind { kSwitch, kConsent, kNumber, kChoice, kText, kJson, kNames };

// Columns as in options.def.
struct OptionRow {
  OptionKind kind;
  std::string member, field, flag;
  std::string value;  // as help shows it with the default; "" for a switch and a consent
  std::string keyword, group;
  bool rare = false;
  bool in_uuid = false;
  std::string help;
  double low = 0, high = 0;               // of a number
  std::vector<std::string> choices = {};  // names of a choice's values
};
const std::vector<OptionRow>& OptionRows();
// Sets a choice's member to the value of this name, one of its row's choices.
void Choose(const std::string& member, const std::string& name, CompileOptions& options);
// The row of a member; CHECK fails if there is none.
const OptionRow& OptionRowOf(const std::string& member);

}  // namespace quench::codegen
